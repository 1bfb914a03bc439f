"""What must hold of tags and specs before they are resolved, published or accepted from JSON.

Constructors refuse what contradicts itself. The rest is checked here, with the place named, so that
a spec written for a newer version can still be loaded, looked at and edited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.fields import is_number, pair
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.specs import Concat, Constant, Custom, ModelSpec, State, Text
from rlmesh.adapters.tags import EnvTags, Field, ImageTag, Split, StateTag, TextTag
from rlmesh.adapters.trees import Path, leaves, path_name
from rlmesh.adapters.vocabulary import LAYOUTS, ROTATION_DIMS, STACK_PADS, role_fault

__all__ = ["check_spec", "check_tags", "place"]

Faults = Iterator[tuple[str, str]]
"""(field, what is wrong with it)."""


def place(root: str, path: Path = (), field: str = "") -> str:
    """The dotted name of a place inside tags or a spec, such as ``observation.cam[0].range``."""
    name = root if not path else root + _join(path)
    return f"{name}.{field}" if field else name


def _join(path: Path) -> str:
    name = path_name(path)
    return name if name.startswith("[") else f".{name}"


def check_tags(tags: EnvTags) -> None:
    """Raise ValueError naming the first place where env tags are not valid."""
    for path, leaf in leaves(tags.observation):
        _check_keys("invalid env tags", "observation", path)
        _raise_first("invalid env tags", place("observation", path), _tag_faults(leaf))
    _raise_first("invalid env tags", "action", _action_faults(tags.action))


def check_spec(spec: ModelSpec) -> None:
    """Raise ValueError naming the first place where a model spec is not valid."""
    for path, leaf in leaves(spec.input):
        _check_keys("invalid model spec", "input", path)
        _raise_first("invalid model spec", place("input", path), _input_faults(leaf))
    _raise_first("invalid model spec", "output", _action_faults(spec.output))


def _raise_first(what: str, where: str, faults: Faults) -> None:
    for field, fault in faults:
        raise ValueError(f"{what} at {where}{'.' if field else ''}{field}: {fault}")


def _check_keys(what: str, root: str, path: Path) -> None:
    for depth, step in enumerate(path):
        if step == "type":
            raise ValueError(
                f'{what} at {place(root, path[:depth])}: a dict child may not be called "type", '
                "the key that marks a leaf in JSON; rename it"
            )


# Env side


def _tag_faults(leaf: Any) -> Faults:
    if isinstance(leaf, ImageTag):
        yield from _role(leaf.role)
        yield from _member("layout", leaf.layout, LAYOUTS)
    elif isinstance(leaf, (StateTag, TextTag)):
        yield from _role(leaf.role)
        if isinstance(leaf, StateTag):
            yield from _state_tag(leaf)
    elif isinstance(leaf, Split):
        for index, item in enumerate(leaf.fields):
            for field, fault in (*_count("dim", item.dim), *_field(item)):
                yield f"fields[{index}]{'.' if field else ''}{field}", fault


def _field(item: Field) -> Faults:
    if item.role is not None:
        yield from _role(item.role)
    yield from _state_tag(item)


def _state_tag(tag: StateTag | Field) -> Faults:
    yield from _names("encoding", tag.encoding)
    yield from _pair("range", tag.range)
    yield from _identity(tag, ("frame", "provenance", "part"))


# Actions


def _action_faults(action: Action) -> Faults:
    seen: set[tuple[str, str | None]] = set()
    for index, item in enumerate(action.components):
        for field, fault in _actuator_faults(item):
            yield f"components[{index}]{'.' if field else ''}{field}", fault
        key = (item.role, item.part)
        if item.role is not None and key in seen:
            part = f' (part "{item.part}")' if item.part else ""
            yield (
                "",
                f'an action layout declares role "{item.role}"{part} more than once; tell the '
                "actuators apart by part=",
            )
        if item.role is not None:
            seen.add((item.role, item.part))
    yield from _pair("clip", action.clip)


def _actuator_faults(item: Actuator) -> Faults:
    yield from _count("dim", item.dim)
    if item.role is not None:
        yield from _role(item.role)
    encoding = item.encoding
    if isinstance(encoding, str):
        if encoding not in ROTATION_DIMS:
            yield "encoding", _unknown_encoding(encoding)
        elif encoding == "gravity_xyz":
            yield (
                "encoding",
                'encoding "gravity_xyz" is observation-only (a direction, not a rotation an '
                "actuator can take); declare a rotation encoding",
            )
    elif encoding is not None and not isinstance(encoding, CustomEncoding):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield "encoding", f"expected one rotation encoding, got {encoding!r}"
    yield from _pair("range", item.range)
    for name in ("scale", "offset"):
        yield from _numbers(name, getattr(item, name))
    for name in ("threshold", "fill"):
        yield from _number(name, getattr(item, name))
    yield from _identity(item, ("frame", "reference", "part"))


# Model side


def _input_faults(leaf: Any) -> Faults:
    if isinstance(leaf, Image):
        yield from _image_faults(leaf)
    elif isinstance(leaf, (State, Concat)):
        yield from _vector_faults(leaf)
    elif isinstance(leaf, Text):
        yield from _role(leaf.role)
        yield from _member("container", leaf.container, ("str", "list"))
        if leaf.fill is not None and not isinstance(leaf.fill, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield "fill", f"expected a string, got {leaf.fill!r}"
    elif isinstance(leaf, Custom) and leaf.entrypoint is not None and ":" not in leaf.entrypoint:
        yield "entrypoint", f"must be in module:callable form, got {leaf.entrypoint!r}"


def _image_faults(image: Image) -> Faults:
    yield from _role(image.role)
    yield from _member("layout", image.layout, LAYOUTS)
    yield from _member("stack_pad", image.stack_pad, STACK_PADS)
    for name in ("height", "width", "channels", "lead_dims", "jpeg_quality"):
        yield from _count(name, getattr(image, name))
    if image.fill is not None and not (_is_count(image.fill) and image.fill <= 255):
        yield "fill", f"must be a grey level in 0..255, got {image.fill!r}"
    if not _is_count(image.stack) or not 1 <= image.stack <= 64:
        yield "stack", f"stack must be between 1 and 64, got {image.stack!r}"
    if image.fit == ():
        yield "fit", "a list of fits must name at least one"
    yield from _identity(image, ("part",))


def _vector_faults(leaf: State | Concat) -> Faults:
    yield from _count("pad_to", leaf.pad_to)
    yield from _member("container", leaf.container, ("array", "list"))
    yield from _pair("clip", leaf.clip)
    for size in leaf.reshape or ():
        if not (_is_count(size) or size == -1):
            yield "reshape", f"must hold non-negative integers and at most one -1, got {size!r}"
    if leaf.reshape is not None and leaf.reshape.count(-1) > 1:
        yield "reshape", f"allows at most one -1 (inferred) dimension, got {list(leaf.reshape)}"
    parts = (leaf,) if isinstance(leaf, State) else leaf.parts
    for index, part in enumerate(parts):
        prefix = "" if isinstance(leaf, State) else f"components[{index}]"
        for field, fault in _part_faults(part):
            yield ".".join(filter(None, (prefix, field))), fault


def _part_faults(part: str | State | Constant) -> Faults:
    if isinstance(part, str):
        yield from _role(part)
        return
    if isinstance(part, Constant):
        yield from _count("dim", part.dim)
        yield from _number("fill", part.fill)
        return
    yield from _role(part.role)
    if not isinstance(part.encoding, CustomEncoding):
        yield from _names("encoding", part.encoding)
    for name in ("dim", "index"):
        yield from _count(name, getattr(part, name))
    yield from _pair("range", part.range)
    for name in ("scale", "offset"):
        yield from _numbers(name, getattr(part, name))
    yield from _number("fill", part.fill)
    if part.provenance == ():
        yield "provenance", "a list of provenances must name at least one"
    if part.post_rotate is not None:
        fault = part.post_rotate.fault()
        if fault:
            yield "post_rotate", fault
    yield from _identity(part, ("frame", "part"))


# Values


def _role(role: Any) -> Faults:
    if not isinstance(role, str):
        yield "role", f"expected a string, got {role!r}"
        return
    if not role:
        yield "role", "expected a role, got an empty string"
    fault = role_fault(role)
    if fault:
        yield "role", fault


def _identity(item: Any, names: tuple[str, ...]) -> Faults:
    for name in names:
        value = getattr(item, name)
        if value is not None and not isinstance(value, (str, tuple)):
            yield name, f"expected a string, got {value!r}"
        if value == "":
            yield name, "expected a name, got an empty string; leave it out instead"


def _names(field: str, value: Any) -> Faults:
    if value == ():
        yield field, "a list of encodings must name at least one"


def _member(field: str, value: Any, allowed: tuple[str, ...]) -> Faults:
    if value not in allowed:
        yield field, f"unknown {field} {value!r}; expected one of {', '.join(allowed)}"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(field: str, value: Any) -> Faults:
    if value is not None and not _is_count(value):
        yield field, f"must be a non-negative integer, got {value!r}"


def _pair(field: str, value: Any) -> Faults:
    try:
        pair(value, field)
    except ValueError as exc:
        yield field, str(exc)


def _numbers(field: str, value: Any) -> Faults:
    single = not isinstance(value, tuple)
    items = (value,) if single else cast("tuple[Any, ...]", value)
    for item in items:
        yield from _number(field, item)


def _number(field: str, value: Any) -> Faults:
    if value is not None and not (is_number(value) and math.isfinite(value)):
        yield field, f"must be a finite number, got {value!r}"


def _unknown_encoding(name: str) -> str:
    return f"unknown rotation encoding {name!r}; expected one of {', '.join(sorted(ROTATION_DIMS))}"
