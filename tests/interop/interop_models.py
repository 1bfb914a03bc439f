"""The models of this suite, for both packages: made on whichever ``Model`` is given."""

from __future__ import annotations

import numpy as np
from interop_envs import chatter, steer


def plan(observation, length=5):
    """Return a chunk of steps after :func:`steer`'s."""
    first = steer(observation)
    return np.stack([first * np.float32(0.5**ahead) for ahead in range(length)])


def models(Model):
    """Return model classes by name."""

    class Steer(Model):
        def predict(self, observation):
            return steer(observation)

    class SteerBatch(Model):
        def predict_batch(self, observations):
            return np.stack([steer(row) for row in observations])

    class Plan(Model):
        def predict_chunk(self, observation):
            return plan(observation)

    class PlanAsked(Model):
        """Returns as many actions as are executed."""

        def predict_chunk(self, observation, execution_horizon=1):
            return plan(observation, execution_horizon)

    class PlanBatch(Model):
        def predict_chunk_batch(self, observations):
            return np.stack([plan(row) for row in observations])

    class Chatter(Model):
        """Every kind of leaf, text included, in and out."""

        def predict(self, observation):
            return chatter(observation)

    class Parrot(Model):
        """Text in, text out."""

        def predict(self, observation):
            return (observation + "a")[1:6]

    class Counter(Model):
        """Remembers by episode: steers less with every prediction of its episode."""

        def predict(self, observation, context=None):
            state = context["state"]
            state["n"] = state.get("n", 0) + 1
            seed = context["predict_seed"]
            return steer(observation) / np.float32(state["n"] + seed % 5)

    class Raiser(Model):
        def predict(self, observation):
            raise KeyError("boom")

    kinds = (Steer, SteerBatch, Plan, PlanAsked, PlanBatch, Chatter, Parrot, Counter, Raiser)
    return {kind.__name__: kind for kind in kinds}


ENV_OF = {"Chatter": "zoo", "Parrot": "talker"}
