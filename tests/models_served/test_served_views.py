"""With a served model, what its adapter reads crosses both wires, and its images' first steps may
run where the env lives: the same numbers, to the last bit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evals.traces import numbers
from evals.view_envs import SPECS, Rig, Witness, rigs
from gymnasium.vector import SyncVectorEnv
from models_served.serving_models import model_process, shut_native_door
from support import server_process, serving
from support.relay import Relay

import rlmesh
from rlmesh.models.link import Row
from rlmesh.numpy import RemoteEnv

SEEDS = [*range(5), 2**40 + 3]
FRONT, SIDE = 36 * 48 * 3, 30 * 40 * 3
SPARE = 1000
"""Bytes a message may have beside the cameras, the handshake's share included."""

Played = tuple[list[Any], dict[Any, str]]


@pytest.fixture(scope="module")
def local() -> Callable[..., Played]:
    """What a policy in this process is given on an env of this process."""
    known: dict[Any, Played] = {}

    def find(name: str, horizon: int = 1) -> Played:
        if (name, horizon) not in known:
            model = Witness.from_config(name=name)
            result = rlmesh.run(model, Rig(), seeds=SEEDS, execution_horizon=horizon)
            known[name, horizon] = numbers(result), model.given
        return known[name, horizon]

    return find


@contextmanager
def served(name: str) -> Iterator[tuple[Witness, str]]:
    """Serve a Witness on a thread of this process, so that what it is given can be seen."""
    model = Witness.from_config(name=name)
    with rlmesh.ModelServer(model) as server:
        server.start()
        yield model, server.address


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(Rig()) as server:
        yield server.address


@pytest.mark.parametrize("name", [*SPECS, "custom"])
def test_every_spec_gets_the_same_bits(
    name: str, address: str, local: Callable[..., Played]
) -> None:
    with served(name) as (model, where):
        handle = rlmesh.RemoteModel(where)
        for horizon in (1, 3):
            for pushdown in (False, True):
                model.given.clear()
                result = rlmesh.run(
                    handle, address, seeds=SEEDS, execution_horizon=horizon, pushdown=pushdown
                )
                assert (numbers(result), model.given) == local(name, horizon)


@pytest.mark.parametrize("door", ["native", "grpc"])
@pytest.mark.parametrize("kind", ["scalar", "lanes", "vector", "many"])
def test_over_each_door_and_kind_of_lanes(
    kind: str, door: str, local: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    if door == "grpc":
        shut_native_door(monkeypatch)
    made: dict[str, list[Any]] = {
        "scalar": [Rig()],
        "lanes": [rigs(3)],
        "vector": [SyncVectorEnv([Rig] * 3)],
        "many": [Rig(), rigs(2), SyncVectorEnv([Rig] * 2)],
    }
    with ExitStack() as stack:
        envs = [stack.enter_context(serving(env)).address for env in made[kind]]
        for name in ("two cameras", "stack"):
            model, first = stack.enter_context(served(name))
            other, second = stack.enter_context(served(name))
            for handles in ([first], [first, second]):
                for pushdown in (False, True):
                    for horizon in (1, 3):
                        model.given.clear()
                        other.given.clear()
                        result = rlmesh.run(
                            [rlmesh.RemoteModel(handle) for handle in handles],
                            envs,
                            seeds=SEEDS,
                            execution_horizon=horizon,
                            pushdown=pushdown,
                        )
                        found = {**model.given, **other.given}
                        assert (numbers(result), found) == local(name, horizon)


def test_what_is_not_read_crosses_neither_wire(address: str) -> None:
    def sizes(**arguments: Any) -> tuple[float, float]:
        """Return bytes per observation from the env, and to the model."""
        with Relay(address) as env, Relay(where) as model:
            handle = rlmesh.RemoteModel(model.address)
            result = rlmesh.run(handle, env.address, seeds=SEEDS, **arguments)
            seen = result.total_steps + len(SEEDS)
            return env.received / seen, model.sent / result.total_steps

    class Looker(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            assert event.observation["wrist"].shape == (32, 32, 3)

    with served("two cameras") as (_, where):
        from_env, to_model = sizes()
        assert FRONT + SIDE < from_env < FRONT + SIDE + SPARE
        assert FRONT + SIDE < to_model < FRONT + SIDE + SPARE
        from_env, to_model = sizes(pushdown=True)
        assert from_env < 2 * 300 + SPARE
        assert to_model < 2 * 300 + SPARE
        from_env, to_model = sizes(hooks=Looker())
        assert from_env > FRONT + SIDE + 32 * 32 * 3
        assert to_model < FRONT + SIDE + SPARE


def test_a_session_by_hand_between_runs(address: str, local: Callable[..., Played]) -> None:
    with (
        served("stack") as (model, where),
        rlmesh.session(rlmesh.RemoteModel(where), address) as session,
    ):
        for pushdown in (True, False, True):
            model.given.clear()
            result = session.run(seeds=SEEDS, pushdown=pushdown)
            assert (numbers(result), model.given) == local("stack")
            model.given.clear()
            for seed in SEEDS:
                observation, _ = session.reset(seed=seed)
                while not session.done:
                    assert observation["wrist"].shape == (32, 32, 3)
                    observation, *_ = session.step(session.predict(observation))
            assert model.given == local("stack")[1]


def test_clients_that_push_down_and_clients_that_do_not(local: Callable[..., Played]) -> None:
    """They share the model, each with a slot of its own."""
    with served("two cameras") as (_, where), ExitStack() as stack:
        envs = [stack.enter_context(serving(Rig())).address for _ in range(4)]

        def client(number: int) -> list[Any]:
            handle = rlmesh.RemoteModel(where)
            return numbers(
                rlmesh.run(
                    handle, envs[number], seeds=SEEDS, pushdown=bool(number % 2), progress=False
                )
            )

        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(client, range(4)):
                assert found == local("two cameras")[0]


def test_a_borrowed_handle_after_a_run_whose_model_failed(address: str) -> None:
    class Fails(Witness):
        def predict_chunk(self, observation: Any, context: Any) -> Any:
            if context["predict_index"] == 1:
                raise KeyError("no weights")
            return super().predict_chunk(observation, context)

    with rlmesh.ModelServer(Fails.from_config(name="bilinear")) as server:
        server.start()
        with RemoteEnv(address) as env:
            with rlmesh.session(rlmesh.RemoteModel(server.address), env) as session:
                for _ in range(2):
                    with pytest.raises(rlmesh.ModelException, match="no weights"):
                        session.run(seeds=[0], pushdown=True)
                    observation, _ = session.reset(seed=0)
                    action = session.predict(observation)
                assert np.isfinite(action).all()
            assert env.reset(seed=0)[0]["front"].shape == (36, 48, 3)


def test_servers_that_are_killed(tmp_path: Path, local: Callable[..., Played]) -> None:
    """Env and model come back, and are told again what was agreed on."""

    class Kills(rlmesh.RunHooks):
        def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
            nonlocal env, model
            if result.index == 1:
                env.kill()
                env = stack.enter_context(server_process("evals.view_envs:Rig", env_at))
            if result.index == 3:
                model.kill()
                model = stack.enter_context(start(model_at))

    def start(where: str) -> Any:
        return model_process("Witness", where, config={"name": "two cameras"})

    env_at, model_at = f"unix://{tmp_path}/env.sock", f"unix://{tmp_path}/model.sock"
    with ExitStack() as stack:
        env = stack.enter_context(server_process("evals.view_envs:Rig", env_at))
        model = stack.enter_context(start(model_at))
        result = rlmesh.run(
            rlmesh.RemoteModel(model_at),
            env_at,
            seeds=SEEDS,
            hooks=Kills(),
            retries=2,
            pushdown=True,
        )
        assert numbers(result) == local("two cameras")[0]
        assert {failure.endpoint for failure in result.errors} <= {env_at, model_at}
        assert len(result.errors) == 2


def test_images_that_the_model_would_process_in_another_way_are_refused(address: str) -> None:
    with served("bilinear") as (model, where), RemoteEnv(address) as env:
        link = rlmesh.RemoteModel(where).connect()
        slot = link.resolve(env.env_contract, 1)
        (image,) = link.offer(slot)
        seen, _ = env.reset(seed=0)
        flip: Any = ({"step": "flip_180"},)
        for wrong, why in (
            (replace(image, digest=b""), "as by another model server than this"),
            (replace(image, libraries={"OpenCV": "9"}), "the model's 9"),
            (replace(image, steps=flip), "not what the plan begins with"),
            (replace(image, leaf=5), "the plan reads no image there"),
            (replace(image, leaf=2**31), "the plan reads no image there"),
            (replace(image, shape=(9, 9, 3)), r"not \[9, 9, 3\]"),
        ):
            link.process(slot, [wrong])
            row = Row(slot, seen, "e", 0)
            with pytest.raises(rlmesh.ModelException, match=why) as caught:
                link.send_predict([row])
            assert "INVALID_REQUEST" in str(caught.value)
        link.process(slot, ())
        link.send_predict([Row(slot, seen, "e", 0)])
        assert len(link.finish()) == 1
        link.close()
        assert list(model.given) == [(0, 0)]


def test_replicas_that_get_unlike_pixels_are_sent_whole_images(
    address: str, local: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    import rlmesh.models.served
    from rlmesh.values import ProcessedImage

    offered: list[Any] = []
    real = rlmesh.models.served.pushable

    def unlike(*arguments: Any) -> tuple[ProcessedImage, ...]:
        """Every other server has another OpenCV."""
        images = real(*arguments)
        offered.append(images)
        if len(offered) % 2:
            return images
        return tuple(
            ProcessedImage(i.leaf, i.shape, i.steps, {"OpenCV": "4.0.1"}, i.digest) for i in images
        )

    lock = threading.Lock()
    monkeypatch.setattr(
        rlmesh.models.served, "pushable", lambda *a: [lock.acquire(), unlike(*a), lock.release()][1]
    )
    with served("bilinear") as (model, first), served("bilinear") as (other, second):
        handles = [rlmesh.RemoteModel(first), rlmesh.RemoteModel(second)]
        with pytest.warns(UserWarning, match="replicas of the model process leaf 2 unlike"):
            result = rlmesh.run(handles, address, seeds=SEEDS, pushdown=True)
        assert numbers(result) == local("bilinear")[0]
        assert {**model.given, **other.given} == local("bilinear")[1]
