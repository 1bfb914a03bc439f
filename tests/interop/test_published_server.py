"""Our clients and our loop drive the published EnvServer, which runs in its own interpreter."""

from __future__ import annotations

import contextlib
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from interop_envs import (
    CHARSET,
    ENVS,
    FRAME_SHAPES,
    POLICIES,
    Dtypes,
    Faulty,
    picture,
    stacked,
    steer,
)
from interop_expect import (
    LocalLanes,
    evaluated,
    lane_value,
    record,
    record_vector,
    returned,
    rolled,
    same_array,
    same_episodes,
    same_info,
    same_lockstep,
    same_value,
    samples,
)
from interop_player import Player, episode_rows
from interop_values import unpack
from reference_process import Reference
from support import Resources

import rlmesh
import rlmesh.numpy

Drive = Callable[..., list[dict[str, Any]]]

IDLE = np.zeros(2, np.float32)


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Play a script on one of our clients of an address; closed after the test."""
    players: list[Player] = []

    def play(client: Any, address: str, script: list[Any], **keywords: Any) -> list[dict[str, Any]]:
        player = Player(lambda **more: client(address, **{**keywords, **more}))
        players.append(player)
        outcomes = player.play([["connect", {}], *script])
        returned(outcomes[0])
        return [
            {"returned": unpack(outcome["returned"])} if "returned" in outcome else outcome
            for outcome in outcomes[1:]
        ]

    yield play
    for player in players:
        player.close()


DEFAULT_CHARSET = frozenset(string.ascii_letters + string.digits)
RAW, SCALAR, VECTOR = rlmesh.RemoteEnv, rlmesh.numpy.RemoteEnv, rlmesh.numpy.RemoteVectorEnv


@pytest.mark.parametrize("name", ["tracker", "cartpole", "zoo", "annotated"])
def test_seeded_episodes_are_those_of_the_env_itself(
    reference: Reference, drive: Drive, name: str
) -> None:
    env = ENVS[name]()
    script, answers = record(env, [0, 7, 2**40], samples(env.action_space, 200))
    with reference.serving(name) as served:
        outcomes = drive(SCALAR, served.address, [*script, ["get", "transport"]])
    same_episodes(env.observation_space, outcomes[:-1], answers)
    assert returned(outcomes[-1]) == "grpc"


def test_raw_clients(reference: Reference, drive: Drive) -> None:
    env = ENVS["tracker"]()
    script, answers = record(env, [3], samples(env.action_space, 9))
    with reference.serving("tracker") as served:
        same_episodes(env.observation_space, drive(RAW, served.address, script), answers)


def test_every_dtype_to_its_limits(reference: Reference, drive: Drive) -> None:
    env, rng = Dtypes(), np.random.default_rng(5)
    script, answers = record(env, [0], [Dtypes.draw(rng) for _ in range(5)])
    with reference.serving("dtypes") as served:
        same_episodes(env.observation_space, drive(SCALAR, served.address, script), answers)


def test_texts_travel_both_ways(reference: Reference, drive: Drive) -> None:
    env = ENVS["talker"]()
    script, answers = record(env, [0], ["a", CHARSET, "✓🤖", "Ä Ö", "b" * 20])
    with reference.serving("talker") as served:
        same_episodes(env.observation_space, drive(SCALAR, served.address, script), answers)


def test_options_reach_the_env(reference: Reference, drive: Drive) -> None:
    options = {"offset": 2.5, "scene": ["a", {}]}
    with reference.serving("tracker") as served:
        (shown,) = drive(SCALAR, served.address, [["reset", {"seed": 4, "options": options}]])
    meant, _ = ENVS["tracker"]().reset(seed=4, options=options)
    same_array(returned(shown)[0], meant, "observation")


def test_messages_beyond_four_mebibytes(reference: Reference, drive: Drive) -> None:
    env = ENVS["panorama"]()
    action = np.linspace(-1, 1, 1_200_000, dtype=np.float32)
    with reference.serving("panorama") as served:
        outcomes = drive(SCALAR, served.address, [["reset", {"seed": 1}], ["step", action]])
    same_array(returned(outcomes[0])[0], env.reset(seed=1)[0], "first observation")
    same_array(returned(outcomes[1])[0], env.step(action)[0], "second observation")
    assert returned(outcomes[1])[1] == 1.0


def test_a_unix_socket(reference: Reference, drive: Drive, tmp_path: Path) -> None:
    env = ENVS["tracker"]()
    script, answers = record(env, [5], samples(env.action_space, 9))
    with reference.serving("tracker", f"unix://{tmp_path / 'env.sock'}") as served:
        same_episodes(env.observation_space, drive(SCALAR, served.address, script), answers)


def test_the_contract(reference: Reference, drive: Drive) -> None:
    with reference.serving("annotated") as served:
        metadata, mode, contract = drive(
            SCALAR,
            served.address,
            [["get", n] for n in ("metadata", "render_mode", "env_contract")],
        )
        with SCALAR(served.address) as env:
            assert env.observation_space == rlmesh.spaces.Discrete(10)
            assert env.action_space == rlmesh.spaces.Discrete(2)
    assert returned(metadata) == ENVS["annotated"]().metadata
    assert returned(mode) is None
    assert returned(contract).text == 'EnvContract(id="UnknownEnv-v1", num_envs=1)'


def test_spaces_are_those_of_the_env(reference: Reference) -> None:
    env = ENVS["zoo"]()
    with reference.serving("zoo") as served, SCALAR(served.address) as remote:
        for ours, space in (
            (remote.observation_space, env.observation_space),
            (remote.action_space, env.action_space),
        ):
            shown = ours.to_gymnasium_space()
            assert list(shown) == list(space)
            for key in space:
                assert shown[key] == published(space[key]), key


def published(space: Any) -> Any:
    """Return a gymnasium space as 0.1.0 passes it on: without the default charset of texts."""
    if isinstance(space, spaces.Text) and space.character_set == DEFAULT_CHARSET:
        return spaces.Text(space.max_length, charset=string.printable)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([published(child) for child in space])
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: published(child) for key, child in space.items()})
    return space


def test_rendered_frames(reference: Reference, drive: Drive) -> None:
    script: list[Any] = [["reset", {}]]
    for _ in FRAME_SHAPES:
        script += [["render", {}], ["step", 0]]
    with reference.serving("frames") as served:
        frames = [returned(outcome) for outcome in drive(SCALAR, served.address, script)[1::2]]
    for t, (frame, shape) in enumerate(zip(frames, FRAME_SHAPES, strict=True)):
        same_array(frame, picture(t, shape), f"frame {t}")


def test_no_frame_is_none(reference: Reference, drive: Drive) -> None:
    with reference.serving("tracker") as served:
        assert returned(drive(SCALAR, served.address, [["reset", {}], ["render", {}]])[1]) is None


def test_remote_shutdown_needs_leave(reference: Reference) -> None:
    with (
        reference.serving("tracker") as firm,
        reference.serving("tracker", allow_remote_shutdown=True) as lenient,
    ):
        with SCALAR(firm.address) as env:
            assert env.shutdown() is False
            env.reset(seed=1)
        with SCALAR(lenient.address) as env:
            assert env.shutdown() is True
        lenient.wait()


def test_an_exception_of_the_env_ends_the_session_and_not_the_server(
    reference: Reference, drive: Drive
) -> None:
    with reference.serving("faulty") as served:
        outcomes = drive(
            SCALAR,
            served.address,
            [
                ["reset", {"seed": 1}],
                ["step", Faulty.RAISE],
                ["step", Faulty.FINE],
                ["connect", {}],
                ["reset", {"options": {"fail": True}}],
                ["connect", {}],
                ["reset", {}],
                ["step", Faulty.FINE],
            ],
        )
    boom, after, scene = (outcomes[i] for i in (1, 2, 4))
    for outcome in (boom, scene):
        assert outcome["raised"][0] == "EnvironmentException"
        assert any(served.address in note for note in outcome["notes"])
    assert "step failed: KeyError: 'boom'" in boom["text"]
    assert "reset failed: ValueError: no such scene" in scene["text"]
    assert after["raised"][0] == "ConnectionError"
    assert served.address in after["text"]
    assert returned(outcomes[7])[1] == 1.0


def test_a_refused_action_is_not_sent(reference: Reference, drive: Drive) -> None:
    script = [["reset", {}], ["step", 7], ["step", [1, 2]], ["step", "left"], ["step", Faulty.FINE]]
    with reference.serving("faulty") as served:
        outcomes = drive(SCALAR, served.address, script)
    for outcome in outcomes[1:4]:
        assert outcome["raised"][0] in ("ValueError", "TypeError")
        assert outcome["text"].startswith("action: expected")
    assert returned(outcomes[4])[1] == 1.0


def test_an_action_the_server_refuses_leaves_the_session_open(reference: Reference) -> None:
    with reference.serving("tracker") as served, SCALAR(served.address) as env:
        env.reset(seed=1)
        link: Any = env._link
        link.send(link._header, [memoryview(b"\0" * 3)])
        with pytest.raises(ValueError, match="INVALID_ACTION") as caught:
            link.recv_step()
        assert served.address in "".join(caught.value.__notes__)
        local = ENVS["tracker"]()
        local.reset(seed=1)
        same_array(env.step(IDLE)[0], local.step(IDLE)[0], "observation")


def test_one_client_at_a_time_and_the_next_after_its_close(
    reference: Reference, drive: Drive
) -> None:
    first, second = ["use", "first"], ["use", "second"]
    script = [
        *(first, ["connect", {}], ["reset", {"seed": 1}]),
        *(second, ["connect", {}], ["reset", {"seed": 2}]),
        *(first, ["step", IDLE], ["close"]),
        *(second, ["connect", {}], ["reset", {"seed": 2}]),
    ]
    with reference.serving("tracker") as served:
        outcomes = drive(SCALAR, served.address, script)
    refused = outcomes[5]
    assert refused["raised"][0] == "ConnectionError"
    assert served.address in refused["text"]
    assert "already has an active Join session" in refused["text"]
    assert returned(outcomes[7])
    same_array(returned(outcomes[11])[0], ENVS["tracker"]().reset(seed=2)[0], "observation")


def test_a_server_killed_mid_step_is_named(reference: Reference, drive: Drive) -> None:
    script = [["reset", {}], ["step", Faulty.DIE], ["step", Faulty.FINE], ["connect", {}]]
    with reference.serving("faulty") as served:
        begun = time.monotonic()
        outcomes = drive(SCALAR, served.address, script, request_timeout_seconds=20)
        assert time.monotonic() - begun < 20
    for outcome in outcomes[1:]:
        assert outcome["raised"][0] == "ConnectionError"
        assert served.address in outcome["text"]


def test_a_slow_server_runs_into_the_request_timeout(reference: Reference, drive: Drive) -> None:
    script = [["reset", {}], ["step", Faulty.SLEEP], ["step", Faulty.FINE]]
    with reference.serving("faulty") as served:
        slow, after = drive(SCALAR, served.address, script, request_timeout_seconds=0.3)[1:]
    assert slow["raised"][0] == "TimeoutError"
    assert after["raised"][0] == "ConnectionError"
    for outcome in (slow, after):
        assert served.address in outcome["text"]


def test_a_failed_render_is_the_envs_exception(reference: Reference, drive: Drive) -> None:
    with reference.serving("faulty") as served:
        outcome = drive(SCALAR, served.address, [["reset", {}], ["render", {}]])[1]
    assert outcome["raised"][0] == "EnvironmentException"
    assert "RuntimeError: no display" in outcome["text"]


def test_a_vector_env_through_its_autoresets(reference: Reference, drive: Drive) -> None:
    envs = ENVS["next_step"]()
    script, answers = record_vector(envs, 11, samples(envs.action_space, 25))
    with reference.serving("next_step") as served:
        outcomes = drive(VECTOR, served.address, [*script, ["get", "transport"]])
    assert returned(outcomes.pop()) == "grpc"
    same_lockstep(envs.single_observation_space, outcomes, answers, 3)
    assert sum(returned(outcome)[-1]["completed_episodes"] for outcome in outcomes[1:]) > 6
    for i, (outcome, answer) in enumerate(zip(outcomes, answers, strict=True)):
        same_info(returned(outcome)[-1], answer[-1], f"answer {i}")


@pytest.mark.parametrize("form", [stacked, list])
def test_a_vector_env_with_every_kind_of_space(
    reference: Reference, drive: Drive, form: Callable[[Any], Any]
) -> None:
    envs = ENVS["zoo_vector"]()
    drawn = samples(envs.single_action_space, 18)
    pairs = [drawn[i : i + 2] for i in range(0, 18, 2)]
    script, answers = record_vector(envs, 3, [stacked(pair) for pair in pairs])
    script[1:] = [["step", form(pair)] for pair in pairs]
    with reference.serving("zoo_vector") as served:
        outcomes = drive(VECTOR, served.address, script)
    same_lockstep(envs.single_observation_space, outcomes, answers, 2)


def test_lanes(reference: Reference, drive: Drive) -> None:
    lanes = LocalLanes(ENVS["zoo_lanes"]())
    drawn = samples(lanes.envs[0].action_space, 12)
    steps = [drawn[i : i + 2] for i in range(0, 12, 2)]
    script, answers = record_vector(lanes, 21, steps)  # lane i: seed 21 + i
    with reference.serving("zoo_lanes") as served:
        outcomes = drive(VECTOR, served.address, script)
    same_lockstep(lanes.envs[0].observation_space, outcomes, answers, 2)


def test_lanes_reset_alone(reference: Reference, drive: Drive) -> None:
    env, push = ENVS["tracker"](), np.full((2, 2), 0.5, np.float32)
    again = {"seed": 9, "options": {"reset_mask": np.array([False, True])}}
    script = [["reset", {"seed": [1, 2]}], ["step", push], ["reset", again], ["step", push]]
    with reference.serving("lanes") as served:
        outcomes = drive(VECTOR, served.address, script)

    def alone(seed: int, pushes: int) -> Any:
        observation, _ = env.reset(seed=seed)
        for _ in range(pushes):
            observation = env.step(push[0])[0]
        return observation

    space = env.observation_space
    histories = [((1, 0), (2, 0)), ((1, 1), (2, 1)), ((1, 1), (10, 0)), ((1, 2), (10, 1))]
    for i, (outcome, history) in enumerate(zip(outcomes, histories, strict=True)):
        for lane, (seed, pushes) in enumerate(history):
            shown = lane_value(space, returned(outcome)[0], lane, 2)
            same_value(space, shown, alone(seed, pushes), f"answer {i}, {lane=}")
    reset = returned(outcomes[2])[-1]
    assert (reset["t"][1], reset["_t"]) == (0, [False, True])
    ids = [returned(outcome)[-1]["episode_ids"] for outcome in outcomes]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert [a == b for a, b in zip(ids[1], ids[2], strict=True)] == [True, False]


def test_a_lane_that_ended_must_be_reset(reference: Reference, drive: Drive) -> None:
    lanes = LocalLanes(ENVS["lanes"]())
    push = np.zeros((2, 2), np.float32)
    script, answers = record_vector(lanes, 3, [push] * 9, until_end=True)
    with reference.serving("lanes") as served:
        outcomes = drive(VECTOR, served.address, [*script, ["step", push]])
    same_lockstep(lanes.envs[0].observation_space, outcomes[:-1], answers, 2)
    for outcome, (*_, infos) in zip(outcomes, answers, strict=False):
        meant = {key: [info[key] for info in infos] for key in infos[0]}
        masks = {f"_{key}": [True, True] for key in meant}
        same_info(returned(outcome)[-1], {**meant, **masks}, "infos")
    refused = outcomes[-1]
    assert refused["raised"][0] == "RuntimeError"
    assert served.address in refused["text"]


def test_lanes_that_leave_their_bounds_are_reported_once(
    reference: Reference, drive: Drive
) -> None:
    script = [["reset", {"seed": 1}], ["step", np.zeros((2, 2), np.float32)]]
    with reference.serving("stray_lanes") as served:
        first, second = (returned(o)[-1] for o in drive(VECTOR, served.address, script))
    assert [warning["kind"] for warning in first["rlmesh.conformance.warning"]] == ["observation"]
    assert not [key for key in {**first, **second} if key.startswith("_rlmesh")]
    assert "rlmesh.conformance.warning" not in second


def test_the_wrong_arity_is_told(reference: Reference) -> None:
    with reference.serving("lanes") as served:
        with pytest.raises(ValueError, match="Use RemoteVectorEnv instead") as caught:
            SCALAR(served.address)
        assert served.address in str(caught.value)
    with (
        reference.serving("tracker") as served,
        pytest.raises(ValueError, match="Use RemoteEnv instead"),
    ):
        VECTOR(served.address)


@pytest.mark.parametrize(
    ("names", "policy"),
    [
        (["tracker"], "steer"),
        (["zoo"], "chatter"),
        (["lanes"], "steer"),
        (["zoo_lanes"], "chatter"),
        (["tracker", "lanes"], "steer"),
    ],
)
def test_run(reference: Reference, names: list[str], policy: str) -> None:
    seeds = list(range(7))
    env = ENVS["zoo" if policy == "chatter" else "tracker"]()
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(reference.serving(name)).address for name in names]
        found = rlmesh.run(
            POLICIES[policy], addresses[0] if len(names) == 1 else addresses, seeds=seeds
        )
    assert episode_rows(found) == evaluated(env, POLICIES[policy], seeds)


@pytest.mark.parametrize("name", ["trials", "trial_lanes"])
def test_run_delivers_every_episode_its_trial(reference: Reference, name: str) -> None:
    """TRI-1: a single env and lanes, each reset with the options of its own episode."""
    seeds = [1, 1, 2, 1, 2]
    with reference.serving(name) as served:
        result = rlmesh.run(steer, served.address, seeds=seeds, trial_index_base=4)
    assert [episode.trial for episode in result.episodes] == [4, 5, 6, 7, 8]
    for seed, row in zip(seeds, episode_rows(result), strict=True):
        options = {"trial_index": 4 + row["index"]}
        (meant,) = evaluated(ENVS["trials"](), steer, [seed], options=options)
        assert row == {**meant, "index": row["index"]}


def test_run_through_a_handle(reference: Reference) -> None:
    with reference.serving("tracker") as served, SCALAR(served.address) as env:
        found = rlmesh.run(steer, env, seeds=[1, 2])
        env.reset()
    assert episode_rows(found) == evaluated(ENVS["tracker"](), steer, [1, 2])


def test_run_of_a_vector_env(reference: Reference) -> None:
    with reference.serving("next_step") as served:
        found = rlmesh.run(steer, served.address, max_episodes=11)
        with pytest.raises(ValueError, match="cannot reset some of its 3 lanes") as caught:
            rlmesh.run(steer, served.address, seeds=[1, 2, 3])
    assert served.address in str(caught.value)
    assert episode_rows(found) == rolled(ENVS["next_step"](), steer, 11)


def test_run_ends_with_the_envs_exception(reference: Reference) -> None:
    with (
        reference.serving("faulty") as served,
        pytest.raises(rlmesh.EnvironmentException, match="KeyError: 'boom'"),
    ):
        rlmesh.run(POLICIES["provoke"], served.address, seeds=[1])


def test_sessions_leave_nothing_behind(reference: Reference, own_tempdir: None) -> None:
    with reference.serving("tracker") as served:
        with SCALAR(served.address) as env:
            env.reset()
        before = Resources.now()
        for _ in range(5):
            with SCALAR(served.address) as env:
                env.reset()
            SCALAR(served.address).close()
        before.assert_back()
