"""What is no action is refused with everything one needs to find it: which corner returned it, for
which episode, seed and step, what it was given and what it returned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Walk
from gymnasium.vector import SyncVectorEnv
from support import serving

import rlmesh
from rlmesh.numpy import Model

BAD: dict[str, tuple[Any, str]] = {
    "None": (None, "None"),
    "NaN": (np.array([0, np.nan], np.float32), r"action.*finite.*float32\[2\]"),
    "infinite": (np.array([-np.inf, 0], np.float32), r"action.*finite.*float32\[2\]"),
    "too long": (np.zeros(3, np.float32), r"expected float32\[2\], got float32\[3\]"),
    "too deep": (np.zeros((1, 2), np.float32), r"expected float32\[2\], got float32\[1, 2\]"),
    "a number": (0.5, r"expected float32\[2\], got float"),
    "text": ("left", r"expected float32\[2\], got str"),
    "complex": (np.zeros(2, complex), "complex128"),
}
GOOD = np.zeros(2, np.float32)
SEED, STEP = 7, 2
"""The episode of seed 7 goes wrong at step 2."""


def is_bad(observation: Any) -> bool:
    return observation["key"].item() == KEY and observation["clock"].item() == STEP


KEY = Walk().reset(seed=SEED)[0]["key"].item()


def rows_of(observations: Any) -> list[Any]:
    return [{k: v[i] for k, v in observations.items()} for i in range(len(observations["key"]))]


def model_with(corner: str, bad: Any) -> Model:
    """A model of one corner; in a chunk the bad action is the second, so it is met at a replay."""

    def predict(self: Any, observation: Any) -> Any:
        return bad if is_bad(observation) else GOOD

    def predict_chunk(self: Any, observation: Any) -> Any:
        clock, key = observation["clock"].item(), observation["key"].item()
        return [bad if (key, clock + k) == (KEY, STEP) else GOOD for k in range(3)]

    def predict_batch(self: Any, observations: Any) -> Any:
        return [predict(self, row) for row in rows_of(observations)]

    def predict_chunk_batch(self: Any, observations: Any) -> Any:
        return [predict_chunk(self, row) for row in rows_of(observations)]

    return type("Policy", (Model,), {corner: locals()[corner]})()


@pytest.fixture(params=["local", "remote", "list", "addresses", "lanes", "vector"])
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        if request.param in ("local", "remote"):
            env = Walk()
            local = request.param == "local"
            yield env if local else stack.enter_context(serving(env)).address
        elif request.param == "list":
            yield [Walk(), Walk()]
        elif request.param == "addresses":
            yield [stack.enter_context(serving(Walk())).address for _ in range(2)]
        elif request.param == "lanes":
            yield stack.enter_context(serving([Walk(), Walk()])).address
        else:
            yield SyncVectorEnv([Walk, Walk], autoreset_mode="SameStep")


def said(exc: BaseException) -> str:
    return "\n".join([str(exc), *getattr(exc, "__notes__", ())])


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "corner", ["predict", "predict_batch", "predict_chunk", "predict_chunk_batch"]
)
def test_the_error_says_where_and_what(world: Any, corner: str, bad: str) -> None:
    value, what = BAD[bad]
    horizon = 3 if "chunk" in corner else 1
    with pytest.raises(ValueError) as caught:
        rlmesh.run(model_with(corner, value), world, seeds=[2, SEED, 2], execution_horizon=horizon)
    message = said(caught.value)
    assert re.search(what, message), message
    assert f"{corner}()" in message
    # A chunk with None in it is refused as a whole, when it is returned.
    at = 0 if bad == "None" and "chunk" in corner else STEP
    assert f"episode 1 (seed 7), step {at}" in message
    given = re.search(r"given \{clock: int32\[(2, |1, )?1\], key: float64\[.*\], x: .*\}", message)
    assert given, message
    assert "returned" in message
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and 1 not in [episode.index for episode in partial.episodes]


@pytest.mark.parametrize("corner", ["predict_batch", "predict_chunk_batch"])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_wrong_number_of_rows_names_every_episode_of_the_batch(corner: str, rows: int) -> None:
    shape = (rows, 4, 2) if "chunk" in corner else (rows, 2)
    model = type(
        "Policy", (Model,), {corner: lambda self, observations: np.zeros(shape, np.float32)}
    )()
    with pytest.raises(ValueError) as caught:
        rlmesh.run(
            model, [Walk(), Walk()], seeds=[5, 6], execution_horizon=4 if "chunk" in corner else 1
        )
    message = said(caught.value)
    assert f"{corner}(): action: expected a leading batch axis of 2" in message
    dims = ", ".join(map(str, shape))
    assert f"returned float32[{dims}]" in message
    assert "episode 0 (seed 5), step 0; episode 1 (seed 6), step 0" in message


def test_a_discrete_action_out_of_range() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"0\.\.1.*got 2\. predict\(\) returned it for episode 0"):
        rlmesh.run(lambda observation: 2, env, seeds=[0])


def test_an_unseeded_episode_is_named_by_its_index() -> None:
    with pytest.raises(ValueError, match=r"returned it for episode 0, step 0; it was given"):
        rlmesh.run(lambda observation: np.zeros(5), Walk())


def test_a_session_says_the_same() -> None:
    with rlmesh.session(model_with("predict", np.zeros(4)), Walk()) as session:
        observation, _ = session.reset(seed=SEED)
        for _ in range(STEP):
            observation, *_ = session.step(session.predict(observation))
        with pytest.raises(ValueError, match=r"predict\(\) returned it for .*seed 7\), step 2"):
            session.predict(observation)
        with pytest.raises(ValueError, match=r"action: expected float32\[2\], got float64\[4\]"):
            session.step(np.zeros(4))
        assert session.step(GOOD)[1] != 0.0, "the episode goes on"


class Both(Model):
    """Every corner, each with an action that does not fit."""

    def predict(self, observation: Any) -> Any:
        return np.zeros(3)

    def predict_batch(self, observations: Any) -> Any:
        return np.zeros((len(observations["x"]), 3))

    def predict_chunk(self, observation: Any) -> Any:
        return [GOOD, np.zeros(3)]

    def predict_chunk_batch(self, observations: Any) -> Any:
        return [[GOOD, np.zeros(3)] for _ in observations["x"]]


@pytest.mark.parametrize(
    ("lanes", "horizon", "corner"),
    [
        (1, 1, "predict"),
        (2, 1, "predict_batch"),
        (1, 2, "predict_chunk"),
        (2, 2, "predict_chunk_batch"),
    ],
)
def test_the_corner_named_is_the_one_that_was_asked(lanes: int, horizon: int, corner: str) -> None:
    """Also for an action that waited in the queue since a batch of two."""
    with pytest.raises(ValueError, match=rf" {corner}\(\) returned it for episode 0, step"):
        rlmesh.run(
            Both(),
            [Walk() for _ in range(lanes)],
            max_episodes=lanes,
            execution_horizon=horizon,
        )


def test_an_observation_that_is_not_of_its_space() -> None:
    class Ragged(Walk):
        def _observation(self) -> Any:
            return {**super()._observation(), "x": np.zeros(2, np.float32)}

    with serving(Ragged()) as server, pytest.raises(rlmesh.EnvironmentException, match=r"'x'"):
        rlmesh.run(model_with("predict", None), server.address, seeds=[0])
    with pytest.raises(ValueError, match=r"observation\['x'\]: expected float32\[3\], got"):
        rlmesh.run(model_with("predict", None), Ragged(), seeds=[0])
