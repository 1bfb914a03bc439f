"""The plan an adapter follows: frozen steps from observation to model input, and from model action
to env action. Applying it is in ``apply_*.py``, printing it in ``explain.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlmesh.adapters.advisory import Advisory
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.image_steps import FrameStep, Window
from rlmesh.adapters.specs import Custom
from rlmesh.adapters.state_steps import VectorStep
from rlmesh.adapters.trees import Path, path_name

__all__ = [
    "ActionBlock",
    "ActionPlan",
    "BlankFrame",
    "ConstPiece",
    "CustomInput",
    "EncodingStep",
    "FillBlock",
    "FillPiece",
    "ImageInput",
    "InputStep",
    "ModelBlock",
    "Piece",
    "Plan",
    "PreviousPiece",
    "SourcePiece",
    "StateInput",
    "TextInput",
]


@dataclass(frozen=True)
class BlankFrame:
    """A constant frame in place of a camera the env lacks."""

    height: int
    width: int
    channels: int
    fill: int = 0


@dataclass(frozen=True)
class ImageInput:
    """One camera input: a source frame through steps.

    Attributes:
        placement: where it goes in the model's input.
        source: where it is in the observation; None for ``blank``.
        layout: of the source frame.
        shape: (height, width, channels) of the source frame, as its space says.
        bounds: range of a float frame, None if unknown.
        tag: ``#part`` as explain() prints it.
        steps: from the HWC uint8 frame on (first the way there).
        window: the frames stacked, if any.
        out_shape, out_dtype: of one processed frame, without the window.
    """

    placement: Path
    source: Path | None
    layout: str
    shape: tuple[int, int, int]
    bounds: tuple[float, float] | None
    tag: str
    steps: tuple[FrameStep, ...]
    window: Window | None
    out_shape: tuple[int, ...]
    out_dtype: str
    blank: BlankFrame | None = None
    channels_checked: bool = False

    def describe(self) -> str:
        steps = [step.describe() for step in self.steps]
        if self.window is not None:
            steps.append(self.window.describe())
        if self.source is None:
            return f"{self._blank_text()}{self.tag}"
        return f'image "{path_name(self.source)}"{self.tag} ({", ".join(steps)})'

    def _blank_text(self) -> str:
        blank = self.blank
        assert blank is not None
        size = f"{blank.height}x{blank.width}x{blank.channels}"
        return f"zeros({size})" if not blank.fill else f"fill({size})={blank.fill}"


@dataclass(frozen=True)
class SourcePiece:
    """Numbers read from a leaf, or a slice of one, through steps."""

    source: Path
    leaf_width: int
    start: int | None
    width_in: int
    steps: tuple[VectorStep, ...]
    tag: str
    width: int

    @property
    def name(self) -> str:
        """The leaf's place, with the slice."""
        name = path_name(self.source)
        return name if self.start is None else f"{name}[{self.start}:{self.start + self.width_in}]"

    def describe(self) -> str:
        return f"{self.name}{''.join(step.describe() for step in self.steps)}{self.tag}"


@dataclass(frozen=True)
class FillPiece:
    """Numbers made up for a role the env lacks."""

    value: float | tuple[float, ...]
    tag: str
    width: int

    def describe(self) -> str:
        if self.value == 0.0:
            return f"zeros({self.width}){self.tag}"
        return f"fill({self.width})={self.value}{self.tag}"


@dataclass(frozen=True)
class ConstPiece:
    """A literal block."""

    value: float
    width: int

    def describe(self) -> str:
        return f"const({self.width})={float(self.value)}"


@dataclass(frozen=True)
class PreviousPiece:
    """The model's own previous action of one actuator."""

    role: str
    tag: str
    start: int
    order: tuple[int, ...] | None
    fill: float
    width: int

    def describe(self) -> str:
        order = f" perm[{','.join(map(str, self.order))}]" if self.order else ""
        return f"previous {self.role}{self.tag}{order} (fill {float(self.fill)})"


Piece = SourcePiece | FillPiece | ConstPiece | PreviousPiece


@dataclass(frozen=True)
class EncodingStep:
    """A CustomEncoding applied to elements ``start`` to ``start + encoding.width``."""

    encoding: CustomEncoding
    start: int
    action: bool
    placement: str

    def describe(self) -> str:
        stop = self.start + self.encoding.width
        base, name = self.encoding.base, self.encoding.name
        if self.action:
            return f"action [{self.start}:{stop}]: {name} -> {base}"
        return f"obs    {self.placement!r}[{self.start}:{stop}]: {base} -> {name}"


@dataclass(frozen=True)
class StateInput:
    """One vector input: pieces side by side, then clipped, padded, cast, reshaped."""

    placement: Path
    pieces: tuple[Piece, ...]
    clip: tuple[float, float] | None
    pad_to: int | None
    dtype: str
    shape: tuple[int, ...]
    container: str
    encodings: tuple[EncodingStep, ...] = ()

    @property
    def width(self) -> int:
        """Elements before padding."""
        return sum(piece.width for piece in self.pieces)

    def describe(self) -> str:
        clip = "" if self.clip is None else f" clip[{float(self.clip[0])},{float(self.clip[1])}]"
        pad = "" if self.pad_to is None else f", pad to {self.pad_to}"
        return f"concat({', '.join(piece.describe() for piece in self.pieces)}){clip}{pad}"


@dataclass(frozen=True)
class TextInput:
    """One text input: read, or filled."""

    placement: Path
    source: Path | None
    fill: str | None
    as_list: bool

    def describe(self) -> str:
        if self.source is None:
            return f'text fill "{self.fill}"'
        return f'text "{path_name(self.source)}"'


@dataclass(frozen=True)
class CustomInput:
    """One input of the user's own making."""

    placement: Path
    custom: Custom

    def describe(self) -> str:
        return "custom transform"


InputStep = ImageInput | StateInput | TextInput | CustomInput


@dataclass(frozen=True)
class ModelBlock:
    """A block of the env action taken from the model's."""

    role: str
    start: int
    stop: int
    steps: tuple[VectorStep, ...]
    tag: str
    dim: int

    def describe(self) -> str:
        steps = "".join(step.describe() for step in self.steps)
        return f'"{self.role}" <- model[{self.start}:{self.stop}]{steps}{self.tag}'


@dataclass(frozen=True)
class FillBlock:
    """A block of the env action with one value: opaque, or optional and not given."""

    role: str | None
    fill: float
    dim: int

    def describe(self) -> str:
        value = f"{float(self.fill):g}"
        if self.role is None:
            return f"(opaque {self.dim}d) <- fill {value}"
        return (
            f'"{self.role}" <- fill {value} ({self.dim}d; model did not output this optional role)'
        )


ActionBlock = ModelBlock | FillBlock


@dataclass(frozen=True)
class ActionPlan:
    """From the model's action to the env's, a Box of ``shape`` and ``dtype``."""

    model_dim: int
    blocks: tuple[ActionBlock, ...]
    clip: tuple[float, float] | None
    shape: tuple[int, ...]
    dtype: str
    encodings: tuple[EncodingStep, ...] = ()

    @property
    def env_dim(self) -> int:
        """Width of the env's action."""
        return sum(block.dim for block in self.blocks)


@dataclass(frozen=True)
class Plan:
    """All of it.

    Attributes:
        tree: the shape of the model's input, a tree whose leaves are the spec's.
        inputs: one step per leaf of it, in declaration order.
        action: the way back.
        notes: advisories that explain() lists as dropped.
        advisories: all of them, the notes included.
    """

    tree: Any
    inputs: tuple[InputStep, ...]
    action: ActionPlan
    notes: tuple[Advisory, ...] = ()
    advisories: tuple[Advisory, ...] = ()
