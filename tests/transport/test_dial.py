"""A client against servers that are no rlmesh servers, or not any more."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from support import FunctionEnv, Resources, eventually, python_child, serving, within

from rlmesh import ProtocolException
from rlmesh.numpy import RemoteEnv
from rlmesh.transport.framing import FrameKind, encode_plain_frame
from rlmesh.transport.native import MAGIC, encode_status
from rlmesh.wire.status import Status

PREFIX = struct.Struct("<IHHQ")
Behaviour = Callable[[socket.socket], object]


@contextmanager
def impostor(behave: Behaviour) -> Iterator[str]:
    """Accept connections and treat each as ``behave`` says; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connections.append(sock)
            threading.Thread(target=attend, args=(sock,), daemon=True).start()

    def attend(sock: socket.socket) -> None:
        with suppress(OSError):
            behave(sock)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    host, port = listener.getsockname()
    try:
        yield f"tcp://{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10.0)
        for sock in connections:
            sock.close()


def hold(sock: socket.socket) -> None:
    """Read what comes and say nothing."""
    while sock.recv(65536):
        pass


def says(*words: bytes) -> Behaviour:
    """Wait for the client's words, answer, and listen on."""

    def behave(sock: socket.socket) -> None:
        sock.recv(65536)
        for word in words:
            sock.sendall(word)
        hold(sock)

    return behave


def says_and_goes(*words: bytes) -> Behaviour:
    def behave(sock: socket.socket) -> None:
        sock.recv(65536)
        for word in words:
            sock.sendall(word)
        sock.shutdown(socket.SHUT_WR)
        hold(sock)

    return behave


def trickles(data: bytes) -> Behaviour:
    """Keep the client interested, a byte at a time, for far longer than it will wait."""

    def behave(sock: socket.socket) -> None:
        sock.recv(65536)
        for i in range(len(data)):
            sock.sendall(data[i : i + 1])
            time.sleep(0.7)
        hold(sock)

    return behave


@pytest.mark.parametrize(
    "behave",
    [
        hold,
        says(MAGIC[:5]),
        says(MAGIC),
        says(MAGIC, PREFIX.pack(100, FrameKind.HANDSHAKE, 0, 0)),
    ],
    ids=["silent", "half a greeting", "greeting", "half an answer"],
)
def test_a_server_that_does_not_finish_its_answer_is_a_timeout(behave: Behaviour) -> None:
    with impostor(behave) as address:
        with within(12.0), pytest.raises(TimeoutError) as caught:
            RemoteEnv(address, connect_timeout_seconds=0.4)
        assert f"could not connect to an env at '{address}' within 0.4 s" in str(caught.value)
        assert "is the EnvServer running and reachable" in str(caught.value)


def test_a_server_that_keeps_saying_a_little_is_a_timeout_too() -> None:
    """Each byte comes in time, and the answer never does."""
    with (
        impostor(trickles(MAGIC + bytes(400))) as address,
        within(4.0),
        pytest.raises(TimeoutError, match=f"'{address}' within 1 s"),
    ):
        RemoteEnv(address, connect_timeout_seconds=1.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 100,
        b"RLMESH\x00\x02",
    ],
    ids=["ssh", "http", "binary", "a later rlmesh"],
)
def test_a_server_of_something_else_is_named_as_that(answer: bytes) -> None:
    with impostor(says_and_goes(answer)) as address:
        with within(12.0), pytest.raises(ProtocolException) as caught:
            RemoteEnv(address)
        assert f"'{address}' answers, but speaks neither the rlmesh native protocol" in str(
            caught.value
        )
        assert "is that port an rlmesh endpoint?" in str(caught.value)


def test_a_server_that_hangs_up_at_once_is_named() -> None:
    with impostor(lambda sock: sock.close()) as address:
        with within(12.0), pytest.raises((ConnectionError, ProtocolException)) as caught:
            RemoteEnv(address)
        assert address in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind", "complaint"),
    [
        (PREFIX.pack(0, FrameKind.HANDSHAKE, 0, 2**63), ProtocolException, "over the limit"),
        (PREFIX.pack(2**32 - 1, 1, 0, 0), ProtocolException, "over the limit"),
        (encode_plain_frame(FrameKind.JOIN, b""), ProtocolException, "frame kind 1, got 2"),
        (encode_plain_frame(77, b"x" * 50), ProtocolException, "frame kind 1, got 77"),
        (encode_plain_frame(FrameKind.HANDSHAKE, b"\xff\xff"), ProtocolException, "Handshake"),
        (encode_plain_frame(FrameKind.HANDSHAKE, b""), ProtocolException, "missing base"),
        (encode_status(Status("UNAVAILABLE", "later")), ConnectionError, "later .UNAVAILABLE."),
        (encode_status(Status("WHATEVER", "\x00")), ConnectionError, "WHATEVER"),
        (encode_plain_frame(FrameKind.STATUS, b"\xff\xfe"), ConnectionError, "no reason given"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_a_greeting_and_then_nonsense_is_refused_with_the_address(
    answer: bytes, kind: type[Exception], complaint: str
) -> None:
    with impostor(says(MAGIC + answer)) as address:
        with within(30.0), pytest.raises(kind, match=complaint) as caught:
            RemoteEnv(address, connect_timeout_seconds=5.0)
        assert address in str(caught.value)


@pytest.mark.parametrize("behave", [says(MAGIC), says_and_goes(b"nonsense")])
def test_nothing_is_left_of_a_failed_handshake(behave: Behaviour) -> None:
    connections: list[socket.socket] = []

    def noted(sock: socket.socket) -> None:
        connections.append(sock)
        with sock:
            behave(sock)

    with impostor(noted) as address:

        def fail() -> None:
            with pytest.raises((TimeoutError, ProtocolException)):
                RemoteEnv(address, connect_timeout_seconds=0.2)

        fail()  # whatever grpc keeps for good, it has now
        eventually(lambda: all(sock.fileno() < 0 for sock in connections), "the dial is over")
        before = Resources.now()
        for _ in range(3):
            fail()
        before.assert_back()


def test_a_server_that_goes_between_the_doors_is_a_connection_error() -> None:
    """It hung up on the native hello because it was going down, not because it knew no better."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()

    def serve_one() -> None:
        sock, _ = listener.accept()
        listener.close()
        sock.recv(65536)
        sock.close()

    thread = threading.Thread(target=serve_one)
    thread.start()
    with within(12.0), pytest.raises(ConnectionError, match=f"tcp://{host}:{port}"):
        RemoteEnv(f"{host}:{port}")
    thread.join(10.0)


def test_a_native_client_never_imports_grpc() -> None:
    code = """
import sys
from rlmesh.numpy import RemoteEnv
with RemoteEnv(sys.argv[1]) as env:
    env.reset()
    env.step([0.0, 0.0])
    env.shutdown()
print("grpc" in sys.modules)
"""
    with serving(FunctionEnv()) as server, python_child(code, server.address) as child:
        assert child.line() == "False"


@pytest.mark.parametrize("seconds", [1e9, 1e300, None])
def test_any_timeout_that_is_allowed_works(seconds: float | None) -> None:
    with serving(FunctionEnv()) as server:
        timeouts: Any = {"connect_timeout_seconds": seconds, "request_timeout_seconds": seconds}
        with RemoteEnv(server.address, **timeouts) as env:
            env.reset()


@pytest.mark.parametrize("name", ["connect_timeout_seconds", "request_timeout_seconds"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, ValueError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("1", TypeError),
        (True, TypeError),
    ],
)
def test_a_timeout_is_a_positive_finite_number(name: str, value: Any, kind: Any) -> None:
    with pytest.raises(kind, match=name):
        RemoteEnv("127.0.0.1:1", **{name: value})
