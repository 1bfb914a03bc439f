"""Observations of an endpoint read by role; adapters load when a role is first asked for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.targets import Targets
from rlmesh.wire.contract import EnvContract

if TYPE_CHECKING:
    from rlmesh.adapters.readers import FrameSources, Reader
    from rlmesh.adapters.tags import ObservationRoles

__all__ = ["RoleReads", "frame_sources_of", "reader_of", "roles_of"]


class RoleReads:
    """Reads one item of an observation at a time; what that takes is resolved once an item."""

    def __init__(self) -> None:
        self._readers: dict[Any, Reader] = {}

    def read(self, endpoint: Endpoint, obs: Any, item: Any) -> Any:
        """Return the item of an endpoint's observation; what it may be: see `Session.reader`."""
        if not isinstance(item, Hashable):
            reader_of(endpoint, item)  # says what an item may be
        reader = self._readers.get((endpoint, item))
        if reader is None:
            reader = self._readers[endpoint, item] = reader_of(endpoint, item)
        return reader(obs)[reader.roles[0]]


def reader_of(endpoint: Endpoint, *items: Any) -> Reader:
    """Return a function from an endpoint's observation to ``{role: value}``.

    Raises:
        AdapterResolutionError, TypeError: the env or the items do not allow it.
    """
    from rlmesh.adapters.readers import reader
    from rlmesh.adapters.resolution import published_tags

    contract = endpoint.contract
    link = getattr(endpoint, "link", None)
    return reader(
        published_tags(contract.metadata),
        contract.observation_space,
        *items,
        framework=None if link is None else link.options.framework,
    )


def roles_of(contract: EnvContract) -> ObservationRoles:
    """Return the roles an env offers, by kind; empty groups without tags."""
    from rlmesh.adapters.readers import observation_roles
    from rlmesh.adapters.resolution import published_tags

    return observation_roles(published_tags(contract.metadata))


def frame_sources_of(targets: Targets) -> FrameSources:
    """Return where pictures of the first env can come from; several lanes render none."""
    from rlmesh.adapters.readers import frame_sources
    from rlmesh.adapters.resolution import published_tags

    endpoint = targets.endpoints[0]
    contract = endpoint.contract
    render = endpoint.render if isinstance(endpoint, (LocalScalar, RemoteScalar)) else None
    if targets.lanes > 1 or render is None:
        return frame_sources(published_tags(contract.metadata), None, lambda: None)
    return frame_sources(published_tags(contract.metadata), contract.render_mode, render)
