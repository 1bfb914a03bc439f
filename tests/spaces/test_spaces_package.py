"""The room as a package: what it imports, and that its examples run."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import rlmesh.spaces

MODULES = ["rlmesh.spaces"] + [
    module.name for module in pkgutil.iter_modules(rlmesh.spaces.__path__, "rlmesh.spaces.")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    names = {n: getattr(rlmesh.spaces, n) for n in rlmesh.spaces.__all__}
    failed, _ = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert failed == 0


@pytest.mark.parametrize(
    "name", ["Box", "Discrete", "MultiBinary", "MultiDiscrete", "Text", "Dict", "Tuple"]
)
def test_every_class_a_user_constructs_shows_an_example(name: str) -> None:
    assert ">>> " in getattr(rlmesh.spaces, name).__doc__


def test_importing_the_room_imports_only_numpy() -> None:
    script = (
        "import sys, numpy, rlmesh; before = set(sys.modules); import rlmesh.spaces;"
        "names = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(*sorted(names - set(sys.stdlib_module_names) - {'rlmesh', 'numpy'}))"
    )
    output = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == ""
