"""A vector input of a spec, joined with the states of the env."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Any

import numpy as np

from rlmesh.adapters.actions import Action
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.custom_encodings import check_observation_encoding
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.features import EnvFeatures, StateFeature, native_encoding
from rlmesh.adapters.matching import (
    Findings,
    check_frame,
    match_part,
    match_provenance,
    offer,
    quoted,
    refuse_unknown,
    with_part,
)
from rlmesh.adapters.plan import (
    ConstPiece,
    EncodingStep,
    FillPiece,
    Piece,
    PreviousPiece,
    SourcePiece,
    StateInput,
)
from rlmesh.adapters.specs import Concat, Constant, State
from rlmesh.adapters.state_steps import (
    Affine,
    Head,
    MapRange,
    Permute,
    Rotate,
    Take,
    VectorStep,
)
from rlmesh.adapters.trees import Path, path_name
from rlmesh.adapters.vocabulary import IMAGE_DTYPES, ROTATION_DIMS

__all__ = ["axis_fault", "label_order", "resolve_state"]


def resolve_state(
    leaf: State | Concat,
    placement: Path,
    env: EnvFeatures,
    output: Action,
    findings: Findings,
    *,
    check_inverse: bool = True,
) -> StateInput:
    """The pieces of this input, and what is done to them together.

    Raises:
        AdapterResolutionError: a role is missing, or the pieces do not fit what is asked of them.
    """
    name = path_name(placement)
    if leaf.dtype not in IMAGE_DTYPES:
        raise AdapterResolutionError(
            f'model input "{name}": unknown dtype "{leaf.dtype}"; expected one of '
            f"{', '.join(sorted(IMAGE_DTYPES))}"
        )
    parts = (leaf,) if isinstance(leaf, State) else leaf.parts
    pieces: list[Piece] = []
    encodings: list[EncodingStep] = []
    for part in parts:
        state = State(part) if isinstance(part, str) else part
        if isinstance(state, State) and isinstance(state.encoding, CustomEncoding):
            check_observation_encoding(state, leaf, name, check_inverse)
            start = sum(piece.width for piece in pieces)
            encodings.append(EncodingStep(state.encoding, start, False, name))
        pieces.append(_piece(state, name, env, output, findings))
    _note_fills(pieces, name, findings)
    width = sum(piece.width for piece in pieces)
    if leaf.pad_to is not None and leaf.pad_to < width:
        raise AdapterResolutionError(
            f'model input "{name}": the state has {width} dims, more than pad_to={leaf.pad_to}'
        )
    return StateInput(
        placement=placement,
        pieces=tuple(pieces),
        clip=leaf.clip,
        pad_to=leaf.pad_to,
        dtype=leaf.dtype,
        shape=_shape(leaf, max(width, leaf.pad_to or 0), name),
        container=leaf.container,
        encodings=tuple(encodings),
    )


def _note_fills(pieces: list[Piece], name: str, findings: Findings) -> None:
    filled = sum(isinstance(piece, FillPiece) for piece in pieces)
    if filled:
        findings.add(
            "caution",
            "filled-state",
            f'state "{name}": {filled} component(s) zero-filled for an absent env role',
        )


def _shape(leaf: State | Concat, width: int, name: str) -> tuple[int, ...]:
    if leaf.reshape is None or leaf.container == "list":
        return (width,)
    known = math.prod(size for size in leaf.reshape if size != -1)
    free = -1 in leaf.reshape
    if (free and (known == 0 or width % known)) or (not free and known != width):
        raise AdapterResolutionError(
            f'model input "{name}": cannot reshape {width} elements to {list(leaf.reshape)}'
        )
    return tuple(width // known if size == -1 else size for size in leaf.reshape)


def _piece(
    part: State | Constant, name: str, env: EnvFeatures, output: Action, findings: Findings
) -> Piece:
    if isinstance(part, Constant):
        return ConstPiece(part.fill, part.dim)
    if part.source == "action":
        return _previous(part, name, output)
    found = match_part(env.states, "state", part.role, part.part, name, findings)
    if found:
        accepted = _names(part.provenance)
        feature = match_provenance(found, part.role, accepted, name, findings)
        return _source(part, feature, name, findings)
    refuse_unknown(env, part.role, name)
    findings.unmatched("model", "this env", part.role)
    if part.optional:
        return _fill(part, name)
    raise AdapterResolutionError(
        f'model input "{name}" needs state role {with_part(part.role, part.part)} but the env '
        f"offers {offer(env.states)}; tag a leaf so, or set optional=True with dim= to fill it"
    )


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


# From a leaf of the env


def _source(part: State, feature: StateFeature, name: str, findings: Findings) -> SourcePiece:
    steps: list[VectorStep] = []
    width = _convert(part, feature, name, steps)
    width = _select(part, feature, name, width, steps)
    _map_range(part, feature, name, steps, findings)
    _affine(part, name, width, steps, _names_after(part, feature, steps))
    if len(steps) >= 2 and isinstance(steps[-1], Affine) and isinstance(steps[-2], MapRange):
        findings.note(
            "info",
            "range-and-affine",
            f'model input "{name}": state role "{part.role}" sets both range and scale/offset; the '
            "range map runs first, scale and offset apply to its result",
        )
    frame = check_frame("frame", part.role, part.frame, feature.frame, findings)
    accepted = _names(part.provenance)
    provenance = feature.provenance or (accepted[0] if len(accepted) == 1 else None)
    tags = (("@", frame), ("#", feature.part), ("#", provenance))
    return SourcePiece(
        source=feature.path,
        leaf_width=feature.leaf_width,
        start=feature.start,
        width_in=feature.width,
        steps=tuple(steps),
        tag="".join(f"{mark}{value}" for mark, value in tags if value),
        width=width,
    )


def _convert(part: State, feature: StateFeature, name: str, steps: list[VectorStep]) -> int:
    """Append the rotation conversion; the width after it."""
    custom = isinstance(part.encoding, CustomEncoding)
    wanted = (part.encoding.base,) if isinstance(part.encoding, CustomEncoding) else ()
    wanted = wanted if custom else _names(part.encoding)
    if not wanted and not feature.encodings:
        return feature.width
    known = [item for item in wanted if item in ROTATION_DIMS]
    if wanted and not known:
        raise AdapterResolutionError(
            f'model input "{name}": state role "{part.role}" has unknown rotation encoding '
            f"{quoted(wanted)}; expected one of {', '.join(sorted(ROTATION_DIMS))} or a "
            "CustomEncoding"
        )
    if not wanted or not feature.encodings:
        source = f'"{feature.encodings[0]}"' if feature.encodings else "None"
        target = f'"{wanted[0]}"' if wanted else "None"
        raise AdapterResolutionError(
            f'model input "{name}": state role "{part.role}": cannot convert encoding {source} to '
            f"{target}; both sides must declare a rotation encoding"
        )
    native = native_encoding(feature.encodings)
    if native is None:
        raise AdapterResolutionError(
            f'model input "{name}": state role "{part.role}": env declares only unrecognized '
            f"rotation encoding(s) {quoted(feature.encodings)}; upgrade the runtime to one that "
            "recognizes them"
        )
    target = native if native in wanted else known[0]
    if native == "gravity_xyz" and (target != native or part.post_rotate is not None):
        raise AdapterResolutionError(
            f'model input "{name}": state role "{part.role}": the env declares encoding '
            f'"gravity_xyz", a direction and no rotation, which cannot be converted to "{target}"'
        )
    if target != native or part.post_rotate is not None:
        if part.labels is not None:
            raise AdapterResolutionError(
                f'model input "{name}": state role "{part.role}" names labels and converts '
                f'"{native}" to "{target}"; labels name the env\'s elements, so drop one of the two'
            )
        steps.append(Rotate(native, target, part.post_rotate))
    return ROTATION_DIMS[target]


def _select(
    part: State, feature: StateFeature, name: str, width: int, steps: list[VectorStep]
) -> int:
    """Append labels, index or dim; the width after them."""
    where = f'state role "{part.role}"'
    if part.labels is not None:
        order = label_order(
            tuple(part.labels),
            feature.labels,
            f'model input "{name}": {where}',
            "the env leaf",
            "the model input",
        )
        width = len(order)
        identity = order == tuple(range(width))
        steps.append(Head(width) if identity else Permute(order))
    elif part.index is not None:
        if part.index >= width:
            raise AdapterResolutionError(
                f'model input "{name}": {where}: index {part.index} is out of range for the '
                f'width-{width} source feature "{feature.name}"'
            )
        steps.append(Take(part.index))
        width = 1
    elif part.dim is not None:
        if part.dim > width or part.dim < 1:
            raise AdapterResolutionError(
                f'model input "{name}": {where}: requested {part.dim} dims but the source feature '
                f'"{feature.name}" has width {width}'
            )
        steps.append(Head(part.dim))
        width = part.dim
    return width


def label_order(
    wanted: tuple[str, ...],
    offered: tuple[str, ...] | None,
    where: str,
    env_side: str,
    model_side: str,
) -> tuple[int, ...]:
    """Where each wanted label stands among the offered ones.

    Raises:
        AdapterResolutionError: no labels are offered, or another set of them.
    """
    if offered is None:
        bare = env_side.removeprefix("the ")
        raise AdapterResolutionError(
            f"{where} names labels {quoted(wanted)} but {env_side} declares none; label the {bare} "
            "(labels=) so that the elements can be aligned"
        )
    lacking = [
        f"{side} lacks {quoted(missing)}"
        for side, missing in (
            (env_side, [label for label in wanted if label not in offered]),
            (model_side, [label for label in offered if label not in wanted]),
        )
        if missing
    ]
    if lacking:
        raise AdapterResolutionError(
            f"{where} names labels {quoted(wanted)} but {' and '.join(lacking)}; the two must name "
            "the same set"
        )
    return tuple(offered.index(label) for label in wanted)


def _map_range(
    part: State, feature: StateFeature, name: str, steps: list[VectorStep], findings: Findings
) -> None:
    if part.range is None:
        return
    target = (float(part.range[0]), float(part.range[1]))
    source = feature.bounds
    if source is None:
        findings.note(
            "caution",
            "range-without-source",
            f'model input "{name}": state role "{part.role}" sets a range but the env declares no '
            f'bounds that all elements of "{feature.name}" share, so nothing is mapped; declare '
            "range= on the env's tag",
        )
        return
    if source[0] == source[1]:
        raise AdapterResolutionError(
            f'model input "{name}": state role "{part.role}": the env\'s range {source} has zero '
            "width and cannot be mapped"
        )
    if any(isinstance(step, Rotate) for step in steps):
        findings.add(
            "caution",
            "range-after-rotation",
            f'model input "{name}": state role "{part.role}": the env\'s range {source} describes '
            "its own encoding but is mapped after the conversion to another",
        )
    steps.append(MapRange(source, target))


def _affine(
    part: State,
    name: str,
    width: int,
    steps: list[VectorStep],
    labels: tuple[str, ...] | None = None,
) -> None:
    if part.scale is None and part.offset is None:
        return
    where = f'model input "{name}": state role "{part.role}"'
    for what, value in (("axis_scale", part.scale), ("axis_offset", part.offset)):
        fault = axis_fault(what, value, width)
        if fault:
            raise AdapterResolutionError(f"{where}: {fault}")
    scale: Any = part.scale
    offset: Any = part.offset
    steps.append(Affine(scale, offset, labels))


def _names_after(
    part: State, feature: StateFeature, steps: list[VectorStep]
) -> tuple[str, ...] | None:
    """What the elements that are left are called; None after a rotation, or without labels."""
    if feature.labels is None or any(isinstance(step, Rotate) for step in steps):
        return None
    if part.labels is not None:
        return tuple(part.labels)
    if part.index is not None:
        return (feature.labels[part.index],)
    return feature.labels[: part.dim]


def axis_fault(what: str, value: Any, width: int) -> str | None:
    """What is wrong with the length of per-axis values, None if nothing."""
    count = len(value) if isinstance(value, Sized) else width
    return (
        None if count == width else f"{what} has {count} values but the resolved width is {width}"
    )


# From nowhere, or from the model itself


def _fill(part: State, name: str) -> FillPiece:
    width = _fill_width(part)
    if width is None:
        raise AdapterResolutionError(
            f'model input "{name}": optional state role "{part.role}" needs dim, index, or '
            "encoding to size its zero fill"
        )
    steps: list[VectorStep] = []
    _affine(part, name, width, steps)
    value: float | tuple[float, ...] = float(part.fill)
    if steps:
        filled = steps[0].apply(np.full(width, float(part.fill))).tolist()
        value = filled[0] if len(set(filled)) == 1 else tuple(filled)
    return FillPiece(value, f"#{part.part}" if part.part else "", width)


def _fill_width(part: State) -> int | None:
    if part.index is not None:
        return 1
    if part.dim is not None:
        return part.dim
    if part.labels is not None:
        return len(part.labels)
    known = native_encoding(_names(part.encoding))
    return None if known is None else ROTATION_DIMS[known]


def _previous(part: State, name: str, output: Action) -> PreviousPiece:
    where = f'model input "{name}"'
    start = 0
    for item in output.components:
        if item.role == part.role and item.part == part.part:
            break
        start += item.dim
    else:
        outputs = [item for item in output.components if item.role is not None]
        raise AdapterResolutionError(
            f"{where} reads the previous action for role {with_part(part.role, part.part)} but no "
            f"actuator emits it; the model outputs {offer(outputs)}"
        )
    if part.dim is not None and part.dim != item.dim:
        raise AdapterResolutionError(
            f'{where}: previous action role "{part.role}" declares dim {part.dim} but the actuator '
            f"emits {item.dim}"
        )
    order = None
    if part.labels is not None:
        offered = None if item.labels is None else tuple(item.labels)
        order = label_order(
            tuple(part.labels),
            offered,
            f'{where}: state role "{part.role}"',
            "the actuator",
            "the model input",
        )
        order = None if order == tuple(range(len(order))) else order
    tag = f"#{part.part}" if part.part else ""
    return PreviousPiece(part.role, tag, start, order, part.fill, item.dim)
