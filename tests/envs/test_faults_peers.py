"""One end is killed, stopped or interrupted: the other end learns it in time, and goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import (
    BlockingEnv,
    Child,
    FunctionEnv,
    Gate,
    ServerProcess,
    eventually,
    python_child,
    server_process,
    serving,
    within,
)

from rlmesh.numpy import RemoteEnv
from rlmesh.transport.native import NativeChannel, NotNative

PLAIN, WAIT = 0, 1

GRPC_ONLY = """
import rlmesh.transport.dial
from rlmesh.transport.native import NotNative


def no_native_door(*args, **kwargs):
    raise NotNative("hidden, as if the server were rlmesh 0.1.0")


rlmesh.transport.dial.NativeChannel.open = no_native_door
"""

DRIVE = """
import sys
from rlmesh.numpy import RemoteEnv
env = RemoteEnv(sys.argv[1])
env.reset()
print("driving", flush=True)
for action in sys.argv[2:]:
    print(env.step(int(action))[0].flat[0], flush=True)
"""


@pytest.fixture(params=["native-tcp", "native-unix", "grpc-tcp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Through which door the clients of a test come, over which kind of socket."""
    if request.param.startswith("grpc"):

        def hidden(*args: Any, **kwargs: Any) -> Any:
            raise NotNative("hidden, as if the server were rlmesh 0.1.0")

        monkeypatch.setattr(NativeChannel, "open", hidden)
    return request.param


@pytest.fixture
def door(way: str) -> str:
    """Just the door: ``native`` or ``grpc``."""
    return way.partition("-")[0]


def driver(door: str, address: str, *actions: int) -> Child:
    """A client in a process of its own that resets, says so, and takes these steps."""
    prelude = GRPC_ONLY if door == "grpc" else ""
    return python_child(prelude + DRIVE, address, *map(str, actions))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def server(way: str, gate: Gate) -> Iterator[ServerProcess]:
    """A process with a :class:`BlockingEnv`."""
    address = f"unix://{gate.folder / 'env.sock'}" if way.endswith("unix") else None
    with server_process("support:BlockingEnv", address, gate=str(gate.folder)) as process:
        yield process


# The server


def test_a_server_killed_in_a_step_is_a_connection_error_at_once(
    server: ServerProcess, gate: Gate, door: str
) -> None:
    with RemoteEnv(server.address) as env, ThreadPoolExecutor() as pool:
        assert env.transport == door
        env.reset()
        step = pool.submit(env.step, WAIT)
        eventually(lambda: gate.entered, "the env is in its step")
        server.kill()
        with within(12.0), pytest.raises(ConnectionError, match=f"env server at {server.address}"):
            step.result(20.0)
        for call in (lambda: env.step(PLAIN), env.reset, env.render):
            with within(4.0), pytest.raises(ConnectionError, match="construct a new client"):
                call()


def test_a_server_killed_between_two_steps_is_a_connection_error(
    server: ServerProcess, door: str
) -> None:
    with RemoteEnv(server.address) as env:
        env.reset()
        server.kill()
        with within(12.0), pytest.raises(ConnectionError, match=server.address):
            env.step(PLAIN)
    with within(12.0), pytest.raises(ConnectionError, match="is the EnvServer running"):
        RemoteEnv(server.address)


def test_a_killed_server_can_be_started_again_at_its_address(
    server: ServerProcess, gate: Gate
) -> None:
    with RemoteEnv(server.address) as env:
        env.reset()
        server.kill()
        with server_process("support:BlockingEnv", server.address, gate=str(gate.folder)) as again:
            assert again.address == server.address
            with pytest.raises(ConnectionError):
                env.step(PLAIN)
            with RemoteEnv(server.address) as fresh:
                fresh.reset()


def test_a_stopped_server_is_a_timeout_error_within_the_request_timeout(
    server: ServerProcess, door: str
) -> None:
    env = RemoteEnv(server.address, request_timeout_seconds=0.3)
    env.reset()
    server.pause()
    with within(12.0), pytest.raises(TimeoutError) as caught:
        env.step(PLAIN)
    assert f"env server at {server.address} did not answer" in str(caught.value)
    assert "took more than 0.3 s" in str(caught.value)
    assert "request_timeout_seconds" in str(caught.value)
    # Its answer may still come, and must not be taken for the next one.
    server.resume()
    with pytest.raises(ConnectionError, match="construct a new client"):
        env.step(PLAIN)
    with within(12.0):
        env.close()

    def free() -> bool:
        with RemoteEnv(server.address) as fresh:
            try:
                return fresh.reset()[0].tolist() == [0, 0, 0, 0]
            except ConnectionError as exc:
                assert "only one client" in str(exc)
                return False

    eventually(free, "the env is free for another client")


def test_a_stopped_server_does_not_take_a_large_action_for_ever() -> None:
    from rlmesh.spaces import Box

    code = """
import numpy as np
from rlmesh import EnvServer
from rlmesh.spaces import Box
from support import FunctionEnv
server = EnvServer(FunctionEnv(action_space=Box(-1.0, 1.0, (8_000_000,), "float32")))
print(server.address, flush=True)
server.serve()
"""
    with python_child(code) as server:
        env = RemoteEnv(server.line(), request_timeout_seconds=0.3)
        assert env.action_space_spec == Box(-1.0, 1.0, (8_000_000,), "float32")
        env.reset()
        server.pause()
        with within(12.0), pytest.raises(TimeoutError, match=r"send took more than 0\.3 s"):
            env.step(np.zeros(8_000_000, np.float32))
        env.close()


def test_a_stopped_server_is_a_timeout_for_whoever_connects(server: ServerProcess) -> None:
    server.pause()
    with within(12.0), pytest.raises(TimeoutError, match=f"'{server.address}' within 0.3 s"):
        RemoteEnv(server.address, connect_timeout_seconds=0.3)


@pytest.mark.parametrize("leave", ["close", "drop"])
def test_leaving_a_stopped_server_takes_a_moment(
    server: ServerProcess, door: str, leave: str
) -> None:
    """close() says goodbye and waits for an answer, in bounds; a dropped client just hangs up."""
    bound = 0.3 if leave == "close" else 60.0
    env = RemoteEnv(server.address, request_timeout_seconds=bound)
    env.reset()
    server.pause()
    with within(4.0):
        if leave == "close":
            env.close()
        else:
            del env


# The client


def test_a_client_killed_in_a_step_leaves_the_env_to_the_next_one_at_once(
    server: ServerProcess, gate: Gate, door: str
) -> None:
    with driver(door, server.address, WAIT) as first:
        assert first.line() == "driving"
        eventually(lambda: gate.entered, "the env is in its step")
        first.kill()
    with RemoteEnv(server.address) as second, ThreadPoolExecutor() as pool:
        # It is not refused, not even while the env is still in the step of the dead client.
        answer = pool.submit(second.reset if door == "native" else lambda: _retry(second.reset))
        if door == "native":
            with RemoteEnv(server.address) as third:
                eventually(lambda: answer.done() or _is_refused(third), "the second has the env")
        assert not answer.done(), answer.result()
        gate.open()
        assert answer.result(20.0)[0].tolist() == [0, 0, 0, 0]
        assert second.step(PLAIN)[0].tolist() == [1, 1, 1, 1]


def _retry(call: Any) -> Any:
    """For gRPC, whose own threads need a moment to notice that a peer is gone."""

    def accepted() -> Any:
        try:
            return call()
        except ConnectionError as exc:
            assert "only one client" in str(exc)
            return None

    return eventually(accepted, "the client is accepted")


def _is_refused(env: RemoteEnv) -> bool:
    try:
        env._link.join()
    except ConnectionError as exc:
        return "only one client may be connected at a time" in str(exc)
    return False


def test_a_client_killed_between_steps_leaves_the_env(server: ServerProcess, door: str) -> None:
    with driver(door, server.address) as first:
        assert first.line() == "driving"
        first.kill()

    def taken_over() -> bool:
        with RemoteEnv(server.address) as second:
            try:
                second.reset()
            except ConnectionError as exc:
                assert door == "grpc", exc
                return False
            return True

    eventually(taken_over, "the env is free")


def test_a_stopped_client_blocks_nobody_but_itself(
    server: ServerProcess, gate: Gate, door: str
) -> None:
    with driver(door, server.address, WAIT, PLAIN) as first:
        assert first.line() == "driving"
        eventually(lambda: gate.entered, "the env is in its step")
        first.pause()
        gate.open()
        with within(12.0), RemoteEnv(server.address) as second:
            with within(12.0), pytest.raises(ConnectionError, match="only one client"):
                second.reset()
            first.resume()
            assert [first.line(), first.line()] == ["1.0", "2.0"]


@pytest.mark.parametrize("stop", ["shutdown", "SIGINT"])
def test_a_client_that_does_not_read_its_answer_cannot_hold_up_the_end(
    stop: str, tmp_path: Path
) -> None:
    """The observation is larger than the socket's buffers, so the server waits in its send."""
    shape = (5_000_000,)
    code = """
import sys, threading
from rlmesh import EnvServer
from support import BlockingEnv
server = EnvServer(BlockingEnv(sys.argv[1], (5_000_000,)))
print(server.address, flush=True)
if sys.argv[2] == "shutdown":
    server.start()
    import time
    from support import eventually
    from rlmesh.envs.core import _SENDING
    eventually(lambda: server._core._phase == _SENDING, "the server sends")
    print("sending", flush=True)
    server.shutdown()
    print("down", flush=True)
else:
    def watch():
        from support import eventually
        from rlmesh.envs.core import _SENDING
        eventually(lambda: server._core._phase == _SENDING, "the server sends")
        print("sending", flush=True)
    threading.Thread(target=watch, daemon=True).start()
    try:
        server.serve()
    except KeyboardInterrupt:
        print("down", flush=True)
"""
    from support import RawPeer

    with python_child(code, str(tmp_path), stop) as server, RawPeer(server.line()) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.join(reset={}))
        assert server.line() == "sending"
        if stop == "SIGINT":
            server.signal(signal.SIGINT)
        with within(30.0):
            assert server.line() == "down"
        assert server.wait(seconds=10.0) == 0
        assert (tmp_path / "closed").exists()
    assert np.prod(shape) * 4 > 16 << 20


def test_a_second_client_is_refused_and_may_ask_again_on_the_same_object(
    server: ServerProcess, gate: Gate, door: str
) -> None:
    with RemoteEnv(server.address) as first, RemoteEnv(server.address) as second:
        first.reset()
        for _ in range(3):
            with within(12.0), pytest.raises(ConnectionError) as caught:
                second.reset()
            assert server.address in str(caught.value)
            assert "only one client may be connected at a time" in str(caught.value)
            assert "Close the other client first, or serve another env" in str(caught.value)
        assert first.step(PLAIN)[0].tolist() == [1, 1, 1, 1]
        with ThreadPoolExecutor() as pool:  # nor does it have to wait for a step to be refused
            step = pool.submit(first.step, WAIT)
            eventually(lambda: gate.entered, "the env is in its step")
            with within(12.0), pytest.raises(ConnectionError, match="only one client"):
                second.step(PLAIN)
            gate.open()
            assert step.result(20.0)[0].tolist() == [2, 2, 2, 2]
        first.close()
        assert second.reset()[0].tolist() == [0, 0, 0, 0]
        assert second.step(PLAIN)[0].tolist() == [1, 1, 1, 1]


def test_the_env_is_free_the_moment_close_returns(door: str, tmp_path: Path) -> None:
    with serving(BlockingEnv(str(tmp_path))) as server:
        for _ in range(20):
            with RemoteEnv(server.address) as env:
                env.reset()
                assert env.step(PLAIN)[0].tolist() == [1, 1, 1, 1]


def test_a_dropped_client_frees_the_env_too(door: str, tmp_path: Path) -> None:
    with serving(BlockingEnv(str(tmp_path))) as server:
        env = RemoteEnv(server.address)
        env.reset()
        del env

        def free() -> bool:
            with RemoteEnv(server.address) as fresh:
                try:
                    return fresh.reset()[0].tolist() == [0, 0, 0, 0]
                except ConnectionError as exc:
                    assert door == "grpc", exc
                    return False

        eventually(free, "the env is free")


# Interrupts


def test_an_interrupted_client_is_closed_and_says_so(
    server: ServerProcess, gate: Gate, door: str
) -> None:
    code = """
try:
    env.step(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
for call in (lambda: env.step(0), env.reset):
    try:
        call()
    except ConnectionError as exc:
        print(exc, flush=True)
env.close()
print("closed", flush=True)
"""
    prelude = GRPC_ONLY if door == "grpc" else ""
    with python_child(prelude + DRIVE + code, server.address) as client:
        assert client.line() == "driving"
        eventually(lambda: gate.entered, "the env is in its step")
        client.signal(signal.SIGINT)
        assert client.line() == "interrupted"
        for _ in range(2):
            said = client.line()
            assert f"lost the env server at {server.address} (KeyboardInterrupt)" in said
            assert "construct a new client" in said
        assert client.line() == "closed"
        assert client.wait(seconds=10.0) == 0
        gate.open()
    with RemoteEnv(server.address) as env:
        assert eventually(lambda: _try_reset(env), "the env is free")


def _try_reset(env: RemoteEnv) -> Any:
    try:
        return env.reset()[0] is not None
    except ConnectionError:
        return None


def test_an_interrupt_between_request_and_answer_cannot_shift_the_answers(door: str) -> None:
    """The answer to step 1 must never be handed out as that of step 2."""
    with serving(FunctionEnv()) as server, RemoteEnv(server.address) as env:
        env.reset()
        env._link.send_step([0.0, 0.0])  # and here Ctrl-C, caught by a notebook
        with pytest.raises(ConnectionError, match="the answer to the last request was never read"):
            env.step([0.0, 0.0])
        with within(4.0):
            env.close()
        assert threading.active_count() > 0


def test_a_signal_handler_of_the_users_does_not_end_a_request(door: str) -> None:
    """A timer that ticks all the time, as a profiler has one."""
    code = """
import signal
ticks = 0


def tick(number, frame):
    global ticks
    ticks += 1


signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while ticks < 300:
    observation = env.step([0.0, 0.0])[0]
signal.setitimer(signal.ITIMER_REAL, 0.0)
print(observation.shape, flush=True)
env.close()
"""
    prelude = GRPC_ONLY if door == "grpc" else ""
    with (
        serving(FunctionEnv()) as server,
        python_child(prelude + DRIVE + code, server.address) as client,
    ):
        assert client.line() == "driving"
        assert client.line() == "(4,)"
        assert client.wait() == 0
