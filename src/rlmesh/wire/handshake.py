"""The handshake: one generation of the protocol, one workflow edition for the session.

The generation must be equal and is judged by the server. The edition is picked by the client: the
highest that every participant can run and that no participant was authored before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlmesh._build import build_info, process_facts
from rlmesh.errors import ProtocolException
from rlmesh.wire import messages
from rlmesh.wire.editions import EDITION, PROTOCOL_GENERATION, SUPPORTED_EDITIONS
from rlmesh.wire.status import StatusError

__all__ = [
    "ADAPTER_PLAN",
    "OBSERVATION_HISTORY",
    "OBSERVATION_VIEW",
    "PARTIAL_RESET",
    "SUBSET_STEP",
    "Participant",
    "Service",
    "answer_hello",
    "check_answer",
    "client_hello",
    "enabled",
    "peer_info",
    "select_edition",
]

ADAPTER_PLAN = "rlmesh.model.adapter_plan.v1"
"""Capability: the answer to a resolve says which leaves of the observation are read, and whether
the observations passed during a chunk's replay are wanted."""

OBSERVATION_HISTORY = "rlmesh.model.observation_history.v1"
"""Capability, as the published protocol names it: past observations are kept by episode."""

OBSERVATION_VIEW = "rlmesh.env.observation_view.v1"
"""Capability: a configure may say which leaves of the observation are sent, and which images are
processed before."""

PARTIAL_RESET = "rlmesh.env.partial_reset.v1"
"""Capability: lanes may be reset alone, each with a seed of its own, while others go on."""

SUBSET_STEP = "subset_step"
"""Capability, as the published protocol names it: lanes may be stepped, and reset, alone."""

Service = Literal["env", "model"]


@dataclass(frozen=True)
class Participant:
    """One side of an edition negotiation.

    Attributes:
        name: how messages call it: ``env``, ``model``, ``runtime``.
        can: the editions its build can run.
        wants: the edition it was authored against, ``""`` when it declares none.
    """

    name: str
    can: tuple[str, ...]
    wants: str = ""


def peer_info(service: Service, extra: Mapping[str, str] | None = None) -> Any:
    """Return a ``PeerInfo`` of this process. Advisory: nothing is decided from it."""
    info = messages.core.PeerInfo()
    info.ParseFromString(_process_info())
    info.component = f"rlmesh-{service}"
    for key, value in (extra or {}).items():
        info.extra[key] = value
    return info


@functools.lru_cache(maxsize=1)
def _process_info() -> bytes:
    """Return the parts of ``PeerInfo`` that never change, serialized. Imports no framework."""
    info = messages.core.PeerInfo(**process_facts())
    build = build_info()
    info.extra["rlmesh.workflow.edition"] = build.workflow_edition
    info.extra["rlmesh.workflow.base"] = build.workflow_edition_base
    info.extra["rlmesh.build.source"] = build.build_source
    info.extra["rlmesh.build.cohort"] = build.build_cohort
    return info.SerializeToString()


def enabled(capabilities: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the capabilities that are on: those whose value is ``"true"``."""
    return frozenset(name for name, value in capabilities.items() if value == "true")


def client_hello(
    service: Service, *, capabilities: Iterable[str] = (), wants: str = EDITION
) -> Any:
    """Return the ``HandshakeRequest`` of ``service`` that a client opens with.

    Args:
        service: which service is called.
        capabilities: names to announce as on.
        wants: the edition the client was authored against; ``""`` is undeclared.
    """
    request = getattr(messages, service).HandshakeRequest()
    base = request.base
    base.protocol_generation = PROTOCOL_GENERATION
    base.peer_info.CopyFrom(peer_info(service))
    base.supported_workflow_editions.extend(SUPPORTED_EDITIONS)
    base.preferred_workflow_edition = wants
    for name in capabilities:
        base.capabilities[name] = "true"
    return request


def answer_hello(
    service: Service,
    request: Any,
    *,
    capabilities: Iterable[str] = (),
    contract: Any = None,
    wants: str = "",
    extra: Mapping[str, str] | None = None,
) -> Any:
    """Return the ``HandshakeResponse`` of ``service`` for ``request``.

    Another generation is answered with ``compatible=false``, the reason and no contract. Editions
    are stated, never judged: the client picks.

    Args:
        service: which service answers.
        request: the client's ``HandshakeRequest``.
        capabilities: names to announce as on.
        contract: the ``EnvContract`` message (env service only).
        wants: the edition the env or model was authored against; ``""`` is undeclared.
        extra: advisory facts for ``PeerInfo.extra``.

    Raises:
        StatusError: INVALID_ARGUMENT, for a request without ``base``.
    """
    if not request.HasField("base"):
        raise StatusError("INVALID_ARGUMENT", "handshake request missing base")
    response = getattr(messages, service).HandshakeResponse()
    base = response.base
    base.peer_info.CopyFrom(peer_info(service, extra))
    base.supported_workflow_editions.extend(SUPPORTED_EDITIONS)
    base.preferred_workflow_edition = wants
    for name in capabilities:
        base.capabilities[name] = "true"
    theirs = request.base.protocol_generation
    base.compatible = theirs == PROTOCOL_GENERATION
    if not base.compatible:
        base.error_message = (
            f"protocol generation {theirs} not compatible with server {PROTOCOL_GENERATION}"
        )
    elif contract is not None:
        response.env_contract.CopyFrom(contract)
    return response


def check_answer(service: Service, response: Any, address: str, *, wants: str = EDITION) -> str:
    """Return the edition of the session with the server at ``address``.

    Raises:
        ProtocolException: the server speaks another generation, shares no edition, or answered
            without what the protocol asks for.
    """
    where = f"handshake with the {service} server at {address} failed"
    if not response.HasField("base"):
        raise ProtocolException(f"{where}: the response is missing base")
    base = response.base
    if not base.compatible:
        reason = base.error_message or "the server gave no reason"
        raise ProtocolException(
            f"{where}: {reason}; this client speaks {PROTOCOL_GENERATION}, the server is rlmesh "
            f"{base.peer_info.package_version or 'of unknown version'}: install matching releases"
        )
    server = Participant(
        service, tuple(base.supported_workflow_editions), base.preferred_workflow_edition
    )
    runtime = Participant("runtime", SUPPORTED_EDITIONS, wants)
    try:
        edition = select_edition((server, runtime))
    except ProtocolException as error:
        raise ProtocolException(f"{where}: {error}") from None
    if service == "env" and not response.HasField("env_contract"):
        raise ProtocolException(f"{where}: the response holds no env contract")
    return edition


def select_edition(participants: Iterable[Participant]) -> str:
    """Return the highest edition that all ``participants`` can run and none wants a lower one than.

    Raises:
        ProtocolException: there is none; the message lists what each can and wants.
    """
    sides = tuple(participants)
    shared = set(sides[0].can).intersection(*(side.can for side in sides[1:]))
    ceilings = [_edition_order(side.wants) for side in sides if side.wants]
    allowed = [
        edition
        for edition in shared
        if edition and all(_edition_order(edition) <= ceiling for ceiling in ceilings)
    ]
    if allowed:
        return max(allowed, key=_edition_order)
    peers = " and the ".join(side.name for side in sides if side.name != "runtime")
    raise ProtocolException(
        f"no mutual workflow edition with the {peers}: "
        + "; ".join(_edition_text(side) for side in sides)
        + "; install releases that share an edition, or declare an older one"
    )


def _edition_order(edition: str) -> tuple[str, bool, str]:
    """Sort key: by cohort date; a prerelease (``2026.06-dev.1``) is below its sealed edition."""
    date, dash, prerelease = edition.partition("-")
    return date, not dash, prerelease


def _edition_text(side: Participant) -> str:
    wants = f'wants "{side.wants}"' if side.wants else "declares no edition"
    can = ", ".join(f'"{edition}"' for edition in side.can)
    return f"{side.name} {wants} and can [{can}]"
