"""Declared parameters: features.md section 19 (PAR)."""

from __future__ import annotations

import copy
import doctest
import enum
import importlib
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlmesh
from rlmesh import Param, ParamSpec, Vector, params
from rlmesh.params import (
    PARAM_METADATA_KEY,
    MissingParamError,
    ParamError,
    UnknownParamError,
    describe,
    resolve,
    to_metadata,
)


class Color(enum.Enum):
    RED = 1


class Weird:
    def __repr__(self) -> str:
        return "<weird>"


def target(
    suite="spatial", task=0, *, at=(0.0, 0.0, 1.0), camera=None, gain: float = 1.0, note="", **rest
):  # type: ignore[no-untyped-def]
    """What the parameters of most tests are for."""


SPEC = ParamSpec(
    Param("suite", choices=("spatial", "object", "goal"), description="Task suite", group="Tasks"),
    Param("task", int),
    Param("at", Vector(3, unit=True)),
    Param("camera", "camera"),
)


def one(kind: Any, value: Any, **declared: Any) -> Any:
    """Return what a lone parameter of that type makes of a value."""

    def take(it=None):  # type: ignore[no-untyped-def]
        pass

    return resolve(ParamSpec(Param("it", kind, **declared)), take, {"it": value})["it"]


@pytest.mark.parametrize("name", ["rlmesh.envs.params", "rlmesh.envs.binding"])
def test_the_examples_run(name: str) -> None:
    tests = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tests.attempted and not tests.failed


# PAR-1, PAR-2, PAR-3: declaring


def test_par_1_a_param_says_what_it_is() -> None:
    param = Param("suite")
    assert (param.name, param.type, param.choices) == ("suite", "str", None)
    assert (param.description, param.group) == ("", None)
    assert repr(Param("n", int, [1, 2], group="g")) == (
        "Param(name='n', type=<class 'int'>, choices=(1, 2), description='', group='g')"
    )


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Param(""), ValueError, "name must not be empty"),
        (lambda: Param(3), TypeError, "name must be a str, got 3"),  # type: ignore[arg-type]
        (lambda: Param("a", 3), TypeError, "type must be a str, got 3"),  # type: ignore[arg-type]
        (lambda: Param("a", ""), ValueError, "type must not be empty"),
        (lambda: Param("a", "enum"), ValueError, "an enum without choices"),
        (lambda: Param("a", choices=()), ValueError, "choices is empty"),
        (lambda: Param("a", choices="xy"), TypeError, "tuple of values, got 'xy'"),  # type: ignore[arg-type]
        (lambda: Param("a", choices=3), TypeError, "tuple of values, got 3"),  # type: ignore[arg-type]
        (lambda: Param("a", int, ("x",)), ValueError, "choice 'x' is a str, expected an int"),
        (lambda: Param("a", bool, (1,)), ValueError, "choice 1 is an int, expected a bool"),
        (lambda: Param("a", description=None), TypeError, "description must be a str"),  # type: ignore[arg-type]
        (lambda: Param("a", group=3), TypeError, "group must be a str or None"),  # type: ignore[arg-type]
        (lambda: ParamSpec(Param("suite"), Param("suite")), ValueError, "'suite' more than once"),
        (lambda: ParamSpec("suite"), TypeError, "takes Param objects, got 'suite'"),  # type: ignore[arg-type]
        (lambda: ParamSpec(extra="allow"), ValueError, "'forbid' or 'passthrough', got 'allow'"),  # type: ignore[arg-type]
        (lambda: Vector(0), ValueError, "dim must be >= 1, got 0"),
        (lambda: Vector(True), TypeError, "dim must be an int, got True"),
        (lambda: Vector(2.0), TypeError, "dim must be an int"),  # type: ignore[arg-type]
    ],
)
def test_par_1_to_3_an_impossible_declaration_is_refused(
    make: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make()


def test_they_are_frozen_data_that_is_equal_by_value_and_travels() -> None:
    again = ParamSpec(
        *(Param(p.name, p.type, p.choices, p.description, p.group) for p in SPEC.params)
    )
    assert again == SPEC and hash(again) == hash(SPEC)
    assert ParamSpec(*SPEC.params, extra="passthrough") != SPEC
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC == copy.deepcopy(SPEC)
    assert eval(repr(SPEC.params[2])) == SPEC.params[2]
    for thing, name in ((SPEC, "extra"), (SPEC.params[0], "name"), (Vector(2), "dim")):
        with pytest.raises(AttributeError):
            setattr(thing, name, "x")


# PAR-4: coercion


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (int, 3, 3),
        ("int", 3.0, 3),
        (int, np.int16(3), 3),
        (int, np.float32(3), 3),
        (float, 3, 3.0),
        ("float", 0.5, 0.5),
        (float, np.float32(0.5), 0.5),
        (str, "x", "x"),
        ("str", "", ""),
        (bool, True, True),
        ("bool", np.bool_(False), False),
        (Vector(2), [1, 2], (1.0, 2.0)),
        (Vector(2), (np.float32(1), 2), (1.0, 2.0)),
        (Vector(2, unit=True), (0.6, 0.8001), (0.6, 0.8001)),
    ],
)
def test_par_4_a_value_that_fits_becomes_one_of_the_type(kind: Any, value: Any, meant: Any) -> None:
    got = one(kind, value)
    assert got == meant and type(got) is type(meant)
    assert one(kind, got) == got  # what was resolved once fits as it is


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, True, "is a bool, expected an int"),
        (int, np.True_, "expected an int"),
        (int, 3.5, "no whole number, expected an int"),
        (int, math.nan, "no whole number"),
        (int, math.inf, "no whole number"),
        (int, "3", "is a str, expected an int"),
        (int, None, "is None, expected an int"),
        (float, True, "is a bool, expected a float"),
        (float, "1.0", "is a str, expected a float"),
        (float, math.nan, "not finite, expected a finite float"),
        (float, -math.inf, "not finite"),
        (float, 10**400, "not finite"),
        (str, 3, "is an int, expected a str"),
        (str, b"x", "is a bytes, expected a str"),
        (bool, 1, "is an int, expected a bool"),
        (bool, "true", "is a str, expected a bool"),
        (Vector(3), "abc", "is a str, expected a list or tuple of 3 numbers"),
        (Vector(3), (1, 2), "of length 2, expected a list or tuple of 3 numbers"),
        (Vector(2), (1, True), "element 1, True, is a bool"),
        (Vector(2), (1, math.inf), "element 1, inf, is not finite"),
        (Vector(2), {1: 2, 3: 4}, "is a dict, expected a list or tuple"),
        (Vector(2, unit=True), (0.6, 0.802), "of norm 1.0016, expected a unit vector"),
        (Vector(2, unit=True), (0, 0), "of norm 0, expected a unit vector"),
    ],
)
def test_par_4_a_value_of_another_type_is_refused(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(ParamError, match="got it=") as caught:
        one(kind, value)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["camera", list, Weird])
@pytest.mark.parametrize("value", [None, 3, "x", {"a": [1]}, Weird()])
def test_par_1_an_opaque_type_takes_any_value_as_it_is(kind: Any, value: Any) -> None:
    assert one(kind, value) is value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)
KINDS = st.sampled_from([int, float, str, bool, Vector(2), Vector(2, unit=True)])


@given(kind=KINDS, value=JSON)
def test_par_4_whatever_is_given_is_refused_or_becomes_one_of_the_type(
    kind: Any, value: Any
) -> None:
    try:
        got = one(kind, value)
    except ParamError:
        return
    if isinstance(kind, Vector):
        assert type(got) is tuple and len(got) == 2
        assert all(type(item) is float and math.isfinite(item) for item in got)
        assert list(got) == value
    else:
        assert type(got) is kind
        assert got == value or kind is float  # a great int loses its last digits
        assert isinstance(value, bool) == (kind is bool)


@given(value=st.integers(-(2**53), 2**53))
def test_par_4_whole_numbers_keep_their_value_in_both_forms(value: int) -> None:
    assert one(int, float(value)) == one(int, value) == value
    assert one(float, value) == float(value)


# PAR-5: choices


def test_par_5_choices_are_compared_after_coercion_and_a_bool_is_no_number() -> None:
    assert one(int, 2.0, choices=(1, 2)) == 2
    assert one(Vector(2), [0, 1], choices=((1, 0), (0, 1))) == (0.0, 1.0)
    assert one("enum", 1.0, choices=(1, "x")) == 1
    assert one("enum", [1, 2], choices=((1, 2), None)) == (1, 2)
    assert one("enum", None, choices=((1, 2), None)) is None
    assert one("enum", True, choices=(1, True)) is True
    for value in (True, False, "1", None, [1]):
        with pytest.raises(ParamError, match="not in choices"):
            one("enum", value, choices=(1, 0, "x"))


def test_par_5_an_array_is_no_choice_rather_than_an_error_of_its_own() -> None:
    with pytest.raises(ParamError, match="not in choices"):
        one("enum", np.zeros(3), choices=(1, 2))


@pytest.mark.parametrize(
    ("value", "choices", "meant"),
    [
        ("Spatial", ("spatial", "object"), "'spatial'"),
        ("spacial", ("spatial", "object"), "'spatial'"),
        (9, (1, 4, 16), "4"),
        (0.9, (0.5, 1.0), "1.0"),
        ("zzz", ("spatial", "object"), None),
        (True, (1, 2), None),
    ],
)
def test_par_5_the_nearest_choice_is_suggested(value: Any, choices: Any, meant: Any) -> None:
    with pytest.raises(ParamError) as caught:
        one("enum", value, choices=choices)
    message = str(caught.value)
    assert f"not in choices {list(choices)}" in message
    assert ("did you mean" in message) == (meant is not None)
    assert meant is None or f"did you mean {meant}?" in message


def test_par_5_of_many_choices_some_are_shown() -> None:
    with pytest.raises(ParamError, match=r"18, 19, and 80 more\]") as caught:
        one("enum", "x", choices=tuple(range(100)))
    assert "20," not in str(caught.value)


# PAR-6: what is not declared


def test_par_6_what_the_signature_annotates_is_checked_too() -> None:
    def take(n: int = 1, w: "float" = 1.0, s: str = "", b: bool = False, o: "int | None" = None):  # type: ignore[no-untyped-def]  # noqa: UP037
        pass

    spec = ParamSpec()
    assert resolve(spec, take, {"n": 2.0, "w": 3, "o": "any"}) == {"n": 2, "w": 3.0, "o": "any"}
    for name, value in {"n": "2", "w": True, "s": 1, "b": 0}.items():
        with pytest.raises(ParamError, match=f"take\\(\\) got {name}={value!r}"):
            resolve(spec, take, {name: value})


def test_par_6_a_typo_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownParamError) as caught:
        resolve(SPEC, target, {"tsk": 1, "Suite": "goal", "zzz": 0, "camera": 3})
    error = caught.value
    assert error.names == ["Suite", "tsk", "zzz"]
    assert isinstance(error, ParamError) and isinstance(error, ValueError)
    assert "no 'Suite' (did you mean 'suite'?), 'tsk' (did you mean 'task'?), 'zzz';" in str(error)
    assert "takes suite, task, at, camera, gain, note" in str(error)
    assert "extra='passthrough'" in str(error)


def test_par_6_extra_passes_through_keyword_arguments_only() -> None:
    spec = ParamSpec(*SPEC.params, extra="passthrough")
    assert resolve(spec, target, {"zzz": 1, "task": 2.0}) == {"zzz": 1, "task": 2}

    def closed(suite="spatial"):  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(UnknownParamError, match=r"needs a \*\*kwargs") as caught:
        resolve(ParamSpec(Param("suite"), extra="passthrough"), closed, {"zzz": 1})
    assert caught.value.names == ["zzz"]


def test_errors_say_whose_parameter_it_was() -> None:
    with pytest.raises(ParamError, match=r"^Libero\.target\(\) got task='3', which is a str"):
        resolve(SPEC, target, {"task": "3"}, "Libero")


# PAR-7: required


def test_par_7_what_has_no_default_is_required() -> None:
    def take(b, a, *, c, d=4):  # type: ignore[no-untyped-def]
        pass

    spec = ParamSpec(Param("a", int), Param("d", int))
    for given_, missing in (({}, "a"), ({"a": 1}, "b"), ({"a": 1, "b": 2}, "c")):
        with pytest.raises(MissingParamError, match=f"requires '{missing}'") as caught:
            resolve(spec, take, given_)
        assert caught.value.name == missing and isinstance(caught.value, ParamError)
    assert resolve(spec, take, {"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}


def test_par_7_a_param_that_nothing_receives_is_warned_of_or_refused() -> None:
    def take(suite="x"):  # type: ignore[no-untyped-def]
        pass

    spec = ParamSpec(Param("suite"), Param("sweet", int))
    with pytest.warns(UserWarning, match=r"'sweet' is declared, but take\(\) has no such"):
        assert resolve(spec, take, {"suite": "y"}) == {"suite": "y"}
    with pytest.raises(ParamError, match=r"cannot receive 'sweet'.*takes suite"):
        resolve(spec, take, {"sweet": 3})


def test_par_7_keyword_arguments_receive_what_is_declared() -> None:
    def take(**rest):  # type: ignore[no-untyped-def]
        pass

    spec = ParamSpec(Param("suite"))
    assert resolve(spec, take, {"suite": "y"}) == {"suite": "y"}
    with pytest.raises(MissingParamError):
        resolve(spec, take, {})


# PAR-8: without a spec


def test_par_8_without_a_spec_the_signature_is_the_contract() -> None:
    def take(steps: int, name="x"):  # type: ignore[no-untyped-def]
        pass

    assert resolve(None, take, {"steps": 3.0, "name": 4}) == {"steps": 3, "name": 4}
    with pytest.raises(UnknownParamError, match=r"no 'step' \(did you mean 'steps'"):
        resolve(None, take, {"step": 3})
    with pytest.raises(MissingParamError):
        resolve(None, take, {"name": "y"})
    assert resolve(None, target, {"anything": 1}) == {"anything": 1}


def test_par_8_models_are_bound_by_the_same_rules() -> None:
    """MOD-4: refused before anything is loaded."""
    loaded: list[Any] = []

    class Policy(rlmesh.numpy.Model):
        params = ParamSpec(Param("size", choices=("small", "large")), Param("steps", int))

        def load(self, size: str, steps: int = 4, note: str = "") -> None:
            loaded.append((size, steps, note))

        def predict(self, observation: Any) -> Any:
            return 0

    Policy.from_config(size="large", steps=2.0, note="n")
    assert loaded == [("large", 2, "n")]
    for config, words in (
        ({"size": "Large"}, "did you mean 'large'"),
        ({"size": "large", "step": 1}, "did you mean 'steps'"),
        ({"steps": 1}, "requires 'size'"),
        ({"size": "large", "note": 3}, "expected a str"),
    ):
        with pytest.raises(ParamError, match=words):
            Policy.from_config(**config)
    assert len(loaded) == 1


# PAR-9: exceptions


@pytest.mark.parametrize(
    "error",
    [
        ParamError("words"),
        UnknownParamError(["b", "a"]),
        UnknownParamError(["b", "a"], "words"),
        MissingParamError("x"),
        MissingParamError("x", "words"),
    ],
)
def test_par_9_errors_cross_processes(error: ParamError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == str(error)
        assert vars(again) == vars(error)
    assert isinstance(error, ValueError)


def test_par_9_errors_can_be_made_without_words() -> None:
    assert UnknownParamError(["b", "a"]).names == ["a", "b"]
    assert "a, b" in str(UnknownParamError(["b", "a"]))
    assert "'x'" in str(MissingParamError("x"))


# PAR-10, PAR-11: as data


def test_par_11_describe_lists_what_may_be_passed() -> None:
    spec = ParamSpec(*SPEC.params, Param("color", "enum", (Color.RED, (1, 2), math.inf)))
    described = describe(spec, target)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described == {
        "param_spec": {
            "extra": "forbid",
            "params": [
                {
                    "name": "suite",
                    "type": "str",
                    "required": False,
                    "default": "spatial",
                    "choices": ["spatial", "object", "goal"],
                    "description": "Task suite",
                    "group": "Tasks",
                },
                {"name": "task", "type": "int", "required": False, "default": 0},
                {
                    "name": "at",
                    "type": "vec3",
                    "required": False,
                    "default": [0.0, 0.0, 1.0],
                    "dim": 3,
                    "unit": True,
                },
                {"name": "camera", "type": "camera", "required": False, "default": None},
                {
                    "name": "color",
                    "type": "enum",
                    "required": True,
                    "choices": ["<Color.RED: 1>", [1, 2], None],
                },
            ],
        },
        "signature_tier": [
            {"name": "gain", "type": "float", "required": False, "default": 1.0},
            {"name": "note", "type": "str", "required": False, "default": ""},
        ],
    }


def test_par_11_describe_without_a_spec_shows_the_signature() -> None:
    def take(a, /, b, c: "list[int]", *args, d: Any = Weird(), e=True, f=None, **rest):  # type: ignore[no-untyped-def]  # noqa: UP037, B008
        pass

    assert describe(None, take) == {
        "param_spec": None,
        "signature_tier": [
            {"name": "b", "type": "str", "required": True, "default": None},
            {"name": "c", "type": "list[int]", "required": True, "default": None},
            {"name": "d", "type": "Any", "required": False, "default": "<weird>"},
            {"name": "e", "type": "bool", "required": False, "default": True},
            {"name": "f", "type": "str", "required": False, "default": None},
        ],
    }


def test_par_10_the_binding_is_published_with_what_was_checked() -> None:
    spec = ParamSpec(*SPEC.params, extra="passthrough")
    config = {"suite": "goal", "at": [0, 0, 1], "gain": 2, "camera": Weird(), "rest": math.nan}
    binding = resolve(spec, target, config)
    published = to_metadata(spec, target, binding)
    assert list(published) == [PARAM_METADATA_KEY] == ["rlmesh.params.v1.binding"]
    assert json.loads(json.dumps(published, allow_nan=False)) == published
    entry = published[PARAM_METADATA_KEY]
    assert entry["param_spec"] == describe(spec, target)["param_spec"]
    assert entry["binding"] == {
        "suite": "goal",
        "at": [0.0, 0.0, 1.0],
        "gain": 2.0,
        "camera": "<weird>",
        "rest": None,
    }
    assert entry["validated"] == {
        "suite": True,
        "at": True,
        "gain": True,
        "camera": True,
        "rest": False,
    }


def test_par_10_without_a_spec_nothing_is_published() -> None:
    assert to_metadata(None, target, {"task": 3}) == {}


def test_par_11_the_module_exports_them_all() -> None:
    assert params.ParamSpec is rlmesh.ParamSpec
    assert params.Vector is rlmesh.Vector and params.Param is rlmesh.Param


def test_a_spec_that_is_none_is_named() -> None:
    with pytest.raises(TypeError, match=r"Libero: params must be a ParamSpec or None, got \[\]"):
        resolve([], target, {}, "Libero")  # type: ignore[arg-type]
