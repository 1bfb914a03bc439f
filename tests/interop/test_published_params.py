"""Declared parameters do what they do in rlmesh 0.1.0: accepted, converted, refused, published."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from interop_params import CASES, FACTORIES, MODELS
from reference_process import Reference
from test_docs import free_port

MODEL_CASES = [
    *(["declared", config] for name, config in CASES if name == "wide"),
    ["undeclared", {"suite": 3}],
    ["undeclared", {"suite": 3, "steps": 2.0}],
    ["undeclared", {"suite": 3, "steps": "2"}],
    ["undeclared", {"suite": 3, "step": 2}],
    ["undeclared", {"steps": 2}],
    ["undeclared, open", {"suite": 3, "step": 2}],
]
ENVELOPES = [*([name, "env"] for name in FACTORIES), *([name, "model"] for name in MODELS)]
BINDING = {"suite": "object", "task": 2.0, "at": [0, 1, 0], "extra": 3, "zz": [1, {"a": None}]}


@pytest.fixture(scope="module")
def answers(reference: Reference) -> tuple[Any, Any]:
    """What the published package and ours make of the same orders, each in a process of its own."""

    def ask(where: Reference) -> Any:
        order = {
            "outcomes": CASES,
            "models": MODEL_CASES,
            "envelopes": ENVELOPES,
            "published": [BINDING, free_port()],
        }
        return where.order("params.py", order)

    return ask(reference), ask(Reference(sys.executable))


@pytest.mark.parametrize("part", ["outcomes", "models"])
def test_every_configuration_ends_the_same_way(answers: tuple[Any, Any], part: str) -> None:
    theirs, ours = (answer[part] for answer in answers)
    cases = CASES if part == "outcomes" else MODEL_CASES
    different = [
        (case, their, our)
        for case, their, our in zip(cases, theirs, ours, strict=True)
        if their != our
    ]
    assert not different
    raised = {outcome.get("raised") for outcome in ours}
    assert {None, "ParamError", "UnknownParamError", "MissingParamError"} <= raised


def test_describe_says_the_same(answers: tuple[Any, Any]) -> None:
    theirs, ours = (answer["envelopes"] for answer in answers)
    for name, their, our in zip(ENVELOPES, theirs, ours, strict=True):
        assert our == their, name


def test_the_served_env_publishes_the_same(answers: tuple[Any, Any]) -> None:
    theirs, ours = (answer["published"] for answer in answers)
    assert set(ours) == {"rlmesh.params.v1.binding", "rlmesh.env.v1.reset_options"}
    assert ours == theirs
