"""One port, two doors: the thread that accepts, greets, answers and refuses.

The acceptor looks at a connection's first bytes. The native magic makes it a native connection, the
HTTP/2 preface goes to the gRPC door, and anything else is told so and closed. It answers
handshakes itself and hands a connection to the service when the peer starts to drive, so the thread
that runs the env never sees a stranger, and strangers are answered while the env is in a long step.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import cast

from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address, TcpAddress, UnixAddress, configure
from rlmesh.transport.framing import (
    FrameKind,
    FrameSocket,
    encode_plain_frame,
    frame_size,
    parse_frame,
)
from rlmesh.transport.grpc_door import PREFACE, GrpcDoor
from rlmesh.transport.native import MAGIC, NativeSession, encode_status, parse_hello
from rlmesh.transport.service import Service
from rlmesh.wire.status import Status, StatusError

__all__ = ["GREETING_SECONDS", "Listener"]

_log = logging.getLogger("rlmesh")

GREETING_SECONDS = 10.0
"""A peer that has not finished what it began to say by then is dropped."""

_GREETING_LIMIT = 1024 * 1024
"""Bytes a frame may take before a session is open: handshakes, nothing else."""

_BACKLOG = 4096
"""Connections that wait to be accepted, say while a model loads; the system may allow fewer.

One too many is dropped without a word, and its client tries again after 1, 3 and 7 s.
"""

_STRANGER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is an rlmesh endpoint. It speaks the rlmesh native protocol and gRPC (HTTP/2); connect\n"
    b"with rlmesh.RemoteEnv or rlmesh.RemoteModel.\n"
)


class _Peer:
    """A connection that does not drive yet."""

    __slots__ = ("answered", "deadline", "greeted", "hello", "inbox", "outbox", "sock")

    def __init__(self, sock: socket.socket, patience: float) -> None:
        self.sock = sock
        self.inbox = bytearray()
        self.outbox = b""
        self.greeted = False
        self.answered = False
        self.hello = b""
        self.deadline: float | None = time.monotonic() + patience


class Listener:
    """Binds at construction; :meth:`start` accepts on a thread of its own until :meth:`stop`.

    Args:
        address: where to listen. Port 0 takes a free one.
        service: who answers.
        limit: largest message, in bytes.
        greeting_seconds: how long a peer may take to finish a request before it drives.

    Raises:
        ConnectionError: the address cannot be bound; the message names it and why.
    """

    def __init__(
        self,
        address: Address,
        service: Service,
        *,
        limit: int,
        greeting_seconds: float = GREETING_SECONDS,
    ) -> None:
        self._service = service
        self._limit = limit
        self._socket = _bind(address)
        self.address = _resolved(address, self._socket)
        self._inode = _inode(self.address)
        self._socket.setblocking(False)
        self._grpc = GrpcDoor(service, limit=limit, greeting_seconds=greeting_seconds)
        self._peers: dict[_Peer, None] = {}  # in order of arrival
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._stopping = False
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def greeting_seconds(self) -> float:
        """How long a peer may take to finish a request before it drives."""
        return self._grpc.greeting_seconds

    @greeting_seconds.setter
    def greeting_seconds(self, seconds: float) -> None:
        self._grpc.greeting_seconds = seconds

    def start(self) -> None:
        """Accept connections from now on."""
        if self._closed:
            return
        self._selector.register(self._socket, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._woken)
        self._thread = threading.Thread(target=self._run, name="rlmesh-acceptor", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Make the acceptor ask the service what is due. Any thread, any signal handler."""
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def stop(self) -> None:
        """Stop accepting and drop every connection that does not drive. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stopping = True
        self.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._grpc.close()
        for peer in list(self._peers):
            self._drop(peer)
        self._selector.close()
        for sock in (self._socket, self._wake_reader, self._wake_writer):
            sock.close()
        if isinstance(self.address, UnixAddress) and _inode(self.address) == self._inode:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)

    def disown(self) -> None:
        """Close this process's copies of the descriptors, in a forked child."""
        self._closed = True
        for sock in (self._socket, self._wake_reader, self._wake_writer):
            sock.close()
        for peer in list(self._peers):
            peer.sock.close()
        self._grpc.disown()

    # The acceptor thread

    def _run(self) -> None:
        while not self._stopping:
            for key, events in self._selector.select(self._patience()):
                if self._stopping:
                    break
                callback = cast("Callable[[int], None]", key.data)
                try:
                    callback(events)
                except Exception:  # whatever it is, everybody else still wants an answer
                    _log.exception("a connection to %s failed", self.address)

    def _patience(self) -> float | None:
        """Drop the silent, let the service do what is due, and return how long to wait."""
        now = time.monotonic()
        for peer in [p for p in self._peers if p.deadline is not None and p.deadline <= now]:
            self._drop(peer)
        waits = [p.deadline - now for p in self._peers if p.deadline is not None]
        due = self._service.tick()
        if due is not None:
            waits.append(due)
        return max(0.0, min(waits)) if waits else None

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(OSError):
            self._wake_reader.recv(4096)

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError as exc:  # mostly of the connection that was waiting, not of the listener
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._make_room()
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            configure(sock)
        peer = _Peer(sock, self.greeting_seconds)
        self._peers[peer] = None
        self._watch(peer, selectors.EVENT_READ, register=True)

    def _make_room(self) -> None:
        """Out of descriptors: drop the oldest peer that has said nothing, or wait for a session."""
        for peer in self._peers:
            if not peer.greeted:
                self._drop(peer)
                return
        time.sleep(0.05)

    def _watch(self, peer: _Peer, events: int, *, register: bool = False) -> None:
        def ready(mask: int) -> None:
            self._serve(peer, mask)

        change = self._selector.register if register else self._selector.modify
        change(peer.sock, events, ready)

    def _forget(self, peer: _Peer) -> None:
        self._peers.pop(peer, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.sock)

    def _drop(self, peer: _Peer) -> None:
        self._forget(peer)
        peer.sock.close()

    def _serve(self, peer: _Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
            if events & selectors.EVENT_READ:
                data = peer.sock.recv(65536)
                if not data:
                    self._drop(peer)
                    return
                peer.inbox += data
                if not peer.greeted:
                    self._greet(peer)
            self._answer_all(peer)
        except BlockingIOError:
            return
        except OSError:
            self._drop(peer)
        except ProtocolException as exc:
            self._refuse(peer, encode_status(Status("INVALID_ARGUMENT", str(exc))))
        except Exception:
            self._drop(peer)
            raise

    def _answer_all(self, peer: _Peer) -> None:
        """Answer what has come in whole, as fast as the peer reads; time what has not."""
        while peer.greeted and peer in self._peers and not peer.outbox and self._answer(peer):
            peer.answered = True
        if peer.answered:
            if not peer.inbox and not peer.outbox:
                peer.deadline = None
            elif peer.deadline is None:
                peer.deadline = time.monotonic() + self.greeting_seconds

    def _refuse(self, peer: _Peer, words: bytes) -> None:
        with contextlib.suppress(OSError):
            peer.sock.send(words)
        self._drop(peer)

    def _greet(self, peer: _Peer) -> None:
        """Tell the doors apart, and check the token before anything else is read."""
        start = bytes(peer.inbox[: len(PREFACE)])
        if PREFACE.startswith(start):
            if len(start) == len(PREFACE):
                self._forget(peer)
                self._grpc.adopt(peer.sock, bytes(peer.inbox))
            return
        if not MAGIC.startswith(start[: len(MAGIC)]):
            self._refuse(peer, _STRANGER)
            return
        hello = parse_hello(peer.inbox)
        if hello is None:
            return
        del peer.inbox[: hello.size]
        status: Status | None = None
        if not hmac.compare_digest(hello.token, self._service.token.encode()) and (
            self._service.token
        ):
            status = Status("UNAUTHENTICATED", f"invalid {self._service.name} token")
        elif hello.service != self._service.name:
            kind, ours = {"env": ("RemoteEnv", "an env"), "model": ("RemoteModel", "a model")}[
                self._service.name
            ]
            theirs = "an env" if hello.service == "env" else f"a {hello.service}"
            status = Status(
                "UNIMPLEMENTED",
                f"this endpoint serves {ours}, not {theirs}; use {kind}",
            )
        if status is not None:
            self._refuse(peer, MAGIC + encode_status(status))
            return
        peer.greeted = True
        self._post(peer, MAGIC)

    def _answer(self, peer: _Peer) -> bool:
        """Serve one whole frame of a greeted peer; False when there is none."""
        size = frame_size(peer.inbox)
        if size is None:
            return False
        if int.from_bytes(peer.inbox[4:6], "little") == FrameKind.JOIN:
            if len(peer.inbox) < min(size, _GREETING_LIMIT):
                return False
            self._hand_over(peer, size)
            return True
        parsed = parse_frame(peer.inbox, _GREETING_LIMIT)
        if parsed is None:
            return False
        frame, size = parsed
        del peer.inbox[:size]
        self._service.touch()
        try:
            if frame.kind == FrameKind.HANDSHAKE:
                answer = self._service.handshake(frame.header)
                peer.hello = frame.header
            elif frame.kind == FrameKind.SHUTDOWN:
                answer = self._service.shutdown(frame.header)
            else:
                raise StatusError("INVALID_ARGUMENT", f"unexpected frame kind {frame.kind}")
        except StatusError as exc:
            self._post(peer, encode_status(exc.status))
        else:
            self._post(peer, encode_plain_frame(frame.kind, answer))
        return True

    def _hand_over(self, peer: _Peer, size: int) -> None:
        """Give the connection to the service, which reads the Join frame itself; or refuse it."""
        self._service.touch()
        self._forget(peer)
        frames = FrameSocket(peer.sock, limit=self._limit, pending=bytes(peer.inbox))
        try:
            self._service.join(NativeSession(frames, peer.hello))
        except StatusError as exc:
            peer.sock.setblocking(False)
            self._peers[peer] = None
            self._watch(peer, selectors.EVENT_READ, register=True)
            self._post(peer, encode_status(exc.status))
            if len(peer.inbox) < size:  # the rest of so large a request is not worth reading
                self._drop(peer)
            # Keep the others: they may ask again when the env is free.
            del peer.inbox[:size]

    def _post(self, peer: _Peer, data: bytes) -> None:
        peer.outbox += data
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            sent = peer.sock.send(peer.outbox) if peer.outbox else 0
        except BlockingIOError:
            sent = 0
        peer.outbox = peer.outbox[sent:]
        # A peer that does not read its answers is not listened to either.
        self._watch(peer, selectors.EVENT_WRITE if peer.outbox else selectors.EVENT_READ)


def _bind(address: Address) -> socket.socket:
    if isinstance(address, UnixAddress):
        _remove_stale(address)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        where: object = address.path
        kind = "unix"
    else:
        kind = "tcp"
        try:
            family, _, _, _, where = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            raise ConnectionError(
                f"failed to bind tcp listener: {address}: {exc}; give a local host name or address"
            ) from exc
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(where)  # type: ignore[arg-type]
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise ConnectionError(
            f"failed to bind {kind} listener: {address}: {exc.strerror or exc}; stop what listens "
            "there, or bind another address (port 0 takes a free port)"
        ) from exc
    return sock


def _remove_stale(address: UnixAddress) -> None:
    """Remove the socket file of a server that is gone; leave a live one for bind to refuse."""
    try:
        if not stat.S_ISSOCK(os.stat(address.path).st_mode):
            return
    except OSError:
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(address.path)
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(address.path)
    except OSError:
        return
    finally:
        probe.close()


def _resolved(address: Address, sock: socket.socket) -> Address:
    if isinstance(address, UnixAddress):
        return address
    return TcpAddress(address.host, sock.getsockname()[1])


def _inode(address: Address) -> int | None:
    if not isinstance(address, UnixAddress):
        return None
    try:
        return os.stat(address.path).st_ino
    except OSError:
        return None
