"""What an env's observation leaves and action vector mean, written by the env's author."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rlmesh.adapters.actions import Action
from rlmesh.adapters.fields import accept_set, label_tuple, take_plain
from rlmesh.adapters.trees import freeze_node, hashable_node, leaves
from rlmesh.adapters.vocabulary import Frame, ImageLayout, Provenance, RotationEncoding

__all__ = [
    "EnvTags",
    "Field",
    "ImageTag",
    "ObsLeaf",
    "ObsNode",
    "ObservationRoles",
    "Split",
    "StateTag",
    "TextTag",
    "UnknownLeaf",
]


@dataclass(frozen=True)
class ImageTag:
    """A camera frame: a leaf whose space is a 3-D Box.

    Args:
        role: such as ``IMAGE_PRIMARY``.
        layout: ``"hwc"`` or ``"chw"``.
        upside_down: the frame is rotated by 180 degrees (rows and columns both), not mirrored.
        part: the limb that carries the camera.
    """

    role: str
    layout: ImageLayout = "hwc"
    upside_down: bool = False
    part: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class StateTag:
    """A numeric leaf: Box, Discrete, MultiBinary or MultiDiscrete.

    Args:
        role: such as ``JOINT_POS``.
        encoding: of a rotation: one name, or several the env vouches for, its native one first.
        range: (min, max) of the elements where the space leaves them unbounded.
        frame: ``"world"``, ``"robot_base"``, ``"tool"`` or another name.
        provenance: ``"sensed"``, ``"estimated"`` or ``"privileged"``.
        part: which limb, such as ``LEFT_ARM``.
        labels: a name per element.
    """

    role: str
    encoding: RotationEncoding | Sequence[RotationEncoding] | None = None
    range: tuple[float, float] | None = None
    frame: Frame | None = field(default=None, kw_only=True)
    provenance: Provenance | None = field(default=None, kw_only=True)
    part: str | None = field(default=None, kw_only=True)
    labels: Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _canonical(self, f"StateTag {self.role!r}")


@dataclass(frozen=True)
class TextTag:
    """A text leaf, such as ``TextTag(INSTRUCTION)``."""

    role: str


@dataclass(frozen=True)
class Field:
    """One run of elements of a flat leaf, inside a :class:`Split`.

    Args:
        role: what it is; None skips ``dim`` elements.
        dim: how many elements, at least 1.

    The rest is as for :class:`StateTag`.
    """

    role: str | None = None
    dim: int = 0
    encoding: RotationEncoding | Sequence[RotationEncoding] | None = None
    range: tuple[float, float] | None = None
    frame: Frame | None = field(default=None, kw_only=True)
    provenance: Provenance | None = field(default=None, kw_only=True)
    part: str | None = field(default=None, kw_only=True)
    labels: Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        who = f"Field {self.role!r}"
        _canonical(self, who)
        if self.dim < 1:
            raise ValueError(f"{who}: dim must be >= 1, got {self.dim}")
        if self.labels is not None and len(self.labels) != self.dim:
            raise ValueError(
                f"{who}: dim {self.dim} disagrees with the {len(self.labels)} labels; give one "
                "label per element"
            )
        if self.role is None:
            names = ("encoding", "range", "frame", "provenance", "part", "labels")
            used = [name for name in names if getattr(self, name) is not None]
            if used:
                raise ValueError(
                    f"a role-less Field (a skip) carries only dim; drop {', '.join(used)}, or give "
                    "it a role"
                )


@dataclass(frozen=True, init=False)
class Split:
    """One flat numeric leaf that is several states, in order.

    >>> Split(Field("proprio/eef_pos", 3), Field("proprio/gripper", 1), Field(None, 4)).dim
    8
    """

    fields: tuple[Field, ...]

    def __init__(self, *fields: Field) -> None:
        if not fields:
            raise ValueError("Split needs at least one Field")
        for item in fields:
            if not isinstance(item, Field):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"Split takes Fields, got {type(item).__name__} {item!r}")
        keys = [(f.role, f.part, f.provenance) for f in fields if f.role is not None]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(
                    f"Split declares a role more than once: {key[0]!r}; tell the fields apart by "
                    "part="
                )
        object.__setattr__(self, "fields", tuple(fields))

    @property
    def dim(self) -> int:
        """How many elements the leaf has."""
        return sum(item.dim for item in self.fields)


@dataclass(frozen=True)
class UnknownLeaf:
    """A leaf of a kind this version does not know, kept so that the rest can still be used."""

    kind: str
    role: str | None = None


ObsLeaf: TypeAlias = ImageTag | StateTag | TextTag | Split
# A string: the type refers to itself.
ObsNode: TypeAlias = "ObsLeaf | Mapping[str, ObsNode] | tuple[ObsNode, ...]"


@dataclass(frozen=True)
class ObservationRoles:
    """The roles an env offers, by kind, in declaration order."""

    images: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnvTags:
    """What an env's observation and action mean.

    Args:
        observation: a leaf for a plain space, a dict for a Dict space, a tuple for a Tuple space;
            keys of a Dict that are not listed are ignored.
        action: the layout of the action vector.

    Raises:
        TypeError: a node of the tree is something else.
        ValueError: a role is declared twice.

    >>> from rlmesh.adapters import IMAGE_PRIMARY, ACTION_JOINT_POS, Action, Actuator
    >>> tags = EnvTags({"rgb": ImageTag(IMAGE_PRIMARY)}, Action(Actuator(ACTION_JOINT_POS, 7)))
    >>> tags.observation_roles.images
    ('image/primary',)
    >>> EnvTags.from_json(tags.to_json()) == tags
    True
    """

    observation: ObsNode
    action: Action

    def __post_init__(self) -> None:
        kinds = (ImageTag, StateTag, TextTag, Split, UnknownLeaf)
        node = freeze_node(self.observation, kinds, "observation node")
        object.__setattr__(self, "observation", node)
        if not isinstance(self.action, Action):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"EnvTags.action must be an Action, got {self.action!r}")
        _check_unique(node)

    def __hash__(self) -> int:
        return hash((hashable_node(self.observation), self.action))

    @property
    def observation_roles(self) -> ObservationRoles:
        """The roles offered, by kind, in declaration order; Split fields are states."""
        groups: dict[str, list[str]] = {"image": [], "state": [], "text": []}
        for kind, role, _part, _provenance in _identities(self.observation):
            groups[kind].append(role)
        return ObservationRoles(
            images=tuple(groups["image"]),
            states=tuple(groups["state"]),
            texts=tuple(groups["text"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The tags as plain JSON data.

        Raises:
            ValueError: a value that the JSON form refuses; the message names its place.
        """
        from rlmesh.adapters.json_write import tags_to_dict

        return tags_to_dict(self)

    def to_json(self) -> str:
        """The tags as canonical JSON text: keys sorted."""
        return json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)

    def to_metadata(self) -> dict[str, Any]:
        """The tags as env metadata, under ``ENV_METADATA_KEY``."""
        from rlmesh.adapters.vocabulary import ENV_METADATA_KEY

        return {ENV_METADATA_KEY: self.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvTags:
        """The tags of their JSON data.

        Raises:
            ValueError: naming the place and what is wrong there.
        """
        from rlmesh.adapters.json_read import tags_from_dict

        return tags_from_dict(data)

    @classmethod
    def from_json(cls, text: str) -> EnvTags:
        """The tags of their JSON text; ValueError as :meth:`from_dict`."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> EnvTags | None:
        """The tags an env published, None if it published none.

        Raises:
            AdapterResolutionError: the key holds no mapping.
            ValueError: as :meth:`from_dict`.
        """
        from rlmesh.adapters.json_read import metadata_entry
        from rlmesh.adapters.vocabulary import ENV_METADATA_KEY

        data = metadata_entry(metadata, ENV_METADATA_KEY)
        return None if data is None else cls.from_dict(data)


def _canonical(tag: StateTag | Field, who: str) -> None:
    take_plain(tag)
    object.__setattr__(tag, "encoding", accept_set(tag.encoding, who))
    object.__setattr__(tag, "labels", label_tuple(tag.labels, who))


def _identities(node: Any) -> list[tuple[str, str, str | None, str | None]]:
    """(kind, role, part, provenance) of every role a tree declares."""
    found: list[tuple[str, str, str | None, str | None]] = []
    for _path, leaf in leaves(node):
        if isinstance(leaf, ImageTag):
            found.append(("image", leaf.role, leaf.part, None))
        elif isinstance(leaf, StateTag):
            found.append(("state", leaf.role, leaf.part, leaf.provenance))
        elif isinstance(leaf, TextTag):
            found.append(("text", leaf.role, None, None))
        elif isinstance(leaf, Split):
            found += [
                ("state", item.role, item.part, item.provenance)
                for item in leaf.fields
                if item.role is not None
            ]
    return found


def _check_unique(node: Any) -> None:
    seen: set[tuple[str, str, str | None, str | None]] = set()
    for identity in _identities(node):
        if identity in seen:
            kind, role, _part, _provenance = identity
            raise ValueError(
                f"env tags declare {kind} role {role!r} more than once; tell the leaves apart by "
                "part= or provenance="
            )
        seen.add(identity)
