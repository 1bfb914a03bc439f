"""Watching a run: which calls come in which order, and what a step event says."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Feedback, OpenLoop, Walk, feedback
from gymnasium.vector import SyncVectorEnv
from support import serving

import rlmesh
from rlmesh.numpy import Model, RemoteEnv

WORLDS = ["local", "remote", "list", "addresses", "lanes", "NextStep", "SameStep", "Disabled"]


def make(stack: ExitStack, world: str, envs: list[Any]) -> Any:
    if world in ("local", "remote"):
        return envs[0] if world == "local" else stack.enter_context(serving(envs[0])).address
    if world == "list":
        return envs
    if world == "addresses":
        return [stack.enter_context(serving(env)).address for env in envs]
    if world == "lanes":
        return stack.enter_context(serving(envs)).address
    return SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=world)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        yield make(stack, request.param, [Walk() for _ in range(3)])


class Everything(rlmesh.RunHooks):
    """Every call, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.events: dict[int, list[rlmesh.StepEvent]] = {}

    def on_run_start(self, context: rlmesh.RunContext) -> None:
        self.calls.append(("run start", context))

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.calls.append(("episode start", episode))
        self.events[episode] = []

    def on_step(self, event: rlmesh.StepEvent) -> None:
        self.calls.append(("step", event.episode))
        self.events[event.episode].append(event)

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.calls.append(("episode end", result.index))

    def on_run_end(self, result: rlmesh.RunResult) -> None:
        self.calls.append(("run end", result))


def test_per_episode_the_calls_come_in_order(world: Any) -> None:
    """HK-1, HK-2: episodes of several lanes interleave, one by one they are in order."""
    hook = Everything()
    result = rlmesh.run(feedback, world, seeds=range(8), hooks=hook)
    assert [name for name, _ in hook.calls[:1] + hook.calls[-1:]] == ["run start", "run end"]
    assert hook.calls[-1][1] == result
    for episode in result.episodes:
        own = [name for name, index in hook.calls[1:-1] if index == episode.index]
        assert own == ["episode start", *["step"] * episode.steps, "episode end"]
    assert len(hook.calls) == 2 + 2 * 8 + result.total_steps, "a roll is no step"


def test_a_step_event_says_what_happened(world: Any) -> None:
    """HK-3 and the step event page: the observation is the one the action was predicted from."""
    hook = Everything()
    result = rlmesh.run(Feedback(), world, seeds=[5, 2, 7, None][:3], hooks=hook)
    for episode in result.episodes:
        env, events = Walk(), hook.events[episode.index]
        observation, _ = env.reset(seed=episode.seed)
        for number, event in enumerate(events):
            assert (event.episode, event.seed, event.step) == (episode.index, episode.seed, number)
            for key, leaf in observation.items():
                np.testing.assert_array_equal(event.observation[key], leaf)
                assert event.observation[key].dtype == leaf.dtype
            np.testing.assert_array_equal(event.action, feedback(observation))
            observation, *outcome, info = env.step(feedback(observation))
            assert [event.reward, event.terminated, event.truncated] == outcome
            assert [type(value) for value in (event.reward, event.terminated)] == [float, bool]
            assert event.info["n"] == info["n"] == number + 1
            assert event.info.get("success") == info.get("success")
            assert set(event.info) == set(info), "what the env put there and nothing else"
    with pytest.raises(dataclasses.FrozenInstanceError):
        hook.events[0][0].reward = 1.0  # type: ignore[misc]


def test_the_event_keeps_what_a_local_env_writes_over() -> None:
    """An env that hands out one array for ever, and writes into the action it is given."""

    class InPlace(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = {
                "clock": np.zeros(1, np.int32),
                "key": np.zeros(1),
                "x": np.zeros(3, np.float32),
            }

        def _observation(self) -> Any:
            for key, leaf in super()._observation().items():
                self.buffer[key][...] = leaf
            return self.buffer

        def step(self, action: Any) -> Any:
            result = super().step(action)
            action[:] = 99
            return result

    def events(env: Any) -> list[Any]:
        hook = Everything()
        rlmesh.run(feedback, env, seeds=range(4), hooks=hook)
        return [
            [(e.observation["x"].tolist(), e.action.tolist()) for e in hook.events[i]]
            for i in range(4)
        ]

    expected = events(Walk())
    assert events(InPlace()) == expected
    assert events([InPlace(), InPlace()]) == expected


def test_a_handle_adds_nothing_to_an_address_but_its_episode_ids() -> None:
    hook = Everything()
    with serving(Walk()) as server, RemoteEnv(server.address) as handle:
        rlmesh.run(feedback, handle, seeds=[0], hooks=hook)
    assert set(hook.events[0][0].info) == {"n", "episode_ids"}


def test_hooks_may_be_a_list_and_are_called_in_order() -> None:
    order: list[str] = []

    def named(name: str) -> rlmesh.RunHooks:
        class Named(rlmesh.RunHooks):
            def on_step(self, event: rlmesh.StepEvent) -> None:
                order.append(name)

            def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
                order.append(name.upper())

        return Named()

    rlmesh.run(feedback, Walk(), seeds=[7], hooks=(named("a"), rlmesh.RunHooks(), named("b")))
    assert order == ["a", "b"] * 5 + ["A", "B"]


def test_a_method_set_on_an_instance_is_a_hook_too() -> None:
    steps: list[int] = []
    hook = rlmesh.RunHooks()
    hook.on_step = lambda event: steps.append(event.step)  # type: ignore[method-assign]
    rlmesh.run(feedback, Walk(), seeds=[7], hooks=hook)
    assert steps == [0, 1, 2, 3, 4]


def test_the_context_says_what_the_run_is_about(world: Any) -> None:
    """HK-4: from the first call to the last."""
    said: list[Any] = []

    class Asking(rlmesh.RunHooks):
        def on_run_start(self, context: rlmesh.RunContext) -> None:
            self.context = context
            said.append((context.contract, context.num_envs))

        def on_run_end(self, result: rlmesh.RunResult) -> None:
            said.append((self.context.contract, self.context.num_envs))

    rlmesh.run(feedback, world, seeds=[0], hooks=Asking())
    assert said[0] == said[1]
    assert list(said[0][0].observation_space) == ["clock", "key", "x"]
    assert said[0][1] in (1, 3)


# Timing: one definition


class Ticking(Walk):
    """A step that takes at least 4 ms."""

    def step(self, action: Any) -> Any:
        time.sleep(0.004)
        return super().step(action)


class Thinking(OpenLoop):
    """A prediction that takes at least 8 ms."""

    def predict_chunk_batch(self, observations: Any) -> Any:
        time.sleep(0.008)
        return super().predict_chunk_batch(observations)


@pytest.mark.parametrize("name", WORLDS)
def test_a_step_is_charged_with_its_own_prediction_and_round_trip(name: str) -> None:
    """Step event page, CHK-8: exactly zero where a chunk is replayed; at least what it took."""
    hook = Everything()
    with ExitStack() as stack:
        env = make(stack, name, [Ticking((7,)) for _ in range(3)])
        result = rlmesh.run(
            Thinking(), env, seeds=[1, 1], execution_horizon=3, hooks=hook, batch_wait_ms=0
        )
    for episode in result.episodes:
        events = hook.events[episode.index]
        assert [event.predict_ms > 0 for event in events] == [True, False, False] * 2 + [True]
        assert all(event.predict_ms >= 8 for event in events[::3])
        assert all(event.predict_ms == 0.0 for i, event in enumerate(events) if i % 3)
        assert all(event.step_ms >= 4 for event in events)
        for field in ("predict_ms", "step_ms"):
            mean = sum(getattr(event, field) for event in events) / len(events)
            assert getattr(episode, field) == pytest.approx(mean)
        assert episode.duration_s >= (7 * 4 + 3 * 8) / 1000


@pytest.mark.parametrize("name", ["local", "remote", "list"])
def test_without_chunks_every_step_has_a_prediction(name: str) -> None:
    class Slow(Feedback):
        def predict_batch(self, observations: Any) -> Any:
            time.sleep(0.008)
            return super().predict_batch(observations)

    hook = Everything()
    with ExitStack() as stack:
        env = make(stack, name, [Walk((3,)) for _ in range(2)])
        result = rlmesh.run(Slow(), env, seeds=[1], hooks=hook)
    assert all(event.predict_ms >= 8 for event in hook.events[0])
    assert (result.episodes[0].predict_ms or 0) >= 8


@pytest.mark.parametrize("name", ["lanes", "NextStep", "SameStep", "Disabled"])
def test_lanes_of_a_group_share_both_numbers(name: str) -> None:
    hook = Everything()
    with ExitStack() as stack:
        env = make(stack, name, [Walk((4,)) for _ in range(3)])
        rlmesh.run(Feedback(), env, seeds=[1, 2, 3], hooks=hook)
    for field in ("predict_ms", "step_ms"):
        rows = [[getattr(event, field) for event in hook.events[i]] for i in range(3)]
        assert rows[0] == rows[1] == rows[2]
        assert all(value > 0 for value in rows[0])


@pytest.mark.parametrize("name", ["local", "remote", "addresses"])
def test_a_prefetched_chunk_is_charged_to_the_step_it_landed_on(name: str) -> None:
    """That step was on its way already, so its successor shows it."""
    hook = Everything()
    with ExitStack() as stack:
        env = make(stack, name, [Walk((7,)) for _ in range(2)])
        rlmesh.run(Thinking(), env, seeds=[1], execution_horizon=3, prefetch_lead=1, hooks=hook)
    charged = [event.step for event in hook.events[0] if event.predict_ms]
    # Asked for when the third, the sixth, ... action was sent.
    assert charged == [0, 2, 5]
    assert all(hook.events[0][step].predict_ms >= 8 for step in charged)


def test_the_time_of_a_local_env_is_its_own() -> None:
    """One env is stepped while the others, and the model, have their turn."""

    class Slow(Walk):
        def step(self, action: Any) -> Any:
            time.sleep(0.05)
            return super().step(action)

    class SlowModel(Feedback):
        def predict_batch(self, observations: Any) -> Any:
            time.sleep(0.05)
            return super().predict_batch(observations)

    hook = Everything()
    rlmesh.run(SlowModel(), [Slow((4,)), Walk((4,))], seeds=[1, 2], hooks=hook)
    slow, quick = (hook.events[i] for i in range(2))
    assert all(event.step_ms >= 50 for event in slow)
    # The best of four, which nothing but the env's own time enters: not the 50 ms of the others.
    assert min(event.step_ms for event in quick) < 50


def test_hooks_cost_the_episode_no_step_time() -> None:
    class Dawdle(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            time.sleep(0.05)

    hook = Everything()
    rlmesh.run(feedback, Walk((5,)), seeds=[1], hooks=[Dawdle(), hook])
    events = hook.events[0]
    assert min(event.predict_ms for event in events[1:]) < 50
    assert min(event.step_ms for event in events[1:]) < 50


# Predict context in the loop


def test_a_prediction_is_told_its_episode_and_number(world: Any) -> None:
    """CTX-1, CTX-2: the same seed and index give the same predict seed wherever it runs."""
    told: dict[str, list[Any]] = {}

    class Told(Model):
        def predict_chunk(self, observation: Any, execution_horizon: int, context: Any) -> Any:
            context["state"].setdefault("count", 0)
            context["state"]["count"] += 1
            told.setdefault(context["episode_id"], []).append({**context, "h": execution_horizon})
            assert context["state"]["count"] == context["predict_index"] + 1
            return np.zeros((2, 2), np.float32)

    result = rlmesh.run(Told(), world, seeds=[7, 2, 7], execution_horizon=2)
    assert result.num_episodes == len(told) == 3
    for calls in told.values():
        assert [call["predict_index"] for call in calls] == list(range(len(calls)))
        for call in calls:
            assert call["h"] == 2
            seed, index = call["episode_seed"], call["predict_index"]
            assert call["predict_seed"] == rlmesh.predict_seed(seed, index)
    assert sorted(calls[0]["episode_seed"] for calls in told.values()) == [2, 7, 7]


def test_a_batch_gets_one_context_a_row() -> None:
    rows: list[list[Any]] = []

    class Told(Model):
        def predict_batch(self, observations: Any, context: Any) -> Any:
            rows.append([(c["episode_seed"], c["predict_index"]) for c in context])
            return np.zeros((len(observations["x"]), 2), np.float32)

    vector = SyncVectorEnv([lambda: Walk((2,))] * 3, autoreset_mode="SameStep")
    rlmesh.run(Told(), vector, seeds=[4, 5, 6])
    assert rows == [[(4, 0), (5, 0), (6, 0)], [(4, 1), (5, 1), (6, 1)]]


def test_env_of_text_and_discrete_leaves() -> None:
    """Values that are no arrays pass through events as they are."""
    hook = Everything()

    class Spoken(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Text(8, charset="abc")
        action_space = gymnasium.spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return "abc", {}

        def step(self, action: int) -> Any:
            return "cba", 0.0, True, False, {}

    rlmesh.run(lambda text: len(text) - 1, Spoken(), seeds=[0], hooks=hook)
    assert (hook.events[0][0].observation, hook.events[0][0].action) == ("abc", 2)
