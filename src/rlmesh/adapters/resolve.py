"""resolve(): tags, spaces and a spec to a plan. A pure function; what can be known fails here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlmesh.adapters.actions import Action
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.features import EnvFeatures, ImageFeature, join
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.matching import Findings, offer, refuse_unknown
from rlmesh.adapters.plan import CustomInput, InputStep, Plan, TextInput
from rlmesh.adapters.resolve_action import resolve_action
from rlmesh.adapters.resolve_image import resolve_image
from rlmesh.adapters.resolve_state import resolve_state
from rlmesh.adapters.spec_checks import check_spec, check_tags
from rlmesh.adapters.specs import Concat, Custom, ModelLeaf, ModelSpec, State, Text
from rlmesh.adapters.tags import EnvTags
from rlmesh.adapters.trees import Path, leaves, path_name
from rlmesh.adapters.vocabulary import is_registered
from rlmesh.spaces import Space, from_gymnasium_space

__all__ = ["as_space", "env_notes", "resolve_plan"]


def resolve_plan(
    env_tags: EnvTags,
    observation_space: object,
    action_space: object,
    model_spec: ModelSpec,
    *,
    trust_entrypoints: bool = False,
    check_inverse: bool = True,
) -> Plan:
    """The plan by which this env and this model work together.

    Args:
        env_tags: what the env's leaves mean.
        observation_space, action_space: of one lane; of gymnasium or of rlmesh.
        model_spec: what the model takes and gives.
        trust_entrypoints: import and run the functions that Custom inputs name.
        check_inverse: try that both functions of a CustomEncoding undo each other.

    Raises:
        AdapterResolutionError: they do not fit; the message names the leaf, the offer, the remedy.
        ImportError: a library that a step needs is not installed.
    """
    _check(env_tags, model_spec)
    findings = Findings()
    env = join(env_tags, as_space(observation_space, "observation"))
    resolve_input = _InputResolver(
        env, model_spec.output, findings, trust_entrypoints, check_inverse
    )
    inputs = [resolve_input(leaf, placement) for placement, leaf in leaves(model_spec.input)]
    action = resolve_action(
        env_tags.action,
        as_space(action_space, "action"),
        model_spec.output,
        findings,
        check_inverse=check_inverse,
    )
    _unread_roles(env, model_spec, findings)
    for code, message in env_notes(env_tags, env):
        findings.add("info", code, message)
    return Plan(
        tree=model_spec.input,
        inputs=tuple(inputs),
        action=action,
        notes=tuple(findings.notes),
        advisories=(*findings.notes, *findings.others),
    )


def _check(tags: EnvTags, spec: ModelSpec) -> None:
    try:
        check_tags(tags)
        check_spec(spec)
    except ValueError as exc:
        raise AdapterResolutionError(str(exc)) from None


@dataclass(frozen=True)
class _InputResolver:
    """A function from a leaf of the spec to its step."""

    env: EnvFeatures
    output: Action
    findings: Findings
    trust_entrypoints: bool
    check_inverse: bool

    def __call__(self, leaf: ModelLeaf, placement: Path) -> InputStep:
        if isinstance(leaf, Image):
            return resolve_image(leaf, placement, self.env, self.findings)
        if isinstance(leaf, Text):
            return _text(leaf, placement, self.env, self.findings)
        if isinstance(leaf, Custom):
            return _custom(leaf, placement, self.trust_entrypoints)
        return resolve_state(
            leaf,
            placement,
            self.env,
            self.output,
            self.findings,
            check_inverse=self.check_inverse,
        )


def as_space(space: object, which: str) -> Space:
    """A space of gymnasium or rlmesh as an rlmesh space.

    Raises:
        AdapterResolutionError: it is none, or one that cannot be carried.
    """
    try:
        return from_gymnasium_space(space)
    except TypeError as exc:
        raise AdapterResolutionError(f"the {which} space cannot be read: {exc}") from None


def env_notes(tags: EnvTags, env: EnvFeatures) -> Iterator[tuple[str, str]]:
    """(code, message) of everything about the tags themselves that looks wrong but need not be."""
    for camera in env.images:
        doubt = _layout_doubt(camera)
        if doubt:
            yield "layout-looks-wrong", doubt
    roles = [item.role for item in (*env.images, *env.states, *env.texts)]
    roles += [item.role for item in tags.action.components if item.role is not None]
    for role in dict.fromkeys(roles):
        if not is_registered(role):
            yield (
                "unregistered-role",
                f'role "{role}" is not in the role registry; it resolves only against the exact '
                "same string. Prefer a registered role, or x/... to mark it as private; dims that "
                "no model moves can be an Actuator without role",
            )


def _layout_doubt(camera: ImageFeature) -> str | None:
    """A frame whose channel count is no channel count, while another axis's would be."""
    height, width, channels = camera.shape
    if channels <= 4:
        return None
    other, first = ("hwc", width) if camera.layout == "chw" else ("chw", height)
    if first > 4:
        return None
    return (
        f'image "{camera.role}": shape implies {channels} channels under layout={camera.layout}; '
        f'this looks like {other}, declare layout="{other}" if so'
    )


def _unread_roles(env: EnvFeatures, spec: ModelSpec, findings: Findings) -> None:
    """Ad-hoc roles of the env that no input of the model names."""
    read = set(_model_roles(spec))
    for item in (*env.images, *env.states, *env.texts):
        if "/" not in item.role and item.role not in read:
            findings.unmatched("env", "this model", item.role)


def _model_roles(spec: ModelSpec) -> Iterator[str]:
    for _path, leaf in leaves(spec.input):
        if isinstance(leaf, (Image, State, Text)):
            yield leaf.role
        elif isinstance(leaf, Concat):
            for part in leaf.parts:
                if isinstance(part, (str, State)):
                    yield part if isinstance(part, str) else part.role


def _text(leaf: Text, placement: Path, env: EnvFeatures, findings: Findings) -> TextInput:
    as_list = leaf.container == "list"
    for feature in env.texts:
        if feature.role == leaf.role:
            return TextInput(placement, feature.path, leaf.fill, as_list)
    name = path_name(placement)
    refuse_unknown(env, leaf.role, name)
    if leaf.fill is None:
        raise AdapterResolutionError(
            f'model input "{name}" needs text role "{leaf.role}" but the env offers '
            f"{offer(env.texts)} and no fill is set; tag a Text leaf so, or give fill="
        )
    findings.unmatched("model", "this env", leaf.role)
    return TextInput(placement, None, leaf.fill, as_list)


def _custom(leaf: Custom, placement: Path, trust_entrypoints: bool) -> CustomInput:
    name = path_name(placement)
    if leaf.entrypoint is None:
        return CustomInput(placement, leaf)
    if not trust_entrypoints:
        raise AdapterResolutionError(
            f"custom input at {name!r} references entrypoint {leaf.entrypoint!r}; pass "
            "resolve(..., trust_entrypoints=True) to allow importing and running it"
        )
    module, _, attribute = leaf.entrypoint.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as exc:
        raise AdapterResolutionError(
            f"custom input at {name!r}: entrypoint {leaf.entrypoint!r} cannot be imported: {exc}"
        ) from exc
    if not callable(target):
        raise AdapterResolutionError(
            f"custom input at {name!r}: entrypoint {leaf.entrypoint!r} is not callable"
        )
    return CustomInput(placement, Custom(target))
