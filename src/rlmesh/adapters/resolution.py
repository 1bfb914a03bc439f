"""From tags, spaces and a spec to an adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

from rlmesh.adapters.adapter import Adapter
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.json_read import metadata_entry, tags_from_dict
from rlmesh.adapters.resolve import resolve_plan
from rlmesh.adapters.specs import ModelSpec
from rlmesh.adapters.tags import EnvTags
from rlmesh.adapters.vocabulary import ENV_METADATA_KEY

__all__ = ["published_tags", "resolve", "resolve_from_contract"]


class Contract(Protocol):
    """What is read of an env contract."""

    @property
    def metadata(self) -> Mapping[str, Any] | None: ...
    @property
    def observation_space(self) -> Any: ...
    @property
    def action_space(self) -> Any: ...


def resolve(
    env_tags: EnvTags,
    observation_space: object,
    action_space: object,
    model_spec: ModelSpec,
    *,
    trust_entrypoints: bool = False,
    check_inverse: bool = True,
) -> Adapter:
    """The adapter between an env and a model.

    Args:
        env_tags: what the env's leaves mean.
        observation_space, action_space: of one lane; of gymnasium or of rlmesh.
        model_spec: what the model takes and gives.
        trust_entrypoints: import and run the functions that Custom inputs name.
        check_inverse: try that both functions of a CustomEncoding undo each other.

    Raises:
        AdapterResolutionError: they do not fit (it is a ValueError); the message names the leaf,
            what the env offers and the remedy.
        ImportError: a library that an image step needs is not installed.

    >>> from rlmesh import adapters as adapt, spaces
    >>> tags = adapt.EnvTags(
    ...     {"arm": adapt.StateTag(adapt.JOINT_POS)},
    ...     adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
    ... )
    >>> spec = adapt.ModelSpec(
    ...     {"state": adapt.State(adapt.JOINT_POS)},
    ...     adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
    ... )
    >>> arm = spaces.Box("-inf", "inf", (3,))
    >>> adapter = adapt.resolve(tags, spaces.Dict({"arm": arm}), spaces.Box(-1, 1, (2,)), spec)
    >>> adapter.transform_obs({"arm": [1.0, 2.0, 3.0]})
    {'state': array([1., 2., 3.], dtype=float32)}
    """
    for name, value, kind in (
        ("env_tags", env_tags, EnvTags),
        ("model_spec", model_spec, ModelSpec),
    ):
        if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AdapterResolutionError(
                f"resolve() expects {name} to be {kind.__name__}, got {type(value).__name__}"
            )
    return Adapter(
        resolve_plan(
            env_tags,
            observation_space,
            action_space,
            model_spec,
            trust_entrypoints=trust_entrypoints,
            check_inverse=check_inverse,
        )
    )


def resolve_from_contract(
    contract: Contract,
    model_spec: ModelSpec,
    *,
    trust_entrypoints: bool = False,
    check_inverse: bool = True,
) -> Adapter:
    """The adapter between a served env and a model; arguments and errors as :func:`resolve`.

    A leaf whose tag is of a kind this version does not know is left alone unless the model needs
    its role.
    """
    tags = published_tags(contract.metadata)
    if tags is None:
        raise AdapterResolutionError(
            "the env contract carries no adapter tags; publish them with rlmesh.adapters.tag(env, "
            "tags) or EnvServer(..., tags=tags), or use rlmesh.NO_ADAPTER for raw observations"
        )
    return resolve(
        tags,
        contract.observation_space,
        contract.action_space,
        model_spec,
        trust_entrypoints=trust_entrypoints,
        check_inverse=check_inverse,
    )


def published_tags(metadata: Mapping[str, Any] | None) -> EnvTags | None:
    """The tags in an env's metadata, leaves of unknown kinds kept aside; None if there are none.

    Raises:
        AdapterResolutionError: what stands there are no tags.
    """
    data = metadata_entry(metadata or {}, ENV_METADATA_KEY)
    if data is None:
        return None
    try:
        plain = json.loads(json.dumps(data))
    except (TypeError, ValueError) as exc:
        raise AdapterResolutionError(
            f"metadata key {ENV_METADATA_KEY!r} is not serializable JSON: {exc}"
        ) from None
    try:
        return tags_from_dict(cast("dict[str, Any]", plain), keep_unknown=True)
    except AdapterResolutionError:
        raise
    except ValueError as exc:
        raise AdapterResolutionError(str(exc)) from None
