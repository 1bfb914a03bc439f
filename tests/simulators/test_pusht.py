"""PushT: pixels in the observation, a second kind of renderer, numpy in every info."""

from __future__ import annotations

import numpy as np
from simulators.builders import pusht
from support.processes import server_process
from support.trees import assert_same

from rlmesh.numpy import RemoteEnv


def test_pixels_and_infos_are_those_of_the_simulator() -> None:
    """Issue 2: observations, rewards, infos and rendered frames, bit by bit."""
    local = pusht()
    rng = np.random.default_rng(0)
    with server_process("simulators.builders:pusht") as server, RemoteEnv(server.address) as remote:
        got, expected = remote.reset(seed=7), local.reset(seed=7)
        for _ in range(8):
            observation, info = got[0], got[-1]
            assert_same(observation["pixels"], expected[0]["pixels"])
            assert_same(observation["agent_pos"], expected[0]["agent_pos"])
            assert len(np.unique(observation["pixels"])) > 5
            for key, value in expected[-1].items():
                np.testing.assert_array_equal(info[key], value)
                if isinstance(value, np.ndarray):
                    assert_same(info[key], value)
            assert type(info["is_success"]) is bool
            action = rng.uniform(200, 300, 2)
            got = remote.step(action)
            expected = local.step(action.astype(np.float32))
            assert got[1] == float(expected[1])
        assert_same(remote.render(), local.render())
    local.close()
