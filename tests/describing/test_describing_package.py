"""The room as a package: what it imports, and that its examples run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from support import python_child

import rlmesh.describing

MODULES = [m.name for m in pkgutil.iter_modules(rlmesh.describing.__path__, "rlmesh.describing.")]


@pytest.mark.parametrize("name", ["rlmesh.describing", "rlmesh._build", "rlmesh.types", *MODULES])
def test_docstring_examples_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_describing_a_model_imports_no_framework_and_no_transport() -> None:
    with python_child(
        "import sys, rlmesh\n"
        "class Model(rlmesh.Model):\n"
        "    def predict(self, observation): return 0\n"
        "rlmesh.describe_json(Model)\n"
        "heavy = {'grpc', 'gymnasium', 'torch', 'jax', 'cv2', 'PIL', 'scipy', 'click', 'rich'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    ) as child:
        assert child.line() == "[]"
