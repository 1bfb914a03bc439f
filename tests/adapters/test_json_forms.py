"""18.11: the JSON forms, read and written as rlmesh 0.1.0 reads and writes them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from black_box import reference_python
from hypothesis import HealthCheck, given, settings
from spec_strategies import env_tags, model_specs

import rlmesh.adapters as adapt
from rlmesh.adapters.json_read import tags_from_dict

ACTION = {"components": [{"role": "action/joint_pos", "dim": 2}]}
Ask = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def reference() -> Iterator[Ask]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RLMESH_"))}
    process = subprocess.Popen(
        [reference_python(), str(Path(__file__).with_name("reference_forms.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=kept,
    )
    assert process.stdin is not None and process.stdout is not None

    def ask(kind: str, text: str) -> dict[str, Any]:
        process.stdin.write(json.dumps({"kind": kind, "text": text}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.communicate(timeout=20)


@given(tags=env_tags())
def test_tags_survive_their_json(tags: adapt.EnvTags) -> None:
    assert adapt.EnvTags.from_json(tags.to_json()) == tags
    assert adapt.EnvTags.from_metadata(tags.to_metadata()) == tags


@given(spec=model_specs())
def test_specs_survive_their_json(spec: adapt.ModelSpec) -> None:
    text = spec.to_json()
    again = adapt.ModelSpec.from_json(text)
    assert again.to_json() == text
    assert adapt.ModelSpec.from_metadata(spec.to_metadata()) == again


_interop = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_interop
@given(tags=env_tags())
def test_tags_travel_through_rlmesh_0_1_0(tags: adapt.EnvTags, reference: Ask) -> None:
    text = tags.to_json()
    answer = reference("tags", text)
    assert answer.get("text") == text, answer
    assert adapt.EnvTags.from_json(answer["text"]) == tags


@_interop
@given(spec=model_specs())
def test_specs_travel_through_rlmesh_0_1_0(spec: adapt.ModelSpec, reference: Ask) -> None:
    text = spec.to_json()
    answer = reference("spec", text)
    assert answer.get("text") == text, answer
    assert adapt.ModelSpec.from_json(answer["text"]).to_json() == text


def test_custom_encodings_travel_as_their_names(reference: Ask) -> None:
    local = adapt.CustomEncoding("rot6d", lambda v: v, lambda v: v)
    named = adapt.CustomEncoding("quat_xyzw", "pack:there", "pack:back", "packed")
    spec = adapt.ModelSpec(
        {
            "a": adapt.State("proprio/eef_rot", local),
            "b": adapt.Concat("proprio/eef_pos", adapt.State("proprio/eef_rot", named)),
        },
        adapt.Action(adapt.Actuator("action/eef_rot", 6, local)),
    )
    data = spec.to_dict()
    assert data["input"]["a"]["components"][0]["encoding"] == {
        "base": "rot6d",
        "from_base": "<local>",
        "to_base": "<local>",
    }
    assert reference("spec", spec.to_json())["text"] == spec.to_json()
    again = adapt.ModelSpec.from_dict(data)
    assert again.input["b"].parts[1].encoding == named
    assert again.to_dict() == data


def tags_of(node: Any, action: Any = ACTION, **more: Any) -> dict[str, Any]:
    return {"observation": node, "action": action, **more}


def spec_of(node: Any, output: Any = ACTION) -> dict[str, Any]:
    return {"input": node, "output": output}


STATE = {"type": "state", "role": "proprio/joint_pos"}


@pytest.mark.parametrize(
    ("data", "where", "what"),
    [
        (tags_of({"s": {**STATE, "foo": 1}}), "observation.s", 'unrecognized field "foo"'),
        (
            tags_of([{"type": "split", "fields": [{"role": "a", "dim": 2, "foo": 1}]}]),
            "observation[0].fields[0]",
            'unrecognized field "foo"',
        ),
        (tags_of(STATE, {"components": [{"dim": 1, "foo": 2}]}), "action.components[0]", "prefix"),
        (tags_of(STATE, foo=1), "invalid env tags:", 'unrecognized field "foo"'),
        (tags_of({"s": {"type": "lidar"}}), "observation.s", 'unrecognized kind "lidar"'),
        (tags_of({"s": {"type": "state"}}), "observation.s", "missing field 'role'"),
        (tags_of({"s": {**STATE, "range": [1, 0]}}), "observation.s.range", "min <= max"),
        (tags_of({"s": {**STATE, "range": [0]}}), "observation.s.range", "pair"),
        (tags_of({"s": {**STATE, "range": [0, float("nan")]}}), "observation.s", "finite"),
        (tags_of({"s": {**STATE, "range": [0, float("inf")]}}), "observation.s", "finite"),
        (tags_of({"s": {**STATE, "encoding": []}}), "observation.s", "at least one"),
        (tags_of({"s": {**STATE, "role": 3}}), "observation.s.role", "expected a string"),
        (tags_of({"s": {**STATE, "role": "foo/bar"}}), "observation.s", "does not define"),
        (tags_of({"s": {"type": 3}}), "observation.s", 'may not be called "type"'),
        (tags_of(3), "observation", "expected a leaf"),
        (
            tags_of(STATE, {"components": [{"dim": -1}]}),
            "components[0].dim",
            "non-negative integer",
        ),
        (
            tags_of(STATE, {"components": [{"dim": 1.0}]}),
            "components[0].dim",
            "non-negative integer",
        ),
        (tags_of(STATE, {"components": [{"dim": True}]}), "components[0].dim", "integer"),
        (tags_of(STATE, {"components": [{"dim": 1}], "clip": [2, 1]}), "action.clip", "min <= max"),
        (tags_of(STATE, {"components": []}), "action", "at least one actuator"),
        ({"observation": STATE}, "invalid env tags", "missing field 'action'"),
        ([], "invalid env tags", "expected an object"),
    ],
)
def test_what_is_wrong_with_tags_and_where(data: Any, where: str, what: str) -> None:
    with pytest.raises(ValueError, match="invalid env tags") as caught:
        adapt.EnvTags.from_dict(data)
    assert where in str(caught.value) and what in str(caught.value), caught.value
    assert "numpy" not in str(caught.value) and "dict" not in str(caught.value).replace(
        "a dict", ""
    )


@pytest.mark.parametrize(
    ("node", "where", "what"),
    [
        ({"type": "image", "role": "a", "stack": 65}, "input.stack", "between 1 and 64"),
        ({"type": "image", "role": "a", "height": -1}, "input.height", "non-negative integer"),
        ({"type": "image", "role": "a", "size": 8}, "input", 'unrecognized field "size"'),
        ({"type": "image", "role": "a", "normalize": "yes"}, "input.normalize", "pair"),
        ({"type": "image", "role": "a", "fill": 3}, "input", "fill only applies"),
        ({"type": "image", "role": "a", "layout": "whc"}, "input.layout", "hwc, chw"),
        ({"type": "state", "components": []}, "input", "at least one component"),
        ({"type": "state", "components": [{"dim": 3}]}, "input", "only Constant parts"),
        ({"type": "state", "components": [{"fill": 3}]}, "components[0]", "needs dim"),
        ({"type": "state", "components": [{"dim": 1, "scale": 2}]}, "components[0]", "drop scale"),
        (
            {"type": "state", "components": [{"role": "a", "scale": 2, "axis_scale": [1]}]},
            "components[0]",
            "both scale and axis_scale",
        ),
        (
            {
                "type": "state",
                "components": [
                    {
                        "role": "a",
                        "encoding": "rot6d",
                        "post_rotate": {"encoding": "rot6d", "value": [2, 0, 0, 0, 2, 0]},
                    }
                ],
            },
            "post_rotate",
            "is not a rotation",
        ),
        ({"type": "text", "role": "a", "fill": 3}, "input.fill", "expected a string"),
        ({"type": "custom", "entrypoint": "a:b"}, "input", "cannot travel"),
        ({"x": {"type": "lidar"}}, "input.x", 'unrecognized kind "lidar"'),
    ],
)
def test_what_is_wrong_with_a_spec_and_where(node: Any, where: str, what: str) -> None:
    with pytest.raises(ValueError, match="invalid model spec") as caught:
        adapt.ModelSpec.from_dict(spec_of(node))
    assert where in str(caught.value) and what in str(caught.value), caught.value


def test_fields_marked_as_extensions_are_ignored() -> None:
    tags = adapt.EnvTags.from_dict(
        tags_of(
            {"s": {**STATE, "x-note": 1, "ext.vendor": {"a": 2}}},
            {"components": [{"role": "action/joint_pos", "dim": 2, "x-note": 1}], "x-note": 1},
        )
    )
    assert tags == adapt.EnvTags.from_dict(tags_of({"s": STATE}))


def test_a_leaf_of_a_later_version_is_kept_but_not_published() -> None:
    data = tags_of({"s": STATE, "points": {"type": "lidar", "role": "x/points", "beams": 64}})
    tags = tags_from_dict(data, keep_unknown=True)
    assert tags.observation_roles.states == ("proprio/joint_pos",)
    with pytest.raises(ValueError, match='unrecognized kind "lidar"'):
        tags.to_dict()


def test_one_element_lists_become_the_element() -> None:
    node = {"s": {**STATE, "encoding": ["rot6d"]}}
    assert (
        adapt.EnvTags.from_dict(tags_of(node)).to_dict()["observation"]["s"]["encoding"] == "rot6d"
    )


def test_a_lone_part_reads_back_as_concat_or_state() -> None:
    plain = adapt.ModelSpec.from_dict(spec_of({"type": "state", "components": ["a"]}))
    assert plain.input == adapt.Concat("a")
    sized = {"type": "state", "components": [{"role": "a", "dim": 2}], "pad_to": 3}
    assert adapt.ModelSpec.from_dict(spec_of(sized)).input == adapt.State("a", dim=2, pad_to=3)


def test_a_previous_action_keeps_its_source_in_json() -> None:
    spec = adapt.ModelSpec(
        adapt.Previous("action/joint_pos", fill=0.5),
        adapt.Action(adapt.Actuator("action/joint_pos", 2)),
    )
    assert adapt.ModelSpec.from_json(spec.to_json()) == spec


def test_metadata() -> None:
    assert adapt.EnvTags.from_metadata({}) is None
    assert adapt.ModelSpec.from_metadata({"other": 1}) is None
    for cls, key in (
        (adapt.EnvTags, adapt.ENV_METADATA_KEY),
        (adapt.ModelSpec, adapt.MODEL_METADATA_KEY),
    ):
        with pytest.raises(adapt.AdapterResolutionError, match="must hold a mapping"):
            cls.from_metadata({key: 3})
