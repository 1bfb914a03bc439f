"""Two hundred sessions, ended in every way there is, leave nothing behind at either end."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import FunctionEnv, Resources, eventually, python_child, serving

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv
from rlmesh.transport.native import NativeChannel, NotNative

ACTION = np.zeros(2, np.float32)
SESSIONS = 200

COUNTING_SERVER = """
import sys, threading, time
from rlmesh import EnvServer
from support import FunctionEnv, Resources, eventually


def step(action):
    if action[0] > 0.5:
        raise KeyError("boom")
    return env.observation(), 1.0, False, False, {}


env = FunctionEnv(step=step)
server = EnvServer(env, sys.argv[1])
server.start()
print(server.address, flush=True)
while not env.calls:  # the first session, after which it has all it keeps
    time.sleep(0.002)
while server._core._driving:
    time.sleep(0.002)
before = Resources.now()
print("counted", flush=True)
server_calls = len(env.calls)
while len(env.calls) == server_calls or not server.wait(0.0):
    if env.actions and env.actions[-1][1] > 0.5 and not server._core._driving:
        break
    time.sleep(0.002)
before.assert_back()
print("nothing leaked", flush=True)
server.shutdown()
eventually(lambda: len(threading.enumerate()) == 1, "the main thread is alone")
print("alone", flush=True)
"""

KILLED_CLIENTS = """
import os, signal, sys
from rlmesh.numpy import RemoteEnv
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        env = RemoteEnv(sys.argv[1])
        env.reset()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def one_session(address: str, ending: int) -> None:
    """Open a session, do something in it, and end it in one of the ways there are."""
    env = RemoteEnv(address)
    if ending == 0:
        env.close()
        return
    env.reset()
    if ending == 1:
        env.step(ACTION)
        env.close()
    elif ending == 2:
        env.step(ACTION)
        del env
    elif ending == 3:
        with pytest.raises(EnvironmentException):
            env.step(np.ones(2, np.float32) * [0.9, 0.0])
        env.close()
    elif ending == 4:
        other = RemoteEnv(address)
        with pytest.raises(ConnectionError):
            other.reset()
        env.close()
        other.reset()
        other.close()
    elif ending == 5:
        env._link.send_step(ACTION)  # and never asks for the answer
        env.close()


def drive(address: str, sessions: int) -> None:
    for i in range(sessions):

        def opened(ending: int = i % 6) -> bool:
            try:
                one_session(address, ending)
            except ConnectionError as exc:
                # Over gRPC the server needs a moment to see that the last client has gone.
                assert "only one client" in str(exc)
                return False
            return True

        eventually(opened, "the env is free")


@pytest.mark.parametrize("way", ["native-tcp", "native-unix", "grpc-tcp"])
def test_two_hundred_sessions_leave_nothing_behind(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, _, socket_kind = way.partition("-")
    if door == "grpc":

        def hidden(*args: Any, **kwargs: Any) -> Any:
            raise NotNative("hidden")

        monkeypatch.setattr(NativeChannel, "open", hidden)
    address = f"unix://{tmp_path / 'env.sock'}" if socket_kind == "unix" else "127.0.0.1:0"
    with python_child(COUNTING_SERVER, address) as server:
        address = server.line()
        drive(address, 1)
        one_session(address, 1)
        assert server.line() == "counted"
        gc.collect()
        before = Resources.now()
        drive(address, SESSIONS - 20)
        if door == "native":
            with python_child(KILLED_CLIENTS, address, "20") as killed:
                assert killed.wait() == 0, killed.errors()

        def last_words() -> bool:
            with RemoteEnv(address) as env:
                try:
                    env.reset()
                    env.step(np.array([0.0, 0.9], np.float32))
                except ConnectionError:
                    return False
                return True

        eventually(last_words, "the env is free")
        gc.collect()
        before.assert_back()
        assert server.line(seconds=60.0) == "nothing leaked", server.errors()
        assert server.line() == "alone", server.errors()
        assert server.wait(seconds=10.0) == 0, server.errors()
    assert list(tmp_path.iterdir()) == []


def test_servers_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    with serving(FunctionEnv()) as server, RemoteEnv(server.address) as env:
        env.reset()
    before = Resources.now()
    for i in range(30):
        address = f"unix://{tmp_path / 'env.sock'}" if i % 2 else None
        with serving(FunctionEnv(), address) as server, RemoteEnv(server.address) as env:
            env.reset()
            env.step(ACTION)
    gc.collect()
    before.assert_back()
    assert list(tmp_path.iterdir()) == []
