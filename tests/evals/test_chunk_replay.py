"""Chunks in the loop: replayed where they belong, sent without waiting, planned ahead if asked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Walk
from gymnasium.vector import SyncVectorEnv
from support import eventually, serving

import rlmesh
from rlmesh.numpy import Model


class Keyed(Walk):
    """Refuses an action that was planned for another episode, or for another place in a chunk.

    An action is [the key of its episode, the clock it is meant for]. Unseeded episodes are those
    that a vector env begins by itself, and nobody scores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-99, 99, (2,), np.float32)

    def step(self, action: Any) -> Any:
        if self.resets[-1] is not None:
            assert action.tolist() == [np.float32(self._key), self._n], (self._key, self._n)
        return super().step(action)


def keyed(observation: Any, length: int) -> Any:
    clock = np.arange(length) + observation["clock"]
    return np.stack([np.full(length, observation["key"]), clock], 1).astype(np.float32)


class Planner(Model):
    """Plans chunks for :class:`Keyed`; ``asked`` has (key, clock) of every prediction."""

    length = 5

    def load(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def predict_chunk(self, observation: Any) -> Any:
        self.asked.append((float(observation["key"][0]), int(observation["clock"][0])))
        return keyed(observation, self.length)


class BatchPlanner(Planner):
    def predict_chunk_batch(self, observations: Any) -> Any:
        keys, clocks = observations["key"], observations["clock"]
        rows = [{"key": k, "clock": c} for k, c in zip(keys, clocks, strict=True)]
        return np.stack([self.predict_chunk(row) for row in rows])


WORLDS = ["one", "list", "lanes", "NextStep", "SameStep", "Disabled"]


def make(stack: ExitStack, world: str) -> Any:
    envs = [Keyed() for _ in range(1 if world == "one" else 3)]
    if world == "list":
        return [stack.enter_context(serving(env)).address for env in envs]
    if world in ("one", "lanes"):
        return stack.enter_context(serving(envs[0] if world == "one" else envs)).address
    return SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=world)


@pytest.mark.parametrize("model_class", [Planner, BatchPlanner])
@pytest.mark.parametrize("world", WORLDS)
def test_a_chunk_stays_in_its_episode_and_lane(world: str, model_class: type[Planner]) -> None:
    """CHK-1, CHK-5: the tail is dropped at the end, and each episode re-plans every four steps."""
    model = model_class()
    with ExitStack() as stack:
        env = make(stack, world)
        result = rlmesh.run(model, env, seeds=range(10), execution_horizon=4)
    planned: dict[float, list[int]] = {}
    for key, clock in model.asked:
        planned.setdefault(key, []).append(clock)
    assert sorted(map(len, planned.values())) == sorted(
        -(-episode.steps // 4) for episode in result.episodes
    )
    for clocks in planned.values():
        assert clocks == list(range(0, 4 * len(clocks), 4))


@pytest.mark.parametrize("world", WORLDS)
def test_a_chunk_shorter_than_the_horizon_replans_when_it_runs_out(world: str) -> None:
    """CHK-4: with one warning, not one a chunk."""
    model = Planner()
    model.length = 3
    with ExitStack() as stack:
        env = make(stack, world)
        with pytest.warns(RuntimeWarning, match="returned 3 actions for execution_horizon=8") as w:
            result = rlmesh.run(model, env, seeds=range(8), execution_horizon=8)
    assert len(w) == 1
    assert len(model.asked) == sum(-(-episode.steps // 3) for episode in result.episodes)
    assert {clock % 3 for _, clock in model.asked} == {0}


def test_a_model_without_a_chunk_corner_runs_unchunked_with_a_warning() -> None:
    """CHK-2, model page "Common pitfalls"."""
    model = Model(lambda observation: keyed(observation, 1)[0])
    with pytest.warns(UserWarning, match="execution_horizon=8 was requested but the model defines"):
        result = rlmesh.run(model, Keyed(), seeds=range(4), execution_horizon=8)
    assert [episode.steps for episode in result.episodes] == [3, 1, 11, 4]


def test_a_horizon_beyond_the_declared_chunk_is_refused_before_anything_runs() -> None:
    class Declared(Planner):
        native_chunk = 5

    env = Keyed()
    with pytest.raises(ValueError, match=r"execution_horizon=6 exceeds .*native_chunk=5"):
        rlmesh.run(Declared(), env, seeds=[0], execution_horizon=6)
    assert env.resets == []
    assert rlmesh.run(Declared(), env, seeds=[2], execution_horizon=5).total_steps == 11


class Arms(gymnasium.Env):  # type: ignore[type-arg]
    """A Dict action; never ends."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Dict(
        {
            "arm": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
            "grip": gymnasium.spaces.Box(-1, 1, (1,), np.float32),
        }
    )

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.actions.append((action["arm"].tolist(), action["grip"].tolist()))
        return np.zeros(2, np.float32), 0.0, False, False, {}


def arms(arm: int, grip: int) -> dict[str, Any]:
    return {
        "arm": np.arange(2 * arm, dtype=np.float32).reshape(arm, 2) / 16,
        "grip": np.arange(grip, dtype=np.float32).reshape(grip, 1) / 16,
    }


def test_a_dict_chunk_is_zipped_and_a_ragged_one_refused_by_name() -> None:
    """CHK-3: the chunk axis is inside each leaf."""

    class Dicts(Model):
        def predict_chunk(self, observation: Any) -> Any:
            return arms(4, lengths.pop(0))

    lengths, env = [4, 4], Arms()
    rlmesh.run(Dicts(), env, seeds=[0], execution_horizon=3, max_episode_steps=4)
    first = [([0, 0.0625], [0]), ([0.125, 0.1875], [0.0625]), ([0.25, 0.3125], [0.125])]
    assert env.actions == [*first, first[0]]
    for several in (False, True):
        lengths = [4, 3, 3]
        envs = [Arms(), Arms()] if several else Arms()
        with pytest.raises(ValueError, match="predict_chunk") as caught:
            rlmesh.run(Dicts(), envs, seeds=[5, 6], execution_horizon=3, max_episode_steps=4)
        said = "\n".join([str(caught.value), *caught.value.__notes__])
        assert "'arm' has 4 frames, 'grip' has 3 frames" in said
        assert ("episode 1 (seed 6), step 0" if several else "episode 0 (seed 5), step 3") in said


@pytest.mark.parametrize("empty", [np.zeros((0, 2), np.float32), [], ()])
@pytest.mark.parametrize("horizon", [1, 3])
def test_an_empty_chunk_is_refused_by_name(empty: Any, horizon: int) -> None:
    class Empty(Model):
        def predict_chunk(self, observation: Any) -> Any:
            return empty

    with pytest.raises(ValueError, match=r"predict_chunk\(\): returned an empty chunk") as caught:
        rlmesh.run(Empty(), Walk(), seeds=[9], execution_horizon=horizon)
    assert "while predicting for episode 0 (seed 9), step 0" in caught.value.__notes__


# Queued actions wait for nobody


class Noted(Walk):
    """Says when it is stepped, and may hold its steps back."""

    def __init__(self, length: int) -> None:
        super().__init__((length,))
        self.received = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def step(self, action: Any) -> Any:
        self.received += 1
        assert self.may_answer.wait(30)
        return super().step(action)


class Uneven(Model):
    """Plans six steps for an episode of seed 0, and one for all others."""

    def load(self) -> None:
        self.before: dict[int, Any] = {}

    def predict_chunk(self, observation: Any) -> Any:
        seed, clock = observation["seed"], int(observation["clock"][0])
        if (seed, clock) in self.before:
            self.before[seed, clock]()
        return np.zeros((6 if seed == 0 else 1, 2), np.float32)


class Seeded(Noted):
    """Shows its seed."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.observation_space = gymnasium.spaces.Dict(
            {**self.observation_space.spaces, "seed": gymnasium.spaces.Discrete(100)}
        )

    def _observation(self) -> Any:
        return {**super()._observation(), "seed": self.resets[-1]}


class OnStep(rlmesh.RunHooks):
    def __init__(self, act: Any) -> None:
        self._act = act

    def on_step(self, event: rlmesh.StepEvent) -> None:
        self._act(event.seed, event.step)


@pytest.mark.filterwarnings("ignore:the model returned 1 actions")
def test_queued_actions_are_sent_before_the_model_is_asked_for_another_lane() -> None:
    """The slow model: it ends only when the env with queued actions has received the next one."""
    planned, other = Seeded(6), Seeded(3)
    model, order = Uneven(), list[str]()

    def slow() -> None:
        order.append("predict")
        eventually(lambda: planned.received == 3, "the queued action was sent")
        planned.may_answer.set()
        order.append("predicted")

    def hear(seed: int | None, step: int) -> None:
        order.append(f"{seed} stepped {step}")
        if (seed, step) == (0, 1):
            # From here the loop has one thing to send, and only then something to predict.
            planned.may_answer.clear()
            other.may_answer.set()

    other.may_answer.clear()
    model.before[1, 1] = slow
    with serving(planned) as a, serving(other) as b:
        rlmesh.run(
            model, [a.address, b.address], seeds=[0, 1], execution_horizon=6, hooks=OnStep(hear)
        )
    start = order.index("0 stepped 1")
    assert order[start : start + 4] == ["0 stepped 1", "1 stepped 0", "predict", "predicted"]


@pytest.mark.filterwarnings("ignore:the model returned 1 actions")
def test_queued_actions_do_not_wait_for_a_batch_to_fill() -> None:
    """Lane 1 waits ten minutes for lane 2 to join its batch; lane 0 goes through its chunk."""
    envs = [Seeded(6), Seeded(2), Seeded(2)]

    def hear(seed: int | None, step: int) -> None:
        if seed == 1 and step == 0:
            waiting.append(True)
        if seed == 0 and step == 5:
            envs[2].may_answer.set()

    waiting: list[bool] = []
    envs[2].may_answer.clear()
    with ExitStack() as stack:
        addresses = [stack.enter_context(serving(env)).address for env in envs]
        result = rlmesh.run(
            Uneven(),
            addresses,
            seeds=[0, 1, 2],
            execution_horizon=6,
            batch_wait_ms=600_000,
            hooks=OnStep(hear),
        )
    assert waiting and [episode.steps for episode in result.episodes] == [6, 2, 2]


@pytest.mark.filterwarnings("ignore:the model returned 1 actions")
def test_a_batch_does_not_wait_for_lanes_that_have_actions_queued() -> None:
    """They will not ask for a prediction with their next answer; ten minutes would be in vain."""
    planned, other = Seeded(6), Seeded(4)

    def hear(seed: int | None, step: int) -> None:
        if (seed, step) == (0, 0):
            planned.may_answer.clear()
        if (seed, step) == (1, 3):
            planned.may_answer.set()

    with serving(planned) as a, serving(other) as b:
        result = rlmesh.run(
            Uneven(),
            [a.address, b.address],
            seeds=[0, 1],
            execution_horizon=6,
            batch_wait_ms=600_000,
            hooks=OnStep(hear),
        )
    assert [episode.steps for episode in result.episodes] == [6, 4]


def test_a_batch_waits_for_lanes_that_are_being_reset() -> None:
    """They will ask for a prediction as soon as they are."""
    rows: list[int] = []

    class Counted(Model):
        def predict_batch(self, observations: Any) -> Any:
            rows.append(len(observations["clock"]))
            return np.zeros((rows[-1], 2), np.float32)

    class Late(Walk):
        may_begin = threading.Event()

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            assert self.may_begin.wait(30)
            return super().reset(seed=seed)

    class Begin(rlmesh.RunHooks):
        def on_episode_start(self, *, episode: int, seed: int | None) -> None:
            Late.may_begin.set()

    with serving(Walk((1,))) as a, serving(Late((1,))) as b:
        rlmesh.run(
            Counted(),
            [a.address, b.address],
            seeds=[1, 2],
            batch_wait_ms=600_000,
            hooks=Begin(),
        )
    assert rows == [2]


@pytest.mark.parametrize("where", ["local", "remote", "list"])
@pytest.mark.parametrize(
    ("lead", "clocks"), [(1, [0, 3, 7, 11]), (2, [0, 2, 6, 10]), (3, [0, 1, 5, 9])]
)
def test_prefetch_predicts_while_that_many_actions_are_left(
    lead: int, clocks: list[int], where: str
) -> None:
    """CHK-7: the last of the chunk in flight counts as left, so the observation is ``lead`` old."""
    asked: list[int] = []
    acted: list[tuple[int, int]] = []

    class Ahead(Model):
        def predict_chunk(self, observation: Any) -> Any:
            asked.append(int(observation["clock"][0]))
            return np.array([[len(asked), k / 16] for k in range(4)], np.float32)

    class Told(Walk):
        def step(self, action: Any) -> Any:
            acted.append((int(action[0]), int(action[1] * 16)))
            return super().step(action)

    with ExitStack() as stack:
        env: Any = Told((13,))
        env.action_space = gymnasium.spaces.Box(-99, 99, (2,), np.float32)
        if where != "local":
            env = stack.enter_context(serving(env)).address
        result = rlmesh.run(
            Ahead(),
            [env] if where == "list" else env,
            seeds=[4],
            execution_horizon=4,
            prefetch_lead=lead,
        )
    assert result.total_steps == 13
    assert asked == clocks
    # Whole chunks in order: nothing is cut, nothing comes twice.
    assert acted == [(chunk, k) for chunk in (1, 2, 3, 4) for k in range(4)][:13]


def test_a_chunk_prefetched_over_the_end_of_an_episode_is_dropped() -> None:
    """CHK-7, CHK-5: with an end at step 4 the next chunk is made for nothing, and never used."""
    model = Planner()
    model.length = 4
    result = rlmesh.run(model, Walk((4, 4)), seeds=[0, 1], execution_horizon=4, prefetch_lead=1)
    assert [episode.steps for episode in result.episodes] == [4, 4]
    assert [clock for _, clock in model.asked] == [0, 3, 0, 3]
    keys = [key for key, _ in model.asked]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_prefetch_overlaps_the_env() -> None:
    """The chunk is asked for once the action before it is on its way, not before."""
    env, model = Seeded(8), Uneven()
    model.before[0, 5] = lambda: eventually(lambda: env.received == 6, "the sixth action was sent")
    with serving(env) as server:
        rlmesh.run(model, server.address, seeds=[0], execution_horizon=6, prefetch_lead=1)
    assert env.received == 8


def test_max_batch_bounds_prefetched_rows_too() -> None:
    rows: list[int] = []

    class Counted(Model):
        def predict_chunk_batch(self, observations: Any) -> Any:
            rows.append(len(observations["clock"]))
            return np.zeros((rows[-1], 2, 2), np.float32)

    envs = [Walk((9,)) for _ in range(5)]
    limits: Sequence[dict[str, Any]] = ({}, {"max_batch": 2})
    for limit in limits:
        rlmesh.run(Counted(), envs, seeds=range(5), execution_horizon=2, prefetch_lead=1, **limit)
        assert max(rows) == limit.get("max_batch", 5)
        rows.clear()
