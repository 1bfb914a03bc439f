"""Variants, catalogues and trials: features.md FAC-7, FAC-8, TRI-2."""

from __future__ import annotations

import doctest
import importlib
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlmesh
from rlmesh import EnvFactory, Variant, trial_index
from rlmesh.envs.trials import takes_trials
from rlmesh.envs.variants import read_axes, read_variants


class Catalogue(EnvFactory):
    def make(self, task: int = 0) -> Any:
        raise AssertionError("nothing is built to list what could be")

    @classmethod
    def enumerate_variants(cls) -> Iterator[Any]:
        yield Variant("first", {"task": 0}, name="The first")
        yield {"id": "second", "params": {"task": 1}, "name": "The second", "level": 2}
        yield {"id": "third"}
        raise RuntimeError("who asks for a fourth?")

    @classmethod
    def enumerate_params(cls) -> dict[str, Any]:
        return {"task": range(3), "suite": "spatial", "size": ("s", "l")}


@pytest.mark.parametrize("name", ["rlmesh.envs.variants", "rlmesh.envs.trials"])
def test_the_examples_run(name: str) -> None:
    tests = doctest.testmod(importlib.import_module(name))
    assert tests.attempted and not tests.failed


def test_fac_7_a_variant_is_named_params() -> None:
    given = {"task": 3}
    variant = Variant("pick-3", given, name="Pick", id="of something else", params=7)
    given["task"] = 4
    assert (variant.id, variant.params) == ("pick-3", {"task": 3})
    assert variant.metadata == {"name": "Pick", "id": "of something else", "params": 7}
    assert repr(Variant("a", {"x": 1}, name="A")) == (
        "Variant(id='a', params={'x': 1}, metadata={'name': 'A'})"
    )


def test_fac_7_variants_are_equal_by_value() -> None:
    assert Variant("a", {"x": 1}, name="A") == Variant("a", {"x": 1}, name="A")
    assert Variant("a", {"x": 1}) != Variant("a", {"x": 2})
    assert Variant("a", {}) != Variant("b", {}) and Variant("a", {}) != "a"
    assert Variant("a", {}, name="A") != Variant("a", {})
    assert pickle.loads(pickle.dumps(Variant("a", {"x": 1}, k=2))) == Variant("a", {"x": 1}, k=2)
    with pytest.raises(AttributeError):
        Variant("a", {}).id = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("a", 3), ValueError, "params of variant 'a' must be a mapping.*got int"),
        (("a", None), ValueError, "must be a mapping.*got NoneType"),
        (("a", [("x", 1)]), ValueError, "must be a mapping.*got list"),
        (("", {}), ValueError, "id must not be empty"),
        ((3, {}), TypeError, "id must be a str, got 3"),
    ],
)
def test_fac_7_an_impossible_variant_is_refused(
    arguments: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Variant(*arguments)


def test_fac_8_a_catalogue_is_read_lazily() -> None:
    for source in (Catalogue, Catalogue()):
        first = list(itertools.islice(read_variants(source), 3))
        assert first == [
            Variant("first", {"task": 0}, name="The first"),
            Variant("second", {"task": 1}, name="The second", level=2),
            Variant("third", {}),
        ]
    with pytest.raises(RuntimeError, match="a fourth"):
        list(read_variants(Catalogue))


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ([Variant("a", {}), {"id": "a"}], ValueError, "duplicate variant id 'a'"),
        ([3], TypeError, "Variant objects, or mappings with an id; got 3"),
        ([{"name": "a"}], TypeError, "mappings with an id"),
        ([("a", {})], TypeError, "mappings with an id"),
        ([{"id": ""}], ValueError, "must not be empty"),
        (None, TypeError, "not iterable"),
    ],
)
def test_fac_8_an_impossible_catalogue_is_refused(
    entries: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        list(read_variants(type("Some", (), {"enumerate_variants": lambda self: entries})()))


def test_fac_8_axes_are_lists_and_a_str_is_one_value() -> None:
    assert read_axes(Catalogue) == {"task": [0, 1, 2], "suite": ["spatial"], "size": ["s", "l"]}


@pytest.mark.parametrize(
    ("axes", "words"),
    [([1], "must return a mapping.*got list"), ({"task": 3}, "'task' must have a list of values")],
)
def test_fac_8_impossible_axes_are_refused(axes: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        read_axes(type("Some", (), {"enumerate_params": lambda self: axes})())


# TRI-2: in the env


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        (None, None),
        ({}, None),
        ({"trial_index": 7}, 7),
        ({"trial_index": 7.0}, 7),
        ({"trial_index": np.int64(7)}, 7),
        ({"trial_index": 0}, 0),
        ({"trial_index": True}, None),
        ({"trial_index": "7"}, None),
        ({"trial_index": None}, None),
        ({"trial_index": float("nan")}, None),
        ({"trial_index": float("inf")}, None),
        ({"trial": 7}, None),
    ],
)
def test_tri_2_the_env_reads_its_trial(options: Any, meant: Any) -> None:
    got = trial_index(options)
    assert got == meant and (got is None or type(got) is int)


@pytest.mark.parametrize(
    ("metadata", "takes"),
    [
        (None, False),
        ({}, False),
        ({rlmesh.ENV_RESET_OPTIONS_KEY: ["trial_index"]}, True),
        ({rlmesh.ENV_RESET_OPTIONS_KEY: ("length", "trial_index")}, True),
        ({rlmesh.ENV_RESET_OPTIONS_KEY: ["length"]}, False),
        ({rlmesh.ENV_RESET_OPTIONS_KEY: "trial_index"}, False),
        ({rlmesh.ENV_RESET_OPTIONS_KEY: 3}, False),
    ],
)
def test_tri_1_an_env_lists_its_reset_options(metadata: Any, takes: bool) -> None:
    assert takes_trials(metadata) == takes
