"""Tags and specs as plain JSON data: the form in which contracts carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.encodings import LOCAL, CustomEncoding
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.spec_checks import check_spec, check_tags
from rlmesh.adapters.specs import Concat, Constant, Custom, ModelSpec, State, Text
from rlmesh.adapters.tags import EnvTags, Field, ImageTag, Split, StateTag, TextTag, UnknownLeaf
from rlmesh.adapters.trees import leaves, path_name

__all__ = ["spec_to_dict", "tags_to_dict"]

Data = dict[str, Any]


def tags_to_dict(tags: EnvTags) -> Data:
    """Env tags as JSON data; ValueError where they cannot be published."""
    for path, leaf in leaves(tags.observation):
        if isinstance(leaf, UnknownLeaf):
            raise ValueError(
                f'invalid env tags: observation "{path_name(path)}" declares unrecognized kind '
                f'"{leaf.kind}"; this core cannot publish it, upgrade rlmesh'
            )
    check_tags(tags)
    return {"observation": _node(tags.observation), "action": _action(tags.action)}


def spec_to_dict(spec: ModelSpec) -> Data:
    """A model spec as JSON data; ValueError where it cannot be published."""
    for path, leaf in leaves(spec.input):
        where = path_name(path)
        if isinstance(leaf, Custom) and leaf.transform is not None:
            raise ValueError(
                f"custom input at {where!r} holds a callable and cannot be serialized; resolve "
                "the spec in this process, the spec need not travel"
            )
        if isinstance(leaf, Custom):
            raise ValueError(
                f"custom input at {where!r} carries the entrypoint {leaf.entrypoint!r} and cannot "
                "be published; resolve the spec in this process, the spec need not travel"
            )
    check_spec(spec)
    return {"input": _node(spec.input), "output": _action(spec.output)}


def _node(node: Any) -> Any:
    if isinstance(node, Mapping):
        mapping = cast("Mapping[str, Any]", node)
        return {key: _node(child) for key, child in mapping.items()}
    if isinstance(node, tuple):
        return [_node(child) for child in cast("tuple[Any, ...]", node)]
    return _LEAVES[type(node)](node)


def _given(**values: Any) -> Data:
    """The fields that are set."""
    return {name: value for name, value in values.items() if value is not None}


def _image_tag(tag: ImageTag) -> Data:
    return {
        "type": "image",
        "role": tag.role,
        "layout": tag.layout,
        "upside_down": tag.upside_down,
        **_given(part=tag.part),
    }


def _state_fields(tag: StateTag | Field) -> Data:
    return {
        "encoding": _names(tag.encoding),
        "range": _floats(tag.range),
        **_given(
            frame=tag.frame,
            provenance=tag.provenance,
            part=tag.part,
            labels=_names(tag.labels, always_list=True),
        ),
    }


def _state_tag(tag: StateTag) -> Data:
    return {"type": "state", "role": tag.role, **_state_fields(tag)}


def _split(split: Split) -> Data:
    fields = [{"role": item.role, "dim": item.dim, **_state_fields(item)} for item in split.fields]
    return {"type": "split", "fields": fields}


def _text_tag(tag: TextTag) -> Data:
    return {"type": "text", "role": tag.role}


def _action(action: Action) -> Data:
    return {
        "components": [_actuator(item) for item in action.components],
        "clip": _floats(action.clip),
    }


def _actuator(item: Actuator) -> Data:
    return {
        **_given(role=item.role),
        "dim": item.dim,
        "encoding": _encoding(item.encoding),
        "range": _floats(item.range),
        "binary": item.binary,
        **_affine(item.scale, item.offset),
        **_given(
            fill=float(item.fill) or None,
            invert=item.invert or None,
            threshold=None if item.threshold is None else float(item.threshold),
            clip=item.clip or None,
            optional=item.optional or None,
            frame=item.frame,
            reference=item.reference,
            part=item.part,
            labels=_names(item.labels, always_list=True),
        ),
    }


def _image(image: Image) -> Data:
    return {
        "type": "image",
        "role": image.role,
        "height": image.height,
        "width": image.width,
        "layout": image.layout,
        "dtype": image.dtype,
        "normalize": image.normalize
        if isinstance(image.normalize, bool)
        else _floats(image.normalize),
        "lead_dims": image.lead_dims,
        "upside_down": image.upside_down,
        "resample": image.resample,
        **_given(
            stack=image.stack if image.stack != 1 else None,
            allow_upscale=image.allow_upscale or None,
            fit=_names(image.fit),
            channels=image.channels,
            optional=image.optional or None,
            fill=image.fill,
            crop=image.crop,
            crop_area=image.crop_area,
            crop_mode=image.crop_mode if image.crop_mode != "zoom" else None,
            jpeg_quality=image.jpeg_quality,
            channel_order=image.channel_order if image.channel_order != "rgb" else None,
            render=_names(image.render),
            offsets=_names(image.offsets),
            stack_pad=image.stack_pad if image.stack_pad != "first" else None,
            part=image.part,
        ),
    }


def _vector(leaf: State | Concat) -> Data:
    parts = (leaf,) if isinstance(leaf, State) else leaf.parts
    return {
        "type": "state",
        "components": [_part(part) for part in parts],
        "dtype": leaf.dtype,
        **_given(
            pad_to=leaf.pad_to,
            reshape=_names(leaf.reshape),
            container=leaf.container if leaf.container != "array" else None,
            clip=_floats(leaf.clip),
        ),
    }


def _part(part: str | State | Constant) -> str | Data:
    if isinstance(part, str):
        return part
    if isinstance(part, Constant):
        return {"dim": part.dim, **_given(fill=float(part.fill) or None)}
    rotation = part.post_rotate
    given = _given(
        source=part.source if part.source != "observation" else None,
        encoding=_encoding(part.encoding),
        dim=part.dim,
        index=part.index,
        optional=part.optional or None,
        range=_floats(part.range),
        fill=float(part.fill) or None,
        post_rotate=None
        if rotation is None
        else {"encoding": rotation.encoding, "value": _floats(rotation.value)},
        **_affine(part.scale, part.offset),
        frame=part.frame,
        provenance=_names(part.provenance),
        part=part.part,
        labels=_names(part.labels, always_list=True),
    )
    return {"role": part.role, **given} if given else part.role


def _text(text: Text) -> Data:
    return {
        "type": "text",
        "role": text.role,
        "container": text.container,
        "fill": text.fill,
    }


def _encoding(encoding: Any) -> Any:
    if not isinstance(encoding, CustomEncoding):
        return _names(encoding)
    arms = {"from_base": encoding.from_base, "to_base": encoding.to_base}
    return {
        "base": encoding.base,
        **_given(name=encoding.name if encoding.name != "custom" else None),
        **{
            name: arm if isinstance(arm, str) else LOCAL
            for name, arm in arms.items()
            if arm is not None
        },
    }


def _affine(scale: Any, offset: Any) -> Data:
    """Scale and offset: one number under the plain name, one per axis under ``axis_``."""
    out: Data = {}
    for name, value in (("scale", scale), ("offset", offset)):
        if isinstance(value, tuple):
            out[f"axis_{name}"] = _floats(cast("tuple[float, ...]", value))
        elif value is not None:
            out[name] = float(value)
    return out


def _names(value: Any, *, always_list: bool = False) -> Any:
    """A sequence as a list; one element stands alone where that is the canonical form."""
    if not isinstance(value, tuple):
        return value
    items: list[Any] = list(cast("tuple[Any, ...]", value))
    alone = len(items) == 1 and isinstance(items[0], str) and not always_list
    return items[0] if alone else items


def _floats(value: Any) -> list[float] | None:
    return None if value is None else [float(item) for item in value]


_LEAVES: dict[type, Any] = {
    ImageTag: _image_tag,
    StateTag: _state_tag,
    Split: _split,
    TextTag: _text_tag,
    Image: _image,
    State: _vector,
    Concat: _vector,
    Text: _text,
}
