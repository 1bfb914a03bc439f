"""PKG-7, PKG-8: what is imported when, and what is said where a library is missing or too old."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import SOURCE

BLOCK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

asked = []
sys.meta_path.insert(0, Blocker())
"""

USES = """
import importlib, json
import rlmesh
from rlmesh.spaces import Box

bound = importlib.import_module(f"rlmesh.{NAME}")
said = {}

class Env:
    observation_space = action_space = Box(-1, 1, (2,))
    def reset(self, seed=None, options=None): return [0, 0], {}
    def step(self, action): return [0, 0], 0.0, False, False, {}
    def close(self): pass

class Policy(bound.Model):
    def load(self): raise AssertionError("loaded before the library was missed")
    def predict(self, observation): return observation

class Envs(bound.EnvFactory):
    def make(self): return Env()

for what, use in {
    "ensure_available": bound.ensure_available,
    "Model": lambda: bound.Model(lambda observation: observation),
    "subclass": Policy,
    "RemoteEnv": lambda: bound.RemoteEnv("127.0.0.1:1"),
    "RemoteVectorEnv": lambda: bound.RemoteVectorEnv("127.0.0.1:1"),
    "RemoteModel": lambda: bound.RemoteModel("127.0.0.1:1"),
    "EnvServer": lambda: rlmesh.EnvServer(Env(), framework=NAME),
    "factory": lambda: rlmesh.EnvServer(Envs().make()),
    "array": lambda: (bound.as_tensor if NAME == "torch" else bound.asarray)(1),
}.items():
    try:
        use()
        said[what] = "worked"
    except ImportError as exc:
        said[what] = str(exc)
print(json.dumps(said))
"""


def run(code: str, *, path: str = "", **names: Any) -> str:
    header = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    paths = os.pathsep.join(filter(None, [path, str(SOURCE)]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", header + code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_missing_library_is_named_with_the_line_that_installs_it(name: str) -> None:
    """PKG-8: importing the module works; using a class of it says what to install."""
    said = json.loads(run(BLOCK + USES, NAME=name, BLOCKED=[name]))
    assert set(said.values()) == {
        f"rlmesh.{name} requires {name}. Install rlmesh[{name}]: pip install 'rlmesh[{name}]'"
    }


def test_a_jax_that_is_too_old_is_told_from_a_missing_one(tmp_path: Path) -> None:
    """PKG-8: the floor is named, and what was found."""
    (tmp_path / "jax.py").write_text("__version__ = '0.4.23'")
    said = json.loads(run(USES, NAME="jax", path=str(tmp_path)))
    assert set(said.values()) == {
        "rlmesh.jax requires jax>=0.4.24, found 0.4.23: pip install --upgrade 'rlmesh[jax]'"
    }


def test_who_uses_no_torch_and_no_jax_imports_neither() -> None:
    """Serving, driving and evaluating in NumPy, though the bound modules are imported."""
    code = """
import numpy as np, rlmesh, rlmesh.torch, rlmesh.jax
from rlmesh.numpy import Model, RemoteEnv
from rlmesh.spaces import Box

class Env:
    observation_space = action_space = Box(-1, 1, (2,))
    def reset(self, seed=None, options=None): return np.zeros(2), {}
    def step(self, action): return np.zeros(2), np.float32(1), False, np.True_, {"a": np.ones(2)}
    def close(self): pass

class Unused(rlmesh.torch.Model):
    def predict(self, observation): return observation

assert Unused.describe()["framework"] == "torch"
with rlmesh.EnvServer(Env(), framework="numpy") as server:
    server.start()
    with RemoteEnv(server.address) as remote:
        remote.reset()
        remote.step(np.zeros(2))
    assert rlmesh.run(Model(lambda o: o), server.address, seeds=[0]).num_episodes == 1
assert rlmesh.run(Model(lambda o: o), Env(), seeds=[0]).num_episodes == 1
print(asked)
"""
    blocked = ["torch", "jax", "jaxlib", "gymnasium"]
    assert set(json.loads(run(BLOCK + code, BLOCKED=blocked).replace("'", '"'))) <= {"gymnasium"}
