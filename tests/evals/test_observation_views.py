"""What travels is what the policy reads, and what it is given is the same to the last bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from eval_envs import Feedback, Walk
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from models_served.serving_models import shut_native_door
from support import ServerProcess, server_process, serving
from support.relay import Relay
from traces import numbers, traced
from view_envs import SPECS, PairRig, Rig, Witness, rigs

import rlmesh
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv

SEEDS = [*range(5), 2**40 + 3]
FRONT, SIDE, WRIST = 36 * 48 * 3, 30 * 40 * 3, 32 * 32 * 3

Played = tuple[list[Any], dict[Any, str]]


class Looker(rlmesh.RunHooks):
    """Sees every step, for which observations travel whole."""

    def on_step(self, event: rlmesh.StepEvent) -> None:
        self.last = event


def played(name: str, env: Any, **arguments: Any) -> Played:
    """Run; return the numbers, and the hash of what the policy was given at each prediction."""
    model = Witness.from_config(name=name)
    result = rlmesh.run(model, env, **{"seeds": SEEDS, **arguments})
    return numbers(result), model.given


@pytest.fixture(scope="module")
def local() -> Callable[..., Played]:
    """What a policy is given on an env of this process."""
    known: dict[Any, Played] = {}

    def find(name: str, horizon: int = 1) -> Played:
        if (name, horizon) not in known:
            known[name, horizon] = played(name, Rig(), execution_horizon=horizon)
        return known[name, horizon]

    return find


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(Rig()) as server:
        yield server.address


@pytest.mark.parametrize("name", [*SPECS, "custom"])
def test_every_spec_gets_the_same_bits(
    name: str, address: str, local: Callable[..., Played]
) -> None:
    """The same inputs with the env in this process, with what is read, and with less of it."""
    for horizon in (1, 3):
        expected = local(name, horizon)
        assert played(name, address, execution_horizon=horizon) == expected
        assert played(name, address, execution_horizon=horizon, pushdown=True) == expected
    # Through the scheduler too, and where there is nothing to push anything down to.
    assert played(name, address, retries=1, pushdown=True) == local(name)
    assert played(name, Rig(), pushdown=True) == local(name)


def lanes_of(kind: str) -> Any:
    if kind == "lanes":
        return rigs(3)
    return SyncVectorEnv([Rig] * 3, autoreset_mode=AutoresetMode[kind])


@pytest.mark.parametrize("door", ["native", "grpc"])
@pytest.mark.parametrize("kind", ["scalar", "lanes", "NEXT_STEP", "SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("name", ["two cameras", "stack", "nothing"])
def test_over_each_door_and_kind_of_lanes(
    name: str,
    kind: str,
    door: str,
    local: Callable[..., Played],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if door == "grpc":
        shut_native_door(monkeypatch)
    env = Rig() if kind == "scalar" else lanes_of(kind)
    with serving(env) as server:
        for pushdown in (False, True):
            for horizon in (1, 3):
                found = played(name, server.address, execution_horizon=horizon, pushdown=pushdown)
                assert found == local(name, horizon)
        if kind not in ("scalar", "lanes"):
            assert played(name, lanes_of(kind), pushdown=True) == local(name)


@pytest.mark.parametrize("name", ["two cameras", "stack"])
def test_many_endpoints_of_several_kinds(name: str, local: Callable[..., Played]) -> None:
    with ExitStack() as stack:
        envs = [Rig(), rigs(2), SyncVectorEnv([Rig] * 2)]
        servers = [stack.enter_context(serving(env)) for env in envs]
        borrowed = stack.enter_context(RemoteEnv(servers[0].address))
        for pushdown in (False, True):
            endpoints = [borrowed, *(server.address for server in servers[1:]), Rig()]
            assert played(name, endpoints, pushdown=pushdown) == local(name)


def test_tuple_observations() -> None:
    expected = played("bilinear", PairRig())
    with serving(PairRig()) as server, Relay(server.address) as relay:
        whole = received(relay, "bilinear", hooks=Looker())[1]
        for pushdown, most in ((False, whole - WRIST), (True, whole - WRIST - 3 * FRONT // 4)):
            found, steps = received(relay, "bilinear", pushdown=pushdown)
            assert found == expected
            assert steps < most + 100
    with serving([PairRig(), PairRig()]) as server:
        assert played("bilinear", server.address) == expected
        assert played("bilinear", server.address, pushdown=True) == expected


# What crosses the wire


def received(relay: Relay, name: str, **arguments: Any) -> tuple[Played, float]:
    """Play through a relay; return what was played, and how many bytes came per observation."""
    before = relay.received
    found = played(name, relay.address, **arguments)
    observations = sum(row[2] + 1 for row in found[0])  # a reset and the steps
    return found, (relay.received - before) / observations


@pytest.mark.parametrize("door", ["native", "grpc"])
def test_cameras_that_nobody_reads_do_not_cross(
    door: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at the socket; the spare is for headers and for the handshake's share."""
    if door == "grpc":
        shut_native_door(monkeypatch)
    spare = 1000
    depth = 12 * 16 * 4
    with Relay(address) as relay:
        assert received(relay, "bilinear", hooks=Looker())[1] > FRONT + SIDE + WRIST + depth
        assert FRONT < received(relay, "bilinear")[1] < FRONT + spare
        assert FRONT / 4 < received(relay, "bilinear", pushdown=True)[1] < FRONT / 4 + spare
        assert received(relay, "two cameras")[1] < FRONT + SIDE + spare
        assert received(relay, "two cameras", pushdown=True)[1] < 2 * 300 + spare
        assert received(relay, "turned", pushdown=True)[1] < SIDE / 4 + spare
        assert received(relay, "slice", pushdown=True)[1] < FRONT / 4 + spare
        # Two inputs of one camera: what they have in common, if it makes the camera smaller.
        assert received(relay, "one camera twice", pushdown=True)[1] < FRONT / 16 + spare
        assert received(relay, "one camera, begun alike", pushdown=True)[1] < FRONT / 4 + spare
        assert received(relay, "one camera, unlike", pushdown=True)[1] > FRONT
        # Nothing is gained: floats are not touched, and the small camera is the env's.
        assert received(relay, "upscaled", pushdown=True)[1] < FRONT + spare
        assert received(relay, "floats", pushdown=True)[1] < FRONT / 4 + depth + spare
        assert received(relay, "no camera", pushdown=True)[1] < spare
        assert received(relay, "nothing")[1] < spare
        # Nobody knows what a function of the user's reads.
        assert received(relay, "custom", pushdown=True)[1] > FRONT + SIDE + WRIST


@pytest.mark.parametrize("kind", ["lanes", "NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_nor_with_several_lanes(kind: str) -> None:
    with serving(lanes_of(kind)) as server, Relay(server.address) as relay:
        assert received(relay, "no camera")[1] < 3 * 700
        assert received(relay, "bilinear", pushdown=True)[1] < 3 * (FRONT / 4 + 700)


def test_a_baseline_reads_nothing(address: str) -> None:
    expected = numbers(rlmesh.run(rlmesh.RANDOM_SAMPLE, Rig(), seeds=SEEDS))
    with Relay(address) as relay:
        result = rlmesh.run(rlmesh.RANDOM_SAMPLE, relay.address, seeds=SEEDS, pushdown=True)
        assert numbers(result) == expected
        assert relay.received < 1000 * (result.total_steps + len(SEEDS))
    with serving([Walk() for _ in range(3)]) as server:
        expected = numbers(rlmesh.run(rlmesh.RANDOM_SAMPLE, Walk(), seeds=SEEDS))
        assert numbers(rlmesh.run(rlmesh.RANDOM_SAMPLE, server.address, seeds=SEEDS)) == expected


def test_a_model_without_a_spec_is_given_everything() -> None:
    with serving(Walk()) as server:
        found = traced(Feedback(), server.address, seeds=SEEDS, pushdown=False)
        assert found == traced(Feedback(), Walk(), seeds=SEEDS)
        result = rlmesh.run(Feedback(), server.address, seeds=SEEDS, pushdown=True)
        assert numbers(result) == [row[:-1] for row in found]


# Who sees everything


def whole(observation: Any) -> bool:
    shapes = {key: getattr(value, "shape", ()) for key, value in observation.items()}
    return list(shapes) == list(Rig().observation_space) and shapes["wrist"][-3:] == (32, 32, 3)


class Watcher(rlmesh.RunHooks):
    def on_step(self, event: rlmesh.StepEvent) -> None:
        assert whole(event.observation)
        picture: Any = event.read("image/wrist")
        assert np.array_equal(picture, event.observation["wrist"])


class Listener(rlmesh.RunHooks):
    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.last = result


def test_hooks_that_watch_steps_are_shown_whole_observations(
    address: str, local: Callable[..., Played]
) -> None:
    assert played("bilinear", address, hooks=Watcher()) == local("bilinear")
    with pytest.warns(UserWarning, match=r"pushdown=True: Watcher.on_step is shown raw"):
        found = played("bilinear", address, hooks=[Listener(), Watcher()], pushdown=True)
    assert found == local("bilinear")
    with Relay(address) as relay:
        found, size = received(relay, "bilinear", hooks=Listener(), pushdown=True)
        assert found == local("bilinear")
        assert size < FRONT


def test_a_handle_is_given_back_as_it_was(local: Callable[..., Played]) -> None:
    with serving(Rig()) as server, RemoteEnv(server.address) as env:
        before = env.reset(seed=3)[0]
        assert whole(before)
        for pushdown in (False, True):
            assert played("bilinear", env, pushdown=pushdown) == local("bilinear")
            again, _ = env.reset(seed=3)
            assert whole(again)
            assert all(np.array_equal(again[key], before[key]) for key in before)
            assert whole(env.step(np.zeros(2, np.float32))[0])
    with serving(rigs(2)) as server, RemoteVectorEnv(server.address) as envs:
        for pushdown in (False, True):
            assert played("bilinear", envs, pushdown=pushdown) == local("bilinear")
            assert whole(envs.reset(seed=0)[0])
            assert whole(envs.step(np.zeros((2, 2), np.float32))[0])
            mask = np.array([False, True])
            assert whole(envs.reset(seed=7, options={"reset_mask": mask})[0])


def test_a_handle_is_given_back_whole_after_a_run_that_failed() -> None:
    class Fails(Witness):
        def predict_chunk(self, observation: Any, context: Any) -> Any:
            raise KeyError("no weights")

    with serving(Rig()) as server, RemoteEnv(server.address) as env:
        for pushdown in (False, True):
            with pytest.raises(KeyError):
                rlmesh.run(Fails.from_config(name="bilinear"), env, seeds=[0], pushdown=pushdown)
            assert whole(env.reset(seed=0)[0])


def test_a_session_runs_on_less_and_is_driven_by_hand_on_all(
    address: str, local: Callable[..., Played]
) -> None:
    model = Witness.from_config(name="stack")
    with rlmesh.session(model, address) as session:
        for pushdown in (True, False, True):
            model.given.clear()
            assert numbers(session.run(seeds=SEEDS, pushdown=pushdown)) == local("stack")[0]
            assert model.given == local("stack")[1]
            model.given.clear()
            for seed in SEEDS:
                observation, _ = session.reset(seed=seed)
                while not session.done:
                    assert whole(observation)
                    observation, *_ = session.step(session.predict(observation))
            assert model.given == local("stack")[1]
        assert session.read(observation, "image/wrist").shape == (32, 32, 3)


def test_the_next_client_sees_everything(address: str) -> None:
    for pushdown in (False, True):
        played("bilinear", address, pushdown=pushdown)
        with RemoteEnv(address) as env:
            assert whole(env.reset(seed=0)[0])


# Lost and found


@pytest.mark.parametrize("pushdown", [False, True])
def test_a_server_that_was_killed_is_asked_for_the_same_again(
    pushdown: bool, local: Callable[..., Played]
) -> None:
    class Kills(rlmesh.RunHooks):
        def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
            nonlocal process
            if result.index == 1:
                process.kill()
                process = stack.enter_context(server_process(target, fixed))

    target = "evals.view_envs:Rig"
    model = Witness.from_config(name="two cameras")
    with ExitStack() as stack:
        process: ServerProcess = stack.enter_context(server_process(target))
        fixed = process.address
        relay = stack.enter_context(Relay(fixed))
        result = rlmesh.run(
            model, relay.address, seeds=SEEDS, hooks=Kills(), retries=2, pushdown=pushdown
        )
        assert numbers(result) == local("two cameras")[0]
        assert model.given == local("two cameras")[1]
        assert len(result.errors) == 1
        observations = result.total_steps + len(SEEDS) + 2  # and those of the lost attempt
        most = 600 if pushdown else FRONT + SIDE
        assert relay.received < observations * (most + 1000)


# Where pixels would differ


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("rig_without_opencv", "OpenCV cannot be imported"),
        ("rig_with_another_opencv", r"its OpenCV is 4\.0\.1, the model's 4\.\d+"),
        ("rig_with_other_pixels", "other pixels of a test frame"),
    ],
)
def test_a_server_that_would_get_other_pixels_sends_them_whole(
    target: str, reason: str, local: Callable[..., Played]
) -> None:
    with server_process(f"evals.view_envs:{target}") as process, Relay(process.address) as relay:
        for name in ("bilinear", "two cameras"):
            with pytest.warns(UserWarning, match=reason) as caught:
                found, size = received(relay, name, pushdown=True)
            assert len(caught) == 1
            assert "image 'front' travels whole" in str(caught[0].message)
            assert found == local(name)
            assert FRONT < size < FRONT + SIDE + 1000
        # Pillow is the same there.
        found, size = received(relay, "pillow", pushdown=True)
        assert found == local("pillow")
        assert size < FRONT / 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert played("bilinear", process.address) == local("bilinear")


def test_one_warning_for_many_servers() -> None:
    targets = ["rig_without_opencv", "rig_without_opencv", "Rig"]
    with ExitStack() as stack:
        processes = [stack.enter_context(server_process(f"evals.view_envs:{t}")) for t in targets]
        with pytest.warns(UserWarning, match="and 1 more: image 'front' travels whole") as caught:
            found = played("bilinear", [p.address for p in processes], pushdown=True)
        assert len(caught) == 1
        assert found == played("bilinear", Rig())


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_pushdown_is_yes_or_no(value: Any) -> None:
    with pytest.raises(TypeError, match="pushdown must be True or False"):
        rlmesh.run(rlmesh.RANDOM_SAMPLE, Walk(), seeds=[0], pushdown=value)
