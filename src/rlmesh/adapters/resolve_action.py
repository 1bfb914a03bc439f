"""The env's action, block by block, from the model's."""

from __future__ import annotations

import math
from typing import Any

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.custom_encodings import check_action_encoding
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.features import declared_bounds, space_name, uniform_bounds
from rlmesh.adapters.matching import Findings, check_frame, offer, with_part
from rlmesh.adapters.plan import ActionBlock, ActionPlan, EncodingStep, FillBlock, ModelBlock
from rlmesh.adapters.resolve_state import axis_fault, label_order
from rlmesh.adapters.state_steps import (
    Affine,
    Clip,
    MapRange,
    Negate,
    Permute,
    Rotate,
    Scale,
    Shift,
    Sign,
    Threshold,
    VectorStep,
)
from rlmesh.adapters.vocabulary import ROTATION_DIMS, conventional_width
from rlmesh.spaces import Box, Space

__all__ = ["check_env_action", "resolve_action"]

Bounds = tuple[float, float]


def check_env_action(action: Action, space: Space) -> list[Bounds | None]:
    """Check an env's action layout against its space; the range of each actuator, None if unknown.

    Raises:
        AdapterResolutionError: they do not fit; the message names the actuator.
    """
    if not isinstance(space, Box):
        raise AdapterResolutionError(
            f"the action space must be a flat Box but it is {space_name(space)}"
        )
    width = math.prod(space.shape)
    if action.dim != width:
        raise AdapterResolutionError(
            f"action component dims sum to {action.dim} but the action space width is {width}; "
            "describe every element (an Actuator without role is opaque)"
        )
    ranges: list[Bounds | None] = []
    start = 0
    for item in action.components:
        stop = start + item.dim
        ranges.append(_check_env_actuator(item, uniform_bounds(space, start, stop)))
        start = stop
    return ranges


def _check_env_actuator(item: Actuator, bounds: Bounds | None) -> Bounds | None:
    if item.role is None:
        return bounds
    if isinstance(item.encoding, CustomEncoding):
        raise AdapterResolutionError(
            f'action component "{item.role}": an env actuator declares a plain rotation encoding; '
            "a CustomEncoding belongs on the model's output"
        )
    expected = conventional_width(item.role)
    if expected is not None and expected != item.dim:
        raise AdapterResolutionError(
            f'"{item.role}" declares role "{item.role}", which is {expected}-D by convention, but '
            f"its width is {item.dim}"
        )
    _check_encoding_width(item)
    _check_axes(item, "the env's")
    return declared_bounds(item.role, item.range, bounds)


def _check_encoding_width(item: Actuator) -> None:
    encoding = _encoding(item)
    if encoding is not None and ROTATION_DIMS[encoding] != item.dim:
        raise AdapterResolutionError(
            f'action component "{item.role}" declares encoding {encoding} '
            f"({ROTATION_DIMS[encoding]} dims) but its dim is {item.dim}"
        )


def _check_axes(item: Actuator, whose: str) -> None:
    for what, value in (("axis_scale", item.scale), ("axis_offset", item.offset)):
        fault = axis_fault(what, value, item.dim)
        if fault:
            raise AdapterResolutionError(f'action role "{item.role}": {whose} {fault}')


def _encoding(item: Actuator) -> str | None:
    return item.encoding.base if isinstance(item.encoding, CustomEncoding) else item.encoding


def resolve_action(
    env: Action,
    space: Space,
    model: Action,
    findings: Findings,
    *,
    check_inverse: bool = True,
) -> ActionPlan:
    """The blocks of the env's action.

    Raises:
        AdapterResolutionError: a role the env needs is missing, or two sides contradict each other.
    """
    ranges = check_env_action(env, space)
    encodings = _check_model(model, check_inverse)
    blocks: list[ActionBlock] = []
    used: set[int] = set()
    for item, bounds in zip(env.components, ranges, strict=True):
        if item.role is None:
            blocks.append(FillBlock(None, item.fill, item.dim))
            continue
        match = _match(item, model)
        if match is None:
            blocks.append(_fill(item, model, findings))
            continue
        start, output = match
        used.add(start)
        blocks.append(_block(item, output, start, bounds, findings))
    _note_dropped(model, used, findings)
    return ActionPlan(
        model_dim=model.dim,
        blocks=tuple(blocks),
        clip=env.clip,
        shape=tuple(space.shape),
        dtype=space.dtype,
        encodings=tuple(step for step in encodings if step.start in used),
    )


def _check_model(model: Action, check_inverse: bool) -> list[EncodingStep]:
    if model.clip is not None:
        raise AdapterResolutionError(
            "clip is an env-side actuator clamp; the model's Action must leave it unset"
        )
    encodings: list[EncodingStep] = []
    start = 0
    for item in model.components:
        if item.clip:
            raise AdapterResolutionError(
                f'action role "{item.role}": clip is an env-side actuator clamp; declare it on the '
                "env's actuator"
            )
        expected = conventional_width(item.role) if item.role else None
        if expected is not None and expected != item.dim:
            raise AdapterResolutionError(
                f'action role "{item.role}": model declares {item.dim} dims but the role is '
                f"{expected}-D by convention"
            )
        _check_encoding_width(item)
        if isinstance(item.encoding, CustomEncoding):
            check_action_encoding(item, check_inverse)
            encodings.append(EncodingStep(item.encoding, start, True, ""))
        start += item.dim
    return encodings


def _match(item: Actuator, model: Action) -> tuple[int, Actuator] | None:
    start = 0
    for output in model.components:
        if output.role == item.role and output.part == item.part:
            return start, output
        start += output.dim
    return None


def _fill(item: Actuator, model: Action, findings: Findings) -> FillBlock:
    assert item.role is not None
    if not item.optional:
        outputs = [output for output in model.components if output.role is not None]
        raise AdapterResolutionError(
            f"env action needs role {with_part(item.role, item.part)} but the model only outputs "
            f"{offer(outputs)}; give the model that actuator, or set optional=True on the env's"
        )
    findings.add(
        "caution",
        "filled-action",
        f'action "{item.role}": the model does not output this optional role; fabricating '
        f"{item.dim} dim(s) of {float(item.fill):g}",
    )
    if "/" not in item.role:
        findings.unmatched("env", "this model", item.role)
    return FillBlock(item.role, item.fill, item.dim)


def _note_dropped(model: Action, used: set[int], findings: Findings) -> None:
    start = 0
    for output in model.components:
        if output.role is not None and start not in used:
            findings.unmatched("model", "this env", output.role)
        start += output.dim


def _block(
    env: Actuator, model: Actuator, start: int, bounds: Bounds | None, findings: Findings
) -> ModelBlock:
    role = env.role
    assert role is not None
    frame = check_frame("frame", role, model.frame, env.frame, findings)
    reference = check_frame("reference", role, model.reference, env.reference, findings)
    steps: list[VectorStep] = []
    _rotate(env, model, steps)
    _map_range(model, bounds, steps, findings)
    _model_steps(model, env, steps)
    _labels(env, model, steps)
    _env_steps(env, model, steps)
    tags = (("@", frame), ("~", reference), ("#", env.part))
    return ModelBlock(
        role=role,
        start=start,
        stop=start + model.dim,
        steps=tuple(steps),
        tag="".join(f"{mark}{value}" for mark, value in tags if value),
        dim=env.dim,
    )


def _rotate(env: Actuator, model: Actuator, steps: list[VectorStep]) -> None:
    source, target = _encoding(model), _encoding(env)
    if (source is None) != (target is None):
        names = [f'"{name}"' if name else "None" for name in (source, target)]
        raise AdapterResolutionError(
            f'action role "{env.role}": cannot convert encoding {names[0]} to {names[1]}; both '
            "sides must declare a rotation encoding"
        )
    if source is None or target is None or source == target:
        if env.dim != model.dim:
            raise AdapterResolutionError(
                f'action role "{env.role}": model outputs {model.dim} dims but the env expects '
                f"{env.dim}"
            )
        return
    for what, per_axis in (
        ("axis_scale/axis_offset", any(isinstance(v, tuple) for v in (model.scale, model.offset))),
        ("labels", model.labels is not None),
    ):
        if per_axis:
            raise AdapterResolutionError(
                f'action role "{env.role}": the model\'s {what} cannot apply across a rotation '
                f'conversion "{source}"->"{target}"; they name elements that are gone by then'
            )
    steps.append(Rotate(source, target))


def _map_range(
    model: Actuator, bounds: Bounds | None, steps: list[VectorStep], findings: Findings
) -> None:
    if model.range is None:
        return
    source = (float(model.range[0]), float(model.range[1]))
    if bounds is None:
        findings.note(
            "caution",
            "range-without-target",
            f'model action (role "{model.role}"): a range is set but the env actuator has no '
            "bounds that all its elements share, so nothing is mapped; declare range= on the env's "
            "actuator",
        )
        return
    if source == bounds:
        return
    if source[0] == source[1]:
        raise AdapterResolutionError(
            f'action role "{model.role}": the model\'s range {source} has zero width and cannot be '
            "mapped"
        )
    steps.append(MapRange(source, bounds))


def _model_steps(model: Actuator, env: Actuator, steps: list[VectorStep]) -> None:
    for what, value in (("axis_scale", model.scale), ("axis_offset", model.offset)):
        fault = axis_fault(what, value, env.dim)
        if fault:
            raise AdapterResolutionError(f'action role "{model.role}": the model\'s {fault}')
    scale: Any = model.scale
    offset: Any = model.offset
    if scale is not None or offset is not None:
        named = env.labels if model.labels is None else model.labels
        labels = None if named is None else tuple(named)
        steps.append(Affine(scale, offset, labels, "model"))
    if model.invert:
        steps.append(Negate("model"))
    if model.threshold is not None:
        steps.append(Threshold(float(model.threshold), "model"))


def _labels(env: Actuator, model: Actuator, steps: list[VectorStep]) -> None:
    if model.labels is None:
        return
    named = None if env.labels is None else tuple(env.labels)
    where = f'action role "{env.role}": the model'
    model_order = tuple(model.labels)
    label_order(model_order, named, where, "the env actuator", "the model")
    assert named is not None
    order = tuple(model_order.index(label) for label in named)
    if order != tuple(range(len(order))):
        steps.append(Permute(order))


def _env_steps(env: Actuator, model: Actuator, steps: list[VectorStep]) -> None:
    scale: Any = env.scale
    offset: Any = env.offset
    labels = None if env.labels is None else tuple(env.labels)
    if scale is not None:
        steps.append(Scale(scale, labels))
    if offset is not None:
        steps.append(Shift(offset, labels))
    if env.invert:
        steps.append(Negate())
    if env.threshold is not None:
        steps.append(Threshold(float(env.threshold)))
    binary = env.binary or model.binary
    thresholds = (env.threshold, model.threshold)
    if any(value is not None for value in thresholds) and not binary:
        raise AdapterResolutionError(
            f'action role "{env.role}": threshold requires a binary component; set binary=True on '
            "one side"
        )
    if binary:
        steps.append(Sign(zero_is_up=any(value is not None for value in thresholds)))
    if env.clip:
        assert env.range is not None
        steps.append(Clip(float(env.range[0]), float(env.range[1])))
