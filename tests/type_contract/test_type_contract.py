"""What a strict type checker makes of the public surface, and that what it is told is so.

``uses.py`` must be clean and run; every marked line of ``misuses.py`` must be refused, as marked.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
import pytest
import uses
from support import python_child

import rlmesh
import rlmesh.gymnasium
import rlmesh.numpy
import rlmesh.torch

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Observation = TypeVar("Observation")

Found = dict[str, dict[int, set[str]]]
"""The rules that are broken, by file and line."""


@pytest.fixture(scope="module")
def found() -> Found:
    """One pass over both files; they ask for strictness themselves, the project for the rest."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
        + [str(HERE / name) for name in ("uses.py", "misuses.py")],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, done.stdout
    found: Found = {"uses.py": {}, "misuses.py": {}}
    for entry in report["generalDiagnostics"]:
        line = entry["range"]["start"]["line"] + 1
        broken = found[Path(entry["file"]).name].setdefault(line, set())
        broken.add(entry.get("rule", entry["message"]))
    return found


def test_every_use_is_clean(found: Found) -> None:
    assert found["uses.py"] == {}


def test_every_misuse_is_refused_and_nothing_else(found: Found) -> None:
    marked: dict[int, set[str]] = {}
    for number, line in enumerate((HERE / "misuses.py").read_text().splitlines(), 1):
        marker = re.search(r"# error: (.+)$", line)
        if marker:
            marked[number] = set(marker[1].split(", "))
    assert len(marked) > 50
    assert found["misuses.py"] == marked


# What is declared is so


@pytest.fixture
def address() -> Iterator[str]:
    with rlmesh.EnvServer(uses.OwnEnv()) as server:
        server.start()
        yield server.address


@pytest.fixture
def lanes_address() -> Iterator[str]:
    with rlmesh.EnvServer([uses.OwnEnv(), uses.OwnEnv()]) as server:
        server.start()
        yield server.address


@pytest.fixture
def env() -> Iterator[Any]:
    env = gym.make("CartPole-v1")
    yield env
    env.close()


@pytest.mark.parametrize(
    "use",
    [
        *(uses.wrapping, uses.wrapping_with_hooks, uses.variance, uses.subclassing),
        *(uses.handed_on, uses.protocols, uses.names, uses.serving),
    ],
)
def test_a_use_runs(use: Callable[[], None]) -> None:
    use()


@pytest.mark.parametrize("use", [uses.clients, uses.gymnasium_clients, uses.running])
def test_a_use_of_a_served_env_runs(use: Callable[[str], None], address: str) -> None:
    use(address)


@pytest.mark.parametrize("use", [uses.vector_clients, uses.gymnasium_vector_clients])
def test_a_use_of_served_lanes_runs(use: Callable[[str], None], lanes_address: str) -> None:
    use(lanes_address)


def test_sessions_run(address: str, env: Any) -> None:
    uses.sessions(address, env)


def test_remote_models_run(env: Any) -> None:
    with rlmesh.ModelServer(rlmesh.numpy.Model(uses.plain)) as server:
        server.start()
        uses.remote_models(server.address, env)


def test_every_use_is_run() -> None:
    """A function that is added to the file is added here."""
    source = Path(__file__).read_text()
    helpers = {"plain", "in_context", "by_keyword", "if_asked", "with_weights", "reads_scene"}
    functions = {name for name, value in vars(uses).items() if _defined_there(value)}
    for name in functions - helpers - {"policies", "envs"}:
        assert f"uses.{name}" in source, name


def _defined_there(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and value.__module__ == uses.__name__


# At run time a class with type arguments is the class

GENERIC = [
    *(rlmesh.Model, rlmesh.numpy.Model, rlmesh.torch.Model, rlmesh.Session),
    *(rlmesh.RemoteEnv, rlmesh.RemoteVectorEnv, rlmesh.numpy.RemoteEnv, rlmesh.torch.RemoteEnv),
    *(rlmesh.gymnasium.RemoteEnv, rlmesh.gymnasium.RemoteVectorEnv),
]


@pytest.mark.parametrize("kind", GENERIC, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_type_arguments_may_be_left_out(kind: Any) -> None:
    """As a type checker has it; what is left out is Any."""
    assert kind[np.ndarray, int].__args__ == (np.ndarray, int)
    assert kind[np.ndarray].__args__ == (np.ndarray, Any)
    assert kind[np.ndarray].__origin__ is kind
    with pytest.raises(TypeError, match="Too many"):
        kind[int, int, int]


def test_a_client_with_type_arguments_is_the_client(address: str) -> None:
    """A run drives it through its connection, not as an env of this process."""
    with rlmesh.numpy.RemoteEnv[np.ndarray, int](address) as env:
        assert type(env) is rlmesh.numpy.RemoteEnv
        with rlmesh.session(uses.plain, env) as session:
            assert session.selected_workflow_edition == env.selected_workflow_edition
    theirs = rlmesh.gymnasium.RemoteEnv[np.ndarray, int](address)
    with rlmesh.session(uses.plain, theirs) as session:
        assert session.selected_workflow_edition
    theirs.close()


class OfOne(rlmesh.numpy.Model[np.ndarray]):
    def predict(self, observation: np.ndarray) -> int:
        return 1


class OfSome(rlmesh.numpy.Model[Observation, int], Generic[Observation]):
    def predict(self, observation: Observation) -> int:
        return 1


class OfText(OfSome[str]): ...


def test_a_generic_subclass_has_type_arguments_of_its_own() -> None:
    assert OfSome[str].__args__ == (str,)
    assert OfText().predict("") == 1
    assert OfSome[int](on_close=None).predict(3) == 1


def test_the_types_cost_no_import() -> None:
    """What they are written with is for type checkers, and may not be installed."""
    with python_child(
        "import sys, rlmesh, rlmesh.numpy; rlmesh.run, rlmesh.ModelServer\n"
        "print('typing_extensions' in sys.modules, 'rlmesh.types' in sys.modules)\n"
    ) as child:
        assert child.line() == "False False"


def test_a_model_with_type_arguments_is_the_model() -> None:
    made = rlmesh.numpy.Model[np.ndarray, int](uses.plain)
    assert type(made) is rlmesh.numpy.Model
    assert rlmesh.run(made, uses.OwnEnv(), seeds=[0]).success_rate == 1.0
    model = pickle.loads(pickle.dumps(OfOne()))
    assert type(model) is OfOne
    assert rlmesh.run(model, uses.OwnEnv(), seeds=[0]).success_rate == 1.0
