"""What a preview shows of one observation: plain data, no HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rlmesh.adapters import images
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.image_steps import FromHwc, NormalizeTo, SwapBgr
from rlmesh.adapters.plan import (
    ActionBlock,
    ActionPlan,
    ConstPiece,
    ImageInput,
    ModelBlock,
    Piece,
    Plan,
    PreviousPiece,
    SourcePiece,
    StateInput,
    TextInput,
)
from rlmesh.adapters.rotations import convert_rotation
from rlmesh.adapters.specs import Concat, State
from rlmesh.adapters.state_steps import Head, Permute, Rotate, Take
from rlmesh.adapters.trees import Path, leaves, path_name

__all__ = [
    "ActionView",
    "CameraView",
    "Element",
    "TextView",
    "VectorView",
    "action_views",
    "camera_views",
    "text_views",
    "vector_views",
]

Array = np.ndarray[Any, Any]

_ENCODING_ELEMENTS = {
    "quat_xyzw": ("x", "y", "z", "w"),
    "quat_wxyz": ("w", "x", "y", "z"),
    "axis_angle": ("ax", "ay", "az"),
    "euler_xyz": ("roll", "pitch", "yaw"),
    "rot6d": ("r11", "r21", "r31", "r12", "r22", "r32"),
    "rot6d_rowmajor": ("r11", "r12", "r21", "r22", "r31", "r32"),
    "gravity_xyz": ("gx", "gy", "gz"),
}
_XYZ_ROLES = ("eef_pos", "delta_eef_pos", "base_ang_vel", "base_vel")
_MOST_FRAMES = 8


@dataclass(frozen=True)
class Element:
    """One number with its name."""

    name: str
    value: float


@dataclass(frozen=True)
class CameraView:
    """One image input: the env's frame, and the frames the policy gets (of a stack, the newest).

    Frames are uint8[H, W, C] as RGB, however the policy reads them; `facts` says how.
    """

    placement: str
    source: str
    steps: tuple[str, ...]
    before: Array | None
    after: tuple[Array, ...]
    facts: str


@dataclass(frozen=True)
class VectorView:
    """One state input, element by element; `before` in the order in which it was read."""

    placement: str
    path: str
    before: tuple[Element, ...]
    after: tuple[Element, ...]
    facts: str


@dataclass(frozen=True)
class TextView:
    """One text input."""

    placement: str
    source: str
    value: str


@dataclass(frozen=True)
class ActionView:
    """What the env gets when one number of the model's action is 1 or -1, or none (`rest`)."""

    name: str
    path: str
    plus: tuple[Element, ...]
    minus: tuple[Element, ...]
    rest: tuple[Element, ...]


def lookup(tree: Any, path: Path) -> Any:
    """The value at a path of nested mappings and sequences."""
    for step in path:
        tree = tree[step]
    return tree


def camera_views(plan: Plan, observation: Any, payload: Any) -> Iterator[CameraView]:
    """The image inputs of a plan, in its order."""
    for step in plan.inputs:
        if isinstance(step, ImageInput):
            value = np.asarray(lookup(payload, step.placement))
            frames = _shown(step, value)
            blank = step.source is None
            yield CameraView(
                placement=path_name(step.placement),
                source="no camera of this role" if blank else path_name(cast("Path", step.source)),
                steps=tuple(text for text in (item.describe() for item in step.steps) if text)
                + ((step.window.describe(),) if step.window else ()),
                before=None if blank else _raw_frame(step, observation),
                after=frames[-_MOST_FRAMES:],
                facts=_facts(value) + (", BGR shown as RGB" if _is_bgr(step) else ""),
            )


def _raw_frame(step: ImageInput, observation: Any) -> Array:
    raw = lookup(observation, step.source or ())
    if isinstance(raw, (bytes, bytearray)):
        return images.decode_image(raw)
    low, high = step.bounds or (None, None)
    frame = images.to_uint8(np.asarray(raw), low, high)
    return images.to_hwc(frame, step.layout)


def _shown(step: ImageInput, value: Array) -> tuple[Array, ...]:
    """What the policy gets, back on the grey levels and in the channel order of a screen."""
    if any(isinstance(item, FromHwc) for item in step.steps):
        value = np.moveaxis(value, -3, -1)
    frames = value.reshape(-1, *value.shape[-3:])
    if frames.dtype != np.uint8:
        scale = next((item for item in step.steps if isinstance(item, NormalizeTo)), None)
        low, high = (scale.low, scale.high) if scale else (0.0, 255.0)
        frames = images.to_uint8(frames.astype(np.float64), low, high)
    if _is_bgr(step):
        frames = frames[..., ::-1]
    return tuple(frames)


def _is_bgr(step: ImageInput) -> bool:
    return any(isinstance(item, SwapBgr) for item in step.steps)


def _facts(value: Array) -> str:
    text = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if value.size and value.dtype.kind in "fiub":
        text += f", {_number(value.min())} to {_number(value.max())}"
    return text


def _number(value: Any) -> str:
    return f"{float(value):.4g}"


def vector_views(plan: Plan, observation: Any, payload: Any) -> Iterator[VectorView]:
    """The state inputs of a plan, in its order."""
    specs = dict(leaves(plan.tree))
    for step in plan.inputs:
        if not isinstance(step, StateInput):
            continue
        value = np.asarray(lookup(payload, step.placement))
        parts = _parts(specs[step.placement], len(step.pieces))
        before = [
            element
            for piece, part in zip(step.pieces, parts, strict=True)
            for element in _read(piece, part, observation)
        ]
        names = [
            name
            for piece, part in zip(step.pieces, parts, strict=True)
            for name in _names_after(piece, part)
        ]
        flat = value.reshape(-1)
        names += [f"pad[{index}]" for index in range(flat.size - len(names))]
        yield VectorView(
            placement=path_name(step.placement),
            path=step.describe(),
            before=tuple(before),
            after=tuple(Element(n, float(v)) for n, v in zip(names, flat, strict=False)),
            facts=_facts(value),
        )


def _parts(spec: Any, count: int) -> list[Any]:
    parts: list[Any] = list(spec.parts) if isinstance(spec, Concat) else [spec]
    return parts if len(parts) == count else [None] * count


def _read(piece: Piece, part: Any, observation: Any) -> Iterator[Element]:
    if not isinstance(piece, SourcePiece):
        return
    values = np.asarray(lookup(observation, piece.source)).reshape(-1)
    start = piece.start or 0
    names = _names_before(piece, part)
    for index in range(piece.width_in):
        leaf = f"{path_name(piece.source)}[{start + index}]"
        name = f"{leaf} {names[index]}" if names[index] else leaf
        yield Element(name, float(values[start + index]))


def _names_before(piece: SourcePiece, part: Any) -> list[str]:
    for step in piece.steps:
        if isinstance(step, Rotate):
            return list(_ENCODING_ELEMENTS[step.source])
        if isinstance(step, Permute) and isinstance(part, State) and part.labels:
            names = [""] * piece.width_in
            for label, index in zip(part.labels, step.order, strict=True):
                names[index] = label
            return names
    return _by_role(part, piece.width_in)


def _names_after(piece: Piece, part: Any) -> list[str]:
    if isinstance(piece, ConstPiece):
        return _numbered("const", [""] * piece.width)
    stem = _stem(part)
    if isinstance(piece, PreviousPiece):
        return _numbered(f"previous {stem}", [""] * piece.width)
    elements = _by_role(part, piece.width_in if isinstance(piece, SourcePiece) else piece.width)
    if isinstance(piece, SourcePiece):
        for step in piece.steps:
            if isinstance(step, Rotate):
                elements = list(_ENCODING_ELEMENTS[step.target])
            elif isinstance(step, Head):
                elements = elements[: step.dim]
            elif isinstance(step, Take):
                elements = elements[step.index :][:1]
    if isinstance(part, State) and part.labels and len(part.labels) == piece.width:
        elements = list(part.labels)
    if len(elements) != piece.width:
        elements = [""] * piece.width
    return _numbered(stem, elements)


def _by_role(part: Any, width: int) -> list[str]:
    """Element names that a role or a declared encoding implies."""
    encoding = part.encoding if isinstance(part, State) else None
    if isinstance(encoding, CustomEncoding):
        encoding = None
    if isinstance(encoding, str) and len(_ENCODING_ELEMENTS[encoding]) == width:
        return list(_ENCODING_ELEMENTS[encoding])
    if _stem(part) in _XYZ_ROLES and width == 3:
        return ["x", "y", "z"]
    return [""] * width


def _stem(part: Any) -> str:
    role = part if isinstance(part, str) else getattr(part, "role", None)
    return role.rpartition("/")[2] if isinstance(role, str) else "state"


def text_views(plan: Plan, payload: Any) -> Iterator[TextView]:
    """The text inputs of a plan, in its order."""
    for step in plan.inputs:
        if isinstance(step, TextInput):
            value = lookup(payload, step.placement)
            yield TextView(path_name(step.placement), step.describe(), repr(value))


def action_views(plan: ActionPlan, transform: Callable[[Array], Array]) -> Iterator[ActionView]:
    """How each number of the model's action reaches the env; `transform` is the adapter's.

    The others rest at 0, and a rotation in an encoding that has no 0 rests at the identity.
    """
    blocks = [block for block in plan.blocks if isinstance(block, ModelBlock)]
    env_names = [name for block in plan.blocks for name in _env_names(block)]
    resting = np.zeros(plan.model_dim, np.float32)
    for block in blocks:
        encoding = _rotation_of(block)
        if encoding is not None:
            identity = convert_rotation([0.0, 0.0, 0.0, 1.0], "quat_xyzw", encoding)
            resting[block.start : block.stop] = identity

    def sent(index: int, value: float | None) -> tuple[Element, ...]:
        action = resting.copy()
        if value is not None:
            action[index] = value
        out = transform(action).reshape(-1).tolist()
        return tuple(Element(n, v) for n, v in zip(env_names, out, strict=True))

    rest = sent(0, None)
    for index in range(plan.model_dim):
        owner = next((block for block in blocks if block.start <= index < block.stop), None)
        name, path = f"output[{index}]", "dropped: the env has no actuator of this role"
        if owner is not None:
            name, path = _model_names(owner)[index - owner.start], owner.describe()
        yield ActionView(name, path, sent(index, 1.0), sent(index, -1.0), rest)


def _rotation_of(block: ModelBlock) -> str | None:
    """The model's encoding of a block that is converted."""
    return next((step.source for step in block.steps if isinstance(step, Rotate)), None)


def _model_names(block: ModelBlock) -> list[str]:
    encoding = _rotation_of(block)
    return _block_names(block.role, block.tag, block.stop - block.start, encoding)


def _env_names(block: ActionBlock) -> list[str]:
    if not isinstance(block, ModelBlock):
        return _block_names(block.role or "opaque", "", block.dim, None)
    targets = [step.target for step in block.steps if isinstance(step, Rotate)]
    return _block_names(block.role, block.tag, block.dim, targets[-1] if targets else None)


def _block_names(role: str, tag: str, dim: int, encoding: str | None) -> list[str]:
    stem = role.rpartition("/")[2]
    elements = [""] * dim
    if encoding is not None:
        elements = list(_ENCODING_ELEMENTS[encoding])
    elif stem in _XYZ_ROLES and dim == 3:
        elements = ["x", "y", "z"]
    limb = "".join(part for part in tag.split() if part.startswith("#"))
    return _numbered(f"{stem}{limb}", elements)


def _numbered(stem: str, elements: list[str]) -> list[str]:
    """Full names: by element where it has a name, else by index, if there are several."""
    if elements == [""]:
        return [stem]
    return [f"{stem}.{e}" if e else f"{stem}[{i}]" for i, e in enumerate(elements)]
