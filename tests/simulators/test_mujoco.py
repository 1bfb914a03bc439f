"""MuJoCo, with its thread-bound OpenGL, served from other processes and threads."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from simulators.builders import cheetah
from support import serving
from support.processes import server_process
from support.trees import assert_same

import rlmesh.gymnasium
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv


def roll(env: Any, render: Any, seed: int, steps: int) -> list[Any]:
    """Return observations, rewards, flags, infos and frames of a seeded episode."""
    env.action_space.seed(seed)
    rng = np.random.default_rng(seed)
    said: list[Any] = [env.reset(seed=seed)[0], render()]
    for _ in range(steps):
        action = rng.uniform(-1, 1, 6)  # float64, as NumPy users send it
        observation, reward, terminated, truncated, info = env.step(action)
        numbers = {k: float(v) for k, v in info.items() if k.startswith(("x_", "reward_"))}
        said += [observation, float(reward), bool(terminated), bool(truncated), numbers, render()]
    return said


def test_a_served_simulator_is_the_simulator() -> None:
    """Issue 2: physics, infos and pixels from another process are those of this one, bit by bit."""
    local = cheetah()
    with (
        server_process("simulators.builders:cheetah") as server,
        RemoteEnv(server.address) as remote,
    ):
        got = roll(remote, remote.render, seed=3, steps=12)
    # The remote env is given the float32 that its space declares.
    step = local.step
    local.step = lambda action: step(action.astype(np.float32))  # type: ignore[method-assign]
    expected = roll(local, local.render, seed=3, steps=12)
    assert_same(got, [sorted_infos(said) for said in expected])
    frames = [said for said in got if isinstance(said, np.ndarray) and said.dtype == np.uint8]
    assert len(frames) == 13 and frames[0].shape == (48, 64, 3)
    assert len(np.unique(frames[0])) > 10, "the frame shows something"
    assert (frames[0] != frames[-1]).any(), "and it moves"
    local.close()


def sorted_infos(said: Any) -> Any:
    return dict(sorted(said.items())) if isinstance(said, dict) else said


def test_every_call_comes_on_one_thread() -> None:
    """Issue 2, design section 5: proved by an env that checks, and renders, on the server's own."""
    env = cheetah()
    with serving(env) as server:
        for _ in range(2):
            with RemoteEnv(server.address) as remote:
                remote.reset(seed=0)
                remote.step(np.zeros(6))
                assert remote.render().shape == (48, 64, 3)
    assert env.calls == [*["reset", "step", "render"] * 2, "close"]
    assert env.thread not in (None, threading.get_ident())


def test_check_env_on_mujoco() -> None:
    """Issue 2: gymnasium's checker, rendering included."""
    with server_process("simulators.builders:cheetah") as server:
        remote = rlmesh.gymnasium.RemoteEnv(server.address)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            check_env(remote)
        remote.close()
    allowed = ("not having a spec", "-infinity", "is infinity")
    assert [str(w.message) for w in said if not any(a in str(w.message) for a in allowed)] == []


@pytest.mark.parametrize("kind", ["lanes", "SyncVectorEnv", "AsyncVectorEnv"])
def test_several_simulators(kind: str) -> None:
    """Issue 2: lanes and gymnasium's vector envs, in another process, with a frame each."""
    twins = [cheetah(), cheetah()]
    with (
        server_process("simulators.builders:cheetahs", kind=kind) as server,
        RemoteVectorEnv(server.address) as remote,
    ):
        observations, _ = remote.reset(seed=5)
        expected = [twin.reset(seed=5 + i)[0] for i, twin in enumerate(twins)]
        assert_same(observations, np.stack(expected))
        actions = np.random.default_rng(0).uniform(-1, 1, (2, 6)).astype(np.float32)
        observations, rewards, *_ = remote.step(actions)
        results = [twin.step(action) for twin, action in zip(twins, actions, strict=True)]
        assert_same(observations, np.stack([r[0] for r in results]))
        assert_same(rewards, np.array([r[1] for r in results], np.float64))
        for lane, twin in enumerate(twins):
            assert_same(remote.render(env_index=lane), twin.render())
    for twin in twins:
        twin.close()
