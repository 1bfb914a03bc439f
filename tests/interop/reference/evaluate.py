"""Evaluates a policy with the published loop: an order on stdin, the outcome on stdout.

Order: ``{"address": ..., "policy": name, "corner": "predict" or "predict_batch", "loop": "run" or
"session", "keywords": {...}}``. Outcome: ``{"episodes": [...]}``, or what was raised.
"""

from __future__ import annotations

import json
import sys

import brief  # noqa: F401
from interop_envs import POLICIES
from interop_player import episode_rows, raised

from rlmesh.numpy import Model


def build(policy, corner):
    """Return a Model whose one corner is ``policy``."""

    class Policy(Model):
        def predict(self, observation):
            return policy(observation)

    class BatchPolicy(Model):
        def predict_batch(self, observation):
            return policy(observation)

    return {"predict": Policy, "predict_batch": BatchPolicy}[corner]()


def evaluate(order):
    """Return the run's result."""
    model = build(POLICIES[order["policy"]], order["corner"])
    if order["loop"] == "run":
        return model.run(order["address"], **order["keywords"])
    with model.session(order["address"]) as session:
        return session.run(**order["keywords"])


def main():
    order = json.load(sys.stdin)
    try:
        result = evaluate(order)
    except Exception as exc:
        json.dump(raised(exc), sys.stdout)
        return
    json.dump({"episodes": episode_rows(result)}, sys.stdout)


if __name__ == "__main__":
    main()
