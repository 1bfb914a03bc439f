"""Vector envs: an autoreset mode passes where it is kept, and fails where it is off by a step."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from lanes_envs import Lanes
from support.zoo import countdowns

from rlmesh.checks import CheckReport, check_env

MODES = ["NextStep", "SameStep", "Disabled"]
# Before 1.1 there was one mode and no reset_mask: 0.29 resets within the step.
MODERN = tuple(int(number) for number in gymnasium.__version__.split(".")[:2]) >= (1, 1)
THEIRS = MODES if MODERN else ["SameStep"]
KINDS = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}


def problems(report: CheckReport) -> dict[str, str]:
    return {f.check: f.message for level in ("fail", "warn") for f in report.of(level)}


@pytest.mark.parametrize("mode", THEIRS)
@pytest.mark.parametrize("kind", KINDS)
def test_gymnasiums_pass(kind: str, mode: str) -> None:
    keywords: Any = {"autoreset_mode": mode} if MODERN else {}
    env: Any = KINDS[kind](countdowns(3, 5, 9), **keywords)
    try:
        report = check_env(env, steps=20)
    finally:
        env.close()
    assert set(problems(report)) == (set() if MODERN else {"lanes"}), str(report)
    assert report.passed
    checked = {f.check for f in report.of("ok")}
    assert {"autoreset", "seeds", "wire", "outcome"} <= checked


@pytest.mark.parametrize("mode", MODES)
def test_others_pass(mode: str) -> None:
    """Of lanes that cannot be reset alone, it is said that seeds cannot be run on them."""
    report = check_env(Lanes(mode), steps=20)
    assert set(problems(report)) == (set() if mode == "Disabled" else {"lanes"}), str(report)
    assert report.passed


def test_one_lane_is_a_single_env() -> None:
    assert problems(check_env(Lanes("NextStep", lengths=(4,)), steps=20)) == {}


BROKEN = [
    (Lanes("NextStep", "SameStep"), "autoreset", "the reset of lane 0 (reward 0, not done), got"),
    (Lanes("NextStep", "SameStep", reward=0.0), "autoreset", "which no action changes"),
    (Lanes("NextStep", "Disabled"), "autoreset", "got reward 1.0, done True"),
    (Lanes("NextStep", roll_reward=2.0), "autoreset", "got reward 2.0, done False"),
    (Lanes("NextStep", "SameStep", told=True, tells="NextStep"), "autoreset", "has 'final_obs'"),
    (Lanes("SameStep", told=False), "autoreset", "the info has no 'final_obs'"),
    (Lanes("SameStep", "NextStep"), "autoreset", "it is reset a step late"),
    (Lanes("SameStep", "Disabled"), "autoreset", "it was not reset"),
    (Lanes("Disabled", "SameStep", tells="Disabled"), "autoreset", "has 'final_obs'"),
    (Lanes("Disabled", masked=False), "lanes", "resetting lane 2 alone changed another lane"),
    (Lanes("Disabled", seeded=False), "lanes", "does not play that seed's episode"),
    (Lanes("Disabled", "NextStep", forgets=True), "lanes", "does not play that seed's episode"),
]


@pytest.mark.parametrize(("env", "check", "words"), BROKEN)
def test_off_by_a_step(env: Lanes, check: str, words: str) -> None:
    report = check_env(env, steps=20)
    failed = {f.check: f.message for f in report.of("fail")}
    assert check in failed, str(report)
    assert words in failed[check]
    assert not report.passed


def test_an_end_that_does_not_come_is_not_seen() -> None:
    report = check_env(Lanes("NextStep", lengths=(50, 50)), steps=20)
    (skipped,) = [f for f in report.of("skipped") if f.check == "autoreset"]
    assert skipped.message == "no episode ended in 20 steps"
