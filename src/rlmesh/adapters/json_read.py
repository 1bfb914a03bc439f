"""Tags and specs from plain JSON data, refusing what they would have to guess.

A field this version does not know is refused on a leaf it knows, unless it begins with ``x-`` or
``ext.``. A leaf of an unknown kind is kept aside when a contract is read, so that the rest works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.encodings import CustomEncoding, Rotation
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.json_fields import Fields, boolean, count, integers, number, numbers, text
from rlmesh.adapters.json_fields import names as names_of
from rlmesh.adapters.json_fields import range_of as pair_of
from rlmesh.adapters.spec_checks import check_spec, check_tags
from rlmesh.adapters.specs import Concat, Constant, ModelSpec, State, Text
from rlmesh.adapters.tags import EnvTags, Field, ImageTag, Split, StateTag, TextTag, UnknownLeaf

__all__ = ["metadata_entry", "spec_from_dict", "tags_from_dict"]

T = TypeVar("T")


def metadata_entry(metadata: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """The mapping under a metadata key, None if there is none."""
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise AdapterResolutionError(
            f"metadata key {key!r} must hold a mapping, got {type(value).__name__}"
        )
    return cast("Mapping[str, Any]", value)


def tags_from_dict(data: Any, *, keep_unknown: bool = False) -> EnvTags:
    """Env tags of JSON data; ``keep_unknown`` lets leaves of an unknown kind pass."""
    fields = Fields(data, "invalid env tags")

    def read(kind: str, at: Fields) -> Any:
        leaf = _tag_leaf(kind, at)
        if isinstance(leaf, UnknownLeaf) and not keep_unknown:
            raise _unknown_kind(kind, "observation", at)
        return leaf

    observation = _node(fields.take("observation"), fields.at("observation"), read)
    action = _action(fields.nested("action"))
    fields.finish()
    tags = EnvTags(observation, action)
    check_tags(tags)
    return tags


def spec_from_dict(data: Any) -> ModelSpec:
    """A model spec of JSON data."""
    fields = Fields(data, "invalid model spec")
    tree = _node(fields.take("input"), fields.at("input"), _input_leaf)
    spec = ModelSpec(tree, _action(fields.nested("output")))
    fields.finish()
    check_spec(spec)
    return spec


def _node(data: Any, at: Fields, read: Callable[[str, Fields], Any]) -> Any:
    if isinstance(data, list):
        items = cast("list[Any]", data)
        return tuple(_node(child, at.item(index), read) for index, child in enumerate(items))
    if not isinstance(data, Mapping):
        raise at.fault(f"expected a leaf, a dict of nodes or an array of nodes, got {data!r}")
    mapping = cast("Mapping[str, Any]", data)
    kind = mapping.get("type")
    if isinstance(kind, str):
        return read(kind, at.of(mapping))
    if "type" in mapping:
        raise at.fault(
            'a dict child may not be called "type", the key that marks a leaf; rename it'
        )
    return {key: _node(child, at.at(key), read) for key, child in mapping.items()}


def _unknown_kind(kind: str, side: str, fields: Fields) -> ValueError:
    return fields.fault(
        f'{side} declares unrecognized kind "{kind}"; this core cannot build it, upgrade rlmesh'
    )


def _build(fields: Fields, make: Callable[[], T]) -> T:
    """What ``make`` builds, its complaint prefixed with the place."""
    fields.finish()
    try:
        return make()
    except ValueError as exc:
        raise fields.fault(str(exc)) from None


# Env side


def _tag_leaf(kind: str, fields: Fields) -> Any:
    if kind == "image":
        role = fields.required("role", text)
        values = fields.read(layout=text, upside_down=boolean, part=text)
        return _build(fields, lambda: ImageTag(role, **values))
    if kind == "state":
        role = fields.required("role", text)
        values = _state_fields(fields)
        return _build(fields, lambda: StateTag(role, **values))
    if kind == "text":
        role = fields.required("role", text)
        return _build(fields, lambda: TextTag(role))
    if kind == "split":
        items = [_field(item) for item in fields.list_of("fields")]
        return _build(fields, lambda: Split(*items))
    return UnknownLeaf(kind, cast("str | None", fields.take("role", None)))


def _field(fields: Fields) -> Field:
    values = {**fields.read(role=text), **_state_fields(fields)}
    dim = fields.required("dim", count)
    return _build(fields, lambda: Field(dim=dim, **values))


def _state_fields(fields: Fields) -> dict[str, Any]:
    return fields.read(
        encoding=names_of,
        range=pair_of,
        frame=text,
        provenance=text,
        part=text,
        labels=names_of,
    )


# Actions


def _action(fields: Fields) -> Action:
    items = [_actuator(item) for item in fields.list_of("components")]
    clip = fields.read(clip=pair_of)
    return _build(fields, lambda: Action(*items, **clip))


def _actuator(fields: Fields) -> Actuator:
    values = fields.read(
        role=text,
        encoding=_one_encoding,
        range=pair_of,
        binary=boolean,
        fill=number,
        invert=boolean,
        threshold=number,
        clip=boolean,
        optional=boolean,
        frame=text,
        reference=text,
        part=text,
        labels=names_of,
    )
    dim = fields.required("dim", count)
    values.update(_affine(fields))
    return _build(fields, lambda: Actuator(dim=dim, **values))


# Model side


def _input_leaf(kind: str, fields: Fields) -> Any:
    if kind == "image":
        return _image(fields)
    if kind == "state":
        return _vector(fields)
    if kind == "text":
        role = fields.required("role", text)
        values = fields.read(container=text, fill=text)
        return _build(fields, lambda: Text(role, **values))
    if kind == "custom":
        raise fields.fault(
            "a custom input cannot travel; resolve the original spec where its function is"
        )
    raise _unknown_kind(kind, "model input", fields)


def _image(fields: Fields) -> Image:
    role = fields.required("role", text)
    values = fields.read(
        height=count,
        width=count,
        layout=text,
        dtype=text,
        normalize=_normalize,
        lead_dims=count,
        upside_down=boolean,
        resample=text,
        stack=count,
        allow_upscale=boolean,
        fit=names_of,
        channels=count,
        optional=boolean,
        fill=count,
        crop=number,
        crop_area=number,
        crop_mode=text,
        jpeg_quality=count,
        channel_order=text,
        render=_render,
        offsets=integers,
        stack_pad=text,
        part=text,
    )
    return _build(fields, lambda: Image(role, **values))


def _vector(fields: Fields) -> State | Concat:
    parts = [_part(item) for item in fields.list_of("components")]
    if not parts:
        raise fields.fault("a state input needs at least one component")
    values = fields.read(dtype=text, pad_to=count, reshape=integers, container=text, clip=pair_of)
    only = parts[0]
    if len(parts) == 1 and isinstance(only, dict):
        return _build(fields, lambda: State(**only, **values))
    built = [State(**part) if isinstance(part, dict) else part for part in parts]
    return _build(fields, lambda: Concat(*built, **values))


def _part(fields: Fields) -> str | Constant | dict[str, Any]:
    """A role alone, a constant block, or the fields of a State."""
    if isinstance(fields.data, str):
        return fields.data
    values = fields.read(
        source=text,
        encoding=_encoding,
        dim=count,
        index=count,
        optional=boolean,
        range=pair_of,
        fill=number,
        post_rotate=_rotation,
        frame=text,
        provenance=names_of,
        part=text,
        labels=names_of,
    )
    role = fields.read(role=text)
    values.update(_affine(fields))
    if not role:
        if "dim" not in values:
            raise fields.fault("a constant (role-less) state part needs dim")
        extra = sorted(set(values) - {"dim", "fill"})
        if extra:
            raise fields.fault(
                "a constant (role-less) state part carries only dim and fill; drop "
                f"{', '.join(extra)}"
            )
        return _build(fields, lambda: Constant(**values))
    if not values:
        fields.finish()
        return role["role"]
    _build(fields, lambda: State(**role, **values))
    return {**role, **values}


# Values


def _affine(fields: Fields) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("scale", "offset"):
        out.update(fields.read(**{name: number}))
        axis = fields.read(**{f"axis_{name}": numbers})
        if axis and name in out:
            raise fields.fault(f"sets both {name} and axis_{name}; one number or one per axis")
        if axis:
            out[name] = axis[f"axis_{name}"]
    return out


def _one_encoding(data: Any, at: Fields) -> Any:
    if isinstance(data, list):
        raise at.fault("expected one rotation encoding, got a list")
    return _encoding(data, at)


def _encoding(data: Any, at: Fields) -> Any:
    if not isinstance(data, Mapping):
        return names_of(data, at)
    fields = at.of(cast("Mapping[str, Any]", data))
    base = fields.required("base", text)
    values = fields.read(name=text, from_base=text, to_base=text)
    return _build(fields, lambda: CustomEncoding(cast("Any", base), **values))


def _rotation(data: Any, at: Fields) -> Rotation:
    fields = at.of(data)
    encoding = fields.required("encoding", text)
    value = fields.required("value", numbers)
    return _build(fields, lambda: Rotation(encoding=cast("Any", encoding), value=value))


def _normalize(data: Any, at: Fields) -> Any:
    return data if isinstance(data, bool) else pair_of(data, at)


def _render(data: Any, at: Fields) -> Any:
    return integers(data, at) if isinstance(data, list) else count(data, at)
