"""Publishing tags on an env."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from rlmesh.adapters.advisory import AdapterResolutionError, Advisory
from rlmesh.adapters.features import join
from rlmesh.adapters.resolve import as_space, env_notes
from rlmesh.adapters.resolve_action import check_env_action
from rlmesh.adapters.spec_checks import check_tags
from rlmesh.adapters.tags import EnvTags

__all__ = ["check_env_tags", "tag"]

EnvT = TypeVar("EnvT")


def tag(env: EnvT, tags: EnvTags, *, validate: bool = True) -> EnvT:
    """Publish tags in ``env.metadata``, a new dict on the instance, and return the same env.

    Args:
        env: an env of gymnasium or of rlmesh.
        tags: what its leaves mean.
        validate: join them with the env's spaces first, and warn (UserWarning) of what looks wrong.

    Raises:
        AdapterResolutionError: they do not fit the spaces, or the env has none.
        TypeError: ``tags`` are no EnvTags.
    """
    if not isinstance(tags, EnvTags):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tag() expects EnvTags, got {type(tags).__name__}")
    target: Any = env
    if validate:
        for advisory in _validated(target, tags):
            warnings.warn(advisory.message, UserWarning, stacklevel=2)
    target.metadata = {**(getattr(target, "metadata", None) or {}), **tags.to_metadata()}
    return env


def _validated(env: Any, tags: EnvTags) -> list[Advisory]:
    # A vector env's own spaces hold all lanes; tags describe one.
    names = ("observation_space", "action_space")
    spaces = [getattr(env, f"single_{name}", getattr(env, name, None)) for name in names]
    if any(space is None for space in spaces):
        raise AdapterResolutionError(
            "cannot validate tags: the env has no observation_space/action_space; pass "
            "validate=False to tag without checking"
        )
    return check_env_tags(tags, *spaces)


def check_env_tags(
    tags: EnvTags, observation_space: object, action_space: object
) -> list[Advisory]:
    """What looks wrong about tags that fit their spaces.

    Raises:
        AdapterResolutionError: they do not fit; the message names the leaf.
    """
    try:
        check_tags(tags)
    except ValueError as exc:
        raise AdapterResolutionError(str(exc)) from None
    env = join(tags, as_space(observation_space, "observation"))
    check_env_action(tags.action, as_space(action_space, "action"))
    return [Advisory("info", message, code) for code, message in env_notes(tags, env)]
