"""Evaluating on a factory: features.md FAC-9, RUN-1, RUN-9, SES-1, SES-7, RES-3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.vector import SyncVectorEnv
from support.zoo import Countdown

import rlmesh
from rlmesh import Param, ParamSpec
from rlmesh import adapters as adapt
from rlmesh.numpy import Model, RemoteEnv


class Counted(Countdown):
    def __init__(self, events: list[str], name: str, length: int) -> None:
        super().__init__(length)
        self.events, self.name = events, name

    def close(self) -> None:
        self.events.append(f"close {self.name}")


class Countdowns(rlmesh.EnvFactory):
    """Notes what happens to it and to its envs; fails where it is told to."""

    params = ParamSpec(Param("length", int))

    def __init__(self, fails: str = "") -> None:
        self.events: list[str] = []
        self.fails = fails

    def _happens(self, what: str) -> None:
        self.events.append(what)
        if what == self.fails:
            raise OSError(f"{what} failed")

    def prepare(self) -> None:
        self._happens("prepare")

    def make(self, length: int = 2) -> Any:
        self._happens(f"make {sum(e.startswith('make') for e in self.events)}")
        return Counted(self.events, str(sum(e.startswith("make") for e in self.events) - 1), length)

    def close(self) -> None:
        self._happens("close")


LIFE = ["prepare", "make 0", "close 0", "close"]


def one(observation: Any) -> int:
    return 1


def test_fac_9_run_makes_an_env_with_the_defaults_and_closes_it_and_the_factory() -> None:
    factory = Countdowns()
    result = rlmesh.run(one, factory, seeds=[1, 2])
    assert [e.steps for e in result.episodes] == [2, 2]
    assert factory.events == LIFE
    assert Model(one).run(factory, seeds=[1, 2]).to_dict()["episodes"][0]["reward"] == 2.0
    assert factory.events == [*LIFE, "prepare", "make 1", "close 1", "close"]


def test_fac_9_the_same_numbers_as_on_the_env_itself() -> None:
    def traces(env: Any) -> list[Any]:
        result = rlmesh.run(one, env, seeds=range(5))
        return [(e.seed, e.steps, e.reward, e.success) for e in result.episodes]

    assert traces(Countdowns()) == traces(Countdown(2)) == traces([Countdowns(), Countdowns])


def test_fac_9_a_class_is_a_factory_too() -> None:
    assert rlmesh.run(one, Countdowns).num_episodes == 1
    with pytest.raises(TypeError, match="EnvFactory is abstract: override its make"):
        rlmesh.run(one, rlmesh.EnvFactory)


def test_fac_9_anything_with_make_is_one() -> None:
    class Duck:
        def make(self) -> Any:
            return Countdown(3)

    assert rlmesh.run(one, Duck()).total_steps == 3
    assert rlmesh.run(one, [Duck, Duck()], seeds=range(3)).total_steps == 9


def test_fac_9_in_a_list_every_entry_is_an_env_and_a_factory_is_prepared_once() -> None:
    factory, other, env = Countdowns(), Countdowns(), Countdown(2)
    result = rlmesh.run(one, [factory, env, other, factory], seeds=range(8))
    assert [e.reward for e in result.episodes] == [2.0] * 8
    assert factory.events == ["prepare", "make 0", "make 1", "close 1", "close 0", "close"]
    assert other.events == LIFE
    with pytest.raises(ValueError, match="lists the same env twice"):
        rlmesh.run(one, [env, env])


def test_fac_9_a_factory_may_make_a_vector_env_or_a_client() -> None:
    class Vectors(rlmesh.EnvFactory):
        def make(self) -> Any:
            return SyncVectorEnv([lambda: Countdown(2)] * 3)

    with rlmesh.session(one, Vectors()) as session:
        assert session.num_envs == 3
        assert session.run(seeds=range(6)).total_steps == 12

    with rlmesh.EnvServer(Countdown(2)) as server:
        server.start()

        class Clients:
            def make(self) -> Any:
                return RemoteEnv(server.address)

        assert rlmesh.run(one, Clients(), seeds=range(3)).total_steps == 6
        assert rlmesh.run(one, server.address, seeds=range(3)).total_steps == 6  # nobody is in it


@pytest.mark.parametrize(
    ("fails", "events"),
    [
        ("prepare", ["prepare", "close"]),
        ("make 0", ["prepare", "make 0", "close"]),
        ("make 1", ["prepare", "make 0", "make 1", "close 0", "close"]),
    ],
)
def test_what_was_begun_is_closed_where_making_fails(fails: str, events: list[str]) -> None:
    factory = Countdowns(fails)
    with pytest.raises(OSError, match=f"{fails} failed"):
        rlmesh.run(one, [factory, factory])
    assert factory.events == events


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_fac_9_it_is_closed_after_an_error_of_the_run(error: type[BaseException]) -> None:
    def policy(observation: Any) -> int:
        raise error("no weights")

    factory = Countdowns()
    with pytest.raises(error, match="no weights"):
        rlmesh.run(policy, factory)
    assert factory.events == LIFE


def test_the_error_of_the_run_wins_over_one_of_closing() -> None:
    def policy(observation: Any) -> int:
        raise ValueError("no weights")

    with pytest.raises(ValueError, match="no weights"):
        rlmesh.run(policy, Countdowns("close"))
    with pytest.raises(OSError, match="close failed"):
        rlmesh.run(one, Countdowns("close"))


def test_why_an_env_cannot_be_driven_wins_over_one_of_closing_it() -> None:
    class Spaceless(Countdown):
        def __init__(self) -> None:
            super().__init__(2)
            del self.observation_space

        def close(self) -> None:
            raise OSError("nothing to close")

    class Closeless:
        reset, step = Countdown.reset, Countdown.step

    for env, words in ((Spaceless(), "must have observation_space"), (Closeless(), "'close'")):
        duck = type("Duck", (), {"make": lambda self, env=env: env})
        with pytest.raises(TypeError, match=words):
            rlmesh.run(one, duck())


def test_close_env_changes_nothing_for_what_is_closed_anyway() -> None:
    factory = Countdowns()
    rlmesh.run(one, factory, close_env=True)
    assert factory.events == LIFE


def test_no_episodes_make_no_env() -> None:
    factory = Countdowns()
    assert rlmesh.run(one, factory, episodes=0).num_episodes == 0
    assert factory.events == []


def test_an_impossible_call_makes_no_env() -> None:
    factory = Countdowns()
    with pytest.raises(TypeError, match="env must be an env with the gymnasium surface"):
        rlmesh.run(one, [factory, 3])
    with pytest.raises(ValueError):
        rlmesh.run(one, factory, episodes=-1)
    assert factory.events == []


def test_ses_1_a_session_makes_it_with_its_first_use_and_closes_it_with_its_end() -> None:
    factory = Countdowns()
    session = rlmesh.session(one, factory)
    assert factory.events == []
    session.reset(seed=1)
    assert factory.events == LIFE[:2]
    session.step(session.predict([0, 0, 0]))
    session.run(seeds=[1])
    assert factory.events == LIFE[:2]
    session.close()
    session.close()
    assert factory.events == LIFE


# The adapter


class Arm(gym.Env):  # type: ignore[type-arg]
    def __init__(self, mode: str) -> None:
        self.observation_space = Dict({"q": Box(-9.0, 9.0, (2,))})
        self.action_space = Box(-1.0, 1.0, (2,))
        self.mode = mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"q": np.array([1, 2], np.float32)}, {}

    def step(self, action: Any) -> Any:
        assert action.tolist() == [0.5, 0.5]
        return {"q": np.array([1, 2], np.float32)}, 1.0, True, False, {"is_success": True}


def arm_tags(action: str) -> adapt.EnvTags:
    leaf = adapt.StateTag(adapt.JOINT_POS)
    return adapt.EnvTags({"q": leaf}, adapt.Action(adapt.Actuator(action, 2)))


class Arms(rlmesh.EnvFactory):
    tags = arm_tags(adapt.ACTION_JOINT_POS)
    params = ParamSpec(Param("mode", choices=("position", "velocity")))
    tag_params = ("mode",)

    def make(self, mode: str = "position") -> Any:
        return Arm(mode)

    @classmethod
    def tags_for(cls, mode: str) -> adapt.EnvTags:
        velocity = mode == "velocity"
        return arm_tags(adapt.ACTION_JOINT_VEL if velocity else adapt.ACTION_JOINT_POS)


def mover(role: str = adapt.ACTION_JOINT_POS, **leaves: Any) -> Model:
    spec = adapt.ModelSpec(
        {"state": adapt.State(adapt.JOINT_POS, dim=2), **leaves},
        adapt.Action(adapt.Actuator(role, 2)),
    )

    def predict(observation: Any) -> Any:
        assert observation["state"].tolist() == [1.0, 2.0]
        return np.array([0.5, 0.5])

    return Model(predict, spec=spec)


def on_address(make: Callable[[], Any], model: Any) -> rlmesh.RunResult:
    with rlmesh.EnvServer(make()) as server:
        server.start()
        return rlmesh.run(model, server.address)


def test_the_tags_that_a_factory_publishes_are_the_adapters_here_and_served() -> None:
    assert rlmesh.run(mover(), Arms()).success_rate == 1.0
    assert on_address(Arms().make, mover()).success_rate == 1.0


def test_run_9_a_mismatch_is_found_before_any_episode_and_the_env_is_closed() -> None:
    closed: list[str] = []

    class Watched(Arms):
        def close(self) -> None:
            closed.append("factory")

    with pytest.raises(adapt.AdapterResolutionError):
        rlmesh.run(mover(adapt.ACTION_JOINT_VEL), Watched())
    assert closed == ["factory"]
    velocity = mover(adapt.ACTION_JOINT_VEL)
    assert on_address(lambda: Arms().make(mode="velocity"), velocity).success_rate == 1.0


def test_res_3_the_result_carries_what_resolving_found() -> None:
    leaf = adapt.Image(adapt.IMAGE_WRIST, height=4, width=4, channels=3, optional=True, fill=7)
    model = mover(wrist=leaf)
    result = rlmesh.run(model, [Arms(), Arms()], episodes=4)
    (advisory,) = result.advisories
    assert isinstance(advisory, adapt.Advisory) and advisory.severity == "caution"
    described = result.to_dict()["advisories"]
    assert described == [
        {"severity": "caution", "message": advisory.message, "code": advisory.code}
    ]
    assert json.loads(result.to_json())["advisories"] == described
    assert rlmesh.run(mover(), Arms()).advisories == ()
    assert rlmesh.run(one, Countdown(2)).advisories == ()


def test_res_3_what_was_found_outlives_a_failure() -> None:
    leaf = adapt.Image(adapt.IMAGE_WRIST, height=4, width=4, channels=3, optional=True)
    model = mover(wrist=leaf)
    model.predict = lambda observation: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError) as caught:
        rlmesh.run(model, Arms())
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and len(partial.advisories) == 1
