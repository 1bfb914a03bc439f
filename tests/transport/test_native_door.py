"""Strangers, liars and laggards at a server's port, while its client goes on undisturbed."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import FunctionEnv, RawPeer, Resources, python_child, serving, within

from rlmesh import EnvServer, ServeOptions
from rlmesh.numpy import RemoteEnv
from rlmesh.transport.framing import FrameKind
from rlmesh.transport.native import MAGIC, decode_status
from rlmesh.wire import messages

PREFIX = struct.Struct("<IHHQ")
ACTION = np.zeros(2, np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[EnvServer]:
    """Drops peers that dawdle for 0.3 s."""
    with serving(FunctionEnv(), greeting_seconds=0.3) as server:
        yield server


@pytest.fixture
def client(server: EnvServer) -> Iterator[RemoteEnv]:
    """A driving client; what a test does to the server must not be felt here."""
    with RemoteEnv(server.address) as env:
        env.reset()
        yield env
        env.reset()
        assert env.step(ACTION)[0].tolist() == [1, 0, 0, 0]


# Strangers


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"\xff" * 64,
        os.urandom(256),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS ClientHello
        b"RLMESH\x00\x02",  # a later version of the native door
        b"PUT / HTTP/1.1\r\n\r\n",  # begins as the HTTP/2 preface does
    ],
)
def test_a_stranger_is_told_what_listens_here_and_hung_up_on(
    server: EnvServer, client: RemoteEnv, data: bytes
) -> None:
    with RawPeer(server.address) as peer:
        peer.send(data)
        assert b"This is an rlmesh endpoint" in peer.rest()


def test_an_http_1_request_gets_a_readable_answer(server: EnvServer, client: RemoteEnv) -> None:
    import http.client

    host, port = server.address.removeprefix("tcp://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20.0)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        body = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 400
    assert "rlmesh endpoint" in body
    assert "RemoteEnv" in body


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    opening=st.sampled_from([b"", MAGIC, RawPeer.hello(), RawPeer.hello() + RawPeer.handshake()]),
    data=st.binary(max_size=300)
    | st.builds(
        lambda header, kind, count, body, tail: PREFIX.pack(header, kind, count, body) + tail,
        st.integers(0, 2**32 - 1) | st.integers(0, 40),
        st.integers(0, 6),
        st.integers(0, 3),
        st.integers(0, 2**64 - 1) | st.just(2**63) | st.integers(0, 64),
        st.binary(max_size=120),
    ),
)
def test_whatever_is_said_the_peer_is_gone_soon_and_the_server_stays(
    opening: bytes, data: bytes
) -> None:
    server = _hardy_server()
    with RawPeer(server.address) as peer:
        peer.send(opening, data)
        peer.sock.shutdown(socket.SHUT_WR)
        peer.rest()
    with RemoteEnv(server.address, connect_timeout_seconds=20.0) as env:
        # A garbled Join may hold the env for as long as it takes to see that its peer is gone.
        env.reset()


_hardy: list[Any] = []


def _hardy_server() -> EnvServer:
    if not _hardy:
        stack = ExitStack()
        _hardy.append((stack, stack.enter_context(serving(FunctionEnv(), greeting_seconds=0.3))))
    return _hardy[0][1]


@pytest.fixture(scope="module", autouse=True)
def _shut_down_hardy_server() -> Iterator[None]:
    yield
    if _hardy:
        _hardy.pop()[0].close()


# Frames that are cut short, too long or wrong


@pytest.mark.parametrize(
    "part", ["magic", "hello", "token", "handshake", "second handshake", "join"]
)
@pytest.mark.parametrize("hang_up", [True, False])
def test_a_truncated_request_is_dropped(
    server: EnvServer, client: RemoteEnv, part: str, hang_up: bool
) -> None:
    opening = RawPeer.hello("a token")
    begun = {
        "magic": opening[:5],
        "hello": opening[:10],
        "token": opening[:-2],
        "handshake": opening + RawPeer.handshake()[:-3],
        "second handshake": opening + RawPeer.handshake() + RawPeer.handshake()[:20],
        "join": opening + RawPeer.handshake() + RawPeer.join(configure={})[:-1],
    }[part]
    with RawPeer(server.address) as peer, within(30.0):
        peer.send(begun)
        if hang_up:
            peer.sock.shutdown(socket.SHUT_WR)
        peer.rest()


@pytest.mark.parametrize("part", ["handshake", "join"])
def test_a_request_cut_short_after_an_answered_one_is_dropped(
    server: EnvServer, client: RemoteEnv, part: str
) -> None:
    cut = RawPeer.handshake() if part == "handshake" else RawPeer.join(configure={})
    with RawPeer(server.address) as peer, within(30.0):
        peer.send(RawPeer.hello(), RawPeer.handshake())
        peer.receive()
        peer.send(cut[:-1])
        assert peer.rest() == b""


def test_a_peer_that_says_nothing_is_dropped_at_the_deadline(
    server: EnvServer, client: RemoteEnv
) -> None:
    with RawPeer(server.address) as peer:
        started = time.monotonic()
        assert peer.rest() == b""
        assert time.monotonic() - started > 0.25


def test_a_client_that_has_shaken_hands_may_think_for_as_long_as_it_likes(
    server: EnvServer,
) -> None:
    with RemoteEnv(server.address) as env, RawPeer(server.address) as silent:
        silent.rest()  # one greeting deadline has passed
        with RawPeer(server.address) as silent:
            silent.rest()
        env.reset()


@pytest.mark.parametrize("kind", [FrameKind.HANDSHAKE, FrameKind.SHUTDOWN, FrameKind.STATUS, 77])
@pytest.mark.parametrize(
    ("header", "count", "body"), [(2**31, 0, 0), (0, 0, 2**63), (0, 1, 16), (1 << 21, 0, 0)]
)
def test_a_frame_that_is_too_large_before_a_session_is_refused_with_the_limit(
    server: EnvServer, client: RemoteEnv, kind: int, header: int, count: int, body: int
) -> None:
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), PREFIX.pack(header, kind, count, body))
        status = decode_status(peer.receive())
        assert status.code == "INVALID_ARGUMENT"
        assert "expected no more than 1048576 and no values" in status.message
        assert peer.rest() == b""


@pytest.mark.parametrize("kind", [FrameKind.STATUS, 0, 77, 0x0102])
def test_an_unknown_kind_of_frame_is_refused_and_the_peer_may_go_on(
    server: EnvServer, client: RemoteEnv, kind: int
) -> None:
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.frame(kind, b"?"))
        status = decode_status(peer.receive())
        assert (status.code, status.message) == (
            "INVALID_ARGUMENT",
            f"unexpected frame kind {kind}",
        )
        peer.send(RawPeer.handshake())
        assert peer.receive().kind == FrameKind.HANDSHAKE


def test_a_handshake_that_is_no_message_is_refused(server: EnvServer, client: RemoteEnv) -> None:
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.frame(FrameKind.HANDSHAKE, b"\xff\xff\xff"))
        status = decode_status(peer.receive())
        assert status.code == "INVALID_ARGUMENT"
        assert "HandshakeRequest" in status.message


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, (256 << 20) + 1])
def test_a_driving_peer_with_a_frame_over_the_limit_is_told_so_and_the_env_is_free(
    server: EnvServer, length: int
) -> None:
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.join(configure={}))
        assert peer.receive().kind == FrameKind.HANDSHAKE
        assert peer.receive_response().HasField("configure")
        peer.send(PREFIX.pack(0, FrameKind.JOIN, 1, length), struct.pack("<Q", length))
        status = decode_status(peer.receive())
        assert status.code == "RESOURCE_EXHAUSTED"
        assert "over the limit of 268435456 bytes; raise max_message_bytes" in status.message
        assert peer.rest() == b""
    with RemoteEnv(server.address) as env:
        env.reset()


@pytest.mark.parametrize("table", [[17], [2**64 - 1], [16, 16], [1]])
def test_a_driving_peer_with_a_wrong_leaf_table_is_told_so_and_the_env_is_free(
    server: EnvServer, table: list[int]
) -> None:
    body = 32 if table == [1] else 16
    head = PREFIX.pack(0, FrameKind.JOIN, len(table), body) + struct.pack(f"<{len(table)}Q", *table)
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.join(configure={}))
        peer.receive()
        peer.receive_response()
        peer.send(head, bytes(-len(head) % 16), bytes(body))
        status = decode_status(peer.receive())
        assert (status.code, status.message[:15]) == ("INVALID_ARGUMENT", "malformed frame")
        assert peer.rest() == b""
    with RemoteEnv(server.address) as env:
        env.reset()


def test_a_client_hears_why_its_request_was_too_large_for_the_server() -> None:
    from rlmesh.spaces import Box

    env = FunctionEnv(action_space=Box(-1.0, 1.0, (4_000_000,), "float32"))
    with serving(env, max_message_bytes=1 << 20) as server:
        with RemoteEnv(server.address) as client:
            client.reset()
            with pytest.raises(ConnectionError) as caught:
                client.step(np.zeros(4_000_000, np.float32))
            assert server.address in str(caught.value)
            assert "over the limit of 1048576 bytes" in str(caught.value)
            assert "raise the message limit on both ends" in str(caught.value)
            with pytest.raises(ConnectionError, match="construct a new client"):
                client.step(np.zeros(4_000_000, np.float32))
        with RemoteEnv(server.address) as client:
            client.reset()
    assert [name for name, _ in env.calls].count("step") == 0


def test_a_client_hears_that_an_answer_was_too_large_for_the_server_to_send() -> None:
    from rlmesh import EnvironmentException
    from rlmesh.spaces import Box

    env = FunctionEnv(
        observation_space=Box(-1.0, 1.0, (400_000,), "float32"),
        reset=lambda seed: (np.zeros(400_000, np.float32), {}),
    )
    with serving(env, max_message_bytes=1 << 20) as server:
        for _ in range(2):
            with RemoteEnv(server.address) as client:
                with pytest.raises(EnvironmentException) as caught:
                    client.reset()
                assert "over the limit of 1048576 bytes; raise max_message_bytes" in str(
                    caught.value
                )


# The token


def test_the_right_token_opens_the_door() -> None:
    with (
        serving(FunctionEnv(), token="s3cret") as server,
        RemoteEnv(server.address, token="s3cret") as env,
    ):
        assert env.transport == "native"
        env.reset()
        env.step(ACTION)
        assert env.shutdown() is False


@pytest.mark.parametrize("token", ["", "s3cre", "s3cret ", "S3CRET", "s3cret\0", "ß", "x" * 65535])
def test_a_wrong_token_is_refused_by_name_before_anything_else(token: str) -> None:
    with serving(FunctionEnv(), token="s3cret") as server:
        with within(30.0), pytest.raises(ConnectionError) as caught:
            RemoteEnv(server.address, token=token)
        assert server.address in str(caught.value)
        assert "invalid env token [UNAUTHENTICATED]; pass the server's token" in str(caught.value)
        assert "s3cret" not in str(caught.value)
        with RawPeer(server.address) as peer:
            # Neither the service nor the frames behind the token are looked at.
            peer.send(RawPeer.hello(token, "model"), b"\xff" * 100)
            status = decode_status(peer.receive())
            assert (status.code, status.message) == ("UNAUTHENTICATED", "invalid env token")
            assert peer.rest() == b""


@pytest.mark.parametrize("token", ["schl\u00fcssel", "two\nlines", "x" * 9000])
def test_a_token_that_not_every_client_can_send_is_refused_at_once(token: str) -> None:
    with pytest.raises(ValueError, match="token must be at most 8192 printable ASCII characters"):
        ServeOptions(token=token)


def test_a_token_that_nobody_asked_for_does_no_harm(server: EnvServer) -> None:
    with RemoteEnv(server.address, token="s3cret") as env:
        env.reset()


# Hellos


def test_a_hello_for_another_service_is_refused_with_the_class_to_use(server: EnvServer) -> None:
    with RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(service="model"))
        status = decode_status(peer.receive())
        assert status.code == "UNIMPLEMENTED"
        assert status.message == "this endpoint serves an env, not a model; use RemoteEnv"
        assert peer.rest() == b""
    with RawPeer(server.address) as peer:
        peer.send(MAGIC, struct.pack("<BBH", 9, 0, 0))
        assert "not a service 9" in decode_status(peer.receive()).message


def test_a_client_that_sends_one_byte_at_a_time_drives_the_env(server: EnvServer) -> None:
    with RawPeer(server.address) as peer:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def trickle(data: bytes) -> None:
            for i in range(len(data)):
                peer.send(data[i : i + 1])

        trickle(RawPeer.hello("abc"))
        trickle(RawPeer.handshake())
        answer = messages.env.HandshakeResponse.FromString(peer.receive().header)
        assert answer.base.compatible
        trickle(RawPeer.join(configure={}))
        assert peer.receive_response().HasField("configure")
        trickle(RawPeer.join(reset={}))
        assert peer.receive_response().HasField("reset")
        trickle(RawPeer.join([ACTION], step={}))
        response = peer.receive_response()
        assert list(response.step.rewards) == [1.0]
        peer.send(RawPeer.join(close={}))
        assert peer.receive_response().HasField("close")
        assert peer.rest() == b""


def test_requests_sent_in_one_go_are_answered_one_by_one(server: EnvServer) -> None:
    """More of them than the acceptor's and the session's first buffers hold."""
    steps = 2000
    with RawPeer(server.address) as peer:
        peer.send(
            RawPeer.hello(),
            RawPeer.handshake() * 3,
            RawPeer.join(configure={}),
            RawPeer.join(reset={}),
            RawPeer.join([ACTION], step={}) * steps,
            RawPeer.join(close={}),
        )
        assert [peer.receive().kind for _ in range(3)] == [FrameKind.HANDSHAKE] * 3
        assert peer.receive_response().HasField("configure")
        assert peer.receive_response().HasField("reset")
        for step in range(1, steps + 1):
            frame = peer.receive()
            assert np.frombuffer(frame.leaves[0], np.float32)[0] == step
        assert peer.receive_response().HasField("close")


def test_handshakes_are_answered_no_faster_than_they_are_read() -> None:
    """A peer that asks without end and never reads takes no memory of the server."""
    with serving(FunctionEnv(), greeting_seconds=60.0) as server, RawPeer(server.address) as peer:
        peer.send(RawPeer.hello())
        peer.sock.settimeout(0.5)
        questions, total = RawPeer.handshake() * 1000, 0
        with pytest.raises(TimeoutError):
            while total < 64 << 20:
                total += peer.sock.send(questions)
        with RemoteEnv(server.address) as env:
            env.reset()


# Crowds


def test_many_silent_peers_do_not_disturb_a_driving_client() -> None:
    with serving(FunctionEnv(), greeting_seconds=60.0) as server, ExitStack() as stack:
        env = stack.enter_context(RemoteEnv(server.address))
        env.reset()
        for i in range(150):
            peer = stack.enter_context(RawPeer(server.address))
            peer.send((b"", MAGIC[:4], RawPeer.hello()[:11], RawPeer.hello())[i % 4])
        for step in range(1, 101):
            assert env.step(ACTION)[0][0] == step
        with RemoteEnv(server.address, connect_timeout_seconds=5.0):
            pass  # and handshakes are still answered


def test_dropped_peers_leave_nothing_behind(server: EnvServer, client: RemoteEnv) -> None:
    before = Resources.now()
    for data in (b"", MAGIC, RawPeer.hello() + RawPeer.handshake(), b"GET / HTTP/1.1\r\n\r\n"):
        for _ in range(10):
            with RawPeer(server.address) as peer:
                peer.send(data)
    before.assert_back()


def test_out_of_descriptors_the_silent_are_dropped_and_clients_are_served() -> None:
    code = """
import os, resource
from support import FunctionEnv
from rlmesh import EnvServer
server = EnvServer(FunctionEnv())
server.start()
limit = len(os.listdir("/dev/fd")) + 8
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
print(server.address, flush=True)
server.wait()
"""
    with python_child(code) as child, ExitStack() as stack:
        address = child.line()
        for _ in range(30):
            stack.enter_context(RawPeer(address))
        with within(30.0), RemoteEnv(address) as env:
            env.reset()
            assert env.step(ACTION)[0][0] == 1
