"""The gRPC door of a real server: health, handshakes and refusals, with a plain grpcio client."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from support import (
    BlockingEnv,
    FunctionEnv,
    Gate,
    RawPeer,
    Resources,
    eventually,
    python_child,
    server_process,
    serving,
    within,
)

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv
from rlmesh.spaces import Box
from rlmesh.transport.grpc_door import PREFACE, GrpcSession
from rlmesh.transport.native import NativeChannel, NotNative
from rlmesh.wire import messages
from rlmesh.wire.handshake import client_hello

ENV = "/rlmesh.env.v1.EnvService/"
HEALTH = "/grpc.health.v1.Health/"


class Grpc:
    """A grpcio client without any of our code between it and the server."""

    def __init__(self, address: str, token: str | None = None) -> None:
        target = address.removeprefix("tcp://").replace("unix://", "unix:")
        self.channel = grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
        self.metadata = (("authorization", token),) if token is not None else ()
        self.streams: list[Join] = []

    def __enter__(self) -> Grpc:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for stream in self.streams:
            stream.end()
        self.channel.close()

    def unary(self, method: str, request: Any, *, seconds: float = 20.0) -> bytes:
        call = self.channel.unary_unary(method)
        return call(request.SerializeToString(), timeout=seconds, metadata=self.metadata)

    def handshake(self) -> Any:
        answer = self.unary(ENV + "Handshake", client_hello("env"))
        return messages.env.HandshakeResponse.FromString(answer)

    def health(self, name: str = "") -> int:
        request = messages.health.HealthCheckRequest(service=name)
        answer = self.unary(HEALTH + "Check", request)
        return messages.health.HealthCheckResponse.FromString(answer).status

    def join(self) -> Join:
        self.streams.append(Join(self))
        return self.streams[-1]


class Join:
    """An open Join stream; :meth:`ask` sends one request and returns its response."""

    def __init__(self, client: Grpc) -> None:
        import queue

        self._requests: Any = queue.SimpleQueue()
        call = client.channel.stream_stream(ENV + "Join")
        self.call: Any = call(
            iter(self._requests.get, None), metadata=client.metadata, timeout=60.0
        )

    def send(self, **kind: Any) -> None:
        request = messages.env.JoinRequest(request_id="grpc-req-1")
        for name, leaves in kind.items():
            body = getattr(request, name)
            body.SetInParent()
            if name == "step":
                body.action.leaves.extend(leaf.tobytes() for leaf in leaves)
        self._requests.put(request.SerializeToString())

    def ask(self, **kind: Any) -> Any:
        self.send(**kind)
        return messages.env.JoinResponse.FromString(next(self.call))

    def end(self) -> None:
        self._requests.put(None)


@contextmanager
def status_error(code: grpc.StatusCode, text: str) -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error: Any = caught.value
    assert error.code() is code, error
    assert text in error.details()


def step() -> list[Any]:
    return [np.zeros(2, np.float32)]


def test_grpc_is_imported_with_the_first_http_2_connection_and_not_before() -> None:
    code = """
import sys
from support import FunctionEnv
from rlmesh import EnvServer
server = EnvServer(FunctionEnv())
server.start()
print(server.address, flush=True)
import time
while "grpc" not in sys.modules and time.sleep(0.005) is None:
    if server.wait(0.0):
        break
print("grpc" in sys.modules, flush=True)
"""
    with python_child(code) as child:
        address = child.line()
        with RemoteEnv(address) as env:
            env.reset()
            env.step([0.0, 0.0])
        with RawPeer(address) as stranger:
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            stranger.rest()
        with RawPeer(address) as peer:
            peer.send(PREFACE[:-1])
            with pytest.raises(AssertionError, match="no output"):
                child.line(seconds=0.3)
            peer.send(PREFACE[-1:])
            assert child.line() == "True"


@pytest.mark.parametrize("form", ["tcp", "unix"])
def test_a_stock_client_drives_the_env(form: str, tmp_path: Path) -> None:
    address = None if form == "tcp" else f"unix://{tmp_path / 'env.sock'}"
    env = FunctionEnv()
    with serving(env, address) as server, Grpc(server.address) as client:
        assert client.handshake().base.compatible
        stream = client.join()
        assert stream.ask(configure=None).HasField("configure")
        first = stream.ask(reset=None)
        assert first.request_id == "grpc-req-1"
        assert len(first.reset.observation.leaves) == 1
        answer = stream.ask(step=step())
        assert np.frombuffer(answer.step.observation.leaves[0], np.float32).tolist() == [1, 0, 0, 0]
        assert stream.ask(close=None).HasField("close")
        assert list(stream.call) == []
        assert stream.call.code() is grpc.StatusCode.OK


def test_health_and_handshakes_are_answered_while_the_env_is_in_a_step(tmp_path: Path) -> None:
    with server_process("support:BlockingEnv", gate=str(tmp_path)) as server:
        gate = Gate(tmp_path)
        with RemoteEnv(server.address) as env, Grpc(server.address) as client:
            env.reset()
            with ThreadPoolExecutor() as pool:
                step = pool.submit(env.step, 1)
                eventually(lambda: gate.entered, "the env is in its step")
                assert client.health() == 1  # SERVING
                with status_error(grpc.StatusCode.NOT_FOUND, "unknown service"):
                    client.health("rlmesh.env.v1.EnvService")
                assert client.handshake().base.compatible
                with within(12.0), RemoteEnv(server.address) as other:
                    assert other.transport == "native"
                assert not step.done()
                gate.open()
                assert step.result(20.0)[1] == 1.0


def test_a_client_may_ping_as_often_as_it_likes() -> None:
    """As one does through the silence of a long step; grpcio takes the fourth for an attack."""
    settings = b"\0\0\0\4\0" + bytes(4)
    ping = b"\0\0\x08\6\0" + bytes(4) + b"are you?"
    with serving(FunctionEnv()) as server, RawPeer(server.address) as peer:
        peer.send(PREFACE, settings, ping * 20)
        acknowledged, got = 0, b""
        while acknowledged < 20:
            got += peer.sock.recv(65536)
            while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
                size, kind, flags = 9 + int.from_bytes(got[:3], "big"), got[3], got[4]
                assert kind != 7, f"GOAWAY after {acknowledged} pings: {got[:size]!r}"
                acknowledged += kind == 6 and flags & 1
                got = got[size:]


def test_health_is_watched_without_holding_anything_up() -> None:
    """As many watchers as a pool of threads would have room for, and a handshake still."""
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        watch = client.channel.unary_stream(HEALTH + "Watch")
        watchers = [watch(b"") for _ in range(40)]
        for watcher in watchers:
            assert messages.health.HealthCheckResponse.FromString(next(watcher)).status == 1
        assert client.handshake().base.compatible
        assert client.health() == 1
        for watcher in watchers:
            watcher.cancel()


def test_a_second_driving_client_is_refused_and_the_first_goes_on() -> None:
    with (
        serving(FunctionEnv()) as server,
        Grpc(server.address) as first,
        Grpc(server.address) as second,
    ):
        stream = first.join()
        stream.ask(configure=None)
        with status_error(grpc.StatusCode.FAILED_PRECONDITION, "already has an active Join"):
            second.join().ask(configure=None)
        assert list(stream.ask(step=step()).step.rewards) == [1.0]
        assert stream.ask(close=None).HasField("close")
        # The very moment the first has its goodbye, the env is free.
        assert second.join().ask(configure=None).HasField("configure")


def test_a_session_is_over_before_its_last_answer_is_out() -> None:
    """Whoever has read it may join at once; grpcio itself takes a little longer to see the end."""

    class Active:
        def is_active(self) -> bool:
            return True

        def invocation_metadata(self) -> tuple[()]:
            return ()

    session = GrpcSession(Active(), "env", 1000)
    session.send(messages.env.JoinResponse().SerializeToString(), ())
    assert session.alive()
    session.send(messages.env.JoinResponse().SerializeToString(), (), last=True)
    assert not session.alive()


def test_a_stream_that_is_cancelled_frees_the_env() -> None:
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        stream = client.join()
        stream.ask(reset=None)
        stream.call.cancel()

        def free() -> bool:
            try:
                return client.join().ask(configure=None).HasField("configure")
            except grpc.RpcError as exc:
                assert exc.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]
                return False

        eventually(free, "the env is free")


@pytest.mark.parametrize("token", [None, "", "s3cre", "S3CRET", "Bearer s3cret"])
def test_a_wrong_token_is_refused_on_every_call(token: str | None) -> None:
    with serving(FunctionEnv(), token="s3cret", allow_remote_shutdown=True) as server:
        with Grpc(server.address, token) as client:
            for call in (
                client.handshake,
                lambda: client.join().ask(configure=None),
                lambda: client.unary(ENV + "Shutdown", messages.env.ShutdownRequest()),
            ):
                with status_error(grpc.StatusCode.UNAUTHENTICATED, "invalid env token"):
                    call()
            assert client.health() == 1  # a probe has no token
        assert server.wait(0.0) is False


def test_the_right_token_opens_the_door() -> None:
    with serving(FunctionEnv(), token="s3cret") as server, Grpc(server.address, "s3cret") as client:
        assert client.handshake().base.compatible
        assert client.join().ask(configure=None).HasField("configure")


@pytest.mark.parametrize("limit", [2**31 - 1, 2**31, 2**40])
def test_a_message_limit_may_be_larger_than_grpc_knows_of(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(*args: Any, **kwargs: Any) -> Any:
        raise NotNative("hidden, as if the server were rlmesh 0.1.0")

    monkeypatch.setattr(NativeChannel, "open", hidden)
    with (
        serving(FunctionEnv(), max_message_bytes=limit) as server,
        RemoteEnv(server.address, max_message_bytes=limit) as env,
    ):
        assert env.transport == "grpc"
        env.reset()


def test_a_message_over_the_limit_is_refused_at_either_end_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(*args: Any, **kwargs: Any) -> Any:
        raise NotNative("hidden, as if the server were rlmesh 0.1.0")

    monkeypatch.setattr(NativeChannel, "open", hidden)
    env = FunctionEnv(
        action_space=Box(-1.0, 1.0, (400_000,), "float32"),
        observation_space=Box(-1.0, 1.0, (400_000,), "float32"),
        reset=lambda seed: (np.zeros(400_000, np.float32), {}),
    )
    action = np.zeros(400_000, np.float32)
    words = "over the limit of 1048576 bytes; raise"
    refused = r"RESOURCE_EXHAUSTED.*raise the message limit"
    with serving(env) as server, RemoteEnv(server.address, max_message_bytes=1 << 20) as client:
        with pytest.raises(ValueError, match=words):
            client.step(action)  # nothing was sent
        with pytest.raises(ConnectionError, match=refused):
            client.reset()  # the answer is as large
    with serving(env, max_message_bytes=1 << 20) as server:
        with RemoteEnv(server.address) as client, pytest.raises(EnvironmentException, match=words):
            client.reset()
        with RemoteEnv(server.address) as client, pytest.raises(ConnectionError, match=refused):
            client.step(action)
    assert "step" not in [name for name, _ in env.calls]


@pytest.mark.parametrize("method", ["Handshake", "Shutdown"])
def test_bytes_that_are_no_message_are_refused(method: str) -> None:
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        call = client.channel.unary_unary(ENV + method)
        with status_error(grpc.StatusCode.INVALID_ARGUMENT, f"{method}Request"):
            call(b"\xff\xff\xff", timeout=20.0)
        stream = client.join()
        stream._requests.put(b"\xff\xff\xff")
        error = messages.env.JoinResponse.FromString(next(stream.call)).error
        assert "JoinRequest" in error.message
        assert list(stream.call) == []
        assert client.join().ask(configure=None).HasField("configure")


def test_an_unknown_service_or_method_is_unimplemented() -> None:
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        for method in ("/rlmesh.model.v1.ModelService/Handshake", ENV + "Explode"):
            with status_error(grpc.StatusCode.UNIMPLEMENTED, ""):
                client.unary(method, messages.env.ShutdownRequest())


def test_a_preface_and_then_silence_is_dropped() -> None:
    with serving(FunctionEnv(), greeting_seconds=0.3) as server, RawPeer(server.address) as peer:
        peer.send(PREFACE)
        peer.rest(seconds=10.0)


@pytest.mark.parametrize("garbage", [b"\xff" * 200, os.urandom(500), PREFACE])
def test_a_preface_and_then_garbage_is_dropped(garbage: bytes) -> None:
    with serving(FunctionEnv(), greeting_seconds=0.3) as server:
        with RawPeer(server.address) as peer:
            peer.send(PREFACE, garbage)
            peer.rest(seconds=10.0)
        with Grpc(server.address) as client:
            assert client.health() == 1


def test_nothing_is_left_after_shutdown() -> None:
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        client.health()  # whatever grpc keeps for good, it has now
    before = Resources.now()
    for _ in range(3):
        with serving(FunctionEnv()) as server:
            with Grpc(server.address) as client:
                client.health()
                client.join().ask(reset=None)
            # A client that is still there, and one that never says anything.
            late = Grpc(server.address)
            late.join().ask(configure=None)
            silent = RawPeer(server.address)
            silent.send(PREFACE)
            eventually(lambda: _relays() > 0, "the connection is at the gRPC door")
        silent.rest()
        silent.sock.close()
        late.close()
    before.assert_back()


def _relays() -> int:
    return sum(t.name == "rlmesh-grpc-relay" for t in threading.enumerate())


def test_connections_that_come_and_go_leave_nothing_in_a_running_server() -> None:
    with serving(FunctionEnv()) as server:

        def come_and_go() -> None:
            with Grpc(server.address) as client:
                client.health()
                stream = client.join()
                stream.ask(reset=None)
                stream.ask(close=None)

        for _ in range(3):  # whatever grpc keeps for good, it has now
            come_and_go()
        eventually(lambda: _relays() == 0, "the relays have ended")
        before = Resources.now()
        for _ in range(10):
            come_and_go()
        before.assert_back()


def test_shutdown_does_not_wait_for_a_stream_that_stays_open() -> None:
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        stream = client.join()
        stream.ask(reset=None)
        with within(30.0):
            server.shutdown()
        with pytest.raises(grpc.RpcError) as caught:
            stream.ask(step=step())
        error: Any = caught.value
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_an_interpreter_exits_although_a_grpc_client_is_connected() -> None:
    """Its calls wait in threads, which must not be joined first."""
    code = """
from support import FunctionEnv
from rlmesh import EnvServer
env = FunctionEnv(close=lambda: print("closed", flush=True))
server = EnvServer(env)
server.start()
print(server.address, flush=True)
import time
while not env.calls:
    time.sleep(0.005)
"""
    with python_child(code) as child, Grpc(child.line()) as client:
        stream = client.join()
        stream.ask(reset=None)
        assert child.line() == "closed"
        assert child.wait(seconds=10.0) == 0, child.errors()


def test_a_temporary_folder_with_a_long_name_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with serving(FunctionEnv()) as server, Grpc(server.address) as client:
        assert client.health() == 1
    assert list(deep.iterdir()) == []


def test_the_private_folder_of_a_killed_server_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(name: str, *, old: bool, bound: bool = True) -> Path:
        folder = parent / name
        folder.mkdir()
        if bound:
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(folder / "grpc.sock"))
        if old:
            os.utime(folder, (0, 0))
        return folder

    with tempfile.TemporaryDirectory(prefix="rlt-", dir="/tmp") as name:
        parent = Path(name)
        monkeypatch.setattr(tempfile, "tempdir", name)
        with serving(FunctionEnv()) as server, Grpc(server.address) as client:
            assert client.health() == 1
            (live,) = parent.iterdir()
            os.utime(live, (0, 0))
            killed = [
                leave("rlmesh-grpc-killed", old=True),
                leave("rlmesh-grpc-killed-earlier", old=True, bound=False),
            ]
            kept = [
                leave("rlmesh-grpc-young", old=False),  # its server may be about to listen
                leave("another-program", old=True),
            ]
            with serving(FunctionEnv()) as other, Grpc(other.address) as second:
                assert second.health() == 1
            assert not any(folder.exists() for folder in killed)
            assert all(folder.exists() for folder in kept)
            with Grpc(server.address) as again:
                assert again.health() == 1
        assert sorted(parent.iterdir()) == sorted(kept)


def test_one_port_serves_both_doors_side_by_side(tmp_path: Path) -> None:
    env = BlockingEnv(str(tmp_path))
    with serving(env) as server, Grpc(server.address) as client:
        for _ in range(3):
            with RemoteEnv(server.address) as native:
                assert native.reset()[0].tolist() == [0, 0, 0, 0]
            stream = client.join()
            stream.ask(reset=None)
            leaf = np.zeros(1, np.int64)
            assert list(stream.ask(step=[leaf]).step.rewards) == [1.0]
            stream.ask(close=None)


def test_a_peer_that_resets_the_connection_is_forgotten() -> None:
    import struct

    with serving(FunctionEnv()) as server:
        for opening in (b"", PREFACE, RawPeer.hello()):
            with RawPeer(server.address) as peer:
                peer.send(opening)
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with Grpc(server.address) as client:
            assert client.health() == 1
