"""Values that break their space, through real sockets: who refuses them, and what goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import FunctionEnv, RawPeer, serving
from support.driving import driving, driving_lanes

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv
from rlmesh.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Text

WARNING = "rlmesh.conformance.warning"
ARM = Dict({"arm": Box(-1.0, 1.0, (2,)), "grip": Discrete(2)})


def observing(space: Space, value: Callable[[], Any]) -> FunctionEnv:
    """Return an env that observes a member of ``space`` at reset and ``value()`` at every step."""
    return FunctionEnv(
        observation_space=space,
        reset=lambda seed: (space.sample(), {}),
        step=lambda action: (value(), 0.0, False, False, {}),
    )


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"arm": [math.nan, 0], "grip": 0}, "action['arm'][0]: expected finite float32"),
        ({"arm": [0, math.inf], "grip": 0}, "action['arm'][1]: expected finite float32"),
        ({"arm": [0, 0], "grip": 2}, "action['grip']: expected an element of Discrete(2)"),
        ({"arm": [0, 0, 0], "grip": 1}, "action['arm']: expected float32[2], got int64[3]"),
        ({"arm": np.zeros(3), "grip": 1}, "1 value too many"),
        ({"arm": [0, 0], "grip": 0.5}, "float64 does not convert to int64"),
        ({"arm": [0, 0]}, "action: missing key 'grip'"),
        ({"arm": "up", "grip": 0}, "action['arm']: expected float32[2], got str"),
        ([0, 0], "action: expected a mapping with keys ['arm', 'grip'], got list"),
    ],
)
def test_a_bad_action_never_leaves_the_client(door: str, action: Any, words: str) -> None:
    """CNF-1, issue 2: ValueError that names the key path; the env is not stepped, all goes on."""
    env = FunctionEnv(action_space=ARM)
    with driving(env) as remote:
        remote.reset()
        for _ in range(2):
            with pytest.raises(ValueError) as caught:
                remote.step(action)
            assert words in str(caught.value)
        assert remote.step({"arm": [0, 0], "grip": 1})[0][0] == 1
    assert [name for name, _ in env.calls] == ["reset", "step", "close"]


def test_a_bad_action_of_a_lane_is_named(door: str) -> None:
    """Issue 2: lane, key and index."""
    envs = [FunctionEnv(action_space=ARM) for _ in range(3)]
    with driving_lanes(envs) as remote:
        remote.reset()
        arm = np.zeros((3, 2))
        arm[2, 1] = math.nan
        with pytest.raises(ValueError, match=r"action\['arm'\]\[1\] of lane 2: expected finite"):
            remote.step({"arm": arm, "grip": [0, 1, 0]})
        good = {"arm": [0, 0], "grip": 0}
        with pytest.raises(ValueError, match="expected 3 batched values, got 2"):
            remote.step([good] * 2)
        with pytest.raises(ValueError, match=r"action of lane 1: missing key 'grip'"):
            remote.step([good, {"arm": [0, 0]}, good])
        remote.step([good] * 3)
    assert all([name for name, _ in env.calls] == ["reset", "step", "close"] for env in envs)


def test_a_float64_action_is_coerced(door: str) -> None:
    """Issue 2: NumPy users send float64, the env gets the float32 it declared."""
    env = FunctionEnv(action_space=Box(-1.0, 1.0, (3,)))
    with driving(env) as remote:
        remote.reset()
        for action in (np.array([0.1, -1, 1]), [0.1, -1, 1], np.array([0.1, -1, 1], ">f2")):
            remote.step(action)
    assert all(a.dtype == np.float32 for a in env.actions)
    assert env.actions[0].tolist() == np.float32([0.1, -1, 1]).tolist()


@pytest.mark.parametrize(
    ("policy", "delivered", "warned"),
    [(None, True, True), ("warn", True, True), ("off", True, False), ("strict", False, False)],
)
def test_an_action_out_of_bounds_follows_the_policy_of_the_server(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, delivered: bool, warned: bool
) -> None:
    """CNF-2, CNF-3: warn delivers and says so once a session; strict refuses, recoverably."""
    monkeypatch.delenv("RLMESH_VALIDATION_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("RLMESH_VALIDATION_POLICY", policy)
    env = FunctionEnv(action_space=Box(-1.0, 1.0, (2,)))
    with driving(env) as remote:
        remote.reset()
        if delivered:
            notes = remote.step([0, 3])[4].get(WARNING, [])
            assert [(n["kind"], n["path"]) for n in notes] == [("range", "action")] * warned
            if warned:
                assert (
                    "action[1]: 3.0 is outside Box(-1.0, 1.0, (2,), float32)"
                    in (notes[0]["detail"])
                )
            assert WARNING not in remote.step([0, 3])[4]
            assert env.actions[0].tolist() == [0, 3]
        else:
            with pytest.raises(
                ValueError, match=r"\[INVALID_ACTION\] action\[1\]: 3\.0 is outside"
            ):
                remote.step([0, 3])
            assert not env.actions
        remote.step([0, 1])
        assert env.actions[-1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("space", "leaf", "words"),
    [
        (Box(-1, 1, (2,)), np.array([0, math.nan], np.float32), "action[1]: expected finite"),
        (Box(-1, 1, (2,)), np.array([math.inf, 0], np.float32), "action[0]: expected finite"),
        (Box(-1, 1, (2,)), np.zeros(3, np.float32), "length mismatch"),
        (Discrete(3), np.array([5]), "action: expected an element of Discrete(3)"),
        (MultiDiscrete([2, 2]), np.array([0, 2]), "action[1]: expected an element"),
        (Text(3), np.zeros(1, np.uint8), "text slab header truncated"),
    ],
)
def test_a_foreign_client_cannot_slip_one_in(space: Space, leaf: np.ndarray, words: str) -> None:
    """Issue 2, wire.md section 5: the server looks too: INVALID_ACTION, env untouched."""
    env = FunctionEnv(action_space=space)
    with serving(env) as server, RawPeer(server.address) as peer:
        peer.send(peer.hello(), peer.handshake())
        peer.receive()
        peer.send(peer.join(configure={}), peer.join(reset={}))
        for _ in range(2):
            assert not peer.receive_response().HasField("error")
        for _ in range(2):
            peer.send(peer.join([leaf], step={}))
            error = peer.receive_response().error
            assert (error.code, error.is_recoverable) == (2, True)
            assert words in error.message
        peer.send(peer.join(step={}))
        assert "expected 1 actions, got 0" in peer.receive_response().error.message
    assert not env.actions


@pytest.mark.parametrize("policy", ["warn", "strict", "off"])
@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (Box(-1, 1, (2,)), [0, math.nan], "observation[1]: expected float32 without NaN"),
        (Box("-inf", "inf", (40,)), [math.nan] * 40, "observation[0]: expected float32 without"),
        (Discrete(3), 3, "observation: expected an element of Discrete(3)"),
        (MultiDiscrete([2, 2]), [0, 7], "observation[1]: expected an element"),
        (Box(-1, 1, (2,)), [0, 0, 0], "observation: expected float32[2], got int64[3]"),
        (Box(0, 255, (2,), "uint8"), [0.5, 1], "float64 does not convert to uint8"),
        (Box(0, 255, (2,), "uint8"), [0, 256], "do not fit uint8"),
        (ARM, {"arm": [0, 0]}, "observation: missing key 'grip'"),
        (ARM, {"arm": [0], "grip": 1}, "observation['arm']: expected float32[2]"),
        (Text(3), b"abc", "observation: expected str"),
    ],
)
def test_a_broken_observation_is_an_error_of_the_env(
    monkeypatch: pytest.MonkeyPatch, policy: str, space: Space, value: Any, words: str
) -> None:
    """CNF-1, CNF-4: whatever the policy; the session is over, the server serves the next client."""
    monkeypatch.setenv("RLMESH_VALIDATION_POLICY", policy)
    values = [value, space.sample()]
    env = observing(space, lambda: values.pop(0))
    with serving(env) as server:
        with RemoteEnv(server.address) as remote:
            remote.reset()
            with pytest.raises(EnvironmentException) as caught:
                remote.step([0, 0])
            assert words in str(caught.value)
            with pytest.raises(ConnectionError):
                remote.reset()
        with RemoteEnv(server.address) as remote:
            remote.reset()
            remote.step([0, 0])


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Dict({"x": Box(-1, 1, (2,))}), {"x": np.float32([0, 5])}),
        (Dict({"x": Box(0, math.inf, (40,))}), {"x": np.full(40, -1, np.float32)}),
        (Dict({"x": Box(0, 9, (2,), "int32")}), {"x": np.int32([0, 10])}),
        (Dict({"x": Text(2, charset="ab")}), {"x": "abc"}),
    ],
)
def test_an_observation_out_of_bounds_follows_the_policy(
    door: str, monkeypatch: pytest.MonkeyPatch, space: Space, value: Any
) -> None:
    """CNF-2, CNF-3, MET-5: simulators violate their own bounds; warn tells once a session."""
    monkeypatch.setenv("RLMESH_VALIDATION_POLICY", "warn")
    with serving(observing(space, lambda: value)) as server:
        for _ in range(2):
            with RemoteEnv(server.address) as remote:
                remote.reset()
                observation, *_, info = remote.step([0, 0])
                np.testing.assert_array_equal(observation["x"], value["x"])
                (note,) = info[WARNING]
                assert (note["kind"], note["path"]) == ("range", "observation['x']")
                assert "is outside" in note["detail"] and "observation['x']" in note["detail"]
                assert WARNING not in remote.step([0, 0])[4]
    monkeypatch.setenv("RLMESH_VALIDATION_POLICY", "off")
    with driving(observing(space, lambda: value)) as remote:
        remote.reset()
        observation, *_, info = remote.step([0, 0])
        np.testing.assert_array_equal(observation["x"], value["x"])
        assert WARNING not in info
    monkeypatch.setenv("RLMESH_VALIDATION_POLICY", "strict")
    with driving(observing(space, lambda: value)) as remote:
        remote.reset()
        with pytest.raises(EnvironmentException, match="is outside"):
            remote.step([0, 0])


def test_observations_are_cast_to_the_declared_dtype(door: str) -> None:
    """CNF-4: float64, lists, other integers and whole floats arrive as declared."""
    space = Dict({"f": Box(-9, 9, (2,)), "i": Box(0, 255, (2,), "uint8"), "n": Discrete(4)})
    values = [
        {"f": np.array([0.1, 1]), "i": np.array([1, 2]), "n": np.int32(3)},
        {"f": [0.1, 1], "i": [1.0, 2.0], "n": np.array(3)},
        {"f": np.array([[0.1, 7], [1, 7]], ">f8")[:, 0], "i": (1, 2), "n": 3.0},
    ]
    with driving(observing(space, lambda: values.pop(0))) as remote:
        remote.reset()
        for _ in range(3):
            got = remote.step([0, 0])[0]
            assert (got["f"].dtype, got["i"].dtype) == (np.float32, np.uint8)
            assert got["f"].tolist() == np.float32([0.1, 1]).tolist()
            assert (got["i"].tolist(), got["n"]) == ([1, 2], 3)
            assert type(got["n"]) is int
