"""`rlmesh.bridges.openpi` against a server on openpi-client's own codec, in its own process."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges.openpi_program import METADATA, chunk
from evals.eval_envs import Walk
from models_served.served_kinds import Studio
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from support.processes import Child

import rlmesh
from rlmesh import NO_ADAPTER, ModelException, ProtocolException
from rlmesh import adapters as adapt
from rlmesh.bridges import BridgedModel, openpi
from rlmesh.numpy import Model

PROGRAM = str(Path(__file__).with_name("openpi_program.py"))
SEEDS = range(6)


@contextmanager
def server(port: int = 0) -> Iterator[tuple[Child, str]]:
    with Child([sys.executable, "-W", "error", PROGRAM, str(port)]) as child:
        yield child, child.line(seconds=60)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as (_, address):
        yield address


@pytest.fixture
def bridge(address: str) -> Iterator[BridgedModel]:
    model = openpi(address, spec=NO_ADAPTER)
    yield model
    model.close()


def observation(prompt: str = "", seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-1, 1, 3).astype(np.float32),
        "image": rng.integers(0, 255, (224, 224, 3), np.uint8),
        "nested": {"flag": np.bool_(True), "half": np.zeros((2, 0), np.float16)},
        "prompt": prompt,
    }


class Here(Model):
    """The server's policy in this process."""

    spec = NO_ADAPTER

    def predict_chunk(self, observation: Any) -> Any:
        return chunk(observation)


class HereAdapted(Here):
    spec = adapt.ModelSpec(
        {
            "state": adapt.State(adapt.JOINT_POS, dim=2),
            "image": adapt.Image(adapt.IMAGE_WRIST),
            "task": adapt.Text(adapt.INSTRUCTION),
        },
        adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
    )


def numbers(result: rlmesh.RunResult) -> list[Any]:
    return [(e.seed, e.reward, e.steps, e.terminated, e.truncated) for e in result.episodes]


# websockets 17 wants a with statement around what openpi-client 0.1.2 connects.
@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")
def test_the_same_server_serves_its_own_client_and_the_bridge_alike(
    address: str, bridge: BridgedModel
) -> None:
    theirs = WebsocketClientPolicy(address)
    try:
        said = theirs.get_server_metadata()
        assert said.keys() == bridge.metadata.keys() == METADATA.keys()
        assert bridge.metadata["reset_pose"].tolist() == said["reset_pose"].tolist() == [0.0, -1.5]
        assert bridge.metadata["config"] == said["config"]
        for seed in range(5):
            given = observation(seed=seed)
            actions = bridge.predict_chunk(given)
            assert actions.tobytes() == theirs.infer(given)["actions"].tobytes()
            assert actions.shape == (5, 2) and actions.dtype == np.float32
    finally:
        theirs._ws.close()
    assert bridge.native_chunk == 5


@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_a_run_has_the_numbers_of_the_policy_in_this_process(address: str, horizon: int) -> None:
    expected = rlmesh.run(Here(), Walk(), seeds=SEEDS, execution_horizon=horizon)
    found = rlmesh.run(
        openpi(address, spec=NO_ADAPTER), Walk(), seeds=SEEDS, execution_horizon=horizon
    )
    assert numbers(found) == numbers(expected)
    lanes = rlmesh.run(
        openpi(address, spec=NO_ADAPTER),
        [Walk(), Walk(), Walk()],
        seeds=SEEDS,
        execution_horizon=horizon,
    )
    assert numbers(lanes) == numbers(expected)


def test_a_spec_makes_the_server_s_observation(address: str) -> None:
    expected = rlmesh.run(HereAdapted(), Studio(), seeds=SEEDS, execution_horizon=2)
    model = openpi(address, spec=HereAdapted.spec)
    assert numbers(rlmesh.run(model, Studio(), seeds=SEEDS, execution_horizon=2)) == numbers(
        expected
    )


def test_a_session_and_a_second_run(bridge: BridgedModel) -> None:
    """A run hangs up at its end; what comes after dials again."""
    first = rlmesh.run(bridge, Walk(), seeds=[0, 1])
    with rlmesh.session(bridge, Walk(), execution_horizon=2) as session:
        seen, _ = session.reset(seed=1)
        assert session.predict(seen).tolist() == chunk(seen)[0].tolist()
    assert numbers(rlmesh.run(bridge, Walk(), seeds=[0, 1])) == numbers(first)


def test_a_bridge_can_be_served_to_many_clients(address: str) -> None:
    with rlmesh.ModelServer(openpi(address, spec=NO_ADAPTER)) as served:
        served.start()
        found = rlmesh.run(
            rlmesh.RemoteModel(served.address), Walk(), seeds=SEEDS, execution_horizon=3
        )
    assert numbers(found) == numbers(rlmesh.run(Here(), Walk(), seeds=SEEDS, execution_horizon=3))


def test_a_horizon_beyond_the_server_s_chunk(address: str, bridge: BridgedModel) -> None:
    """Refused by the first chunk; before the run where native_chunk is known."""
    env = Walk()
    with pytest.raises(ValueError, match=rf"chunks of {address} have 5 actions; use at most 5"):
        rlmesh.run(bridge, env, seeds=[0], execution_horizon=6)
    env = Walk()
    for known in (bridge, openpi(address, spec=NO_ADAPTER, native_chunk=5)):
        with pytest.raises(ValueError, match="exceeds the model's declared native_chunk=5"):
            rlmesh.run(known, env, seeds=[0], execution_horizon=6)
    assert env.resets == []


def test_what_the_policy_raises(address: str, bridge: BridgedModel) -> None:
    """The last line, with the server's traceback in the notes; the next prediction dials again."""
    with pytest.raises(ModelException, match="KeyError: 'no such normalization'") as caught:
        bridge.predict_chunk(observation("raise"))
    assert address in str(caught.value)
    assert any("Traceback (most recent call last)" in note for note in caught.value.__notes__)
    assert bridge.predict_chunk(observation()).shape == (5, 2)


@pytest.mark.parametrize(
    ("prompt", "error", "words"),
    [
        ("nothing", ProtocolException, r"'actions' of shape \[H, A\].*state: float32\[5, 2\]"),
        ("flat", ProtocolException, r"'actions' of shape \[H, A\].*actions: float32\[2\]"),
        ("garbage", ProtocolException, "a msgpack map"),
        ("short", ValueError, "returned 3 actions: expected 5"),
        ("empty", ValueError, "returned 0 actions: expected 5"),
    ],
)
def test_answers_that_are_none(
    address: str, bridge: BridgedModel, prompt: str, error: type[Exception], words: str
) -> None:
    bridge.predict_chunk(observation())
    with pytest.raises(error, match=words) as caught:
        bridge.predict_chunk(observation(prompt))
    assert address in str(caught.value)
    assert bridge.predict_chunk(observation()).shape == (5, 2)


def test_an_observation_that_is_no_dict(bridge: BridgedModel) -> None:
    with pytest.raises(TypeError, match=r"takes a dict of arrays and text, got ndarray.*spec"):
        bridge.predict_chunk(np.zeros(3))
    with pytest.raises(TypeError, match="cannot send dtype object"):
        bridge.predict_chunk({"x": np.array([None])})


def test_a_server_that_does_not_answer_in_time(address: str) -> None:
    with pytest.raises(TimeoutError, match=rf"no openpi server answered at {address}/silent"):
        openpi(f"{address}/silent", spec=NO_ADAPTER, connect_timeout_seconds=0.5)
    slow = openpi(address, spec=NO_ADAPTER, request_timeout_seconds=0.5)
    with pytest.raises(TimeoutError, match=rf"{address} did not answer within 0.5 s"):
        slow.predict_chunk(observation("sleep"))
    assert np.array_equal(slow.predict_chunk(observation(seed=3)), chunk(observation(seed=3)))
    slow.close()


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"ws://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(
        ConnectionError, match=f"could not connect to an openpi server at {address}"
    ):
        openpi(address, spec=NO_ADAPTER)


def test_somebody_else_is_there() -> None:
    with rlmesh.EnvServer(Walk()) as other:
        other.start()
        address = other.address.replace("tcp://", "ws://")
        with pytest.raises(ProtocolException, match=f"{address} answers, but not as an openpi"):
            openpi(address, spec=NO_ADAPTER)


def test_a_server_that_is_killed_and_comes_back() -> None:
    with server() as (child, address):
        model = openpi(address, spec=NO_ADAPTER)
        child.kill()
        with pytest.raises(ConnectionError, match=address):
            rlmesh.run(model, Walk(), seeds=[0])
    with server(int(address.rpartition(":")[2])):
        assert rlmesh.run(model, Walk(), seeds=[0]).episodes[0].seed == 0
        model.close()


@pytest.mark.parametrize("bad", ["127.0.0.1:8000", "http://host:1", "ws://", "ws://h:99999", ""])
def test_an_address_that_is_none(bad: str) -> None:
    with pytest.raises(ValueError, match="as ws://host:8000"):
        openpi(bad, spec=NO_ADAPTER)


@pytest.mark.parametrize("module", ["websockets", "msgpack"])
def test_without_the_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}: pip install 'rlmesh\[openpi\]'"):
        openpi("ws://127.0.0.1:1", spec=NO_ADAPTER)


class Loopback:
    """The least a link can be."""

    address = "loop://here"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def connect(self) -> dict[str, Any]:
        self.calls.append("connect")
        return {"kind": "loopback"}

    def infer(self, observation: Any) -> Any:
        return chunk(observation)

    def reset(self, episode_id: str) -> None:
        assert episode_id
        self.calls.append("reset")

    def hang_up(self) -> None:
        self.calls.append("hang_up")


def test_the_seam_for_other_servers() -> None:
    """Four methods make a model of any server."""
    link = Loopback()
    model = BridgedModel(link, spec=NO_ADAPTER)
    assert model.metadata == {"kind": "loopback"}
    assert repr(model) == "BridgedModel('loop://here')"
    result = rlmesh.run(model, Walk(), seeds=[0, 1], execution_horizon=2)
    assert numbers(result) == numbers(rlmesh.run(Here(), Walk(), seeds=[0, 1], execution_horizon=2))
    assert link.calls == ["connect", "reset", "reset", "hang_up"]
