"""What a model's envelope is made of; nothing is made or loaded for it (DSC-1, DSC-3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from describe_targets import SPEC, Chunker, Misfits, Plain, Policy, Raw

import rlmesh
from rlmesh.numpy import Model


class Untouchable(Model):
    """Nothing of it may run."""

    spec = SPEC
    native_chunk = 5
    allow_fusion = False
    device = None

    def __new__(cls) -> Any:
        raise AssertionError

    def __init__(self) -> None:
        raise AssertionError

    def load(self, checkpoint: str = "a") -> None:
        raise AssertionError

    def predict_chunk(self, observation: Any, execution_horizon: int = 1) -> Any:
        raise AssertionError

    @staticmethod
    def predict_batch(observations: Any, *, context: Any) -> Any:
        raise AssertionError


def test_row_DSC_3_the_parts() -> None:
    envelope = rlmesh.describe(Untouchable)
    assert envelope["model_spec"] == SPEC.to_dict()
    assert envelope["corners"] == ["predict_chunk", "predict_batch"]
    assert envelope["native_chunk"] == 5
    assert envelope["params"] == {
        "param_spec": None,
        "signature_tier": [
            {"name": "checkpoint", "type": "str", "required": False, "default": "a"}
        ],
    }
    assert "variants" not in envelope


def test_what_else_is_known_of_a_model_is_beside_it() -> None:
    envelope = rlmesh.describe(Untouchable)
    assert envelope["signatures"] == {
        "predict_chunk": {"context": None, "execution_horizon": "positional"},
        "predict_batch": {"context": "keyword"},
    }
    assert envelope["sources"] == {
        "predict": "predict_batch",
        "predict_chunk": "predict_chunk",
        "predict_batch": "predict_batch",
        "predict_chunk_batch": None,
    }
    facts = (envelope["framework"], envelope["device"], envelope["allow_fusion"])
    assert facts == ("numpy", None, False)
    assert rlmesh.describe(Raw)["framework"] == "native"


@pytest.mark.parametrize("cls", [Untouchable, Chunker, Plain, Raw])
def test_a_class_describes_itself(cls: Any) -> None:
    """The classmethod and the function are one."""
    assert cls.describe() == rlmesh.describe(cls)


def test_a_model_without_a_spec_has_none_said_or_not() -> None:
    assert rlmesh.describe(Plain)["model_spec"] is None
    assert rlmesh.describe(Raw)["model_spec"] is None


def test_an_instance_says_more_than_its_class() -> None:
    class Loaded(Model):
        def load(self) -> None:
            self.spec = SPEC
            self.native_chunk = 3

        def predict_chunk(self, observation: Any) -> Any: ...

    assert rlmesh.describe(Loaded)["model_spec"] is None
    envelope = rlmesh.describe(Loaded())
    assert envelope["model_spec"] == SPEC.to_dict()
    assert envelope["native_chunk"] == 3
    wrapped = rlmesh.describe(Model(lambda obs, context: 0, spec=SPEC))
    assert wrapped["corners"] == ["predict"]
    assert wrapped["signatures"] == {"predict": {"context": "positional"}}
    assert wrapped["model_spec"] == SPEC.to_dict()


def test_policies_and_functions() -> None:
    for thing in (Policy, Policy()):
        envelope = rlmesh.describe(thing)
        assert envelope["corners"] == ["predict"]
        assert envelope["target"]["qualname"] == "describe_targets:Policy"
        assert envelope["framework"] == "numpy"

    class Called:
        def __call__(self, observation: Any) -> Any: ...

    assert rlmesh.describe(Called)["corners"] == ["predict"]
    envelope = rlmesh.describe(np.tanh, kind="model")
    assert envelope["corners"] == ["predict"]
    assert envelope["params"]["signature_tier"] == []


def test_a_variant_that_load_does_not_take() -> None:
    catalog = rlmesh.describe(Misfits)["variants"]["catalog"]
    assert ["error" in entry for entry in catalog] == [False, True, True]
    assert "takes no 'zz'" in catalog[1]["error"]
    assert catalog[1]["params"] == {"checkpoint": "a", "zz": 1}


def test_a_class_with_mistakes_is_described_with_them() -> None:
    class Broken(Model):
        spec = 3
        params = "checkpoint"  # type: ignore[assignment]

        def predict_chunk(self) -> Any: ...

    envelope = rlmesh.describe(Broken)
    assert envelope["model_spec"] == {
        "error": "spec must be a ModelSpec, rlmesh.NO_ADAPTER or None, got int",
        "error_type": "TypeError",
    }
    assert envelope["params"]["error_type"] == "TypeError"
    assert "must take an observation" in envelope["signatures"]["predict_chunk"]["error"]
    assert rlmesh.describe(Model)["corners"] == []


def test_a_corner_that_nothing_answers_has_no_source() -> None:
    class Chunks(rlmesh.Model):
        def predict_chunk(self, observation: Any) -> Any: ...

    assert rlmesh.describe(Chunks)["sources"]["predict"] is None
