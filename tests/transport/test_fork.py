"""Processes that fork: what a child inherits is useless to it, and harmless to its parent."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from support import FunctionEnv, python_child, serving, within

from rlmesh.numpy import RemoteEnv
from rlmesh.transport.native import NativeChannel, NotNative

FORK = """
import os, sys
from rlmesh.numpy import RemoteEnv
sys.path.insert(0, sys.argv[0])


def in_child(work):
    # Run work in a forked child that then exits as any program does; fails if it hangs.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)  # atexit, finalisers and all
    import time
    deadline = time.monotonic() + 10.0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            print("the child hangs", flush=True)
            os.kill(pid, 9)
            return
        time.sleep(0.005)
    print("the child is done", flush=True)


def refused(call):
    try:
        call()
    except ConnectionError as exc:
        print(exc, flush=True)
    else:
        print("not refused", flush=True)
"""


def test_an_inherited_client_refuses_in_the_child_and_works_on_in_the_parent() -> None:
    code = (
        FORK
        + """
env = RemoteEnv(sys.argv[1])
env.reset()
env.step([0.0, 0.0])

def work():
    refused(lambda: env.step([0.0, 0.0]))
    refused(lambda: env.reset())
    refused(lambda: env.render())
    env.close()

in_child(work)
print(env.step([0.0, 0.0])[0].tolist(), flush=True)
in_child(lambda: None)
print(env.step([0.0, 0.0])[0].tolist(), flush=True)
env.close()
print("closed", flush=True)
"""
    )
    with serving(FunctionEnv()) as server, python_child(code, server.address) as child:
        for _ in range(3):
            said = child.line()
            assert server.address in said
            assert "inherited through fork" in said
            assert "construct the client in the child" in said
        assert child.line() == "the child is done"
        assert child.line() == "[2.0, 0.0, 0.0, 0.0]"
        assert child.line() == "the child is done"
        assert child.line() == "[3.0, 0.0, 0.0, 0.0]"
        assert child.line() == "closed"
        with RemoteEnv(server.address) as env:
            env.reset()


def test_an_inherited_grpc_client_refuses_too() -> None:
    """As a client of rlmesh 0.1.0 is one, whose server has no other door."""
    code = (
        FORK
        + """
import rlmesh.transport.dial as dial
from rlmesh.transport.native import NotNative


def no_native_door(*args, **kwargs):
    raise NotNative("hidden")


dial.NativeChannel.open = no_native_door
env = RemoteEnv(sys.argv[1])
print(env.transport, flush=True)
env.reset()

def work():
    refused(lambda: env.step([0.0, 0.0]))
    env.close()

in_child(work)
print(env.step([0.0, 0.0])[0].tolist(), flush=True)
env.close()
print("closed", flush=True)
"""
    )
    with serving(FunctionEnv()) as server, python_child(code, server.address) as child:
        assert child.line() == "grpc"
        assert "inherited through fork" in child.line()
        assert child.line() == "the child is done"
        assert child.line() == "[1.0, 0.0, 0.0, 0.0]"
        assert child.line() == "closed"


def test_a_child_of_a_server_process_ends_without_touching_the_server() -> None:
    """Its copy of the server is dropped, collected and finalised, while a client drives the env."""
    code = (
        FORK
        + """
from rlmesh import EnvServer
from support import FunctionEnv
server = EnvServer(FunctionEnv())
server.start()
print(server.address, flush=True)
import time
while not server._core._driving:
    time.sleep(0.005)

def work():
    global server
    server.shutdown()
    server = None

in_child(lambda: None)
in_child(work)
server.wait()
"""
    )
    with python_child(code) as child, RemoteEnv(child.line()) as env:
        env.reset()
        assert child.line() == "the child is done"
        assert child.line() == "the child is done"
        assert env.step([0.0, 0.0])[0].tolist() == [1, 0, 0, 0]
        with RemoteEnv(env.address) as other:  # the listener lives, too
            assert other.env_contract.num_envs == 1


SERVER_WITH_WORKER = """
import os, sys, time
from support import FunctionEnv
from rlmesh import EnvServer


def fork_worker():
    if os.fork() == 0:
        time.sleep(60.0)
        os._exit(0)


order = sys.argv[1]
if order == "worker first":
    fork_worker()
server = EnvServer(FunctionEnv(step=lambda action: time.sleep(60.0)))
server.start()
if order == "server first":
    fork_worker()
print(server.address, flush=True)
if order == "clients first":
    while not server._core._driving:
        time.sleep(0.005)
    fork_worker()
    print("forked", flush=True)
server.wait()
"""


@pytest.mark.parametrize("order", ["worker first", "server first", "clients first"])
@pytest.mark.parametrize("door", ["native", "grpc"])
def test_a_killed_server_is_gone_for_good_although_its_worker_lives(
    order: str, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As AsyncVectorEnv's workers, which are forked and hold what their parent held."""
    if door == "grpc":

        def hidden(*args: Any, **kwargs: Any) -> Any:
            raise NotNative("hidden, as if the server were rlmesh 0.1.0")

        monkeypatch.setattr(NativeChannel, "open", hidden)
    with python_child(SERVER_WITH_WORKER, order) as child:
        address = child.line()
        with RemoteEnv(address) as driving, RemoteEnv(address) as connected:
            driving.reset()
            if order == "clients first":
                assert child.line() == "forked"
            (worker,) = _children(child.pid)
            try:
                killer = threading.Timer(0.1, child.kill)
                killer.start()
                with within(30.0), pytest.raises(ConnectionError, match=address):
                    driving.step([0.0, 0.0])
                killer.join()
                with within(30.0), pytest.raises(ConnectionError, match=address):
                    connected.reset()
                os.kill(worker, 0)  # it lives
                with serving(FunctionEnv(), address), RemoteEnv(address) as again:
                    again.reset()
            finally:
                os.kill(worker, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_async_vector_env_may_be_made_before_and_after_the_server(when: str) -> None:
    code = """
import sys
import gymnasium as gym
from rlmesh import EnvServer
from support import FunctionEnv


def make():
    return gym.make("CartPole-v1")


if sys.argv[1] == "after":
    other = EnvServer(FunctionEnv())  # its port must not live on in the workers
    other.start()
    print(other.address, flush=True)
workers = gym.vector.AsyncVectorEnv([make, make])
server = EnvServer(workers)
if sys.argv[1] == "before":
    print(server.address, flush=True)
server.start()
print(server.address, flush=True)
server.wait()
"""
    from rlmesh.numpy import RemoteVectorEnv

    with python_child(code, when) as child:
        first, address = child.line(), child.line()
        with RemoteVectorEnv(address) as envs:
            envs.reset(seed=0)
            assert envs.step([0, 1])[1].tolist() == [1.0, 1.0]
            child.kill()
            with within(30.0), pytest.raises(ConnectionError, match=address):
                envs.step([0, 1])
        for freed in {first, address}:
            with serving(FunctionEnv(), freed):
                pass
