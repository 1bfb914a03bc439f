"""Hypothesis strategies for valid tags and specs, whatever they mean."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import rlmesh.adapters as adapt

__all__ = ["env_tags", "model_specs"]

numbers = st.integers(-64, 64).map(lambda n: n / 8)
names = st.sampled_from(["a", "b", "left_arm", "joint one", "é"])
encodings = st.sampled_from(["quat_xyzw", "quat_wxyz", "axis_angle", "rot6d", "euler_xyz", "new"])
frames = st.sampled_from(["world", "robot_base", "tool", "camera"])
provenances = st.sampled_from(["sensed", "estimated", "privileged"])
ranges = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))


def roles(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{kind}/one", f"{kind}/two", "x/private", "adhoc"])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def accept_sets(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy | st.lists(strategy, min_size=1, max_size=3, unique=True)


def axis_values(dim: int) -> st.SearchStrategy[Any]:
    return st.none() | numbers | st.lists(numbers, min_size=dim, max_size=dim)


def labels(dim: int) -> st.SearchStrategy[Any]:
    return st.none() | st.just([f"axis{i}" for i in range(dim)])


@st.composite
def actuators(draw: Any, env: bool) -> adapt.Actuator:
    dim = draw(st.integers(1, 4))
    if draw(st.booleans()) and draw(st.booleans()):
        return adapt.Actuator(None, dim, fill=draw(numbers))
    span = draw(maybe(ranges))
    optional = draw(st.booleans())
    known = ["quat_xyzw", "axis_angle", "rot6d"]
    return adapt.Actuator(
        draw(roles("action")),
        dim,
        draw(maybe(st.sampled_from(known))),
        span,
        draw(st.booleans()),
        draw(axis_values(dim)),
        draw(st.booleans()),
        draw(maybe(numbers)),
        clip=env and span is not None and draw(st.booleans()),
        fill=draw(numbers) if optional else 0.0,
        optional=optional,
        frame=draw(maybe(frames)),
        reference=draw(maybe(st.sampled_from(["current", "target"]))),
        part=draw(maybe(names)),
        offset=draw(axis_values(dim)),
        labels=draw(labels(dim)),
    )


@st.composite
def actions(draw: Any, env: bool) -> adapt.Action:
    items = draw(st.lists(actuators(env), min_size=1, max_size=3))
    kept = {(item.role, item.part) if item.role else id(item): item for item in items}
    return adapt.Action(*kept.values(), clip=draw(maybe(ranges)) if env else None)


@st.composite
def state_tags(draw: Any) -> adapt.StateTag:
    return adapt.StateTag(
        draw(roles("proprio")),
        draw(accept_sets(encodings)),
        draw(maybe(ranges)),
        frame=draw(maybe(frames)),
        provenance=draw(maybe(provenances)),
        part=draw(maybe(names)),
        labels=draw(labels(2)),
    )


@st.composite
def fields(draw: Any) -> adapt.Field:
    dim = draw(st.integers(1, 4))
    if draw(st.booleans()):
        return adapt.Field(None, dim)
    return adapt.Field(
        draw(roles("proprio")),
        dim,
        draw(accept_sets(encodings)),
        draw(maybe(ranges)),
        frame=draw(maybe(frames)),
        provenance=draw(maybe(provenances)),
        part=draw(maybe(names)),
        labels=draw(labels(dim)),
    )


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["rgb", "a.b", "0", "état"])
    return st.recursive(
        leaf,
        lambda node: (
            st.dictionaries(keys, node, max_size=3) | st.lists(node, max_size=3).map(tuple)
        ),
        max_leaves=4,
    )


def observation_leaves() -> st.SearchStrategy[Any]:
    images = st.builds(
        adapt.ImageTag,
        roles("image"),
        st.sampled_from(["hwc", "chw"]),
        st.booleans(),
        part=maybe(names),
    )
    splits = st.lists(fields(), min_size=1, max_size=3).filter(_distinct)
    return (
        images
        | state_tags()
        | st.builds(adapt.TextTag, roles("text"))
        | splits.map(lambda items: adapt.Split(*items))
    )


def _distinct(items: list[adapt.Field]) -> bool:
    keys = [(item.role, item.part, item.provenance) for item in items if item.role]
    return len(set(keys)) == len(keys)


@st.composite
def env_tags(draw: Any) -> adapt.EnvTags:
    """Valid env tags."""
    from hypothesis import assume

    try:
        return adapt.EnvTags(draw(trees(observation_leaves())), draw(actions(True)))
    except ValueError as exc:
        assume("more than once" not in str(exc))
        raise


@st.composite
def images(draw: Any) -> adapt.Image:
    stack = draw(st.integers(1, 4))
    optional = draw(st.booleans())
    crop = draw(st.sampled_from([{}, {"crop": 0.5}, {"crop_area": 0.25}]))
    offsets = tuple(range(-2 * (stack - 1), 1, 2))
    return adapt.Image(
        draw(roles("image")),
        draw(maybe(st.integers(1, 512))),
        draw(maybe(st.integers(1, 512))),
        draw(st.sampled_from(["hwc", "chw"])),
        draw(maybe(st.sampled_from([1, 3, 4]))),
        draw(st.sampled_from(["uint8", "float32", "float99"])),
        draw(st.booleans() | ranges),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(st.sampled_from(["bilinear", "bilinear_aa", "area", "nearest"])),
        draw(st.booleans()),
        draw(accept_sets(st.sampled_from(["stretch", "crop", "pad", "squeeze"]))),
        optional,
        draw(maybe(st.integers(0, 255))) if optional else None,
        stack,
        crop_mode=draw(st.sampled_from(["zoom", "slice"])),
        jpeg_quality=draw(maybe(st.integers(1, 100))),
        channel_order=draw(st.sampled_from(["rgb", "bgr"])),
        render=draw(st.none() | st.integers(1, 4096) | st.tuples(st.just(3), st.just(4))),
        offsets=draw(st.sampled_from([None, offsets])),
        stack_pad=draw(st.sampled_from(["first", "black"])),
        part=draw(maybe(names)),
        **crop,
    )


@st.composite
def states(draw: Any, **container: Any) -> adapt.State:
    dim = draw(st.integers(1, 4))
    optional = draw(st.booleans())
    encoding = draw(accept_sets(encodings))
    rotation = adapt.Rotation(encoding="quat_xyzw", value=(0.0, 0.0, 0.6, 0.8))
    select = draw(st.sampled_from([{}, {"dim": dim}, {"index": dim}, {"labels": ("p", "q")}]))
    return adapt.State(
        draw(roles("proprio")),
        encoding,
        optional=optional,
        range=draw(maybe(ranges)),
        fill=draw(numbers) if optional else 0.0,
        post_rotate=draw(maybe(st.just(rotation))) if encoding is not None else None,
        scale=draw(axis_values(dim)),
        offset=draw(axis_values(dim)),
        frame=draw(maybe(frames)),
        provenance=draw(accept_sets(provenances)),
        part=draw(maybe(names)),
        **select,
        **container,
    )


containers = st.fixed_dictionaries(
    {},
    optional={
        "pad_to": st.integers(0, 64),
        "dtype": st.sampled_from(["float32", "float64", "int32"]),
        "reshape": st.sampled_from([(2, -1), (4,), (-1,)]),
        "container": st.sampled_from(["array", "list"]),
        "clip": ranges,
    },
)


@st.composite
def concats(draw: Any) -> adapt.Concat:
    part = (
        roles("proprio")
        | states()
        | st.builds(adapt.Constant, dim=st.integers(1, 4), fill=numbers)
        | st.builds(adapt.Previous, roles("action"), part=maybe(names), fill=numbers)
    )
    parts = draw(st.lists(part, max_size=3))
    return adapt.Concat("proprio/one", *parts, **draw(containers))


def input_leaves() -> st.SearchStrategy[Any]:
    texts = st.builds(
        adapt.Text,
        roles("text"),
        st.sampled_from(["str", "list"]),
        maybe(st.sampled_from(["", "go", "é"])),
    )
    alone = containers.flatmap(lambda fields: states(**fields))
    return images() | alone | concats() | texts


def model_specs() -> st.SearchStrategy[adapt.ModelSpec]:
    """Valid model specs without functions in them."""
    return st.builds(adapt.ModelSpec, trees(input_leaves()), actions(False))
