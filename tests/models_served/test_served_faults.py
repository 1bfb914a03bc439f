"""What goes wrong between a run and a served model costs what it must, and nothing more."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evals.eval_envs import Walk
from evals.traces import numbers, traced
from models_served.served_kinds import Feedback, Flawed, Studio
from models_served.serving_models import model_process, shut_native_door
from support import eventually, serving

import rlmesh
from rlmesh.models.link import ModelLink, Row
from rlmesh.numpy import Model
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract

SEEDS = list(range(9))  # seed 2 has an episode of 11 steps, in which Flawed's process dies


@contextmanager
def phoenix(address: str, folder: Path) -> Iterator[None]:
    """A model server that dies in an episode's middle and is started again at the same address."""
    stop = threading.Event()

    def keep() -> None:
        while not stop.is_set():
            with model_process("Flawed", address, config={"folder": str(folder)}) as process:
                started.set()
                while process._process.poll() is None and not stop.wait(0.02):
                    pass

    started = threading.Event()
    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        assert started.wait(60)
        yield
    finally:
        stop.set()
        keeper.join()


def test_hundreds_may_dial_while_the_model_loads(tmp_path: Path) -> None:
    """None of them is turned away, or dropped and left to try again after seconds."""
    allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
    path = str(tmp_path / "loading.sock")
    with rlmesh.ModelServer(Feedback(), path=path), ExitStack() as stack:
        for _ in range(min(300, allowed)):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.setblocking(False)
            sock.connect(path)


class Upbeat(Walk):
    """A Walk whose key is never negative."""

    def _observation(self) -> dict[str, Any]:
        self._key = abs(self._key)
        return super()._observation()


@pytest.mark.parametrize("envs", [1, 3])
def test_with_retries_a_restarted_server_costs_nothing(envs: int, tmp_path: Path) -> None:
    undisturbed = traced(Feedback(), Upbeat(), seeds=SEEDS)
    address = f"unix://{tmp_path}/model.sock"
    with phoenix(address, tmp_path):
        trace = traced(
            rlmesh.RemoteModel(address), [Upbeat() for _ in range(envs)], seeds=SEEDS, retries=1
        )
    assert (tmp_path / "died").exists()
    assert trace == undisturbed


def test_failed_attempts_are_reported(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/model.sock"
    with phoenix(address, tmp_path):
        result = rlmesh.run(rlmesh.RemoteModel(address), Upbeat(), seeds=SEEDS, retries=2)
    (failure,) = result.errors
    assert (failure.index, failure.attempt, failure.endpoint) == (2, 1, address)
    assert "ConnectionError" in failure.error
    assert address in failure.error
    assert result.episodes[2].attempts == 2


def test_without_retries_the_address_is_named_and_finished_episodes_are_kept(
    tmp_path: Path,
) -> None:
    undisturbed = numbers(rlmesh.run(Feedback(), Upbeat(), seeds=SEEDS))
    address = f"unix://{tmp_path}/model.sock"
    with (
        model_process("Flawed", address, config={"folder": str(tmp_path)}),
        pytest.raises(ConnectionError, match="model server at unix://") as caught,
    ):
        rlmesh.run(rlmesh.RemoteModel(address), Upbeat(), seeds=SEEDS)
    assert address in str(caught.value)
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None
    assert numbers(partial) == undisturbed[:2]


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_another_replica_takes_over(lanes: int, tmp_path: Path) -> None:
    lengths = (9, 11, 10)  # wherever an episode runs, it reaches the step that kills
    undisturbed = numbers(rlmesh.run(Feedback(), Upbeat(lengths), seeds=SEEDS))
    with (
        model_process("Flawed", config={"folder": str(tmp_path)}) as mortal,
        model_process("Feedback") as other,
        serving([Upbeat(lengths) for _ in range(lanes)]) as envs,
        serving(Upbeat(lengths)) as single,
    ):
        handles = [rlmesh.RemoteModel(mortal.address), rlmesh.RemoteModel(other.address)]
        result = rlmesh.run(handles, [envs.address, single.address], seeds=SEEDS, retries=1)
    assert (tmp_path / "died").exists()
    assert numbers(result) == undisturbed


def test_what_a_failed_run_left_to_come_is_no_answer_to_the_next() -> None:
    """A session goes on after an error: the next run must not act on the last one's prediction."""
    env = Walk()
    seen = [env.reset(seed=seed)[0] for seed in (1, 2)]
    with rlmesh.ModelServer(Feedback()) as server:
        server.start()
        link = rlmesh.RemoteModel(server.address).connect()
        slot = link.resolve(contract(), 1)
        link.send_predict([Row(slot, seen[0], "abandoned", 1)])
        link.send_predict([Row(slot, seen[1], "next", 2)])
        ((action,),) = link.finish()
        link.close()
    batched = {key: value[None] for key, value in seen[1].items()}
    np.testing.assert_array_equal(action, Feedback().predict_batch(batched)[0])


def test_a_server_that_hangs_is_a_timeout_with_its_address(tmp_path: Path) -> None:
    with model_process("Gated", config={"folder": str(tmp_path)}) as process:
        handle = rlmesh.RemoteModel(process.address, request_timeout_seconds=0.5)
        for env in (Walk(), [Walk(), Walk()]):
            with pytest.raises(TimeoutError, match="did not answer") as caught:
                rlmesh.run(handle, env, seeds=[0, 1])
            assert process.address in str(caught.value)
        (tmp_path / "gate").touch()


def test_a_server_that_is_gone_before_the_run() -> None:
    with model_process("Feedback") as process:
        address = process.address
    handle = rlmesh.RemoteModel(address)
    assert handle.address == address
    with pytest.raises(ConnectionError, match="could not connect to a model at") as caught:
        rlmesh.run(handle, Walk(), seeds=[0])
    assert address in str(caught.value)


@pytest.mark.parametrize("lanes", [1, 2])
def test_what_the_model_raises_reaches_its_client_alone(lanes: int) -> None:
    with model_process("Flawed") as process, ThreadPoolExecutor(2) as pool:
        handle = rlmesh.RemoteModel(process.address)
        meant = traced(Feedback(), Upbeat(), seeds=SEEDS)
        good = [
            pool.submit(traced, handle, Upbeat(), seeds=SEEDS, progress=False) for _ in range(2)
        ]
        for _ in range(5):
            with pytest.raises(rlmesh.ModelException, match=r"^model error: .*KeyError") as caught:
                rlmesh.run(handle, [Walk() for _ in range(lanes)], seeds=SEEDS)
            notes = "\n".join(caught.value.__notes__)
            assert f"Remote traceback (model server at {process.address})" in notes
            assert "a negative key" in notes
        assert [run.result() for run in good] == [meant, meant]


def test_a_failed_predict_shows_what_the_adapter_gave() -> None:
    """MOD-17: the input's signature is appended where an adapter was used."""

    class Picky(Model):
        spec = None

        def predict(self, observation: Any) -> Any:
            raise ValueError("not like this")

    from models_served.served_kinds import Recall

    Picky.spec = Recall.spec
    with rlmesh.ModelServer(Picky()) as server:
        server.start()
        with pytest.raises(
            rlmesh.ModelException, match=r"not like this.*image: uint8\[3, 24, 32, 3\]"
        ):
            rlmesh.run(rlmesh.RemoteModel(server.address), Studio(), seeds=[0])


def test_a_mismatch_fails_at_connect_with_the_resolvers_words() -> None:
    with model_process("Recall") as process:
        handle = rlmesh.RemoteModel(process.address)
        with pytest.raises(rlmesh.ModelException, match="no adapter tags"):
            rlmesh.run(handle, Walk(), seeds=[0])
    with model_process("Feedback") as process:
        handle = rlmesh.RemoteModel(process.address)
        with pytest.raises(rlmesh.ModelException, match="carries adapter tags"):
            rlmesh.run(handle, Studio(), seeds=[0])


def test_what_only_the_server_can_do_is_refused() -> None:
    handle = rlmesh.RemoteModel("127.0.0.1:1")
    with pytest.raises(ValueError, match="instruction="):
        handle.session(Walk(), instruction="go")
    with pytest.raises(ValueError, match="trust_entrypoints="):
        rlmesh.run(handle, Walk(), trust_entrypoints=False)
    with pytest.raises(TypeError, match="replicas"):
        rlmesh.run([handle, Feedback()], Walk())
    with pytest.raises(ValueError, match="no endpoint given"):
        rlmesh.RemoteModel()


def test_the_other_kind_of_server_is_named() -> None:
    with serving(Walk()) as env, pytest.raises(ConnectionError, match="serves an env, not a model"):
        rlmesh.run(rlmesh.RemoteModel(env.address), Walk(), seeds=[0])
    with (
        model_process("Feedback") as model,
        pytest.raises(ConnectionError, match="model, not an env"),
    ):
        rlmesh.run(Feedback(), model.address, seeds=[0])


# Bad requests, one by one


@pytest.fixture(params=["native", "grpc"])
def link(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelLink]:
    """A connection to a model server that another client uses at the same time."""
    if request.param == "grpc":
        shut_native_door(monkeypatch)
    with rlmesh.ModelServer(Flawed()) as server:
        server.start()
        handle = rlmesh.RemoteModel(server.address)
        other, mine = handle.connect(), handle.connect()
        assert mine.door == request.param
        slot = other.resolve(contract(), 1)
        yield mine
        other.send_predict([Row(slot, observation(), "other", None)])
        assert len(other.finish()) == 1
        mine.hang_up()
        other.hang_up()


def contract() -> EnvContract:
    from rlmesh.spaces import from_gymnasium_space

    env = Walk()
    return EnvContract(
        "walk",
        from_gymnasium_space(env.observation_space),
        from_gymnasium_space(env.action_space),
    )


def observation() -> dict[str, Any]:
    return {
        "clock": np.zeros(1, np.int32),
        "key": np.ones(1),
        "x": np.zeros(3, np.float32),
    }


def ask(link: ModelLink, kind: str, leaves: Any = (), **fields: Any) -> Any:
    request = messages.model.JoinRequest()
    body = getattr(request, kind)
    body.SetInParent()
    if kind == "predict":
        body.observation.SetInParent()
    for name, value in fields.items():
        if name == "env_id":
            body.context.env_id = value
        elif name == "rows":
            for _ in range(value):
                body.episode_info.add(episode_id="e")
        else:
            setattr(body, name, value)
    link._send(request.SerializeToString(), leaves, kind)
    return link._recv()


def test_bad_requests_leave_the_stream_open(link: ModelLink) -> None:
    slot = link.resolve(contract(), 1)
    good = slot.observation.encode(observation())
    for match, leaves, fields in (
        ("NOT_CONFIGURED", good, {"env_id": "unheard of", "rows": 1}),
        ("INVALID_REQUEST.*at least one row", good, {"env_id": slot.env_id}),
        ("INVALID_REQUEST.*3 leaves", good[:2], {"env_id": slot.env_id, "rows": 1}),
        ("INVALID_REQUEST.*length mismatch", good, {"env_id": slot.env_id, "rows": 2}),
        ("projects nothing", good, {"env_id": slot.env_id, "rows": 1, "projected": True}),
    ):
        with pytest.raises(rlmesh.ModelException, match=match):
            ask(link, "predict", leaves, **fields)
    with pytest.raises(rlmesh.ModelException, match="no groups"):
        ask(link, "grouped_predict")
    with pytest.raises(rlmesh.ModelException, match="UNSUPPORTED"):
        link._send(b"", (), "predict")
        link._recv()
    link.send_predict([Row(slot, observation(), "e", 3)])
    assert len(link.finish()) == 1


@pytest.mark.parametrize("link", ["native"], indirect=True)
def test_bytes_that_are_no_request_end_the_stream(link: ModelLink) -> None:
    with pytest.raises(rlmesh.ModelException, match="INVALID_REQUEST"):
        link._send(b"\xff\xff", (), "predict")
        link._recv()
    with pytest.raises(ConnectionError):
        link._send(b"", (), "predict")
        link._recv()


@pytest.mark.parametrize(
    ("horizon", "match"), [(2000, "must be <= 1024"), (1025, "must be <= 1024")]
)
def test_impossible_horizons(link: ModelLink, horizon: int, match: str) -> None:
    with pytest.raises(rlmesh.ModelException, match=match):
        link.resolve(contract(), horizon)


def test_groups_fail_one_by_one(link: ModelLink) -> None:
    first, second = link.resolve(contract(), 1), link.resolve(contract(), 1)
    request = messages.model.JoinRequest()
    leaves: list[Any] = []
    for env_id in (first.env_id, "unheard of", second.env_id):
        group = request.grouped_predict.groups.add()
        group.context.env_id = env_id
        group.observation.SetInParent()
        group.episode_info.add(episode_id="e")
        leaves += first.observation.encode(observation())
    link._send(request.SerializeToString(), leaves, "predict")
    response, answered = link._recv()
    outcomes = [result.WhichOneof("outcome") for result in response.grouped_predict.results]
    assert outcomes == ["response", "error", "response"]
    assert len(answered) == 2


def test_a_stopped_client_delays_nobody() -> None:
    """Half a request is not waited for."""
    with model_process("Feedback") as process:
        handle = rlmesh.RemoteModel(process.address)
        slow = handle.connect()
        slot = slow.resolve(contract(), 1)
        leaves = slot.observation.encode(observation())
        from rlmesh.transport.framing import FrameKind, encode_frame

        frame = b"".join(
            bytes(part) for part in encode_frame(FrameKind.JOIN, b"\x12\x00" * 50, leaves)[0]
        )
        slow._channel._frames.sock.send(frame[:100])
        assert traced(handle, Walk(), seeds=SEEDS) == traced(Feedback(), Walk(), seeds=SEEDS)
        slow.hang_up()


def test_sigint_and_sigterm(tmp_path: Path) -> None:
    """SIGINT as for envs: the running request is answered, the model closed, KeyboardInterrupt."""
    with model_process("Gated", config={"folder": str(tmp_path)}) as process:
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(
                rlmesh.run, rlmesh.RemoteModel(process.address), Walk(), seeds=[1], progress=False
            )
            eventually((tmp_path / "inside").exists, "a prediction is running")
            process.signal(signal.SIGINT)
            (tmp_path / "gate").touch()
            assert run.result().episodes[0].steps == 1
        assert process.wait() != 0
        assert "KeyboardInterrupt" in process.errors()
