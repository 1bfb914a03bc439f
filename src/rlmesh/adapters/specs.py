"""What a model eats: state, text and custom inputs, and the ModelSpec that holds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rlmesh.adapters.actions import Action
from rlmesh.adapters.encodings import CustomEncoding, Rotation
from rlmesh.adapters.fields import accept_set, axis_values, is_number, label_tuple, take_plain
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.trees import freeze_node, hashable_node
from rlmesh.adapters.vocabulary import Frame, Provenance, RotationEncoding

__all__ = [
    "Concat",
    "ConcatPart",
    "Constant",
    "Custom",
    "InputNode",
    "ModelLeaf",
    "ModelSpec",
    "ObsTransform",
    "Previous",
    "State",
    "Text",
]

ObsTransform = Callable[[Mapping[str, Any]], Any]
"""The whole raw observation in (a flat one as ``{"<obs>": leaf}``), the input's value out."""

_CONTAINER_DEFAULTS: dict[str, Any] = {
    "pad_to": None,
    "dtype": "float32",
    "reshape": None,
    "container": "array",
    "clip": None,
}


@dataclass(frozen=True)
class State:
    """A numeric vector: one role of the env, converted.

    In this order: read; convert the rotation, then post_rotate; order by labels; take ``index`` or
    the first ``dim``; map the range; scale, offset; clip; pad; cast; reshape.

    Args:
        role: such as ``JOINT_POS``.
        encoding: of a rotation: one name, several in order of preference (nothing is converted when
            the env's own is among them), or a CustomEncoding.
        dim: the first so many elements.
        index: one element.
        optional: a role the env lacks becomes ``fill``.
        range: (min, max) the model expects; the env's range is mapped to it, without clamping.
        pad_to: zeros appended up to this length.
        dtype: element type of the result.
        reshape: its shape, one dimension may be -1.
        container: ``"array"`` or ``"list"`` (of Python floats).
        fill: value of an absent optional role.
        post_rotate: R_out = R_in @ R after the conversion; needs an encoding.
        scale: factor, one number or one per element.
        offset: added after the scale, one number or one per element.
        frame: the frame the model expects; an env that declares another is refused.
        provenance: one, or several that are accepted.
        part: which limb.
        labels: the elements by name, in the model's order.
        source: ``"action"`` reads the model's own previous output, see :func:`Previous`.
        clip: (min, max) after everything else.

    Raises:
        ValueError: the fields contradict each other; the message names them.

    >>> State("proprio/eef_rot", "rot6d").container
    'array'
    """

    role: str
    encoding: RotationEncoding | Sequence[RotationEncoding] | CustomEncoding | None = None
    dim: int | None = None
    index: int | None = None
    optional: bool = False
    range: tuple[float, float] | None = None
    fill: float = field(default=0.0, kw_only=True)
    post_rotate: Rotation | None = field(default=None, kw_only=True)
    scale: float | Sequence[float] | None = field(default=None, kw_only=True)
    offset: float | Sequence[float] | None = field(default=None, kw_only=True)
    frame: Frame | None = field(default=None, kw_only=True)
    provenance: Provenance | Sequence[Provenance] | None = field(default=None, kw_only=True)
    part: str | None = field(default=None, kw_only=True)
    labels: Sequence[str] | None = field(default=None, kw_only=True)
    source: Literal["observation", "action"] = field(default="observation", kw_only=True)
    pad_to: int | None = None
    dtype: str = "float32"
    reshape: tuple[int, ...] | None = None
    container: Literal["array", "list"] = "array"
    clip: tuple[float, float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        take_plain(self)
        who = f"State {self.role!r}"
        for name, value in (
            ("encoding", accept_set(self.encoding, who)),
            ("provenance", accept_set(self.provenance, who, "provenance")),
            ("scale", axis_values(self.scale)),
            ("offset", axis_values(self.offset)),
            ("labels", label_tuple(self.labels, who)),
        ):
            object.__setattr__(self, name, value)
        _check_selection(self, who)
        if self.source not in ("observation", "action"):
            raise ValueError(
                f"{who}: source must be 'observation' or 'action', got {self.source!r}"
            )
        if self.source == "action":
            _check_previous(self, who)
        elif self.fill != 0.0 and not self.optional:
            raise ValueError(
                f"{who}: fill applies only to an optional part; this one takes its values from the "
                "env, so set optional=True or drop fill"
            )
        if self.post_rotate is not None:
            if self.encoding is None:
                raise ValueError(f"{who}: post_rotate needs a rotation encoding")
            if isinstance(self.encoding, CustomEncoding):
                raise ValueError(
                    f"{who}: post_rotate cannot be combined with a CustomEncoding; rotate inside "
                    "its from_base"
                )


def _check_selection(state: State, who: str) -> None:
    if state.dim is not None and state.index is not None:
        raise ValueError(
            f"{who}: set dim or index, not both (index takes one element, dim the first so many)"
        )
    if state.labels is None:
        return
    if state.index is not None:
        raise ValueError(f"{who}: set labels or index, not both (labels name every element)")
    if state.dim is not None and state.dim != len(state.labels):
        raise ValueError(
            f"{who}: dim {state.dim} disagrees with the {len(state.labels)} labels, which fix the "
            "width; drop dim"
        )


def _check_previous(state: State, who: str) -> None:
    names = (
        "encoding",
        "index",
        "range",
        "optional",
        "post_rotate",
        "scale",
        "offset",
        "frame",
        "provenance",
    )
    unset = (None, False)
    used = [name for name in names if not any(getattr(state, name) is item for item in unset)]
    if used:
        raise ValueError(
            f"{who}: source='action' reads the model's own raw output and carries only part, "
            f"labels, dim and fill; drop {', '.join(used)}"
        )


def Previous(role: str, *, part: str | None = None, fill: float = 0.0) -> State:
    """The model's own raw action of the previous executed step, for one of its actuators.

    Args:
        role: the actuator's role, such as ``ACTION_JOINT_POS``.
        part: its part.
        fill: every element before the first action of an episode.

    Actions replayed from a chunk count. A step whose action the adapter never saw is a ValueError
    at the next observation.
    """
    return State(role, source="action", part=part, fill=fill)


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A literal block of numbers inside a :class:`Concat`."""

    dim: int = 1
    fill: float = 0.0

    def __post_init__(self) -> None:
        take_plain(self)
        if self.dim < 1:
            raise ValueError(f"Constant: dim must be >= 1, got {self.dim}")
        if not is_number(self.fill):
            raise ValueError(f"Constant: fill must be a single number, got {self.fill!r}")


ConcatPart: TypeAlias = str | State | Constant


@dataclass(frozen=True, init=False)
class Concat:
    """Several states as one vector, in order.

    Args:
        parts: role strings, States (whose pad_to, dtype, reshape, container and clip stay at their
            defaults), Constants.

    The rest is as for :class:`State`, applied to the whole vector.

    >>> Concat("proprio/eef_pos", State("proprio/eef_rot", "rot6d"), "proprio/gripper").pad_to
    """

    parts: tuple[ConcatPart, ...]
    pad_to: int | None
    dtype: str
    reshape: tuple[int, ...] | None
    container: Literal["array", "list"]
    clip: tuple[float, float] | None

    def __init__(
        self,
        *parts: ConcatPart,
        pad_to: int | None = None,
        dtype: str = "float32",
        reshape: tuple[int, ...] | None = None,
        container: Literal["array", "list"] = "array",
        clip: tuple[float, float] | None = None,
    ) -> None:
        if not parts:
            raise ValueError("Concat needs at least one part")
        for part in parts:
            _check_part(part)
        if all(isinstance(part, Constant) for part in parts):
            raise ValueError(
                "Concat: a state of only Constant parts reads nothing from the env; give it at "
                "least one role"
            )
        for name, value in (
            ("parts", tuple(parts)),
            ("pad_to", pad_to),
            ("dtype", dtype),
            ("reshape", reshape),
            ("container", container),
            ("clip", clip),
        ):
            object.__setattr__(self, name, value)
        take_plain(self)


def _check_part(part: Any) -> None:
    if isinstance(part, State):
        used = [
            name for name, default in _CONTAINER_DEFAULTS.items() if getattr(part, name) != default
        ]
        if used:
            raise ValueError(
                f"Concat part {part.role!r}: a State used as a part must leave its container "
                f"fields alone; set {', '.join(used)} on the Concat"
            )
    elif not isinstance(part, (str, Constant)):
        raise TypeError(
            "Concat parts must be role strings, States or Constants, got "
            f"{type(part).__name__} {part!r}"
        )


@dataclass(frozen=True)
class Text:
    """A text input, such as the instruction.

    Args:
        role: such as ``INSTRUCTION``.
        container: ``"str"``, or ``"list"`` for ``[text]``.
        fill: the text where the env has none of this role.
    """

    role: str
    container: Literal["str", "list"] = "str"
    fill: str | None = None


@dataclass(frozen=True)
class Custom:
    """An input computed by the user's own function from the whole raw observation.

    Args:
        transform: called with the observation mapping (a flat observation as ``{"<obs>": leaf}``).
        entrypoint: the same as ``"module:callable"``, imported only when resolve is told
            ``trust_entrypoints=True``.

    Raises:
        ValueError: not exactly one of the two.
    """

    transform: ObsTransform | None = None
    entrypoint: str | None = None

    def __post_init__(self) -> None:
        if (self.transform is None) == (self.entrypoint is None):
            raise ValueError(
                "Custom: set exactly one of transform= (a callable) or entrypoint= (a "
                "'module:callable' string)"
            )
        if self.transform is not None and not callable(self.transform):
            raise TypeError(f"Custom: transform must be callable, got {self.transform!r}")


ModelLeaf: TypeAlias = Image | State | Concat | Text | Custom
# A string: the type refers to itself.
InputNode: TypeAlias = "ModelLeaf | Mapping[str, InputNode] | tuple[InputNode, ...]"


@dataclass(frozen=True)
class ModelSpec:
    """What a model takes and gives.

    Args:
        input: a leaf, or a dict or tuple of such: the shape in which predict receives it (a tuple
            arrives as a list).
        output: the layout of the model's action.

    >>> from rlmesh.adapters import ACTION_JOINT_POS, IMAGE_PRIMARY, Actuator
    >>> spec = ModelSpec({"image": Image(IMAGE_PRIMARY)}, Action(Actuator(ACTION_JOINT_POS, 7)))
    >>> ModelSpec.from_json(spec.to_json()) == spec
    True
    """

    input: InputNode
    output: Action

    def __post_init__(self) -> None:
        kinds = (Image, State, Concat, Text, Custom)
        object.__setattr__(self, "input", freeze_node(self.input, kinds, "model input node"))
        if not isinstance(self.output, Action):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"ModelSpec.output must be an Action, got {self.output!r}")

    def __hash__(self) -> int:
        return hash((hashable_node(self.input), self.output))

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON data.

        Raises:
            ValueError: a Custom input, or a value that the JSON form refuses.
        """
        from rlmesh.adapters.json_write import spec_to_dict

        return spec_to_dict(self)

    def to_json(self) -> str:
        """The spec as canonical JSON text: keys sorted."""
        return json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)

    def to_metadata(self) -> dict[str, Any]:
        """The spec as metadata, under ``MODEL_METADATA_KEY``."""
        from rlmesh.adapters.vocabulary import MODEL_METADATA_KEY

        return {MODEL_METADATA_KEY: self.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSpec:
        """The spec of its JSON data.

        Raises:
            ValueError: naming the place and what is wrong there.
        """
        from rlmesh.adapters.json_read import spec_from_dict

        return spec_from_dict(data)

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """The spec of its JSON text; ValueError as :meth:`from_dict`."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> ModelSpec | None:
        """The spec in a metadata mapping, None if there is none.

        Raises:
            AdapterResolutionError: the key holds no mapping.
            ValueError: as :meth:`from_dict`.
        """
        from rlmesh.adapters.json_read import metadata_entry
        from rlmesh.adapters.vocabulary import MODEL_METADATA_KEY

        data = metadata_entry(metadata, MODEL_METADATA_KEY)
        return None if data is None else cls.from_dict(data)
