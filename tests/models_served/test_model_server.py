"""A model server's life: one port, both doors, one model thread, and nothing left behind."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from evals.eval_envs import Walk
from models_served.served_kinds import Feedback, Gated, Studio
from models_served.serving_models import model_process, shut_native_door
from support import Resources, eventually, python_child

import rlmesh
import rlmesh.numpy
from rlmesh.models.link import ModelLink, Row
from rlmesh.numpy import Model
from rlmesh.spaces import from_gymnasium_space
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract

SPACE = Walk()
CONTRACT = EnvContract(
    "walk",
    from_gymnasium_space(SPACE.observation_space),
    from_gymnasium_space(SPACE.action_space),
)


def observation(x: float = 0.0) -> dict[str, Any]:
    return {
        "clock": np.zeros(1, np.int32),
        "key": np.ones(1),
        "x": np.full(3, x, np.float32),
    }


def plan(link: ModelLink, slot: Any, x: float = 0.0, episode: str = "e") -> list[Any]:
    link.send_predict([Row(slot, observation(x), episode, None)])
    return link.finish()[0]


def health(address: str) -> int:
    with grpc.insecure_channel(address.removeprefix("tcp://")) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        request = messages.health.HealthCheckRequest().SerializeToString()
        answer = check(request, timeout=20)
    return int(messages.health.HealthCheckResponse.FromString(answer).status)


def test_the_public_names() -> None:
    assert issubclass(rlmesh.numpy.RemoteModel, rlmesh.RemoteModel.__bases__[0])
    handle = rlmesh.RemoteModel(host="localhost", port=50052)
    assert repr(handle) == "RemoteModel(address='tcp://localhost:50052')"
    assert rlmesh.RemoteModel(path="/tmp/m.sock").address == "unix:///tmp/m.sock"
    with rlmesh.ModelServer(Feedback()) as server:
        assert repr(server) == f"ModelServer(address='{server.address}')"


def test_handshakes_and_health_while_the_model_thinks(tmp_path: Path) -> None:
    with (
        rlmesh.ModelServer(Gated.from_config(folder=str(tmp_path))) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        server.start()
        handle = rlmesh.RemoteModel(server.address)
        link = handle.connect()
        slot = link.resolve(CONTRACT, 1)
        busy = pool.submit(plan, link, slot)
        eventually((tmp_path / "inside").exists, "a prediction is running")
        assert health(server.address) == 1
        others = [handle.connect() for _ in range(3)]
        assert {other.door for other in others} == {"native"}
        assert not busy.done()
        (tmp_path / "gate").touch()
        assert len(busy.result()) == 1
        for other in (link, *others):
            other.hang_up()


def test_every_model_method_on_one_thread() -> None:
    seen: list[tuple[str, int]] = []

    def note(what: str) -> None:
        seen.append((what, threading.get_ident()))

    class Watched(Feedback):
        def load(self) -> None:
            note("load")

        def predict_batch(self, observations: Any) -> Any:
            note("predict")
            return super().predict_batch(observations)

        def on_episode_end(self, episode_id: str = "") -> None:
            note("end")

        def close(self) -> None:
            note("close")

    server = rlmesh.ModelServer(Watched)
    assert not seen, "a class is made on the serving thread"
    server.start()
    assert [what for what, _ in seen] == ["load"]
    with ThreadPoolExecutor(3) as pool:
        handle = rlmesh.RemoteModel(server.address)
        list(pool.map(lambda _: rlmesh.run(handle, Walk(), seeds=range(3), progress=False), "abc"))
    server.shutdown()
    assert len({thread for _, thread in seen}) == 1
    whats = [what for what, _ in seen]
    assert (whats.count("load"), whats.count("end"), whats.count("close")) == (1, 9, 1)
    assert whats[-1] == "close"


def test_a_model_that_does_not_load_fails_the_start() -> None:
    class Broken(Feedback):
        def load(self) -> None:
            raise OSError("no weights there")

    server = rlmesh.ModelServer(Broken)
    with pytest.raises(OSError, match="no weights there"):
        server.start()
    server.shutdown()
    with pytest.raises(ConnectionError):
        rlmesh.RemoteModel(server.address, connect_timeout_seconds=5).connect()


def test_start_serve_wait_and_shutdown() -> None:
    closed: list[str] = []
    server = rlmesh.ModelServer(Model(lambda obs: 0, on_close=lambda: closed.append("model")))
    with pytest.raises(RuntimeError, match=r"wait\(\) before start\(\)"):
        server.wait(0)
    server.start()
    with pytest.raises(RuntimeError, match="already started"):
        server.start()
    assert server.wait(0) is False
    server.shutdown()
    server.shutdown()
    assert server.wait(0) is True
    assert closed == ["model"]
    with rlmesh.ModelServer(Feedback(), server.address) as again:
        again.start()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"max_batch": 0}, ValueError, "max_batch"),
        ({"max_batch": True}, ValueError, "max_batch"),
        ({"batch_wait_ms": -1}, ValueError, "batch_wait_ms"),
        ({"options": {}}, TypeError, "ServeOptions"),
        ({"address": "1", "port": 2}, ValueError, "cannot be combined"),
    ],
)
def test_impossible_arguments(arguments: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        rlmesh.ModelServer(Feedback(), **arguments)


def test_nothing_that_is_no_model() -> None:
    with pytest.raises(TypeError, match="model must be a Model"):
        rlmesh.ModelServer(None)


@pytest.mark.parametrize("door", ["native", "grpc"])
def test_the_token(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if door == "grpc":
        shut_native_door(monkeypatch)
    with rlmesh.ModelServer(Feedback(), options=rlmesh.ServeOptions(token="s3cret")) as server:
        server.start()
        with pytest.raises(ConnectionError, match="invalid model token"):
            rlmesh.RemoteModel(server.address).connect()
        handle = rlmesh.RemoteModel(server.address, token="s3cret")
        assert rlmesh.run(handle, Walk(), seeds=[0]).num_episodes == 1
        assert handle.shutdown() is False, "not allowed"


def test_remote_shutdown_and_idle_timeout() -> None:
    options = rlmesh.ServeOptions(allow_remote_shutdown=True)
    with rlmesh.ModelServer(Feedback(), options=options) as server:
        server.start()
        assert rlmesh.RemoteModel(server.address).shutdown("enough") is True
        assert server.wait(20)
    with rlmesh.ModelServer(
        Feedback(), options=rlmesh.ServeOptions(idle_timeout_seconds=0.3)
    ) as server:
        server.start()
        link = rlmesh.RemoteModel(server.address).connect()
        assert server.wait(20), "a connection that asks for nothing does not hold it"
        link.hang_up()


def test_a_prediction_that_outlives_the_drain_timeout(tmp_path: Path) -> None:
    options = rlmesh.ServeOptions(drain_timeout_seconds=0.2)
    server = rlmesh.ModelServer(Gated.from_config(folder=str(tmp_path)), options=options)
    server.start()
    link = rlmesh.RemoteModel(server.address).connect()
    slot = link.resolve(CONTRACT, 1)
    link.send_predict([Row(slot, observation(), "e", None)])
    eventually((tmp_path / "inside").exists, "a prediction is running")
    with pytest.raises(TimeoutError, match="model call was left to itself"):
        server.shutdown()
    with pytest.raises(ConnectionError):
        link.finish()
    (tmp_path / "gate").touch()
    assert server.wait(20)


def test_a_stop_answers_the_running_request(tmp_path: Path) -> None:
    server = rlmesh.ModelServer(Gated.from_config(folder=str(tmp_path)))
    server.start()
    link = rlmesh.RemoteModel(server.address).connect()
    slot = link.resolve(CONTRACT, 1)
    link.send_predict([Row(slot, observation(), "e", None)])
    eventually((tmp_path / "inside").exists, "a prediction is running")
    server.request_stop()
    (tmp_path / "gate").touch()
    assert len(link.finish()) == 1
    server.shutdown()


# Fusing


class Company(Model):
    """Notes how many rows each call has; the first call waits at ``gate``."""

    def load(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.gate = threading.Event()
        self.inside = threading.Event()

    def note(self, corner: str, rows: int) -> None:
        self.calls.append((corner, rows))
        self.inside.set()
        assert self.gate.wait(20)


class Batched(Company):
    def predict_batch(self, observations: Any) -> Any:
        self.note("predict_batch", len(observations["x"]))
        return observations["x"][:, :2]


class Apart(Batched):
    allow_fusion = False


class Both(Batched):
    """A lone prediction does not run the batch corner: company would change what is computed."""

    def predict(self, observation: Any) -> Any:
        self.note("predict", 1)
        return observation["x"][:2]


@pytest.mark.parametrize(
    ("kind", "limit", "meant"),
    [
        (Batched, None, [("predict_batch", 1), ("predict_batch", 5)]),
        (Batched, 2, [("predict_batch", n) for n in (1, 2, 2, 1)]),
        (Apart, None, [("predict_batch", 1)] * 6),
        (Both, None, [("predict", 1)] * 6),
    ],
)
@pytest.mark.parametrize("door", ["native", "grpc"])
def test_what_is_fused(
    kind: type[Company],
    limit: int | None,
    meant: Any,
    door: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-13, MOD-18, MOD-19: requests that wait together share a forward pass where they may."""
    if door == "grpc":
        shut_native_door(monkeypatch)
    model = kind()
    with rlmesh.ModelServer(model, max_batch=limit) as server:
        server.start()
        links = [rlmesh.RemoteModel(server.address).connect() for _ in range(6)]
        slots = [link.resolve(CONTRACT, 1) for link in links]
        links[0].send_predict([Row(slots[0], observation(0), "e", None)])
        assert model.inside.wait(20)
        for number, (link, slot) in enumerate(zip(links, slots, strict=True)):
            if number:
                link.send_predict([Row(slot, observation(number), "e", None)])
        pool = server._core.pool
        if door == "grpc":  # its requests pass through a thread of each
            eventually(lambda: len(set(pool._told)) >= 5, "all have asked")
        model.gate.set()
        for number, link in enumerate(links):
            ((action,),) = link.finish()
            assert action.tolist() == [number, number], "everybody gets the answer to its own"
            link.hang_up()
    assert model.calls == meant


class Stepwise(Model):
    """Says when a call begins, and ends it when it is let."""

    allow_fusion = False

    def load(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def predict(self, observation: Any) -> Any:
        self.begun.release()
        assert self.let.acquire(timeout=20)
        return observation["x"][:2]


def test_who_is_answered_does_not_wait_for_those_behind() -> None:
    """Requests that waited together, and share no forward pass."""
    model = Stepwise()
    with rlmesh.ModelServer(model) as server:
        server.start()
        links = [rlmesh.RemoteModel(server.address).connect() for _ in range(3)]
        slots = [link.resolve(CONTRACT, 1) for link in links]
        links[0].send_predict([Row(slots[0], observation(), "e", None)])
        assert model.begun.acquire(timeout=20)
        for link, slot in zip(links[1:], slots[1:], strict=True):
            link.send_predict([Row(slot, observation(), "e", None)])
        for _ in range(2):
            model.let.release()
            assert model.begun.acquire(timeout=20)
        assert select.select(links[1:], [], [], 20)[0], "one is answered, one is being predicted"
        model.let.release()
        for link in links:
            assert len(link.finish()) == 1
            link.hang_up()


def test_envs_of_unlike_spaces_are_not_fused() -> None:
    model = Batched()
    other = EnvContract("other", CONTRACT.observation_space, CONTRACT.action_space)
    with rlmesh.ModelServer(model) as server:
        server.start()
        links = [rlmesh.RemoteModel(server.address).connect() for _ in range(3)]
        slots = [
            link.resolve(c, 1) for link, c in zip(links, (CONTRACT, CONTRACT, other), strict=True)
        ]
        links[0].send_predict([Row(slots[0], observation(0), "e", None)])
        assert model.inside.wait(20)
        for link, slot in zip(links[1:], slots[1:], strict=True):
            link.send_predict([Row(slot, observation(1), "e", None)])
        model.gate.set()
        for link in links:
            assert len(link.finish()) == 1
            link.hang_up()
    assert model.calls == [("predict_batch", 1)] * 3


# What is held for a client


class Held(Model):
    """Counts the episodes that have begun and ended, by their contexts."""

    def load(self) -> None:
        self.begun = 0
        self.ended: list[str] = []

    def predict(self, observation: Any, context: Any = None) -> Any:
        self.begun += not context["predict_index"]
        context["state"]["big"] = bytearray(1000)
        return observation["x"][:2]

    def on_episode_end(self, episode_id: str = "") -> None:
        self.ended.append(episode_id)


@pytest.fixture
def held() -> Iterator[tuple[Held, Any, ModelLink, Any]]:
    model = Held()
    with rlmesh.ModelServer(model) as server:
        server.start()
        link = rlmesh.RemoteModel(server.address).connect()
        slot = link.resolve(CONTRACT, 1)
        for episode in "abc":
            plan(link, slot, episode=episode)
        yield model, server, link, slot
        link.hang_up()


def live(server: Any) -> int:
    return sum(slot.live for seat in server._core.pool.seats for slot in seat.client.slots.values())


def test_state_goes_with_the_episode(held: Any) -> None:
    model, server, link, slot = held
    assert live(server) == 3
    link.end(slot, "b")
    link.end(slot, "never seen")
    plan(link, slot, episode="a")
    assert (model.ended, live(server)) == (["b"], 2)
    plan(link, slot, episode="b")
    assert (model.begun, live(server)) == (4, 3), "b is another episode now"


def send(link: ModelLink, kind: str, **context: str) -> None:
    request = messages.model.JoinRequest()
    body = getattr(request, kind)
    body.SetInParent()
    for name, value in context.items():
        setattr(body.context, name, value)
    link._send(request.SerializeToString(), (), kind)
    link._recv()


def test_state_goes_with_a_reset_of_all(held: Any) -> None:
    model, server, link, slot = held
    send(link, "reset_adapter", env_id=slot.env_id)
    assert (sorted(model.ended), live(server)) == (["a", "b", "c"], 0)


def test_state_goes_with_the_release(held: Any) -> None:
    model, server, link, slot = held
    send(link, "release_adapter", env_id=slot.env_id)
    assert (sorted(model.ended), live(server)) == (["a", "b", "c"], 0)
    with pytest.raises(rlmesh.ModelException, match="NOT_CONFIGURED"):
        plan(link, slot)


def test_state_goes_with_the_close(held: Any) -> None:
    model, server, link, _ = held
    send(link, "close")
    eventually(lambda: not server._core.pool.seats, "the session has ended")
    assert sorted(model.ended) == ["a", "b", "c"]


def test_state_goes_with_the_connection(held: Any) -> None:
    model, server, link, _ = held
    link.hang_up()
    eventually(lambda: sorted(model.ended) == ["a", "b", "c"], "the session has ended")
    assert not server._core.pool.seats


def test_state_goes_with_the_server(held: Any) -> None:
    model, server, _, _ = held
    server.shutdown()
    assert sorted(model.ended) == ["a", "b", "c"]


CLIENTS = """
import sys, time, rlmesh
from models_served.test_model_server import CONTRACT, plan
links = [rlmesh.RemoteModel(sys.argv[1]).connect() for _ in range(int(sys.argv[2]))]
for number, link in enumerate(links):
    slot = link.resolve(CONTRACT, 1)
    for episode in "ab":
        plan(link, slot, episode=f"{sys.argv[3]} {number} {episode}")
print("at it", flush=True)
time.sleep(600)
"""


def test_five_hundred_sessions_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of them are killed with their process, a few come over gRPC, most just leave."""
    model = Held()
    with rlmesh.ModelServer(model) as server:
        server.start()
        handle = rlmesh.RemoteModel(server.address)

        def one(number: int, *, politely: bool) -> None:
            link = handle.connect()
            slot = link.resolve(CONTRACT, 1)
            plan(link, slot, episode=f"{number}")
            (link.close if politely else link.hang_up)()

        with monkeypatch.context() as patch:  # the gRPC door and its threads are open from now on
            shut_native_door(patch)
            one(-1, politely=True)
        eventually(lambda: not server._core.pool.seats, "the first has gone")
        before = Resources.now()
        for number in range(312):
            one(number, politely=number % 2 == 0)
        with monkeypatch.context() as patch:
            shut_native_door(patch)
            for number in range(312, 332):
                one(number, politely=number % 2 == 0)
        for batch in range(6):
            with python_child(CLIENTS, server.address, "28", str(batch)) as process:
                assert process.line() == "at it"
                process.kill()
        eventually(lambda: len(model.ended) == model.begun, "all sessions are gone")
        assert not server._core.pool.seats
        before.assert_back()
        assert (model.begun, len(model.ended)) == (1 + 332 + 6 * 56, 1 + 332 + 6 * 56)
        assert rlmesh.run(handle, Walk(), seeds=[0]).num_episodes == 1


# Only what is read travels


def studio_contract() -> EnvContract:
    env = Studio()
    return EnvContract(
        "studio",
        from_gymnasium_space(env.observation_space),
        from_gymnasium_space(env.action_space),
        metadata=dict(env.metadata),
    )


def test_only_the_leaves_that_are_read_travel() -> None:
    env, contract = Studio(), studio_contract()
    with model_process("Recall") as process:
        link = rlmesh.RemoteModel(process.address).connect()
        slot = link.resolve(contract, 4)
        seen, _ = env.reset(seed=0)
        assert list(contract.observation_space.keys()) == ["arm", "front", "side", "task", "wrist"]
        sizes = [leaf.nbytes for leaf in slot.observation.encode(seen)]
        assert sizes[:2] == [8, 24 * 32 * 3] and len(sizes) == 3
        assert (slot.leaves, slot.remembers, slot.history) == ((0, 1, 3), True, 2)
        link.hang_up()


def test_everything_travels_to_a_server_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from models_served.served_kinds import Recall

    import rlmesh.models.server

    meant = rlmesh.run(Recall(), Studio(), seeds=range(4))
    monkeypatch.setattr(rlmesh.models.server, "ADAPTER_PLAN", "something else")
    with rlmesh.ModelServer(Recall()) as server:
        server.start()
        link = rlmesh.RemoteModel(server.address).connect()
        slot = link.resolve(studio_contract(), 1)
        assert (slot.leaves, slot.observation.leaves) == (None, 5)
        found = rlmesh.run(rlmesh.RemoteModel(server.address), Studio(), seeds=range(4))
        link.hang_up()
    assert [e.reward for e in found.episodes] == [e.reward for e in meant.episodes]
