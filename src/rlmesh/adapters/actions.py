"""What a flat action vector means, on either side: actuators in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.fields import axis_values, is_number, label_tuple, take_plain
from rlmesh.adapters.vocabulary import Frame, Reference, RotationEncoding

__all__ = ["Action", "Actuator"]

# What an actuator without a role must leave alone.
_ROLED = (
    "encoding",
    "range",
    "binary",
    "scale",
    "invert",
    "threshold",
    "clip",
    "optional",
    "frame",
    "reference",
    "part",
    "offset",
    "labels",
)


@dataclass(frozen=True)
class Actuator:
    """One block of an action vector.

    On the env it says what the env takes there, on the model what the model gives there; the two
    are matched by ``(role, part)``. Values pass, in this order: the model's encoding to the env's;
    the model's range to the env's, if both are declared; the model's scale, offset, invert,
    threshold; the env's order of labels; the env's scale, offset, invert, threshold; the binary
    snap; the clip.

    Args:
        role: what it moves; None for an opaque block that always gets ``fill``.
        dim: how many numbers, at least 1.
        encoding: of a rotation; one name, or a model's CustomEncoding.
        range: (min, max) of the numbers; the model's is mapped to the env's, without clamping.
        binary: snap to +1 (above 0) or -1 (below).
        scale: factor, one number or one per element.
        invert: change the sign.
        threshold: subtracted before the binary snap, which then takes 0 for +1.
        clip: env side only: clamp to ``range``.
        fill: value of an opaque block, or of an optional one the model does not give.
        optional: env side: filled when the model does not give the role.
        frame: ``"world"``, ``"robot_base"``, ``"tool"`` or another name.
        reference: ``"current"`` or ``"target"``: what a delta is relative to.
        part: which limb, such as ``LEFT_ARM``.
        offset: added after the scale, one number or one per element.
        labels: a name per element; the model's order is permuted to the env's.

    Raises:
        ValueError: the fields contradict each other; the message names them.

    >>> Actuator("action/gripper", 1, range=(0.0, 1.0)).dim
    1
    """

    role: str | None = None
    dim: int = 0
    encoding: RotationEncoding | CustomEncoding | None = None
    range: tuple[float, float] | None = None
    binary: bool = False
    scale: float | Sequence[float] | None = None
    invert: bool = False
    threshold: float | None = None
    clip: bool = False
    fill: float = 0.0
    optional: bool = False
    frame: Frame | None = field(default=None, kw_only=True)
    reference: Reference | None = field(default=None, kw_only=True)
    part: str | None = field(default=None, kw_only=True)
    offset: float | Sequence[float] | None = field(default=None, kw_only=True)
    labels: Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        take_plain(self)
        who = f"Actuator {self.role!r}"
        for name, value in (
            ("scale", axis_values(self.scale)),
            ("offset", axis_values(self.offset)),
            ("labels", label_tuple(self.labels, who)),
        ):
            object.__setattr__(self, name, value)
        if self.dim < 1:
            raise ValueError(f"{who}: dim must be >= 1, got {self.dim}")
        if not is_number(self.fill):
            raise ValueError(f"{who}: fill must be a single number, got {self.fill!r}")
        if self.role is None:
            self._check_opaque()
        elif self.fill != 0.0 and not self.optional:
            raise ValueError(
                f"{who}: fill applies only to an opaque (role-less) or an optional actuator; this "
                "one takes its values from the model"
            )
        if self.clip and self.range is None:
            raise ValueError(f"{who}: clip=True clamps to range, so range must be set")
        if self.labels is not None and len(self.labels) != self.dim:
            raise ValueError(
                f"{who}: dim {self.dim} disagrees with the {len(self.labels)} labels; name every "
                "element once"
            )
        if isinstance(self.encoding, CustomEncoding) and self.dim != self.encoding.width:
            raise ValueError(
                f"{who}: a CustomEncoding keeps the width of its base {self.encoding.base!r}: dim "
                f"must be {self.encoding.width}, got {self.dim}"
            )

    def _check_opaque(self) -> None:
        defaults = _DEFAULTS
        used = [name for name in _ROLED if getattr(self, name) != defaults[name]]
        if used:
            raise ValueError(
                "a role-less (opaque) Actuator carries only dim and fill; drop "
                f"{', '.join(used)}, or give it a role"
            )


_DEFAULTS: dict[str, Any] = {
    name: Actuator.__dataclass_fields__[name].default  # the fields' own defaults, said once
    for name in _ROLED
}


@dataclass(frozen=True, init=False)
class Action:
    """The layout of an action vector: its actuators in order.

    Args:
        components: the actuators, at least one.
        clip: env side only: clamp the whole vector to (min, max) in the end.

    >>> Action(Actuator("action/joint_pos", 7), Actuator("action/gripper", 1)).dim
    8
    """

    components: tuple[Actuator, ...]
    clip: tuple[float, float] | None

    def __init__(self, *components: Actuator, clip: tuple[float, float] | None = None) -> None:
        if not components:
            raise ValueError("Action needs at least one actuator")
        for item in components:
            if not isinstance(item, Actuator):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"Action takes actuators, got {type(item).__name__} {item!r}")
        object.__setattr__(self, "components", tuple(components))
        object.__setattr__(self, "clip", clip)
        take_plain(self)

    @property
    def dim(self) -> int:
        """The width of the action vector."""
        return sum(component.dim for component in self.components)
