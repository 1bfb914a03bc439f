"""The life of a server: start, serve, wait, shutdown, timeouts, signals, and what ends it."""

from __future__ import annotations

import gc
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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

from rlmesh import EnvServer, ServeOptions
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv

ACTION = np.zeros(2, np.float32)
WAIT = 1


def names(env: FunctionEnv) -> list[str]:
    return [name for name, _ in env.calls]


# In order, and out of order


def test_a_server_starts_serves_and_stops() -> None:
    env = FunctionEnv()
    server = EnvServer(env)
    server.start()
    assert server.wait(0.01) is False
    with RemoteEnv(server.address) as client:
        client.reset()
    server.shutdown()
    assert server.wait() is True
    assert names(env) == ["reset", "close"]
    for _ in range(3):
        server.shutdown()
    assert names(env) == ["reset", "close"]


def test_a_server_that_never_started_shuts_down_too() -> None:
    env = FunctionEnv()
    server = EnvServer(env)
    server.shutdown()
    server.shutdown()
    assert names(env) == ["close"]
    assert server.wait(0.0) is True
    with serving(FunctionEnv(), server.address):
        pass


def test_a_block_shuts_down_at_its_end_and_does_not_start() -> None:
    env = FunctionEnv()
    with EnvServer(env) as server, pytest.raises(RuntimeError, match=r"wait\(\) before start\(\)"):
        server.wait(0.0)
    assert names(env) == ["close"]
    with pytest.raises(ZeroDivisionError), EnvServer(FunctionEnv()) as server:
        server.start()
        raise ZeroDivisionError
    assert server.wait(0.0) is True


@pytest.mark.parametrize("first", ["start", "shutdown"])
@pytest.mark.parametrize("then", ["start", "serve"])
def test_a_server_has_one_life(first: str, then: str) -> None:
    with EnvServer(FunctionEnv()) as server:
        getattr(server, first)()
        with pytest.raises(RuntimeError, match=rf"{then}\(\) on a server that was already started"):
            getattr(server, then)()


def test_an_env_may_outlive_its_server() -> None:
    env = FunctionEnv()
    for start in (True, False):
        with EnvServer(env, close_env_on_shutdown=False) as server:
            if start:
                server.start()
                with RemoteEnv(server.address) as client:
                    client.reset()
    assert names(env) == ["reset"]


def test_shutdown_lets_the_running_request_finish_and_answers_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    server = EnvServer(BlockingEnv(str(tmp_path)))
    server.start()
    with RemoteEnv(server.address) as client, ThreadPoolExecutor() as pool:
        client.reset()
        step = pool.submit(client.step, WAIT)
        eventually(lambda: gate.entered, "the env is in its step")
        down = pool.submit(server.shutdown)
        with RemoteEnv(server.address) as late, pytest.raises(ConnectionError) as caught:
            eventually(lambda: server._core._stopping, "shutdown has begun")
            late.reset()
        assert "shutting down" in str(caught.value)
        assert not down.done()
        gate.open()
        assert step.result(20.0)[0].tolist() == [1, 1, 1, 1]
        down.result(20.0)
        with pytest.raises(ConnectionError, match=server.address):
            client.step(0)
    assert (tmp_path / "closed").exists()


def test_shutdown_from_within_the_env_ends_the_server_after_the_request() -> None:
    env = FunctionEnv(step=lambda action: (server.shutdown(), env.observation())[1:] + REST)
    server = EnvServer(env)
    server.start()
    with RemoteEnv(server.address) as client:
        client.reset()
        assert client.step(ACTION)[1] == 1.0
        assert server.wait(20.0)
    assert names(env) == ["reset", "step", "close"]


REST = (1.0, False, False, {})


def test_shutdown_from_two_threads_at_once(tmp_path: Path) -> None:
    with serving(BlockingEnv(str(tmp_path))) as server, ThreadPoolExecutor(8) as pool:
        for down in [pool.submit(server.shutdown) for _ in range(8)]:
            down.result(20.0)
        assert server.wait(0.0) is True


# Timeouts


def test_an_idle_server_stops_by_itself() -> None:
    env = FunctionEnv()
    server = EnvServer(env, options=ServeOptions(idle_timeout_seconds=0.3))
    server.start()
    with within(30.0):
        assert server.wait(20.0)
    assert names(env) == ["close"]
    with serving(FunctionEnv(), server.address):
        pass


@pytest.mark.parametrize("kind", ["steps", "handshakes", "probes"])
def test_every_request_puts_the_idle_timeout_off(kind: str) -> None:
    server = EnvServer(FunctionEnv(), options=ServeOptions(idle_timeout_seconds=0.5))
    server.start()
    deadline = time.monotonic() + 1.2
    if kind == "probes":
        import grpc

        with grpc.insecure_channel(server.address.removeprefix("tcp://")) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            while time.monotonic() < deadline:
                check(b"", timeout=10.0)
                assert not server.wait(0.05)
    else:
        with RemoteEnv(server.address) as client:
            while time.monotonic() < deadline:
                if kind == "steps":
                    client.step(ACTION)
                else:
                    with RemoteEnv(server.address):
                        pass
                assert not server.wait(0.05)
    assert server.wait(20.0)
    server.shutdown()


def test_a_running_request_holds_the_idle_timeout(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    server = EnvServer(BlockingEnv(str(tmp_path)), options=ServeOptions(idle_timeout_seconds=0.2))
    server.start()
    with RemoteEnv(server.address) as client, ThreadPoolExecutor() as pool:
        client.reset()
        step = pool.submit(client.step, WAIT)
        eventually(lambda: gate.entered, "the env is in its step")
        assert not server.wait(0.8)
        assert not server._core._stopping
        gate.open()
        assert step.result(20.0)[1] == 1.0
        assert server.wait(20.0)
        with pytest.raises(ConnectionError, match=server.address):
            client.step(0)


def test_silent_and_strange_peers_do_not_keep_an_idle_server_up() -> None:
    server = EnvServer(FunctionEnv(), options=ServeOptions(idle_timeout_seconds=0.4))
    server.start()
    with RawPeer(server.address), within(30.0):
        while not server.wait(0.02):
            try:
                with RawPeer(server.address) as stranger:
                    stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            except OSError:
                break
        assert server.wait(20.0)


def test_a_request_that_outlives_the_drain_timeout_is_left_to_itself(
    door: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    server = EnvServer(BlockingEnv(str(tmp_path)), options=ServeOptions(drain_timeout_seconds=0.3))
    server.start()
    with RemoteEnv(server.address) as client, ThreadPoolExecutor() as pool:
        client.reset()
        step = pool.submit(client.step, WAIT)
        eventually(lambda: gate.entered, "the env is in its step")
        with within(30.0), pytest.raises(TimeoutError) as caught:
            server.shutdown()
        assert server.address in str(caught.value)
        assert "0.3 s" in str(caught.value)
        with within(12.0), pytest.raises(ConnectionError, match=server.address):
            step.result(20.0)
        with serving(FunctionEnv(), server.address), RemoteEnv(server.address) as other:
            other.reset()
        with pytest.raises(TimeoutError):
            server.shutdown()
        assert not (tmp_path / "closed").exists()
        gate.open()
        assert server.wait(20.0)
        assert (tmp_path / "closed").exists()
        server.shutdown()


def test_a_close_that_outlives_its_timeout_is_left_to_itself() -> None:
    release = threading.Event()
    env = FunctionEnv(close=lambda: release.wait(60.0))
    server = EnvServer(env, options=ServeOptions(close_timeout_seconds=0.3))
    server.start()
    with within(30.0), pytest.raises(TimeoutError) as caught:
        server.shutdown()
    assert "env.close()" in str(caught.value)
    assert server.address in str(caught.value)
    with serving(FunctionEnv(), server.address):
        pass
    release.set()
    assert server.wait(20.0)
    server.shutdown()


# Remote shutdown


@pytest.mark.parametrize("allow", ["option", "environment variable"])
def test_a_client_may_stop_a_server_that_allows_it(
    allow: str, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if allow != "option":
        monkeypatch.setenv("RLMESH_ALLOW_REMOTE_SHUTDOWN", "1")
    env = FunctionEnv()
    server = EnvServer(env, options=ServeOptions(allow_remote_shutdown=allow == "option"))
    server.start()
    with RemoteEnv(server.address) as driving, RemoteEnv(server.address) as client:
        driving.reset()
        assert client.shutdown("enough") is True
        assert server.wait(20.0)
        with within(12.0), pytest.raises(ConnectionError, match=server.address):
            driving.step(ACTION)
    assert names(env) == ["reset", "close"]


@pytest.mark.parametrize("variable", [None, "0", "", "true"])
def test_a_client_may_not_stop_any_other_server(
    variable: str | None, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("RLMESH_ALLOW_REMOTE_SHUTDOWN", variable)
    with serving(FunctionEnv()) as server, RemoteEnv(server.address) as client:
        client.reset()
        assert client.shutdown() is False
        assert client.step(ACTION)[1] == 1.0
        assert server.wait(0.0) is False


# Signals


def test_the_first_interrupt_stops_serve_after_the_running_request(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with server_process("support:BlockingEnv", gate=str(tmp_path)) as server:
        with RemoteEnv(server.address) as client, ThreadPoolExecutor() as pool:
            client.reset()
            step = pool.submit(client.step, WAIT)
            eventually(lambda: gate.entered, "the env is in its step")
            server.signal(signal.SIGINT)
            with pytest.raises(AssertionError, match="no output"):
                server.line(seconds=0.3)
            assert not (tmp_path / "closed").exists()
            gate.open()
            assert step.result(20.0)[0].tolist() == [1, 1, 1, 1]
        assert server.line() == "stopped KeyboardInterrupt"
        assert (tmp_path / "closed").exists()
        assert server.wait(seconds=10.0) != 0
        assert "KeyboardInterrupt" in server.errors()


def test_the_second_interrupt_interrupts_the_env_itself(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with server_process("support:BlockingEnv", gate=str(tmp_path)) as server:
        with RemoteEnv(server.address) as client, ThreadPoolExecutor() as pool:
            client.reset()
            step = pool.submit(client.step, WAIT)
            eventually(lambda: gate.entered, "the env is in its step")
            server.signal(signal.SIGINT)
            with pytest.raises(AssertionError, match="no output"):
                server.line(seconds=0.2)
            server.signal(signal.SIGINT)
            assert server.line() == "stopped KeyboardInterrupt"
            with within(12.0), pytest.raises(ConnectionError, match=server.address):
                step.result(20.0)
        assert (tmp_path / "closed").exists()
        assert server.wait(seconds=10.0) != 0


@pytest.mark.parametrize("state", ["alone", "connected", "driven", "driven over grpc"])
def test_an_interrupt_ends_a_server_that_only_waits(state: str, tmp_path: Path) -> None:
    address = f"unix://{tmp_path / 'env.sock'}"
    with server_process("support:BlockingEnv", address, gate=str(tmp_path)) as server:
        import grpc

        from rlmesh.wire import messages

        with RemoteEnv(server.address):
            pass  # serve() has begun, and minds signals
        channel = grpc.insecure_channel(f"unix:{tmp_path / 'env.sock'}")
        client = None if state == "alone" else RemoteEnv(server.address)
        if client is not None and state == "driven":
            client.reset()
        if state == "driven over grpc":
            request = messages.env.JoinRequest()
            request.reset.SetInParent()
            hold = threading.Event()

            def requests() -> Any:
                yield request.SerializeToString()
                hold.wait(60.0)

            next(channel.stream_stream("/rlmesh.env.v1.EnvService/Join")(requests()))
        server.signal(signal.SIGINT)
        with within(30.0):
            assert server.line() == "stopped KeyboardInterrupt"
        assert server.wait(seconds=10.0) != 0
        if state == "driven over grpc":
            hold.set()
        channel.close()
        if client is not None:
            client.close()
    assert not (tmp_path / "env.sock").exists()
    assert (tmp_path / "closed").exists()


def test_serve_gives_the_callers_signal_handler_back() -> None:
    code = """
import signal, threading, time
from rlmesh import EnvServer
from support import FunctionEnv
mine = lambda number, frame: print("mine", flush=True)
signal.signal(signal.SIGINT, mine)
server = EnvServer(FunctionEnv())
threading.Thread(target=lambda: (time.sleep(0.1), server.shutdown())).start()
server.serve()
print(signal.getsignal(signal.SIGINT) is mine, flush=True)
"""
    with python_child(code) as child:
        assert child.line() == "True"
        assert child.wait(seconds=10.0) == 0


def test_serve_off_the_main_thread_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    server = EnvServer(FunctionEnv())
    thread = threading.Thread(target=server.serve)
    thread.start()
    with RemoteEnv(server.address) as client:
        client.reset()
        assert signal.getsignal(signal.SIGINT) is before
    server.shutdown()
    thread.join(20.0)
    assert not thread.is_alive()


def test_an_interrupt_of_the_thread_that_waits_shuts_the_block_down() -> None:
    code = """
from rlmesh import EnvServer
from support import FunctionEnv
env = FunctionEnv(close=lambda: print("closed", flush=True))
try:
    with EnvServer(env) as server:
        server.start()
        print("ready", flush=True)
        server.wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with python_child(code) as child:
        assert child.line() == "ready"
        child.signal(signal.SIGINT)
        assert child.line() == "closed"
        assert child.line() == "interrupted"
        assert child.wait(seconds=10.0) == 0


# Servers that nobody shuts down


@pytest.mark.parametrize("started", [True, False])
def test_a_dropped_server_stops(started: bool) -> None:
    with EnvServer(FunctionEnv()) as server:  # whatever is imported late, it is now
        server.start()
    before = Resources.now()
    env = FunctionEnv()
    server = EnvServer(env)
    address = server.address
    if started:
        server.start()
        with RemoteEnv(address) as client:
            client.reset()
    with within(30.0):
        del server
        gc.collect()
    assert names(env) == (["reset", "close"] if started else [])
    with serving(FunctionEnv(), address):
        pass
    before.assert_back()


def test_a_server_dropped_right_after_its_start_stops_too() -> None:
    envs = [FunctionEnv() for _ in range(20)]
    for env in envs:
        EnvServer(env).start()
    for env in envs:
        assert env.closed.wait(20.0)
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name == "rlmesh-env"],
        "the threads have ended",
    )


def test_a_server_collected_on_a_thread_of_its_own_stops_without_waiting_for_itself() -> None:
    """Reference cycles are collected on whichever thread allocates; here, the env's."""
    collected = threading.Event()

    def step(action: Any) -> Any:
        holder.clear()
        gc.collect()
        collected.set()
        return env.observation(), 1.0, False, False, {}

    env = FunctionEnv(step=step)
    server = EnvServer(env)
    holder: dict[str, Any] = {"server": server}
    holder["self"] = holder
    server.start()
    with RemoteEnv(server.address) as client:
        client.reset()
        del server
        with within(12.0):
            assert client.step(ACTION)[1] == 1.0
    assert collected.is_set()
    assert env.closed.wait(20.0)


@pytest.mark.parametrize("state", ["never started", "started", "driven"])
def test_an_interpreter_exits_promptly_with_a_running_server(state: str, tmp_path: Path) -> None:
    code = """
import sys, time
from rlmesh import EnvServer
from support import FunctionEnv
env = FunctionEnv(close=lambda: print("closed", flush=True))
server = EnvServer(env, sys.argv[1])
print("ready", flush=True)
if sys.argv[2] != "never started":
    server.start()
    while sys.argv[2] == "driven" and not env.calls:
        time.sleep(0.005)
"""
    address = f"unix://{tmp_path / 'env.sock'}"
    with python_child(code, address, state) as child:
        assert child.line() == "ready"
        if state == "driven":
            with RemoteEnv(address) as client:
                client.reset()
                assert child.line() == "closed"
                with within(12.0), pytest.raises(ConnectionError, match=address):
                    client.step(ACTION)
        elif state == "started":
            assert child.line() == "closed"
        assert child.wait(seconds=10.0) == 0, child.errors()
    assert not (tmp_path / "env.sock").exists()


# One thread


@pytest.mark.parametrize("way", ["serve", "start"])
def test_every_method_of_the_env_runs_on_one_thread(way: str, door: str) -> None:
    env = FunctionEnv()
    server = EnvServer(env)
    expected: list[int] = []

    def serve() -> None:
        expected.append(threading.get_ident())
        server.serve()

    if way == "serve":
        thread = threading.Thread(target=serve)
        thread.start()
    else:
        server.start()
        assert server._thread is not None
        expected.append(server._thread.ident or 0)
    for _ in range(3):
        with RemoteEnv(server.address) as client:
            assert client.transport == door
            client.reset(seed=1)
            client.step(ACTION)
            assert client.render().shape == (4, 6, 3)
    server.shutdown()
    if way == "serve":
        thread.join(20.0)
    assert names(env) == ["reset", "step", "render"] * 3 + ["close"]
    assert {ident for _, ident in env.calls} == set(expected)


def test_lanes_and_mixed_doors_run_on_that_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlmesh.transport.native import NativeChannel, NotNative

    def hidden(*args: Any, **kwargs: Any) -> Any:
        raise NotNative("hidden")

    lanes = [FunctionEnv() for _ in range(3)]
    with serving(lanes) as server:
        for door in ("native", "grpc", "native", "grpc"):
            with monkeypatch.context() as patch:
                if door == "grpc":
                    patch.setattr(NativeChannel, "open", hidden)
                with RemoteVectorEnv(server.address) as client:
                    assert client.transport == door
                    client.reset()
                    client.step(np.zeros((3, 2), np.float32))
                    client.render(env_index=2)
    threads = {ident for env in lanes for _, ident in env.calls}
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert [names(env)[-1] for env in lanes] == ["close"] * 3
