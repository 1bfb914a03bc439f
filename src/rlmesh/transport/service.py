"""What the doors and the services know of each other.

A :class:`Service` (env or model) sees sessions; a door makes them. Messages pass through as a
serialised protobuf header whose value leaves are left out, and the leaves beside it, so that the
native door moves them without a copy and no door parses what it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from rlmesh.transport.framing import LeafBuffer

__all__ = ["HELLO_KEY", "Channel", "Message", "ServerSession", "Service", "ServiceName"]

HELLO_KEY = "rlmesh-hello-bin"
"""Metadata of a gRPC Join: the serialised HandshakeRequest that its client has sent."""

ServiceName = Literal["env", "model"]

Message = tuple[bytes, list[memoryview]]
"""A serialised JoinRequest or JoinResponse without its leaves, and the leaves (writable views)."""


class ServerSession(Protocol):
    """The server's end of one Join stream."""

    @property
    def hello(self) -> bytes:
        """The last serialised HandshakeRequest on this connection; empty where it is not known."""
        ...

    def recv(self) -> Message | None:
        """Return the next request; None when the peer is gone or :meth:`interrupt` was called."""
        ...

    def watch(self, notify: Callable[[], None]) -> int | None:
        """Begin to serve this session beside others: from here on :meth:`poll`, never :meth:`recv`.

        Returns:
            A descriptor that is readable when :meth:`poll` may have something; None where there is
            none, and ``notify`` is called instead, by any thread.
        """
        ...

    def poll(self, *, alone: bool = False) -> Message | None:
        """Return the next request if it is there, else None; EOFError where recv returns None.

        With ``alone`` there is no other session, so one that has begun may be waited for a little.
        """
        ...

    @property
    def buffered(self) -> bool:
        """Whether :meth:`poll` may have something that the descriptor does not know of."""
        ...

    def send(self, header: bytes, leaves: Sequence[LeafBuffer], *, last: bool = False) -> None:
        """Answer; with ``last`` the stream ends. OSError if the peer is gone or does not read."""
        ...

    def interrupt(self) -> None:
        """Make a pending or the next :meth:`recv` return None. Any thread, any signal handler."""
        ...

    def alive(self) -> bool:
        """Whether the peer is still there, as far as can be seen without waiting. Any thread."""
        ...

    def close(self) -> None:
        """Release the connection. Idempotent."""
        ...


class Service(Protocol):
    """What a server offers behind its doors. All methods may be called from any thread."""

    @property
    def name(self) -> ServiceName: ...

    @property
    def token(self) -> str:
        """The bearer token to be shown on every call; empty means none."""
        ...

    def handshake(self, request: bytes) -> bytes:
        """Answer a serialised HandshakeRequest; StatusError refuses it."""
        ...

    def shutdown(self, request: bytes) -> bytes:
        """Answer a serialised ShutdownRequest; StatusError refuses it."""
        ...

    def join(self, session: ServerSession) -> None:
        """Take over a session; StatusError refuses it, at once."""
        ...

    def touch(self) -> None:
        """Note that a request came in."""
        ...

    def tick(self) -> float | None:
        """Do what is due now; return the seconds until there is something due, or None."""
        ...


class Channel(Protocol):
    """The client's end of a connection. Not thread safe.

    Answers come in the order of the requests, of which :attr:`window` may be under way at a time.

    Every method raises ConnectionError or TimeoutError naming the address when the peer is gone or
    does not answer in time, and the channel is then closed for good.
    """

    window: int
    """How many requests may be sent before their answers are read; 1 by default."""

    @property
    def address(self) -> str: ...

    @property
    def door(self) -> str:
        """``"native"`` or ``"grpc"``."""
        ...

    def handshake(self, request: bytes) -> bytes: ...

    def shutdown(self, request: bytes) -> bytes: ...

    def send(self, header: bytes, leaves: Sequence[LeafBuffer]) -> None: ...

    def recv(self) -> Message: ...

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`recv` would not wait."""
        ...

    @property
    def buffered(self) -> bool:
        """Whether an answer was read ahead, at least in part: the descriptor does not tell."""
        ...

    def set_timeout(self, seconds: float | None) -> None:
        """Bound each following send and recv; None waits for ever."""
        ...

    def close(self, why: str = ...) -> None:
        """Hang up; whoever uses the channel after that is told ``why``. Idempotent."""
        ...
