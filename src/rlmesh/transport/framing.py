"""Frames of the native door: a protobuf header, and the value leaves beside it.

A frame is little-endian::

    u32 header bytes | u16 kind | u16 leaf count | u64 body bytes      (16 bytes)
    u64 per leaf: its byte length
    header: one serialised protobuf message, its SpaceValue leaves left out
    zero padding to a multiple of 16
    body: the leaves, each starting at a multiple of 16

``sendmsg`` gathers the leaves where they lie. ``recv_into`` fills one fresh buffer that the decoded
arrays will live in, so a frame is copied once by the kernel and never by us. The buffer is sized
after the previous frame, hence one system call per small frame.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from rlmesh.errors import ProtocolException

__all__ = [
    "DEFAULT_MESSAGE_LIMIT",
    "Frame",
    "FrameKind",
    "FrameSocket",
    "FrameTooLarge",
    "LeafBuffer",
    "check_size",
    "encode_frame",
    "encode_plain_frame",
    "frame_size",
    "parse_frame",
]

DEFAULT_MESSAGE_LIMIT = 256 * 1024 * 1024
"""Bytes a single message may take, both ways (the published protocol's limit)."""

LeafBuffer = Any
"""A C-contiguous buffer with ``nbytes``: an ``ndarray`` or a ``memoryview``."""

_PREFIX = struct.Struct("<IHHQ")
_ALIGN = 16
_PADDING = tuple(bytes(n) for n in range(_ALIGN))
_SMALL = 16 * 1024  # up to here one joined send is cheaper than a gathered one
_SLACK = 256  # room for a header that grows a little between two frames
_MAX_IOV = 512
_LONGEST = 1e9  # seconds; what a timeval holds everywhere
_GLANCE_SECONDS = 0.05  # how long one that is served alone may take for the next piece of a frame
_BULK = 64 * 1024
_UNIX_SEND_BUFFER = 4 * 1024 * 1024
"""Cameras leave in one piece. In pieces of the usual 208 KiB, both ends sleep and wake for each."""

_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_LENGTH = struct.Struct("<Q")
_LENGTHS = tuple(struct.Struct(f"<{n}Q") for n in range(64))


class FrameTooLarge(ProtocolException):
    """A frame announces more bytes than the limit; nothing of its body was read."""


class FrameKind(IntEnum):
    """What a frame carries."""

    HANDSHAKE = 1
    JOIN = 2
    SHUTDOWN = 3
    STATUS = 4
    """Refusal or transport-level failure: a UTF-8 ``CODE\\nmessage`` header, no body."""


class Frame(NamedTuple):
    """A frame, taken apart; ``leaves`` are writable views over the frame's own buffer."""

    kind: int
    header: bytes
    leaves: list[memoryview]


def check_size(size: int, limit: int) -> None:
    """Raise ValueError, with what to do, if a message of ``size`` bytes is over ``limit``."""
    if size > limit:
        raise ValueError(
            f"message of {size} bytes is over the limit of {limit} bytes; raise "
            "max_message_bytes on both ends or send less (a smaller camera, fewer lanes)"
        )


def _lengths_struct(count: int) -> struct.Struct:
    return _LENGTHS[count] if count < len(_LENGTHS) else struct.Struct(f"<{count}Q")


def encode_frame(
    kind: int, header: bytes, leaves: Sequence[LeafBuffer] = ()
) -> tuple[list[LeafBuffer], int]:
    """Return the frame as buffers to be sent one after the other, and its size in bytes."""
    count = len(leaves)
    lengths = [leaf.nbytes for leaf in leaves]
    head = 8 * count + len(header)
    padding = _PADDING[-head % _ALIGN]
    parts: list[LeafBuffer] = [b"", b"", header, padding]
    body = 0
    for leaf, length in zip(leaves, lengths):  # noqa: B905 - made from it just above
        parts.append(leaf)
        pad = -length % _ALIGN
        if pad:
            parts.append(_PADDING[pad])
        body += length + pad
    parts[0] = _PREFIX.pack(len(header), kind, count, body)
    parts[1] = _lengths_struct(count).pack(*lengths)
    return parts, _PREFIX.size + head + len(padding) + body


def encode_plain_frame(kind: int, header: bytes) -> bytes:
    """Return a frame without leaves as one piece."""
    return b"".join(encode_frame(kind, header)[0])


def frame_size(data: bytes | bytearray) -> int | None:
    """Return the size of the frame that ``data`` begins with; None if its prefix is cut short."""
    if len(data) < _PREFIX.size:
        return None
    header_len, _, count, body_len = _PREFIX.unpack_from(data)
    head = 8 * count + header_len
    return _PREFIX.size + head + (-head % _ALIGN) + body_len


def parse_frame(data: bytes | bytearray, limit: int) -> tuple[Frame, int] | None:
    """Return the first frame of ``data``, which carries no leaves, and its size; None if cut short.

    Raises:
        ProtocolException: the frame is over ``limit`` bytes or carries leaves.
    """
    if len(data) < _PREFIX.size:
        return None
    header_len, kind, count, body_len = _PREFIX.unpack_from(data)
    end = _PREFIX.size + header_len
    total = end + (-end % _ALIGN)
    if total > limit or count or body_len:
        raise ProtocolException(
            f"received a frame of {total + body_len} bytes, expected no more "
            f"than {limit} and no values before a session is open"
        )
    if len(data) < total:
        return None
    return Frame(kind, bytes(data[_PREFIX.size : end]), []), total


class FrameSocket:
    """Frames over a connected stream socket, in blocking mode.

    Args:
        sock: a connected TCP or unix stream socket; owned from here on.
        limit: largest frame accepted or sent, in bytes.
        pending: bytes that were already read from ``sock``.

    Raises:
        ConnectionError: the peer closed or reset the connection.
        TimeoutError: nothing moved for the seconds given to :meth:`set_timeout`.
        ProtocolException: the bytes are no frame; FrameTooLarge: a frame over ``limit``.
    """

    __slots__ = (
        "_expect",
        "_flags",
        "_have",
        "_partial",
        "_pending",
        "_slice",
        "_timeout",
        "limit",
        "sock",
    )

    def __init__(
        self, sock: socket.socket, *, limit: int = DEFAULT_MESSAGE_LIMIT, pending: bytes = b""
    ) -> None:
        self.sock = sock
        self.limit = limit
        self._timeout: float | None = None
        self._expect = max(_PREFIX.size, min(4096, limit))
        self._pending = pending
        self._partial: memoryview | None = None  # of a frame that poll() has seen begin
        self._have = 0
        # Bulk reads, measured on 2.8 MB: a unix socket is fastest taken as it comes, TCP in slices
        # that the kernel fills before it wakes us.
        unix = sock.family == getattr(socket, "AF_UNIX", None)
        self._slice = sys.maxsize if unix else 256 * 1024
        self._flags = 0 if unix else socket.MSG_WAITALL
        sock.setblocking(True)
        if unix:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_SEND_BUFFER)

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every following wait for the peer; None waits for ever.

        A :meth:`send` or :meth:`recv` takes at most that long before its first byte moves and as
        long again for the rest. The bound is the kernel's (SO_RCVTIMEO), which costs no system call
        per frame, whereas ``socket.settimeout`` polls before every read and write.
        """
        self._timeout = seconds
        value = _timeval(seconds)
        self.sock.settimeout(None)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, kind: int, header: bytes, leaves: Sequence[LeafBuffer] = ()) -> None:
        """Send one frame."""
        parts, total = encode_frame(kind, header, leaves)
        if total > self.limit:
            check_size(total, self.limit)
        try:
            if total <= _SMALL:
                data = b"".join(parts)
                sent = self.sock.send(data)
                if sent != total:
                    self._send_rest([data], sent, time.monotonic())
            else:
                started = time.monotonic()
                sent = self.sock.sendmsg(parts[:_MAX_IOV])
                if sent != total:
                    self._send_rest(parts, sent, started)
        except BlockingIOError:
            raise self._timed_out("send") from None

    def _send_rest(self, parts: Sequence[LeafBuffer], sent: int, started: float) -> None:
        deadline = None if self._timeout is None else started + self._timeout
        # A view with a zero in its shape cannot be cast, and says nothing.
        views = [view.cast("B") for view in map(memoryview, parts) if view.nbytes]
        while True:
            while views and sent >= views[0].nbytes:
                sent -= views.pop(0).nbytes
            if not views:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise self._timed_out("send")
            views[0] = views[0][sent:]
            sent = self.sock.sendmsg(views[:_MAX_IOV])

    def expect(self, magic: bytes) -> None:
        """Read exactly ``magic``; ProtocolException if the peer says something else."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        got = b""
        try:
            while len(got) < len(magic):
                data = self.sock.recv(len(magic) - len(got))
                if not data:
                    raise ConnectionResetError("connection closed by the peer")
                got += data
                if not magic.startswith(got):
                    raise ProtocolException(f"expected {magic!r}, got {got!r}")
                if deadline is not None and time.monotonic() > deadline:
                    raise self._timed_out("recv")
        except BlockingIOError:
            raise self._timed_out("recv") from None

    def recv(self) -> tuple[int, bytes, list[memoryview]]:
        """Receive one frame (kind, header, leaves); blocks until it is whole."""
        view = memoryview(_allocate(self._expect))
        try:
            have = self._take_pending(view) if self._pending else self.sock.recv_into(view)
            if not have:
                raise ConnectionResetError("connection closed by the peer")
            if have < _PREFIX.size:
                have = self._fill(view, have, _PREFIX.size)
            header_len, kind, count, body_len = _PREFIX.unpack_from(view)
            start = _PREFIX.size + 8 * count
            end = start + header_len
            body = end + (-end % _ALIGN)
            total = body + body_len
            if total != have:
                view = self._complete(view, have, total)
        except BlockingIOError:
            raise self._timed_out("recv") from None
        self._expect = total + _SLACK
        leaves = _slice_body(view, count, body, total) if count else []
        return kind, bytes(view[start:end]), leaves

    @property
    def buffered(self) -> bool:
        """Whether bytes were read ahead, which no selector knows of."""
        return bool(self._pending)

    def share(self, unread: float) -> None:
        """Prepare for :meth:`poll`; a :meth:`send` waits ``unread`` seconds for its reader."""
        self.set_timeout(unread)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(_GLANCE_SECONDS))

    def poll(self, *, alone: bool = False) -> tuple[int, bytes, list[memoryview]] | None:
        """Return the next frame if it has come in whole, else None.

        For a thread that serves many sockets. Not to be mixed with :meth:`recv`.

        Args:
            alone: this is the only one of them. Then the rest of a large frame that has begun is
                waited for, a moment at most, which spares a call of the selector for every piece.
        """
        view, have = self._partial, self._have
        if view is None:
            view, have = memoryview(_allocate(self._expect)), 0
        total = 0
        try:
            while True:
                if not total and have >= _PREFIX.size:
                    total = self._announced(view)
                    if total > view.nbytes:
                        grown = memoryview(_allocate(total))
                        grown[:have] = view[:have]
                        view = grown
                if total and have >= total:
                    break
                rest = view[have : total or view.nbytes]
                if self._pending:
                    have += self._take_pending(rest)
                    continue
                flags = _DONTWAIT
                if alone and total and total - have > _BULK:
                    rest, flags = rest[: self._slice], self._flags
                got = self.sock.recv_into(rest, 0, flags)
                if not got:
                    raise ConnectionResetError("connection closed by the peer")
                have += got
        except BlockingIOError:
            self._partial, self._have = view, have
            return None
        self._partial = None
        if have > total:
            self._pending = bytes(view[total:have]) + self._pending
        self._expect = total + _SLACK
        return _take_apart(view, total)

    def _announced(self, view: memoryview) -> int:
        header_len, _, count, body_len = _PREFIX.unpack_from(view)
        end = _PREFIX.size + 8 * count + header_len
        total = end + (-end % _ALIGN) + body_len
        if total > self.limit:
            raise self._oversized(total)
        return total

    def _oversized(self, total: int) -> FrameTooLarge:
        return FrameTooLarge(
            f"received a frame of {total} bytes, over the limit of {self.limit} bytes; "
            "raise max_message_bytes on both ends, or the peer does not speak this protocol"
        )

    def _complete(self, view: memoryview, have: int, total: int) -> memoryview:
        """Read on until ``total`` bytes are there, or put aside what came after them."""
        if total > self.limit:
            raise self._oversized(total)
        if have > total:
            self._pending = bytes(view[total:have]) + self._pending
            return view
        if total > view.nbytes:
            grown = memoryview(_allocate(total))
            grown[:have] = view[:have]
            view = grown
        self._fill(view, have, total)
        return view

    def _take_pending(self, view: memoryview) -> int:
        taken = self._pending[: view.nbytes]
        self._pending = self._pending[len(taken) :]
        view[: len(taken)] = taken
        return len(taken)

    def _fill(self, view: memoryview, have: int, need: int) -> int:
        """Read until exactly ``need`` bytes are there."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while have < need:
            if self._pending:
                have += self._take_pending(view[have:need])
                continue
            got = self.sock.recv_into(view[have : min(need, have + self._slice)], 0, self._flags)
            if not got:
                raise ConnectionResetError("connection closed by the peer in the middle of a frame")
            have += got
            if deadline is not None and have < need and time.monotonic() > deadline:
                raise self._timed_out("recv")
        return have

    def _timed_out(self, what: str) -> TimeoutError:
        return TimeoutError(f"{what} took more than {self._timeout:.3g} s")

    def close(self) -> None:
        """Close the socket; a peer or another thread blocked on it wakes up."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def _allocate(size: int) -> bytearray | np.ndarray[Any, Any]:
    """Return a fresh writable buffer; a large one is not zeroed, as a bytearray would be."""
    return bytearray(size) if size <= _SMALL else np.empty(size, np.uint8)


def _take_apart(view: memoryview, total: int) -> tuple[int, bytes, list[memoryview]]:
    """Return (kind, header, leaves) of the frame in the first ``total`` bytes of ``view``."""
    header_len, kind, count, _ = _PREFIX.unpack_from(view)
    start = _PREFIX.size + 8 * count
    end = start + header_len
    leaves = _slice_body(view, count, end + (-end % _ALIGN), total) if count else []
    return kind, bytes(view[start:end]), leaves


def _slice_body(view: memoryview, count: int, body: int, total: int) -> list[memoryview]:
    if count == 1:
        (length,) = _LENGTH.unpack_from(view, _PREFIX.size)
        if body + length + (-length % _ALIGN) == total:
            return [view[body : body + length]]
    lengths = _lengths_struct(count).unpack_from(view, _PREFIX.size)
    leaves: list[memoryview] = []
    at = body
    for length in lengths:
        if length > total - at:
            raise ProtocolException("malformed frame: the leaves are longer than the body")
        leaves.append(view[at : at + length])
        at += length + (-length % _ALIGN)
    if at != total:
        raise ProtocolException("malformed frame: the leaves do not fill the body")
    return leaves


def _timeval(seconds: float | None) -> bytes:
    if seconds is None:
        return struct.pack("@ll", 0, 0)
    seconds = min(seconds, _LONGEST)
    whole = int(seconds)
    micros = max(int((seconds - whole) * 1e6), 0 if whole else 1)
    return struct.pack("@ll", whole, micros)
