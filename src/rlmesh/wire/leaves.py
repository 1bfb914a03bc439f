"""Moving value leaves out of a message and back, for a door that has no place beside it.

At the native door a message travels without its ``SpaceValue`` leaves and the leaves follow in the
order in which the SpaceValues appear. gRPC has one place only, so its door puts them inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rlmesh.wire import messages

__all__ = [
    "attach",
    "detach",
    "detach_request",
    "detach_response",
    "merge_request",
    "merge_response",
]

Service = Literal["env", "model"]
Header = tuple[bytes, list[memoryview]]


def _values(message: Any) -> list[Any]:
    """Return the SpaceValues of a JoinRequest or JoinResponse, in field order."""
    kind = message.WhichOneof("kind")
    if kind in ("reset", "step", "predict"):
        body = getattr(message, kind)
        if hasattr(body, "actions"):
            return list(body.actions)
        for field in ("observation", "action"):
            if hasattr(body, field) and body.HasField(field):
                return [getattr(body, field)]
        return []
    if kind == "grouped_predict":
        body = message.grouped_predict
        if hasattr(body, "groups"):
            return [group.observation for group in body.groups]
        return [value for result in body.results for value in result.response.actions]
    return []


def detach(message: Any) -> list[memoryview]:
    """Take the leaves out of ``message`` and return them as writable buffers of their own."""
    leaves: list[memoryview] = []
    for value in _values(message):
        leaves.extend(memoryview(bytearray(leaf)) for leaf in value.leaves)
        del value.leaves[:]
    return leaves


def attach(message: Any, leaves: Sequence[Any]) -> None:
    """Put ``leaves`` into the SpaceValues of ``message``, in equal shares."""
    values = _values(message)
    if not values:
        return
    share = len(leaves) // len(values)
    for i, value in enumerate(values):
        value.leaves.extend(_to_bytes(leaf) for leaf in leaves[i * share : (i + 1) * share])


def _to_bytes(leaf: Any) -> bytes:
    return leaf.tobytes() if hasattr(leaf, "tobytes") else bytes(leaf)


def detach_request(service: Service, data: bytes) -> Header:
    """Split a serialised JoinRequest into a header without leaves, and the leaves."""
    return _split(getattr(messages, service).JoinRequest, data)


def detach_response(service: Service, data: bytes) -> Header:
    """Split a serialised JoinResponse into a header without leaves, and the leaves."""
    return _split(getattr(messages, service).JoinResponse, data)


def merge_request(service: Service, header: bytes, leaves: Sequence[Any]) -> bytes:
    """Join what :func:`detach_request` split."""
    return _merge(getattr(messages, service).JoinRequest, header, leaves)


def merge_response(service: Service, header: bytes, leaves: Sequence[Any]) -> bytes:
    """Join what :func:`detach_response` split."""
    return _merge(getattr(messages, service).JoinResponse, header, leaves)


def _split(kind: Any, data: bytes) -> Header:
    message = kind.FromString(data)
    leaves = detach(message)
    return message.SerializeToString(), leaves


def _merge(kind: Any, header: bytes, leaves: Sequence[Any]) -> bytes:
    message = kind.FromString(header)
    attach(message, leaves)
    return message.SerializeToString()
