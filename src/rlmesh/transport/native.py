"""The native door: hello, then frames, over one stream socket.

The client opens with ``RLMESH\\0\\1``, its service, its token and a handshake frame, in one write.
The server answers with the same eight bytes and a frame. A server that knows only HTTP/2 answers
with something else, or hangs up, and the client then knocks at the gRPC door.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address, connect
from rlmesh.transport.framing import (
    Frame,
    FrameKind,
    FrameSocket,
    FrameTooLarge,
    LeafBuffer,
    encode_plain_frame,
)
from rlmesh.transport.service import Message, ServiceName
from rlmesh.wire.status import Status, status_to_exception

__all__ = [
    "HELLO_LIMIT",
    "MAGIC",
    "Hello",
    "NativeChannel",
    "NativeSession",
    "NotNative",
    "decode_status",
    "encode_status",
    "parse_hello",
]

MAGIC = b"RLMESH\x00\x01"
"""Name and version of the native door; both ends open with it."""

_HELLO = struct.Struct("<BBH")
_SERVICES: dict[ServiceName, int] = {"env": 1, "model": 2}
_JOIN = int(FrameKind.JOIN)
_MSG_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_POLLRDHUP: int = getattr(select, "POLLRDHUP", 0)
_UNREAD_SECONDS = 5.0
"""How long one client of many may leave an answer unread that its socket has no room for."""
HELLO_LIMIT = len(MAGIC) + _HELLO.size + 65535


class NotNative(Exception):
    """The peer answered, but not as the native door does."""


class Hello(NamedTuple):
    """A client's opening words and how many bytes they took."""

    service: str
    token: bytes
    size: int


def encode_hello(service: ServiceName, token: str) -> bytes:
    """Return a client's opening words."""
    secret = token.encode()
    if len(secret) > 65535:
        raise ValueError(f"token has {len(secret)} bytes; at most 65535 are allowed")
    return MAGIC + _HELLO.pack(_SERVICES[service], 0, len(secret)) + secret


def parse_hello(data: bytes | bytearray) -> Hello | None:
    """Return the hello at the start of ``data``, or None while it is incomplete."""
    start = len(MAGIC) + _HELLO.size
    if len(data) < start:
        return None
    number, _, length = _HELLO.unpack_from(data, len(MAGIC))
    if len(data) < start + length:
        return None
    names = {code: name for name, code in _SERVICES.items()}
    token = bytes(data[start : start + length])
    return Hello(names.get(number, f"service {number}"), token, start + length)


def encode_status(status: Status) -> bytes:
    """Return a refusal as one frame."""
    text = f"{status.code}\n{status.message}".encode("utf-8", "replace")
    return encode_plain_frame(FrameKind.STATUS, text)


def decode_status(frame: Frame) -> Status:
    """Return the status that a STATUS frame carries."""
    code, _, message = frame.header.decode("utf-8", "replace").partition("\n")
    return Status(code, message)


_inherited: weakref.WeakSet[NativeSession | NativeChannel] = weakref.WeakSet()
"""What a forked child has to let go of."""


class NativeSession:
    """The server's end of a native Join stream.

    See :class:`~rlmesh.transport.service.ServerSession`.
    """

    def __init__(self, frames: FrameSocket, hello: bytes = b"") -> None:
        self.hello = hello
        self._frames = frames
        self._stopped = False
        _inherited.add(self)

    def recv(self) -> Message | None:
        if self._stopped:
            return None
        try:
            kind, header, leaves = self._frames.recv()
        except ProtocolException as exc:
            self._refuse(exc)
            return None
        except OSError:
            return None
        if kind != _JOIN or self._stopped:
            return None
        return header, leaves

    def watch(self, notify: Callable[[], None]) -> int | None:
        self._frames.share(_UNREAD_SECONDS)
        return self._frames.fileno()

    def poll(self, *, alone: bool = False) -> Message | None:
        if self._stopped:
            raise EOFError
        try:
            frame = self._frames.poll(alone=alone)
        except ProtocolException as exc:
            self._refuse(exc)
            raise EOFError from exc
        except OSError as exc:
            raise EOFError from exc
        if frame is None:
            return None
        kind, header, leaves = frame
        if kind != _JOIN:
            raise EOFError
        return header, leaves

    @property
    def buffered(self) -> bool:
        return self._frames.buffered

    def send(self, header: bytes, leaves: Sequence[LeafBuffer], *, last: bool = False) -> None:
        if last:
            self._stopped = True  # first, so that whoever read the answer may join at once
        self._frames.send(_JOIN, header, leaves)

    def _refuse(self, exc: ProtocolException) -> None:
        """Tell the peer what was wrong with its frame, if it listens."""
        code = "RESOURCE_EXHAUSTED" if isinstance(exc, FrameTooLarge) else "INVALID_ARGUMENT"
        with contextlib.suppress(OSError):
            self._frames.sock.send(encode_status(Status(code, str(exc))), _MSG_DONTWAIT)

    def interrupt(self) -> None:
        self._stopped = True
        with contextlib.suppress(OSError):
            self._frames.sock.shutdown(socket.SHUT_RD)

    def alive(self) -> bool:
        if self._stopped:
            return False
        try:
            if _POLLRDHUP:
                # Sees a peer that left something unread behind, too.
                poller = select.poll()
                poller.register(self._frames.sock, _POLLRDHUP)
                return not poller.poll(0)
            return bool(self._frames.sock.recv(1, socket.MSG_PEEK | _MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        self._stopped = True
        self._frames.close()

    def disown(self) -> None:
        """Let go of the connection in a forked child, and leave the parent's alone."""
        self._stopped = True
        self._frames.sock.close()


class NativeChannel:
    """The client's end of a native connection; see :class:`~rlmesh.transport.service.Channel`."""

    door = "native"

    def __init__(self, frames: FrameSocket, address: str, service: ServiceName) -> None:
        self.address = address
        self.door_detail = "unix" if frames.sock.family == socket.AF_UNIX else "tcp"
        self._service: ServiceName = service
        self._frames = frames
        self.window = 1
        self._awaiting = 0
        self._broken: str | None = None
        self._answer: bytes | None = None
        _inherited.add(self)

    @classmethod
    def open(
        cls,
        address: Address,
        service: ServiceName,
        hello: bytes,
        *,
        token: str,
        timeout: float | None,
        limit: int,
    ) -> NativeChannel:
        """Dial ``address`` and shake hands with ``hello``, a serialised HandshakeRequest.

        Raises:
            NotNative: somebody answered, but not in this protocol.
            OSError: nobody answered, or not in time.
            ConnectionError: the server refused, e.g. the token.
        """
        opening = encode_hello(service, token) + encode_plain_frame(FrameKind.HANDSHAKE, hello)
        deadline = None if timeout is None else time.monotonic() + timeout
        sock = connect(address, timeout)
        try:
            frames = FrameSocket(sock, limit=limit)
            frames.set_timeout(_left(deadline))
            try:
                sock.sendall(opening)
                frames.expect(MAGIC)
            except (ConnectionResetError, BrokenPipeError, ProtocolException) as exc:
                raise NotNative(str(exc)) from exc
            except BlockingIOError:
                raise TimeoutError("the other end reads nothing") from None
            channel = cls(frames, str(address), service)
            frames.set_timeout(_left(deadline))
            answer = Frame(*frames.recv())
            if answer.kind != FrameKind.HANDSHAKE:
                raise channel._unexpected(FrameKind.HANDSHAKE, answer)
            channel._answer = answer.header
            return channel
        except BaseException:
            sock.close()
            raise

    def handshake(self, request: bytes) -> bytes:
        """Return the answer to the handshake that :meth:`open` sent."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        return self._call(FrameKind.HANDSHAKE, request)

    def shutdown(self, request: bytes) -> bytes:
        return self._call(FrameKind.SHUTDOWN, request)

    def send(self, header: bytes, leaves: Sequence[LeafBuffer]) -> None:
        if self._awaiting >= self.window:
            raise self._lost(ConnectionError("the answer to the last request was never read"))
        self._awaiting += 1
        try:
            self._frames.send(_JOIN, header, leaves)
        except BaseException as exc:
            raise self._unsent(exc) from None

    def recv(self) -> Message:
        try:
            kind, header, leaves = self._frames.recv()
        except BaseException as exc:
            raise self._lost(exc) from None
        self._awaiting -= 1
        if kind != _JOIN:
            raise self._unexpected(_JOIN, Frame(kind, header, leaves))
        return header, leaves

    def _call(self, kind: FrameKind, request: bytes) -> bytes:
        try:
            self._frames.send(kind, request)
            answer = Frame(*self._frames.recv())
        except BaseException as exc:
            raise self._lost(exc) from None
        if answer.kind != kind:
            raise self._unexpected(kind, answer)
        return answer.header

    def _unsent(self, exc: BaseException) -> BaseException:
        """Return what to raise when a request did not get out."""
        if isinstance(exc, ValueError) and self._broken is None:
            self._awaiting -= 1
            return exc  # over the message limit: nothing was sent
        if isinstance(exc, (BrokenPipeError, ConnectionResetError)) and self._broken is None:
            # The server may have said why before it hung up.
            with contextlib.suppress(OSError, ProtocolException):
                last = Frame(*self._frames.recv())
                if last.kind == FrameKind.STATUS:
                    refusal = self._refused(last)
                    self.close(f"it ended the session ({refusal})")
                    return refusal
        return self._lost(exc)

    def _refused(self, frame: Frame) -> Exception:
        return status_to_exception(decode_status(frame), self.address, service=self._service)

    def _unexpected(self, expected: int, frame: Frame) -> BaseException:
        """Return what a frame of another kind means: a refusal, or a peer out of step."""
        if frame.kind == FrameKind.STATUS:
            return self._refused(frame)
        return self._lost(ProtocolException(f"expected frame kind {expected}, got {frame.kind}"))

    def _lost(self, exc: BaseException) -> BaseException:
        """Close for good (an answer may be half read) and return what to raise."""
        if self._broken is not None:
            return ConnectionError(self._broken)
        where = f"{self._service} server at {self.address}"
        self._frames.close()
        why = str(exc) or type(exc).__name__
        self._broken = f"lost the {where} ({why}); construct a new client to connect again"
        if isinstance(exc, TimeoutError):
            return TimeoutError(
                f"{where} did not answer: {exc}; the session is closed, since its answer may still "
                "come. Raise request_timeout_seconds, or construct a new client"
            )
        if isinstance(exc, ProtocolException):
            return ProtocolException(f"{where}: {exc}")
        if isinstance(exc, OSError):
            return ConnectionError(self._broken)
        return exc

    def fileno(self) -> int:
        return self._frames.fileno()

    @property
    def buffered(self) -> bool:
        return self._frames.buffered

    def set_timeout(self, seconds: float | None) -> None:
        self._frames.set_timeout(seconds)

    def close(self, why: str = "the client was closed") -> None:
        if self._broken is None:
            self._broken = f"not connected to {self.address}: {why}; construct a new client"
        self._frames.close()

    def disown(self) -> None:
        """Refuse further use in a forked child, and leave the parent's connection alone."""
        self._broken = (
            f"this client of {self.address} was inherited through fork; a connection belongs to "
            "the process that opened it: construct the client in the child"
        )
        self._frames.sock.close()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def _disown_all() -> None:
    for connection in list(_inherited):
        connection.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
