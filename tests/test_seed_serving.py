"""model_reference.txt, "Serve and connect": one test a row, with the command as a real process.

``python -m rlmesh.serve`` has files of its own (test_serve*.py); this one follows the page.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_targets import Constant
from support import eventually, python_child
from support.processes import Child
from support.zoo import Countdown

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.numpy import Model, RemoteEnv
from rlmesh.spaces import Box, Dict

SECONDS = 60.0  # imports on a busy machine
START = re.compile(r"RLMesh serving (?:env|model) on (\S+) \(startup: [^)]*\)")


@contextmanager
def served(*arguments: str, **environ: str) -> Iterator[str]:
    """Give the address that a running command says it serves."""
    argv = [sys.executable, "-m", "rlmesh.serve", *arguments]
    with Child(argv, environ={"RLMESH_ADDRESS": "127.0.0.1:0", **environ}) as child:
        found = START.fullmatch(line := child.line(seconds=SECONDS))
        assert found, line
        yield found[1]


def action_of(model: Any) -> int:
    """Return the action that the model takes in a Countdown."""
    with rlmesh.session(model, Countdown(1)) as session:
        observation, _ = session.reset(seed=0)
        return int(session.predict(observation))


def told(address: str) -> tuple[str, str]:
    """Return what the action of a served Telling was, and where."""
    with RemoteEnv(address) as remote:
        remote.reset()
        info = remote.step([0.5, 1])[4]
        return info["kind"], info["where"]


def test_row_serve_hosts_the_model_as_a_blocking_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "policy.sock"
    code = (
        "from rlmesh.numpy import Model\n"
        f"Model(lambda observation: 4).serve('unix://{path}')\n"
        "print('not reached', flush=True)"
    )
    with python_child(code) as child:
        eventually(path.exists, "the model listens")
        assert action_of(rlmesh.RemoteModel(f"unix://{path}")) == 4
        child.signal(signal.SIGINT)
        assert child.wait(seconds=SECONDS) != 0  # KeyboardInterrupt, once it is closed
        assert "KeyboardInterrupt" in child.errors() and not path.exists()


def test_row_a_spec_is_resolved_per_env_from_the_contract_of_the_handshake() -> None:
    class Arm:
        """Its joints lie where ``key`` says."""

        action_space = Box(-9, 9, (2,))

        def __init__(self, key: str) -> None:
            self.key = key
            self.observation_space = Dict({key: Box(-9, 9, (2,)), "other": Box(0, 1, (1,))})
            self.metadata = adapt.EnvTags(
                {key: adapt.StateTag(adapt.JOINT_POS)},
                adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
            ).to_metadata()

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.state = np.array([seed, 1], np.float32)
            return {self.key: self.state, "other": np.ones(1, np.float32)}, {}

        def step(self, action: Any) -> Any:
            assert action.tolist() == (self.state * 2).tolist()
            return *self.reset(seed=0)[:1], float(action[0]), True, False, {}

        def close(self) -> None:
            pass

    class Doubling(Model):
        spec = adapt.ModelSpec(
            {"state": adapt.State(adapt.JOINT_POS, dim=2)},
            adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
        )

        def predict(self, observation: Any) -> Any:
            return observation["state"] * 2

    with rlmesh.ModelServer(Doubling()) as server:
        server.start()
        model = rlmesh.RemoteModel(server.address)
        for key in ("q", "joints"):
            assert [e.reward for e in rlmesh.run(model, Arm(key), seeds=[1, 3]).episodes] == [2, 6]
        with pytest.raises(rlmesh.ModelException, match="no adapter tags"):
            rlmesh.run(model, Countdown(1), seeds=[0])


@pytest.mark.parametrize("spec", [None, rlmesh.NO_ADAPTER], ids=["spec-less", "NO_ADAPTER"])
def test_row_a_model_without_an_adapter_serves_its_own_predict(spec: Any) -> None:
    seen: list[Any] = []
    model = Model(lambda observation: seen.append(observation) or 2, spec=spec)
    with rlmesh.ModelServer(model) as server:
        server.start()
        assert action_of(rlmesh.RemoteModel(server.address)) == 2
    observation, _ = Countdown(1).reset(seed=0)
    assert [np.asarray(raw).tolist() for raw in seen] == [np.asarray(observation).tolist()]


def test_row_the_lazy_path_writes_the_serve_loop() -> None:
    """``python -m rlmesh.serve my_pkg:MyPolicy``"""
    with served("serve_targets:Constant") as address:
        assert action_of(rlmesh.RemoteModel(address)) == 1


# "The serve env vars match the environment serve CLI"


@pytest.mark.parametrize("target", ["serve_targets:Constant", "serve_targets:make_env"])
def test_variable_rlmesh_address_is_the_bind_address(target: str, tmp_path: Path) -> None:
    where = f"unix://{tmp_path}/it.sock"
    with served(target, RLMESH_ADDRESS=where) as address:
        assert address == where


def test_variable_rlmesh_make_kwargs_is_bound_to_load() -> None:
    with served("serve_targets:Constant", RLMESH_MAKE_KWARGS='{"action": 3}') as address:
        assert action_of(rlmesh.RemoteModel(address)) == 3


def test_variable_rlmesh_make_kwargs_is_bound_to_what_makes_an_env() -> None:
    with served("serve_factories:Countdowns", RLMESH_MAKE_KWARGS='{"length": 4}') as address:
        result = rlmesh.run(rlmesh.RANDOM_SAMPLE, address, seeds=[0])
        assert result.total_steps == 4


@pytest.mark.parametrize(
    ("value", "kind"), [("torch", "torch"), ("jax", "jaxlib"), ("numpy", "numpy")]
)
def test_variable_rlmesh_framework(value: str, kind: str) -> None:
    with served("frameworks.framework_targets:Telling", RLMESH_FRAMEWORK=value) as address:
        assert told(address)[0] == kind


@pytest.mark.parametrize(
    ("framework", "device", "where"), [("torch", "cpu", "cpu"), ("jax", "cpu:0", "cpu:0")]
)
def test_variable_rlmesh_device_places_the_incoming_action(
    framework: str, device: str, where: str
) -> None:
    environ = {"RLMESH_FRAMEWORK": framework, "RLMESH_DEVICE": device}
    with served("frameworks.framework_targets:Telling", **environ) as address:
        assert told(address)[1] == where


def test_variable_rlmesh_device_is_for_torch_and_jax_envs_only() -> None:
    with served("frameworks.framework_targets:Telling", RLMESH_DEVICE="cuda:0") as address:
        assert told(address) == ("numpy", "host")
    with served("serve_targets:Constant", RLMESH_DEVICE="cuda:0") as address:  # env-side
        assert action_of(rlmesh.RemoteModel(address)) == 1


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_variable_rlmesh_device_that_is_none_is_refused_before_an_env_is_made(
    framework: str, tmp_path: Path
) -> None:
    environ = {
        "RLMESH_FRAMEWORK": framework,
        "RLMESH_DEVICE": "moon",
        "RLMESH_MAKE_KWARGS": json.dumps({"folder": str(tmp_path)}),
    }
    argv = [sys.executable, "-m", "rlmesh.serve", "serve_factories:Countdowns"]
    with Child(argv, environ={"RLMESH_ADDRESS": "127.0.0.1:0", **environ}) as child:
        assert child.wait(seconds=SECONDS) == 1
        (line,) = child.errors().splitlines()
        assert f"device='moon': {framework} cannot put actions there" in line
    assert not list(tmp_path.iterdir())


# "Connect to a served model"


def test_row_remote_model_is_un_managed_and_plugs_into_run_and_session() -> None:
    """The server was there before, and is there afterwards."""
    with rlmesh.ModelServer(Constant.from_config(action=2)) as server:
        server.start()
        model = rlmesh.RemoteModel(server.address)
        expected = rlmesh.run(Constant.from_config(action=2), Countdown(2), seeds=range(3))
        served_run = rlmesh.run(model, Countdown(2), seeds=range(3))
        rewards = [episode.reward for episode in served_run.episodes]
        assert rewards == [episode.reward for episode in expected.episodes]
        assert action_of(model) == action_of(model) == 2
