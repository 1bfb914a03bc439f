"""The room as a package: what it imports, and that its examples run."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import rlmesh.models

MODULES = [m.name for m in pkgutil.iter_modules(rlmesh.models.__path__, "rlmesh.models.")]


@pytest.mark.parametrize("name", ["rlmesh.models", *MODULES])
def test_docstring_examples_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_importing_the_room_imports_only_numpy_and_no_higher_room() -> None:
    script = (
        "import sys, numpy; before = set(sys.modules); import rlmesh.models;"
        "new = set(sys.modules) - before;"
        "names = {m.partition('.')[0] for m in new} - set(sys.stdlib_module_names);"
        "rooms = {m.split('.')[1] for m in new if m.startswith('rlmesh.')};"
        "print(*sorted(names - {'rlmesh', 'numpy'} | rooms & {'evals', 'envs', 'transport'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []
