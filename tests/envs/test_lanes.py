"""A list of single envs served as lanes: stepped together, reset alone."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import FunctionEnv, RawPeer, serving
from support.driving import driving, driving_lanes
from support.trees import assert_same
from support.zoo import Countdown, Everything

import rlmesh
from rlmesh import EnvironmentException, EnvServer, Tensor
from rlmesh.numpy import RemoteVectorEnv
from rlmesh.spaces import Box, Discrete
from rlmesh.transport.framing import FrameKind
from rlmesh.wire import messages
from rlmesh.wire.contract import AutoresetMode

GYMNASIUM = tuple(int(n) for n in gymnasium.__version__.split(".")[:2])


def test_lanes_say_what_their_envs_say(door: str) -> None:
    """VEC-3, VEC-6: each lane is its env, seeded base + lane, and rewards are float64."""
    twins = [Countdown(9) for _ in range(3)]
    with driving_lanes([Countdown(9) for _ in range(3)]) as remote:
        assert remote.transport == door
        assert remote.env_contract.autoreset_mode is AutoresetMode.DISABLED
        observations, info = remote.reset(seed=5)
        expected = [twin.reset(seed=5 + i) for i, twin in enumerate(twins)]
        assert_same(observations, np.stack([o for o, _ in expected]))
        assert info["drawn"] == [i["drawn"] for _, i in expected]
        for actions in ([0, 1, 2], [4, 0, 1]):
            observations, rewards, terminated, truncated, info = remote.step(actions)
            results = [t.step(a) for t, a in zip(twins, actions, strict=True)]
            assert_same(observations, np.stack([r[0] for r in results]))
            assert_same(rewards, np.array([r[1] for r in results]))
            assert_same(terminated, np.zeros(3, bool))
            assert_same(truncated, np.zeros(3, bool))
            assert info["completed_episodes"] == 0 and len(set(info["episode_ids"])) == 3


def test_infos_have_the_vector_form() -> None:
    """VEC-10: one list a key, and a mask that says which lanes have it."""
    envs = [Countdown(2), Countdown(3)]
    with driving_lanes(envs) as remote:
        remote.reset()
        info = remote.step([3, 4])[4]
        assert (info["name"], info["_name"]) == (["step 1", "step 1"], [True, True])
        assert info["deep"] == [{"er": 3}, {"er": 4}]
        assert [place.tolist() for place in info["place"]] == [[1, 3], [1, 4]]
        info = remote.step([0, 0])[4]
        assert (info["is_success"], info["_is_success"]) == ([True, None], [True, False])
        assert info["completed_episodes"] == 1


def test_lanes_are_reset_alone(door: str) -> None:
    """VEC-3, issue 2: partial reset through reset_mask; the others go on where they are."""
    envs = [Countdown(9) for _ in range(3)]
    with driving_lanes(envs) as remote:
        ids = remote.reset(seed=0)[1]["episode_ids"]
        kept = remote.step([1, 2, 3])[0]
        copied = kept.copy()
        kept[:] = -1  # the caller's own arrays: what is written there was not observed
        mask = np.array([True, False, True])
        observations, info = remote.reset(seed=40, options={"reset_mask": mask, "length": 1})
        np.testing.assert_array_equal(observations[1], copied[1])
        expected = [Countdown().reset(seed=s)[0] for s in (40, 42)]  # seed + lane, as gymnasium
        np.testing.assert_array_equal(observations[mask], expected)
        assert info["_drawn"] == mask.tolist()
        changed = [a != b for a, b in zip(ids, info["episode_ids"], strict=True)]
        assert changed == mask.tolist()
        observations[:] = -1
        assert remote.step([0, 0, 0])[2].tolist() == [True, False, True]
        observations, _ = remote.reset(seed=[7, 8, 9], options={"reset_mask": mask})
        assert observations[:, 1].tolist() == [0, 2, 0]
        expected = [Countdown().reset(seed=s)[0] for s in (7, 9)]
        np.testing.assert_array_equal(observations[mask], expected)
        observations, _ = remote.reset(seed=[3], options={"reset_mask": np.arange(3) == 1})
        np.testing.assert_array_equal(observations[1], Countdown().reset(seed=3)[0])


def test_an_ended_lane_waits_for_its_reset() -> None:
    """VEC-9, issue 2: stepping it is refused by lane, and no env is stepped."""
    envs = [Countdown(1), Countdown(3)]
    with driving_lanes(envs) as remote:
        remote.reset()
        assert remote.step([0, 0])[2].tolist() == [True, False]
        with pytest.raises(RuntimeError, match=r"step\(\) of lanes \[0\]"):
            remote.step([0, 0])
        assert envs[1]._steps == 1
        remote.reset()
        assert remote.step([0, 0])[0][:, 1].tolist() == [1, 1]


def test_nested_values_in_lanes(door: str) -> None:
    """VEC-7: every leaf gets the axis, text becomes a list; tensors in the native client."""
    twins = [Everything(), Everything()]
    expected = [twin.reset(seed=i)[0] for i, twin in enumerate(twins)]
    envs = [Everything(), Everything()]
    with serving(envs) as server:
        with RemoteVectorEnv(server.address) as remote:
            observations, _ = remote.reset(seed=[0, 1])
            assert observations["task"] == [e["task"] for e in expected]
            for key in ("image", "state", "scale", "gear", "pad", "keys"):
                np.testing.assert_array_equal(observations[key], [e[key] for e in expected])
            sample = twins[0].action_space.sample()
            remote.step([sample, sample])
            for env in envs:
                assert env.actions[0]["say"] == sample["say"]
                np.testing.assert_array_equal(env.actions[0]["arm"], sample["arm"])
        with rlmesh.RemoteVectorEnv(server.address) as native:
            observations, _ = native.reset(seed=[0, 1])
            assert type(observations["image"]) is Tensor
            again, _ = native.reset(options={"reset_mask": np.array([False, True])})
            np.testing.assert_array_equal(
                np.asarray(again["image"])[0], np.asarray(observations["image"])[0]
            )


def test_lanes_are_stepped_alone() -> None:
    """VEC-3, wire.md section 6: env_indices of a step, in their order; the others stand still."""
    envs = [Countdown(9) for _ in range(3)]
    with serving(envs) as server, RawPeer(server.address) as peer:
        peer.send(peer.hello(), peer.handshake())
        peer.receive()
        peer.send(peer.join(configure={}), peer.join(reset={}))
        for _ in range(2):
            assert not peer.receive_response().HasField("error")

        def ask(indices: list[int], actions: list[int]) -> Any:
            request = messages.env.JoinRequest()
            request.step.action.SetInParent()
            request.step.env_indices.extend(indices)
            leaf = np.array(actions, np.int64)
            peer.send(peer.frame(FrameKind.JOIN, request.SerializeToString(), [leaf]))
            frame = peer.receive()
            return messages.env.JoinResponse.FromString(frame.header), frame.leaves

        response, (leaf,) = ask([2, 0], [3, 4])
        assert list(response.step.env_indices) == [2, 0]
        assert list(response.step.rewards) == [3.0, 4.0]
        assert np.frombuffer(leaf, np.float32).reshape(2, 3)[:, 1:].tolist() == [[1, 3], [1, 4]]
        assert [env._steps for env in envs] == [1, 0, 1]
        for indices in ([0, 0], [3]):
            response, _ = ask(indices, [0] * len(indices))
            assert response.error.is_recoverable
            assert "must be unique and below 3" in response.error.message
        response, _ = ask([1], [0, 0])
        assert "length mismatch" in response.error.message
        assert [env._steps for env in envs] == [1, 0, 1]


@pytest.mark.parametrize(
    ("env", "lanes", "masks"),
    [
        (lambda: Countdown(), False, False),
        (lambda: [Countdown(), Countdown()], True, True),
        (lambda: gymnasium.vector.SyncVectorEnv([Countdown] * 2), False, GYMNASIUM >= (1, 1)),
    ],
    ids=["single", "lanes", "vector"],
)
def test_what_lanes_can_do_is_announced(env: Any, lanes: bool, masks: bool) -> None:
    """wire.md 8.1, EDT-6: subset_step for lanes, nothing of the kind for the rest."""
    with serving(env()) as server, RawPeer(server.address) as peer:
        peer.send(peer.hello(), peer.handshake())
        answer = messages.env.HandshakeResponse.FromString(peer.receive().header)
        announced = {k for k, v in answer.base.capabilities.items() if v == "true"}
        assert ("subset_step" in announced) is lanes
        assert ("rlmesh.env.partial_reset.v1" in announced) is masks


def test_a_list_of_one_is_a_single_env() -> None:
    """VEC-2: the wire knows no vector of one."""
    with driving([Countdown(2)]) as remote:
        remote.reset()
        assert remote.step(3)[4]["name"] == "step 1"


def test_lanes_render_one_by_one() -> None:
    """VEC-15."""
    envs = [Countdown(9, render_mode="rgb_array") for _ in range(2)]
    with driving_lanes(envs) as remote:
        remote.reset()
        remote.step([0, 0])
        remote.reset(options={"reset_mask": np.array([True, False])})
        frames = [remote.render(env_index=lane) for lane in range(2)]
        assert [frame.max() for frame in frames] == [0, 1]
    with driving_lanes([Countdown(), Countdown()]) as remote:
        remote.reset()
        assert remote.render(env_index=1) is None


@pytest.mark.parametrize(
    ("envs", "kind", "words"),
    [
        ([], ValueError, "at least one env"),
        ([Countdown(), 3], TypeError, "env 1 must have a 'reset' method"),
        (
            [Countdown(), FunctionEnv()],
            ValueError,
            r"env 1: observation_space is .*, expected .* as in env 0",
        ),
        (
            [FunctionEnv(), FunctionEnv(action_space=Discrete(2))],
            ValueError,
            r"env 1: action_space is Discrete\(2\)",
        ),
        (
            [gymnasium.vector.SyncVectorEnv([Countdown] * 2)],
            TypeError,
            "env 0 is a vector env",
        ),
        (
            [gymnasium.vector.SyncVectorEnv([Countdown] * 2)] * 2,
            TypeError,
            "Serve the vector env itself",
        ),
    ],
)
def test_what_cannot_be_lanes(envs: list[Any], kind: type[Exception], words: str) -> None:
    """VEC-3: an empty list, envs with other spaces, vector envs."""
    with pytest.raises(kind, match=words):
        EnvServer(envs)


def test_every_lane_is_closed_even_when_one_fails() -> None:
    """SRV-14: close_env_on_shutdown closes them all."""

    def fail() -> None:
        raise RuntimeError("no")

    envs = [FunctionEnv(close=fail), FunctionEnv()]
    with driving_lanes(envs) as remote:
        remote.reset()
    assert all(env.closed.is_set() for env in envs)


def test_all_lanes_run_on_one_thread() -> None:
    """Issue 2, design section 5: reset, step, render and close, of every lane."""
    envs = [FunctionEnv() for _ in range(3)]
    with driving_lanes(envs) as remote:
        remote.reset()
        remote.step(np.zeros((3, 2)))
        remote.render(env_index=2)
    threads = {thread for env in envs for _, thread in env.calls}
    assert len(threads) == 1 and threading.get_ident() not in threads
    assert [name for name, _ in envs[2].calls] == ["reset", "step", "render", "close"]


def test_a_failing_lane_is_an_error_of_the_env() -> None:
    """SRV-26: with the remote traceback; the next client is served."""

    def step(action: Any) -> Any:
        raise KeyError("boom")

    envs = [FunctionEnv(), FunctionEnv(step=step)]
    with serving(envs) as server:
        with RemoteVectorEnv(server.address) as remote:
            remote.reset()
            with pytest.raises(EnvironmentException, match="KeyError: 'boom'") as caught:
                remote.step(np.zeros((2, 2)))
            assert "test_lanes.py" in "".join(caught.value.__notes__)
        with RemoteVectorEnv(server.address) as remote:
            remote.reset()


def test_an_observation_names_its_lane() -> None:
    """CNF-1: which lane broke its space."""
    space = Box(-1, 1, (2,))
    good = FunctionEnv(observation_space=space, reset=lambda seed: ([0, 0], {}))
    bad = FunctionEnv(observation_space=space, reset=lambda seed: ([0, float("nan")], {}))
    words = r"observation\[1\] of lane 2: expected"
    with (
        driving_lanes([good, good, bad]) as remote,
        pytest.raises(EnvironmentException, match=words),
    ):
        remote.reset()
    short = FunctionEnv(observation_space=space, reset=lambda seed: ([0], {}))
    words = r"observation of lane 1: expected float32"
    with driving_lanes([good, short]) as remote, pytest.raises(EnvironmentException, match=words):
        remote.reset()
