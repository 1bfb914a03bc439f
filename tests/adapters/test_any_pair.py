"""Any tags, any spec: resolve refuses with a reason or gives an adapter that works."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from building import JOINTS
from hypothesis import event, given, settings
from hypothesis import strategies as st
from spec_strategies import env_tags, images, model_specs, numbers, states

import rlmesh.adapters as adapt
from rlmesh.adapters.plan import ImageInput
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, Space, Tuple
from rlmesh.spaces import Text as TextSpace


@st.composite
def spaces_of(draw: Any, node: Any) -> Space:
    """A space that tags could have been written for; now and then another one."""
    if isinstance(node, dict):
        return Dict.ordered({key: draw(spaces_of(child)) for key, child in node.items()})
    if isinstance(node, tuple):
        return Tuple([draw(spaces_of(child)) for child in node])
    if isinstance(node, adapt.ImageTag):
        sides = draw(st.sampled_from([(5, 7, 3), (3, 5, 7), (4, 4, 1), (2, 2, 4)]))
        dtype = draw(st.sampled_from(["uint8", "float32"]))
        return Box(0, 255 if dtype == "uint8" else 1, sides, dtype)
    if isinstance(node, adapt.TextTag):
        return TextSpace(8)
    width = node.dim if isinstance(node, adapt.Split) else draw(st.integers(1, 6))
    kinds = [
        Box("-inf", "inf", (width,), "float32"),
        Box(-1, 1, (width,), "float64"),
        MultiBinary(width),
        Discrete(3),
    ]
    return draw(st.sampled_from(kinds))


@settings(max_examples=100, deadline=None)
@given(tags=env_tags(), spec=model_specs(), data=st.data())
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_any_pair(tags: adapt.EnvTags, spec: adapt.ModelSpec, data: st.DataObject) -> None:
    observation_space = data.draw(spaces_of(tags.observation))
    action_space = Box(-1, 1, (tags.action.dim,), "float32")
    if data.draw(st.booleans()):
        # A model that emits what the env takes, so that more pairs get past the actions.
        spec = adapt.ModelSpec(spec.input, plain(tags.action))
    try:
        adapter = adapt.resolve(tags, observation_space, action_space, spec)
    except adapt.AdapterResolutionError as exc:
        event("refused")
        assert len(str(exc)) > 20
        return
    event("resolved")
    assert adapter.explain().startswith("observation:\n")
    sample = observation_space.sample()
    try:
        payload = adapter.transform_obs(sample)
    except ValueError as exc:
        # What only the values can show: a fraction in an integer input.
        assert "cannot cast non-integral" in str(exc) or "out of range" in str(exc)
        return
    assert isinstance(payload, (dict, list, np.ndarray, str))
    action = adapter.transform_action(np.zeros(spec.output.dim, np.float32))
    assert action.shape == (tags.action.dim,) and action.dtype == np.float32


ROTATIONS = sorted(set(adapt.ROTATION_DIMS) - {"gravity_xyz"})


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pairs_that_fit(data: st.DataObject) -> None:
    """A camera, a rotation, joints and a text, asked for in every way a spec can ask."""
    layout = data.draw(st.sampled_from(["hwc", "chw"]))
    encoding = data.draw(st.sampled_from(ROTATIONS))
    shape = (5, 7, 3) if layout == "hwc" else (3, 5, 7)
    tags = adapt.EnvTags(
        {
            "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, layout, data.draw(st.booleans())),
            "rot": adapt.StateTag(adapt.EEF_ROT, encoding),
            "joints": adapt.StateTag(adapt.JOINT_POS, range=(-2, 2), labels=["p", "q"]),
            "task": adapt.TextTag(adapt.INSTRUCTION),
        },
        JOINTS,
    )
    space = Dict(
        {
            "rgb": Box(0, 255, shape, "uint8"),
            "rot": Box(-1, 1, (adapt.ROTATION_DIMS[encoding],), "float32"),
            "joints": Box("-inf", "inf", (2,), "float32"),
            "task": TextSpace(8),
        }
    )
    image = dataclasses.replace(
        data.draw(images()),
        role=adapt.IMAGE_PRIMARY,
        part=None,
        channels=None,
        render=None,
        dtype="float32",
        allow_upscale=True,
        fit=data.draw(st.sampled_from(["stretch", "crop", "pad"])),
        resample=data.draw(st.sampled_from(["bilinear", "area", "bilinear_aa", "bicubic_aa"])),
        height=data.draw(st.none() | st.integers(1, 12)),
        width=data.draw(st.none() | st.integers(1, 12)),
    )
    if image.stack == 1:
        image = dataclasses.replace(image, stack_pad="first")
    state = dataclasses.replace(
        data.draw(states()),
        role=adapt.JOINT_POS,
        encoding=None,
        post_rotate=None,
        part=None,
        frame=None,
        scale=data.draw(st.none() | numbers),
        offset=None,
        dim=None,
        labels=data.draw(st.sampled_from([None, ("q", "p")])),
        index=None,
    )
    rotation = adapt.State(adapt.EEF_ROT, data.draw(st.sampled_from(sorted(adapt.ROTATION_DIMS))))
    spec = adapt.ModelSpec(
        {
            "image": image,
            "state": adapt.Concat(state, rotation),
            "task": adapt.Text(adapt.INSTRUCTION),
        },
        JOINTS,
    )
    adapter = adapt.resolve(tags, space, Box(-9, 9, (tags.action.dim,), "float32"), spec)
    payload = adapter.transform_obs(space.sample())
    step = adapter.plan.inputs[0]
    assert isinstance(step, ImageInput)
    stacked = (image.stack,) if image.stack > 1 else ()
    assert payload["image"].shape == (*stacked, *step.out_shape)
    assert payload["image"].dtype == np.float32
    height = image.height or (step.out_shape[-2] if image.layout == "chw" else None)
    assert height is None or height in step.out_shape
    assert payload["state"].shape == (2 + adapt.ROTATION_DIMS[str(rotation.encoding)],)
    assert np.isfinite(payload["state"]).all()
    again = adapt.resolve(
        adapt.EnvTags.from_json(tags.to_json()),
        space.to_gymnasium_space(),
        Box(-9, 9, (tags.action.dim,), "float32"),
        adapt.ModelSpec.from_json(spec.to_json()),
    )
    assert again.explain() == adapter.explain()


def plain(action: adapt.Action) -> adapt.Action:
    items = [
        adapt.Actuator(item.role, item.dim, item.encoding, part=item.part)
        if item.role
        else adapt.Actuator(None, item.dim)
        for item in action.components
    ]
    return adapt.Action(*items)
