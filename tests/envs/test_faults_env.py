"""The env itself fails: its client hears what and where, and the next client finds it served."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from support import FunctionEnv, RawPeer, eventually, python_child, serving, within

from rlmesh import EnvironmentException, EnvServer
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.wire.status import EnvErrorCode

ACTION = np.zeros(2, np.float32)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this works")


def raise_boom(*args: Any, **kwargs: Any) -> Any:
    drawer: dict[str, int] = {}
    return drawer["boom"]


def raise_chained(*args: Any, **kwargs: Any) -> Any:
    try:
        raise_boom()
    except KeyError as exc:
        raise RuntimeError("the simulator diverged at ☃ \udc80") from exc


def raise_unprintable(*args: Any, **kwargs: Any) -> Any:
    raise Unprintable


def recurse(*args: Any, **kwargs: Any) -> Any:
    return deeper(0)


def deeper(depth: int) -> Any:
    return deeper(depth + 1)


FAILURES = [
    (raise_boom, "KeyError: 'boom'", ["in raise_boom", 'drawer["boom"]', "KeyError: 'boom'"]),
    (raise_chained, "RuntimeError: the simulator diverged", ["KeyError", "direct cause"]),
    (raise_unprintable, "Unprintable", ["in raise_unprintable"]),
    (recurse, "RecursionError", ["in deeper"]),
]


@pytest.mark.parametrize(("failure", "words", "traceback"), FAILURES)
@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_exception_of_the_env_reaches_its_client_with_the_remote_traceback(
    door: str, method: str, failure: Any, words: str, traceback: list[str]
) -> None:
    env = FunctionEnv(**{method: failure})
    with serving(env) as server:
        with RemoteEnv(server.address) as client:
            if method == "step":
                client.reset()
            with pytest.raises(EnvironmentException) as caught:
                client.reset() if method == "reset" else client.step(ACTION)
            assert str(caught.value).startswith(f"[INTERNAL] {method} failed: {words}")
            (note,) = caught.value.__notes__
            assert note.startswith(f"Remote traceback (env server at {server.address}):\nTraceback")
            for line in traceback:
                assert line in note
            # That session is over: the env is in no known state.
            with pytest.raises(ConnectionError) as ended:
                client.step(ACTION)
            assert server.address in str(ended.value)
            assert "construct a new client" in str(ended.value)
        with RemoteEnv(server.address) as client, within(30.0):
            if method == "step":
                client.reset()
            with pytest.raises(EnvironmentException):
                client.reset() if method == "reset" else client.step(ACTION)
    assert env.closed.is_set()


def test_the_next_client_finds_an_env_that_has_recovered(door: str) -> None:
    answers = iter([raise_boom, lambda seed: (np.zeros(4, np.float32), {})])
    env = FunctionEnv(reset=lambda seed: next(answers)(seed=seed))
    with serving(env) as server:
        with RemoteEnv(server.address) as client, pytest.raises(EnvironmentException, match="boom"):
            client.reset()
        with RemoteEnv(server.address) as client:
            client.reset(seed=3)
            assert client.step(ACTION)[1] == 1.0


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (None, "observation: expected float32"),
        (np.zeros(3, np.float32), "observation: expected float32"),
        (np.array([0, 0, np.nan, 0], np.float32), "observation"),
        ("text", "observation: expected float32"),
        ({"x": 1}, "observation: expected float32"),
    ],
)
def test_an_observation_that_is_none_ends_the_session_and_names_the_leaf(
    door: str, observation: Any, words: str
) -> None:
    env = FunctionEnv(step=lambda action: (observation, 0.0, False, False, {}))
    with serving(env) as server:
        for _ in range(2):
            with RemoteEnv(server.address) as client:
                client.reset()
                with pytest.raises(EnvironmentException) as caught:
                    client.step(ACTION)
                assert words in str(caught.value)
                assert "step failed" in str(caught.value)


@pytest.mark.parametrize(
    "result",
    [None, (), (1, 2, 3), [0, 0, 0, 0, 0], (np.zeros(4, np.float32), None, False, False, {})],
)
def test_a_step_that_returns_something_else_is_named(result: Any) -> None:
    with serving(FunctionEnv(step=lambda action: result)) as server:
        for _ in range(2):
            with RemoteEnv(server.address) as client:
                client.reset()
                with pytest.raises(EnvironmentException, match=r"reward|4- or 5-tuple"):
                    client.step(ACTION)


def test_a_lane_that_fails_is_the_lane_of_its_traceback() -> None:
    class SecondLane(FunctionEnv):
        def step(self, action: Any) -> Any:
            raise OSError("the second simulator crashed")

    with serving([FunctionEnv(), SecondLane()]) as server:
        with RemoteVectorEnv(server.address) as client:
            client.reset()
            with pytest.raises(
                EnvironmentException, match="the second simulator crashed"
            ) as caught:
                client.step(np.zeros((2, 2), np.float32))
            assert "in step" in caught.value.__notes__[0]
        with RemoteVectorEnv(server.address) as client:
            client.reset()


def test_a_failed_render_is_an_error_and_the_session_goes_on(door: str) -> None:
    with serving(FunctionEnv(render=raise_boom)) as server, RemoteEnv(server.address) as client:
        client.reset()
        for _ in range(2):
            with pytest.raises(EnvironmentException, match="render failed: KeyError: 'boom'"):
                client.render()
            client.step(ACTION)


@pytest.mark.parametrize("ended_by", ["shutdown", "serve"])
def test_an_exception_in_close_is_logged_and_the_address_is_free(
    caplog: pytest.LogCaptureFixture, ended_by: str
) -> None:
    env = FunctionEnv(close=raise_boom)
    server = EnvServer(env)
    with caplog.at_level(logging.ERROR, "rlmesh"):
        if ended_by == "shutdown":
            server.start()
            with RemoteEnv(server.address) as client:
                client.reset()
            server.shutdown()
        else:
            server._core.request_stop()
            server.serve()
    assert env.closed.is_set()
    (record,) = caplog.records
    assert server.address in record.getMessage()
    assert record.exc_info is not None
    assert "boom" in str(record.exc_info[1])
    with serving(FunctionEnv(), server.address):
        pass


def test_an_env_that_exits_the_process_is_a_connection_error_at_once(door: str) -> None:
    """As simulators do that call sys.exit() when their licence is missing."""
    code = """
import sys
from rlmesh import EnvServer
from support import FunctionEnv
server = EnvServer(FunctionEnv(step=lambda action: sys.exit(7), close=lambda: print("closed")))
print(server.address, flush=True)
server.serve()
"""
    with python_child(code) as child:
        with RemoteEnv(child.line()) as client:
            client.reset()
            with within(30.0), pytest.raises(ConnectionError, match=client.address):
                client.step(ACTION)
        assert child.line() == "closed"
        assert child.wait(seconds=10.0) == 7


def test_a_request_that_asks_for_nothing_is_refused_and_the_session_goes_on() -> None:
    from rlmesh.transport.framing import FrameKind

    with serving(FunctionEnv()) as server, RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.frame(FrameKind.JOIN, b""))
        peer.receive()
        error = peer.receive_response().error
        assert (error.code, error.is_recoverable) == (EnvErrorCode.UNSUPPORTED, True)
        peer.send(RawPeer.join(reset={}))
        assert peer.receive_response().HasField("reset")


def test_a_request_that_is_no_message_ends_the_session_and_says_so() -> None:
    from rlmesh.transport.framing import FrameKind

    with serving(FunctionEnv()) as server:
        with RawPeer(server.address) as peer:
            peer.send(RawPeer.hello(), RawPeer.handshake())
            peer.send(RawPeer.frame(FrameKind.JOIN, b"\xff\xff\xff"))
            peer.receive()
            error = peer.receive_response().error
            assert "JoinRequest" in error.message
            assert not error.is_recoverable
            assert peer.rest() == b""
        with RemoteEnv(server.address) as client:
            client.reset()


@pytest.mark.parametrize("count", [0, 2, 70])
def test_a_raw_peer_with_the_wrong_number_of_leaves_is_refused_and_goes_on(count: int) -> None:
    env = FunctionEnv()
    with serving(env) as server, RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.join(reset={}))
        peer.receive()
        peer.receive_response()
        peer.send(RawPeer.join([ACTION] * count, step={}))
        error = peer.receive_response().error
        assert (error.code, error.is_recoverable) == (EnvErrorCode.INVALID_ACTION, True)
        assert "action" in error.message
        assert env.actions == []
        peer.send(RawPeer.join([ACTION], step={}))
        assert list(peer.receive_response().step.rewards) == [1.0]


def test_a_raw_peer_with_a_nan_action_is_refused_and_the_env_never_sees_it() -> None:
    env = FunctionEnv()
    with serving(env) as server, RawPeer(server.address) as peer:
        peer.send(RawPeer.hello(), RawPeer.handshake(), RawPeer.join(reset={}))
        peer.receive()
        peer.receive_response()
        for bad in (np.nan, np.inf, -np.inf):
            peer.send(RawPeer.join([np.array([0.0, bad], np.float32)], step={}))
            error = peer.receive_response().error
            assert (error.code, error.is_recoverable) == (EnvErrorCode.INVALID_ACTION, True)
            assert "action[1]: expected finite float32" in error.message
        assert env.actions == []


def test_the_worker_of_an_async_vector_env_that_dies_is_an_error_of_the_env() -> None:
    code = """
import os
import gymnasium as gym
from rlmesh import EnvServer


class Dies(gym.Wrapper):
    def step(self, action):
        os._exit(3)


envs = gym.vector.AsyncVectorEnv([lambda: gym.make("CartPole-v1"),
                                  lambda: Dies(gym.make("CartPole-v1"))])
server = EnvServer(envs)
print(server.address, flush=True)
server.serve()
"""
    with python_child(code) as child, RemoteVectorEnv(child.line()) as client:
        client.reset()
        with within(30.0), pytest.raises((EnvironmentException, ConnectionError)) as caught:
            client.step([0, 1])
        assert client.address in str(caught.value) + str(getattr(caught.value, "__notes__", ""))
        eventually(lambda: _handshakes(client.address), "the server answers")


def _handshakes(address: str) -> bool:
    with RemoteVectorEnv(address) as client:
        return client.num_envs == 2
