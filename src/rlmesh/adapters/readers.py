"""Reading observations by role: what an env offers, item by item, without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.apply_inputs import InputReader, compile_input
from rlmesh.adapters.features import EnvFeatures, ImageFeature, StateFeature, TextFeature, join
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.matching import Findings, match_part, offer
from rlmesh.adapters.plan import InputStep, TextInput
from rlmesh.adapters.reading import leaf_reader, number_reader, numeric_array
from rlmesh.adapters.resolve import as_space
from rlmesh.adapters.resolve_image import resolve_image
from rlmesh.adapters.resolve_state import resolve_state
from rlmesh.adapters.spec_checks import check_spec, check_tags
from rlmesh.adapters.specs import ModelSpec, State, Text
from rlmesh.adapters.tags import EnvTags, ObservationRoles
from rlmesh.values.frameworks import NUMPY, Framework

__all__ = ["FrameSources", "Reader", "frame_sources", "observation_roles", "reader"]

ReadItem = str | Image | State | Text
"""A role, whose value comes as the env gives it, or a leaf that says how it shall be converted."""


class Reader:
    """A function from an observation to ``{role: value}``, in the order of its items.

    Attributes:
        roles: the roles read.
    """

    def __init__(self, items: Sequence[tuple[str, Callable[[Any], Any]]]) -> None:
        self._items = tuple(items)
        self.roles: tuple[str, ...] = tuple(role for role, _read in self._items)

    def __call__(self, observation: Any) -> dict[str, Any]:
        """The values, arrays of their own in the env's framework; the observation stays as is."""
        return {role: read(observation) for role, read in self._items}

    def __repr__(self) -> str:
        return f"Reader(roles={list(self.roles)})"


def reader(
    tags: EnvTags | None,
    observation_space: object,
    *items: ReadItem,
    framework: Framework | None = None,
) -> Reader:
    """A reader of some roles of an env.

    Args:
        tags: the env's tags, None for an untagged env.
        observation_space: of one lane.
        items: role strings, whose value comes in the env's own form (images keep the env's layout),
            or Image, State and Text leaves, which convert as for a model.
        framework: whose arrays to return; NumPy by default.

    Raises:
        TypeError: no item, or one that is neither a role nor such a leaf.
        AdapterResolutionError: an untagged env, an unknown role, one asked for twice, or a
            conversion that does not resolve.
    """
    if not items:
        raise TypeError("reader() expects at least one role or leaf to read, got none")
    for item in items:
        if not isinstance(item, (str, Image, State, Text)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "reader() expects role strings or Image, State and Text leaves, got "
                f"{type(item).__name__} {item!r}"
            )
    if tags is None:
        raise AdapterResolutionError(
            "the env carries no adapter tags, so nothing can be read by role; publish them with "
            "rlmesh.adapters.tag(env, tags)"
        )
    roles = [item if isinstance(item, str) else item.role for item in items]
    for role in roles:
        if roles.count(role) > 1:
            raise AdapterResolutionError(f'role "{role}" is asked for twice; read it once')
    try:
        check_tags(tags)
    except ValueError as exc:
        raise AdapterResolutionError(str(exc)) from None
    env = join(tags, as_space(observation_space, "observation"))
    bound = framework or NUMPY
    return Reader(
        [(role, _read(item, tags, env, bound)) for role, item in zip(roles, items, strict=True)]
    )


def observation_roles(tags: EnvTags | None) -> ObservationRoles:
    """The roles an env offers, by kind; empty groups for an untagged env."""
    return ObservationRoles() if tags is None else tags.observation_roles


def _read(
    item: ReadItem, tags: EnvTags, env: EnvFeatures, framework: Framework
) -> Callable[[Any], Any]:
    if isinstance(item, str):
        return _native(item, env, framework)
    compiled = compile_input(_convert(item, tags, env), 0)
    return lambda observation: _leaf(compiled, observation, framework)


def _leaf(compiled: InputReader, observation: Any, framework: Framework) -> Any:
    value: Any = compiled.read([observation], (), None)[0]
    return framework.from_host(value) if hasattr(value, "dtype") else value


def _convert(item: Image | State | Text, tags: EnvTags, env: EnvFeatures) -> InputStep:
    if isinstance(item, Image) and item.stack > 1:
        raise AdapterResolutionError(
            f'role "{item.role}": a reader sees one observation at a time; drop stack'
        )
    if isinstance(item, State) and item.source == "action":
        raise AdapterResolutionError(
            f'role "{item.role}": a reader sees observations only; drop source="action"'
        )
    try:
        check_spec(ModelSpec(item, tags.action))
    except ValueError as exc:
        raise AdapterResolutionError(str(exc)) from None
    findings = Findings()
    if isinstance(item, Image):
        return resolve_image(item, (), env, findings)
    if isinstance(item, State):
        return resolve_state(item, (), env, tags.action, findings)
    feature = _feature(item.role, env.texts, env)
    return TextInput((), feature.path, None, item.container == "list")


def _feature(role: str, features: Sequence[Any], env: EnvFeatures) -> Any:
    found = match_part(features, "observation", role, None, "<reader>", Findings())
    if not found:
        everything = (*env.images, *env.states, *env.texts)
        raise AdapterResolutionError(f'unknown role "{role}": the env offers {offer(everything)}')
    if len(found) > 1:
        raise AdapterResolutionError(
            f'role "{role}" stands for {len(found)} leaves of the env; read State("{role}", part=, '
            "provenance=) to name one"
        )
    return found[0]


def _native(role: str, env: EnvFeatures, framework: Framework) -> Callable[[Any], Any]:
    feature = _feature(role, (*env.images, *env.states, *env.texts), env)
    if isinstance(feature, TextFeature):
        return leaf_reader(feature.path)
    if isinstance(feature, StateFeature) and feature.start is not None:
        read = number_reader(feature.path, feature.leaf_width, feature.start, feature.width)
        return lambda observation: framework.from_host(np.array(read(observation), order="C"))
    assert isinstance(feature, (ImageFeature, StateFeature))
    get, name = leaf_reader(feature.path), feature.name

    def read_whole(observation: Any) -> Any:
        value = get(observation)
        if isinstance(value, (int, float, bytes)):
            return value
        return framework.from_host(np.array(numeric_array(value, name), order="C"))

    return read_whole


@dataclass(frozen=True)
class FrameSources:
    """Where pictures of an env can come from.

    Attributes:
        roles: its camera roles.
        render_label: what to call its render; None if it cannot render pictures.
        render: a function that renders one, None likewise.
    """

    roles: tuple[str, ...] = ()
    render_label: str | None = None
    render: Callable[[], Any] | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The roles, then the label of the render."""
        return self.roles if self.render_label is None else (*self.roles, self.render_label)


def frame_sources(
    tags: EnvTags | None, render_mode: str | None, render: Callable[[], Any]
) -> FrameSources:
    """The frame sources of an env; its render counts when the mode gives RGB arrays."""
    roles = observation_roles(tags).images
    if render_mode not in ("rgb_array", "rgb_array_list"):
        return FrameSources(roles)
    label = "render()" if "render" in roles else "render"
    return FrameSources(roles, label, render)
