"""The same seed is the same episode, wherever its env lives and whoever else runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from eval_envs import Feedback, OpenLoop, Walk, feedback, open_loop, walks
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from support import ServerProcess, server_process, serving
from traces import traced

import rlmesh
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.transport.native import NativeChannel, NotNative

SEEDS = [*range(10), 3, 2**40 + 5]
MODES = ["NextStep", "SameStep", "Disabled"]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """Of one local env, stepped by hand: no part of the engine takes part in this number."""
    env, rows = Walk(), []
    for seed in SEEDS:
        observation, _ = env.reset(seed=seed)
        total, steps, flags, once = 0.0, 0, (False, False), None
        while not any(flags):
            observation, reward, *flags, info = env.step(feedback(observation))
            total += reward
            steps += 1
            if "success" in info:
                once = bool(once) or info["success"]
        rows.append((len(rows), seed, steps, total.hex(), *flags, info["success"], once))
    local = traced(feedback, Walk(), seeds=SEEDS)
    assert [row[:-1] for row in local] == rows
    return local


@pytest.fixture(scope="module")
def processes() -> Iterator[list[ServerProcess]]:
    """Five single envs, each in a process of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(server_process("evals.eval_envs:Walk")) for _ in range(5)]


@pytest.fixture(scope="module")
def lanes() -> Iterator[ServerProcess]:
    """A process with four envs as lanes."""
    with server_process("evals.eval_envs:walks", count=4) as process:
        yield process


def test_one_env_through_a_batch_corner(expected: list[Any]) -> None:
    assert traced(Feedback(), Walk(), seeds=SEEDS) == expected


def test_a_native_model_sees_the_same(expected: list[Any]) -> None:
    def native(observation: Any) -> Any:
        return feedback({key: np.asarray(leaf) for key, leaf in observation.items()})

    assert traced(rlmesh.Model(native), Walk(), seeds=SEEDS) == expected


@pytest.mark.parametrize("count", [1, 2, 5])
def test_endpoints(count: int, processes: list[ServerProcess], expected: list[Any]) -> None:
    addresses = [process.address for process in processes[:count]]
    assert traced(feedback, addresses, seeds=SEEDS) == expected
    assert traced(Feedback(), addresses, seeds=SEEDS) == expected


def test_one_address_and_one_handle(processes: list[ServerProcess], expected: list[Any]) -> None:
    assert traced(feedback, processes[0].address, seeds=SEEDS) == expected
    with RemoteEnv(processes[0].address) as handle:
        assert traced(Feedback(), handle, seeds=SEEDS) == expected
        assert traced(feedback, handle, seeds=SEEDS) == expected, "a handle can be used again"
    with rlmesh.RemoteEnv(processes[1].address) as native:
        assert traced(feedback, native, seeds=SEEDS) == expected


def test_the_grpc_door(
    processes: list[ServerProcess],
    lanes: ServerProcess,
    expected: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of servers that know no other, such as rlmesh 0.1.0; a descriptor tells of answers there."""

    def hidden(*arguments: Any, **options: Any) -> Any:
        raise NotNative("hidden")

    monkeypatch.setattr(NativeChannel, "open", hidden)
    addresses = [process.address for process in processes[:2]]
    for env in (addresses[0], lanes.address, [*addresses, lanes.address]):
        assert traced(Feedback(), env, seeds=SEEDS) == expected


def test_a_list_of_lanes(lanes: ServerProcess, expected: list[Any]) -> None:
    assert traced(feedback, lanes.address, seeds=SEEDS) == expected
    with RemoteVectorEnv(lanes.address) as handle:
        assert traced(Feedback(), handle, seeds=SEEDS) == expected


def test_a_list_of_local_envs(expected: list[Any]) -> None:
    assert traced(feedback, walks(2), seeds=SEEDS) == expected
    assert traced(Feedback(), walks(len(SEEDS) + 3), seeds=SEEDS) == expected


def test_a_mixed_list(
    processes: list[ServerProcess], lanes: ServerProcess, expected: list[Any]
) -> None:
    vector = SyncVectorEnv([Walk] * 3, autoreset_mode="SameStep")
    with RemoteEnv(processes[1].address) as handle:
        everything = [Walk(), processes[0].address, handle, lanes.address, vector]
        assert traced(Feedback(), everything, seeds=SEEDS) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_sync_vector_envs(count: int, mode: str, expected: list[Any]) -> None:
    def make() -> Any:
        return SyncVectorEnv([Walk] * count, autoreset_mode=mode)

    assert traced(feedback, make(), seeds=SEEDS) == expected
    assert traced(Feedback(), make(), seeds=SEEDS) == expected
    with serving(make()) as server:
        assert traced(feedback, server.address, seeds=SEEDS) == expected
        assert traced(Feedback(), server.address, seeds=SEEDS) == expected


@pytest.fixture
def async_envs() -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(count: int, **options: Any) -> Any:
        made.append(AsyncVectorEnv([Walk] * count, **options))
        return made[-1]

    yield make
    for env in made:
        if not env.closed:
            env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [True, False])
def test_async_vector_envs(
    async_envs: Callable[..., Any], shared: bool, mode: str, expected: list[Any]
) -> None:
    env = async_envs(3, autoreset_mode=mode, shared_memory=shared)
    if mode == "NextStep" and not shared:
        # Its workers would roll a lane once more, unseeded, after it was reset by mask.
        with pytest.raises(ValueError, match=r"AsyncVectorEnv.*seeds.*shared_memory=True"):
            traced(feedback, env, seeds=SEEDS)
        return
    assert traced(feedback, env, seeds=SEEDS) == expected
    assert traced(Feedback(), env, seeds=SEEDS[:2]) == expected[:2], "fewer episodes than lanes"


@pytest.mark.parametrize("mode", MODES)
def test_a_served_async_vector_env(
    async_envs: Callable[..., Any], mode: str, expected: list[Any]
) -> None:
    with serving(async_envs(3, autoreset_mode=mode)) as server:
        assert traced(Feedback(), server.address, seeds=SEEDS) == expected


class Chunks(OpenLoop):
    """One chunk corner, unbatched."""

    def predict_chunk(self, observation: Any) -> Any:
        return np.stack([open_loop(observation, k) for k in range(6)])


@pytest.mark.parametrize("horizon", [2, 5, 6])
def test_replay_and_no_replay_where_the_policy_makes_them_equal(
    horizon: int, processes: list[ServerProcess], lanes: ServerProcess
) -> None:
    expected = traced(open_loop, Walk(), seeds=SEEDS)
    addresses = [process.address for process in processes[:3]]
    vector = SyncVectorEnv([Walk] * 3, autoreset_mode="NextStep")
    for env in (Walk(), addresses[0], addresses, lanes.address, vector, walks(3)):
        for model in (OpenLoop(), Chunks()):
            assert traced(model, env, seeds=SEEDS, execution_horizon=horizon) == expected
    assert traced(OpenLoop(), addresses, seeds=SEEDS) == expected


def test_random_sample_is_the_same_baseline_everywhere(
    processes: list[ServerProcess], lanes: ServerProcess
) -> None:
    seeds = [*SEEDS, -3]
    expected = traced(rlmesh.RANDOM_SAMPLE, Walk(), seeds=seeds)
    assert len({row[-1] for row in expected}) == len(set(seeds)), "each seed draws its own"
    vector = SyncVectorEnv([Walk] * 3, autoreset_mode="Disabled")
    addresses = [process.address for process in processes]
    for env in (processes[0].address, addresses, lanes.address, vector, walks(2)):
        assert traced(rlmesh.RANDOM_SAMPLE, env, seeds=seeds) == expected


def test_prefetching_gives_the_same_numbers_however_many_endpoints_there_are(
    processes: list[ServerProcess], lanes: ServerProcess
) -> None:
    """What a chunk is predicted from is fixed by the step, not by who answers when."""

    class Stale(rlmesh.numpy.Model):
        def predict_chunk_batch(self, observations: Any) -> Any:
            x = observations["x"][:, None, :2] * np.ones((1, 4, 1), np.float32)
            return (x + np.arange(4, dtype=np.float32)[None, :, None] * 0.25).astype(np.float32)

    asked = {"seeds": SEEDS, "execution_horizon": 4, "prefetch_lead": 2}
    expected = traced(Stale(), Walk(), **asked)
    assert expected != traced(Stale(), Walk(), seeds=SEEDS, execution_horizon=4)
    addresses = [process.address for process in processes]
    for env in (addresses[0], addresses, lanes.address, walks(3)):
        for limits in ({}, {"max_batch": 1}, {"max_batch": 2}, {"batch_wait_ms": 3}):
            assert traced(Stale(), env, **asked, **limits) == expected
