"""The room as a package: its examples run, and each file is one idea."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import rlmesh.evals
import rlmesh.numpy

MODULES = [m.name for m in pkgutil.iter_modules(rlmesh.evals.__path__, "rlmesh.evals.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_the_examples_are_there() -> None:
    """A class a user constructs has a runnable example."""
    import rlmesh

    for thing in (rlmesh.run, rlmesh.Session, rlmesh.Model, rlmesh.partial_result):
        assert ">>> " in (thing.__doc__ or ""), thing


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_no_higher_room_and_no_extra(name: str) -> None:
    """At module level; what a function imports, its caller asked for."""
    path = Path(str(importlib.import_module(name).__file__))
    imported: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    tops = {name.partition(".")[0] for name in imported}
    assert not tops & {"gymnasium", "gym", "torch", "jax", "rich", "grpc", "cv2"}
    assert not any(module.startswith(("rlmesh.cli", "rlmesh.viewer")) for module in imported)
