"""Meta-World, which leaves the observation space it declares at every step."""

from __future__ import annotations

import numpy as np
import pytest
from simulators.builders import reach
from support.processes import server_process

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv

WARNING = "rlmesh.conformance.warning"


def test_its_own_bounds_are_violated_and_told_of_once() -> None:
    """CNF-2, CNF-3, issue 2: warn delivers the numbers unchanged and says so once a session."""
    local = reach()
    with (
        server_process("simulators.builders:served", name="reach", policy="warn") as server,
        RemoteEnv(server.address) as remote,
    ):
        assert remote.env_contract.id == "Meta-World/MT1"
        observation, info = remote.reset(seed=0)
        (note,) = info[WARNING]
        assert (note["kind"], note["path"]) == ("range", "observation")
        assert note["detail"].startswith("observation[36]: ") and "is outside" in note["detail"]
        local.reset(seed=0)
        assert not local.observation_space.contains(observation)
        assert observation.shape == (39,) and observation.dtype == np.float64
        for _ in range(20):
            observation, *_, info = remote.step(np.zeros(4))
            assert WARNING not in info
            assert (observation[36:] != 0).all()
        assert type(info["success"]) is float and type(info["obj_to_target"]) is float
    local.close()


@pytest.mark.parametrize("policy", ["off", "strict"])
def test_the_other_policies(policy: str) -> None:
    """CNF-2: off says nothing; strict ends the session by name."""
    with (
        server_process("simulators.builders:served", name="reach", policy=policy) as server,
        RemoteEnv(server.address) as remote,
    ):
        if policy == "off":
            assert WARNING not in remote.reset()[1]
            assert WARNING not in remote.step(np.zeros(4))[4]
        else:
            with pytest.raises(EnvironmentException, match=r"observation\[36\]: .* is outside"):
                remote.reset()
