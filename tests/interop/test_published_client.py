"""The published clients, in their own interpreter, drive our EnvServer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interop_envs import CHARSET, ENVS, FRAME_SHAPES, Dtypes, Faulty, picture, stacked
from interop_expect import (
    LocalLanes,
    lane_value,
    record,
    record_vector,
    returned,
    same_array,
    same_episodes,
    same_info,
    same_lockstep,
    same_value,
    samples,
)
from interop_values import Tensorial
from reference_process import Reference
from support import Resources, serving

Serve = Callable[..., str]


def connect(address: str, **keywords: Any) -> list[Any]:
    return ["connect", {"address": address, **keywords}]


@pytest.mark.parametrize("name", ["tracker", "cartpole", "zoo", "annotated"])
def test_seeded_episodes_are_those_of_the_env_itself(
    reference: Reference, serve: Serve, name: str
) -> None:
    env = ENVS[name]()
    script, answers = record(env, [0, 7, 2**40], samples(env.action_space, 200))
    outcomes = reference.drive([connect(serve(name)), *script])
    same_episodes(env.observation_space, outcomes[1:], answers)


def test_raw_clients_show_tensors(reference: Reference, serve: Serve) -> None:
    env = ENVS["tracker"]()
    script, answers = record(env, [3], samples(env.action_space, 9))
    outcomes = reference.drive([connect(serve("tracker")), *script], backend="")
    assert isinstance(returned(outcomes[1])[0], Tensorial)
    same_episodes(env.observation_space, outcomes[1:], answers)


def test_every_dtype_to_its_limits(reference: Reference, serve: Serve) -> None:
    env, rng = Dtypes(), np.random.default_rng(5)
    script, answers = record(env, [0], [Dtypes.draw(rng) for _ in range(5)])
    outcomes = reference.drive([connect(serve("dtypes")), *script])
    same_episodes(env.observation_space, outcomes[1:], answers)


def test_texts_travel_both_ways(reference: Reference, serve: Serve) -> None:
    env = ENVS["talker"]()
    script, answers = record(env, [0], ["a", CHARSET, "✓🤖", "Ä Ö", "b" * 20])
    outcomes = reference.drive([connect(serve("talker")), *script])
    same_episodes(env.observation_space, outcomes[1:], answers)


def test_options_reach_the_env(reference: Reference, serve: Serve) -> None:
    address = serve("tracker")
    (_, shifted) = reference.drive(
        [connect(address), ["reset", {"seed": 4, "options": {"offset": 2.5, "scene": ["a", {}]}}]]
    )
    meant, _ = ENVS["tracker"]().reset(seed=4, options={"offset": 2.5})
    same_array(returned(shifted)[0], meant, "observation")


def test_messages_beyond_four_mebibytes(reference: Reference, serve: Serve) -> None:
    env = ENVS["panorama"]()
    outcomes = reference.drive([connect(serve("panorama")), ["reset", {"seed": 1}]])
    same_array(returned(outcomes[1])[0], env.reset(seed=1)[0], "observation")


def test_a_unix_socket(reference: Reference, serve: Serve, tmp_path: Path) -> None:
    env = ENVS["tracker"]()
    script, answers = record(env, [5], samples(env.action_space, 9))
    address = serve("tracker", f"unix://{tmp_path / 'env.sock'}")
    outcomes = reference.drive([connect(address), *script])
    same_episodes(env.observation_space, outcomes[1:], answers)


def test_a_zero_d_box_and_an_empty_text_take_their_nearest_published_form(
    reference: Reference, serve: Serve
) -> None:
    env = ENVS["edges"]()
    actions = [np.float32(value) for value in (0.5, -1.0, 0.25, 1.0)]
    script, answers = record(env, [6], actions)
    lifted = [[verb, np.reshape(arg, 1) if verb == "step" else arg] for verb, arg in script]
    outcomes = reference.drive([connect(serve("edges")), *lifted])
    for outcome, meant in zip(outcomes[1:], answers, strict=True):
        shown = returned(outcome)
        same_array(shown[0]["level"], meant[0]["level"].reshape(1), "level")
        assert shown[0]["note"] == meant[0]["note"]
        assert shown[1:-1] == meant[1:-1]


def test_info_values_that_cannot_travel_are_left_out(reference: Reference, serve: Serve) -> None:
    script = [["reset", {}], ["step", 0], ["step", 1]]
    outcomes = reference.drive([connect(serve("untidy")), *script])
    infos = [returned(outcome)[-1] for outcome in outcomes[1:]]
    warned = infos[0].pop("rlmesh.conformance.warning")
    assert sorted(warning["path"] for warning in warned) == ["huge", "mujoco"]
    for info in infos:
        assert set(info) == {"fine", "nan", "episode_ids"}
        assert info["fine"] == 1.5
        assert np.isnan(info["nan"])


def test_the_contract_as_published_clients_read_it(reference: Reference, serve: Serve) -> None:
    metadata, mode, observations, actions = reference.drive(
        [
            connect(serve("annotated")),
            *(["get", n] for n in ("metadata", "render_mode", "observation_space", "action_space")),
        ]
    )[1:]
    assert returned(metadata) == ENVS["annotated"]().metadata
    assert returned(mode) is None
    assert returned(observations).text == "Discrete(10)"
    assert returned(actions).text == "Discrete(2)"


def test_rendered_frames(reference: Reference, serve: Serve) -> None:
    script: list[Any] = [connect(serve("frames")), ["reset", {}]]
    for _ in FRAME_SHAPES:
        script += [["render", {}], ["step", 0]]
    frames = [returned(outcome) for outcome in reference.drive(script)[2::2]]
    for t, (frame, shape) in enumerate(zip(frames, FRAME_SHAPES, strict=True)):
        same_array(frame, picture(t, shape), f"frame {t}")


def test_no_frame_is_none(reference: Reference, serve: Serve) -> None:
    outcomes = reference.drive([connect(serve("tracker")), ["reset", {}], ["render", {}]])
    assert returned(outcomes[2]) is None


def test_remote_shutdown_needs_leave(reference: Reference, serve: Serve) -> None:
    firm, lenient = serve("tracker"), serve("tracker", allow_remote_shutdown=True)
    outcomes = reference.drive(
        [
            connect(firm),
            ["shutdown"],
            ["reset", {"seed": 1}],
            ["use", "lenient"],
            connect(lenient),
            ["reset", {}],
            ["shutdown"],
            ["close"],
        ]
    )
    assert returned(outcomes[1]) is False
    assert returned(outcomes[2])
    assert returned(outcomes[6]) is True
    gone = reference.drive([connect(lenient)])
    assert gone[0]["raised"][0] == "ConnectionError"


def test_an_exception_of_the_env_ends_the_session_and_not_the_server(
    reference: Reference, serve: Serve
) -> None:
    address = serve("faulty")
    outcomes = reference.drive(
        [
            connect(address),
            ["reset", {"seed": 1}],
            ["step", Faulty.RAISE],
            ["step", Faulty.FINE],
            connect(address),
            ["reset", {"options": {"fail": True}}],
            connect(address),
            ["reset", {}],
            ["step", Faulty.MISSHAPE],
            connect(address),
            ["reset", {}],
            ["step", Faulty.FINE],
        ]
    )
    boom, after, scene, shape = (outcomes[i] for i in (2, 3, 5, 8))
    for outcome in (boom, scene, shape):
        assert outcome["raised"][0] == "EnvironmentException"
    assert "step failed: KeyError: 'boom'" in boom["text"]
    assert "reset failed: ValueError: no such scene" in scene["text"]
    assert "expected float32[2], got float32[3]" in shape["text"]
    assert after["raised"][0] == "ConnectionError"
    assert returned(outcomes[11])[1] == 1.0


def test_a_refused_action_leaves_the_session_open(reference: Reference, serve: Serve) -> None:
    fine, infinite = np.array([1.5, -2.0], np.float32), np.array([0, np.inf], np.float32)
    script = [["reset", {}], ["step", infinite], ["step", fine]]
    outcomes = reference.drive([connect(serve("unbounded")), *script])
    assert outcomes[2]["raised"][0] == "ValueError"
    assert "[INVALID_ACTION] action[1]" in outcomes[2]["text"]
    same_array(returned(outcomes[3])[0], fine, "observation")


def test_a_failed_render_leaves_the_session_open(reference: Reference, serve: Serve) -> None:
    script = [["reset", {}], ["render", {}], ["step", Faulty.FINE]]
    outcomes = reference.drive([connect(serve("faulty")), *script])
    assert outcomes[2]["raised"][0] == "EnvironmentException"
    assert "RuntimeError: no display" in outcomes[2]["text"]
    assert returned(outcomes[3])[1] == 1.0


def test_one_client_at_a_time_and_the_next_after_its_close(
    reference: Reference, serve: Serve
) -> None:
    address = serve("tracker")
    first, second = ["use", "first"], ["use", "second"]
    push = ["step", np.zeros(2, np.float32)]
    outcomes = reference.drive(
        [
            *(first, connect(address), ["reset", {"seed": 1}]),
            *(second, connect(address), ["reset", {"seed": 2}]),
            *(first, push, ["close"]),
            *(second, connect(address), ["reset", {"seed": 2}]),
        ]
    )
    env = ENVS["tracker"]()
    for at, seed in ((2, 1), (11, 2)):
        same_array(returned(outcomes[at])[0], env.reset(seed=seed)[0], f"reset with seed {seed}")
    assert returned(outcomes[7])


def test_a_second_client_is_always_told_why(reference: Reference, serve: Serve) -> None:
    # A refusal after the response headers would now and then read "connection closed".
    address = serve("tracker")
    script = [["use", "first"], connect(address), ["reset", {}], ["use", "second"]]
    outcomes = reference.drive([*script, *[connect(address), ["reset", {}]] * 40])[4:]
    for refused in outcomes[1::2]:
        assert refused["raised"][0] == "ConnectionError"
        assert "already has an active Join session" in refused["text"]


def test_a_client_gone_mid_step_makes_room_at_once(reference: Reference, serve: Serve) -> None:
    address = serve("faulty")
    gone = reference.drive(
        [connect(address, request_timeout_seconds=0.3), ["reset", {}], ["step", Faulty.SLEEP]]
    )
    assert gone[2]["raised"][0] == "TimeoutError"
    outcomes = reference.drive([connect(address), ["reset", {}], ["step", Faulty.FINE]])
    assert returned(outcomes[2])[1] == 1.0


@pytest.mark.parametrize("name", ["next_step", "same_step"])
def test_a_vector_env_through_its_autoresets(reference: Reference, serve: Serve, name: str) -> None:
    envs = ENVS[name]()
    script, answers = record_vector(envs, 11, samples(envs.action_space, 25))
    outcomes = reference.drive([connect(serve(name)), *script], vector=True)
    space = envs.single_observation_space
    same_lockstep(space, outcomes[1:], answers, 3)
    assert sum(returned(outcome)[-1]["completed_episodes"] for outcome in outcomes[2:]) > 6
    for i, (outcome, answer) in enumerate(zip(outcomes[1:], answers, strict=True)):
        same_info(returned(outcome)[-1], answer[-1], f"answer {i}")


def test_a_vector_env_with_every_kind_of_space(reference: Reference, serve: Serve) -> None:
    envs = ENVS["zoo_vector"]()
    drawn = samples(envs.single_action_space, 18)
    pairs = [drawn[i : i + 2] for i in range(0, 18, 2)]
    script, answers = record_vector(envs, 3, [stacked(pair) for pair in pairs])
    outcomes = reference.drive([connect(serve("zoo_vector")), *script], vector=True)
    same_lockstep(envs.single_observation_space, outcomes[1:], answers, 2)


def test_a_vector_env_without_autoreset(reference: Reference, serve: Serve) -> None:
    envs = ENVS["disabled"]()
    steps = samples(envs.action_space, 12)
    first = record_vector(envs, 11, steps, until_end=True)
    second = record_vector(envs, [5, 6, 7], steps, until_end=True)
    script, answers = first[0] + second[0], first[1] + second[1]
    outcomes = reference.drive([connect(serve("disabled")), *script], vector=True)
    # Episodes that the second reset cuts off are reported with the step after it.
    late = returned(outcomes[1 + len(first[0]) + 1])[-1]
    assert late["completed_episodes"] == 3 - int(np.logical_or(*first[1][-1][2:4]).sum())
    late["completed_episodes"] = 0
    same_lockstep(envs.single_observation_space, outcomes[1:], answers, 3)


@pytest.mark.parametrize("name", ["lanes", "zoo_lanes"])
def test_lanes(reference: Reference, serve: Serve, name: str) -> None:
    lanes = LocalLanes(ENVS[name]())
    drawn = samples(lanes.envs[0].action_space, 40)
    steps = [drawn[i : i + 2] for i in range(0, 40, 2)]
    script, answers = record_vector(lanes, 21, steps, until_end=True)
    script[1:] = [["step", stacked(move[1])] for move in script[1:]]
    outcomes = reference.drive([connect(serve(name)), *script], vector=True)
    same_lockstep(lanes.envs[0].observation_space, outcomes[1:], answers, 2)
    for outcome, meant in zip(outcomes[1:], answers, strict=True):
        shown = returned(outcome)[-1]
        for key in meant[-1][0]:
            assert shown[key] == [info[key] for info in meant[-1]]


def test_frames_of_each_lane(reference: Reference, serve: Serve) -> None:
    for name in ("lanes_rgb", "next_step_rgb"):
        frames = reference.drive(
            [
                connect(serve(name)),
                ["reset", {"seed": 1}],
                *(["render", {"env_index": lane}] for lane in (0, 1, 7)),
            ],
            vector=True,
        )[2:]
        for lane in (0, 1):
            same_array(returned(frames[lane]), picture(lane, (24, 32, 3)), f"{name}, {lane=}")
        assert frames[2]["raised"][0] == "ValueError"


def test_the_wrong_arity_is_told(reference: Reference, serve: Serve) -> None:
    assert reference.drive([connect(serve("lanes"))])[0]["raised"][0] == "ValueError"
    assert reference.drive([connect(serve("tracker"))], vector=True)[0]["raised"][0] == "ValueError"


def test_seeds_must_be_as_many_as_lanes(reference: Reference, serve: Serve) -> None:
    for name, lanes in (("lanes", 2), ("next_step", 3)):
        space = ENVS["tracker"]().observation_space
        seeds = list(range(30, 30 + lanes))
        script = [["reset", {"seed": [1] * (lanes + 1)}], ["reset", {"seed": seeds}]]
        outcomes = reference.drive([connect(serve(name)), *script], vector=True)
        assert outcomes[1]["raised"][0] == "ValueError"
        shown = returned(outcomes[2])[0]
        for lane, seed in enumerate(seeds):
            value = lane_value(space, shown, lane, lanes)
            same_value(space, value, ENVS["tracker"]().reset(seed=seed)[0], f"{name}, {lane=}")


def test_clients_leave_nothing_behind(reference: Reference, own_tempdir: None) -> None:
    def visit() -> None:
        with serving(ENVS["tracker"]()) as server:
            session = [connect(server.address), ["reset", {}], ["close"]]
            reference.drive([*session, *session, connect(server.address), ["reset", {}]])

    visit()
    before = Resources.now()
    visit()
    before.assert_back()
