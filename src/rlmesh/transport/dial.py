"""Dialling an endpoint: the native door first, the gRPC door where it is the only one."""

from __future__ import annotations

import time

from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address, connect
from rlmesh.transport.native import NativeChannel, NotNative
from rlmesh.transport.service import Channel, ServiceName

__all__ = ["dial"]

_LONGEST = 1e9  # seconds; no clock of the system counts further than some 9e9


def dial(
    address: Address,
    service: ServiceName,
    hello: bytes,
    *,
    token: str = "",
    timeout: float | None,
    limit: int,
    request_timeout: float | None,
) -> tuple[Channel, bytes]:
    """Connect to the ``service`` at ``address`` and shake hands.

    Args:
        hello: the serialised HandshakeRequest.
        token: shown to a server that asks for one.
        timeout: seconds for everything here; None waits for ever.
        limit: largest message, in bytes.
        request_timeout: seconds for each later request; None waits for ever.

    Returns:
        The channel and the serialised HandshakeResponse.

    Raises:
        ConnectionError, TimeoutError: nobody answers, or the server refuses; with the address.
        ProtocolException: somebody answers, in no protocol known here; with the address.
    """
    timeout = None if timeout is None else min(timeout, _LONGEST)
    deadline = None if timeout is None else time.monotonic() + timeout
    kind = "an env" if service == "env" else "a model"
    server = {"env": "EnvServer", "model": "model server"}[service]
    try:
        channel: Channel = _open(address, service, hello, token, deadline, limit)
    except TimeoutError as exc:
        within = "" if timeout is None else f" within {timeout:.3g} s"
        raise TimeoutError(
            f"could not connect to {kind} at '{address}'{within} ({exc}); is the {server} running "
            "and reachable from this host? connect_timeout_seconds bounds the wait"
        ) from exc
    except ProtocolException as exc:
        if str(address) in str(exc):
            raise
        raise ProtocolException(f"could not connect to {kind} at '{address}': {exc}") from exc
    except ConnectionError as exc:
        if hasattr(exc, "__rlmesh_fault__"):
            raise
        raise _unreachable(address, kind, server, exc) from exc
    except OSError as exc:
        raise _unreachable(address, kind, server, exc) from exc
    try:
        answer = channel.handshake(hello)
        channel.set_timeout(request_timeout)
    except BaseException:
        channel.close()
        raise
    return channel, answer


def _open(
    address: Address,
    service: ServiceName,
    hello: bytes,
    token: str,
    deadline: float | None,
    limit: int,
) -> Channel:
    try:
        return NativeChannel.open(
            address, service, hello, token=token, timeout=_left(deadline), limit=limit
        )
    except NotNative as reason:
        connect(address, _left(deadline)).close()  # still there? grpc would only say "timeout"
        from rlmesh.transport.grpc_channel import GrpcChannel, NotGrpc

        try:
            return GrpcChannel(
                address, service, hello, token=token, timeout=_left(deadline), limit=limit
            )
        except NotGrpc as exc:
            raise ProtocolException(
                f"'{address}' answers, but speaks neither the rlmesh native protocol ({reason}) "
                f"nor gRPC ({exc}); is that port an rlmesh endpoint?"
            ) from None


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def _unreachable(address: Address, kind: str, server: str, exc: OSError) -> ConnectionError:
    return ConnectionError(
        f"could not connect to {kind} at '{address}'; is the {server} running? ({exc})"
    )
