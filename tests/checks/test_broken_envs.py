"""Every check catches an env that is broken in its way, and says where."""

from __future__ import annotations

import re
from typing import Any

import check_envs as envs
import pytest

from rlmesh.checks import CheckReport, check_env, elsewhere


def found(report: CheckReport) -> dict[str, str]:
    """Return the level of every check that found something, its worst."""
    worst: dict[str, str] = {}
    for level in ("warn", "fail"):
        worst |= {finding.check: level for finding in report.of(level)}
    return worst


def text_of(report: CheckReport, check: str) -> str:
    findings = [f for f in report.findings if f.check == check]
    return "\n".join(f"{finding.message} / {finding.remedy}" for finding in findings)


ALONE: dict[Any, tuple[dict[str, str], str]] = {
    # Seeds
    envs.IgnoresSeed: ({"seeds": "fail"}, r"reset\(seed=0\): observation\[0\]: \S+ and \S+ / draw"),
    envs.Remembers: ({"seeds": "fail"}, r"observation\[2\]: 1\.0 and 7\.0"),
    envs.NothingIsSeeded: ({"seeds": "warn"}, "seeds 0 and 1 are the same episode"),
    envs.LastDigits: ({"seeds": "warn", "wire": "warn"}, r"by rounding, to the end"),
    envs.OtherWhenServed: ({"wire": "fail"}, r"step 1: reward: 0\.0 and 1\.0"),
    # What reset and step return
    envs.NoSeed: ({"steps": "fail"}, r"keyword argument 'seed' / reset\(\*, seed=None"),
    envs.RaisesInReset: ({"steps": "fail"}, r"FileNotFoundError: no assets \(check_envs\.py:\d+"),
    envs.RaisesInStep: ({"steps": "fail"}, r"step 5 raised KeyError: 'gripper' \(check_envs"),
    envs.ExitsInStep: ({"steps": "fail"}, "step 1 raised SystemExit: licence"),
    envs.BareReset: ({"steps": "warn"}, r"no \(observation, info\)"),
    envs.InfoIsNone: ({"steps": "fail"}, r"returned \(observation, NoneType\)"),
    envs.FourParts: ({"steps": "warn"}, "the 4 parts of old gym"),
    envs.ThreeParts: ({"steps": "fail"}, "got a tuple of 3"),
    envs.FlagsAreNumbers: ({"steps": "warn"}, "terminated is int, expected a bool"),
    envs.WritesIntoActions: ({"actions": "warn"}, "wrote into the action"),
    # Observations
    envs.WrongShape: ({"observations": "fail"}, r"expected float32\[3\], got float32\[4\]"),
    envs.NotANumber: ({"observations": "fail"}, r"step 3: observation\[0\].* without NaN"),
    envs.WrongDtype: ({"observations": "warn"}, "is float64, its space declares float32"),
    envs.AList: ({"observations": "warn"}, "is a list, its space declares float32"),
    envs.OutOfBounds: ({"observations": "warn"}, r"observation\[0\]: \S+ is outside Box\(-1\.0"),
    envs.Infinite: ({"observations": "warn"}, "holds an infinity"),
    envs.MissingKey: ({"observations": "fail"}, "missing key 'b'"),
    envs.ExtraKey: ({"observations": "warn"}, "keys that its space lacks: 'debug'"),
    envs.Overwrites: ({"observations": "warn"}, "the array of the step before, overwritten"),
    envs.NoSpace: ({"make": "fail"}, "must have observation_space"),
    # Rewards, infos, metadata, outcomes
    envs.RewardNotANumber: ({"rewards": "fail"}, "step 1: the reward is NaN"),
    envs.RewardInfinite: ({"rewards": "warn"}, "step 1: the reward is infinite"),
    envs.TwoRewards: ({"rewards": "fail"}, "must return one number as reward"),
    envs.InfoWithObject: ({"infos": "warn"}, r"step 1: info sim\.handle cannot travel.*_thread"),
    envs.OutcomeIsAnObject: ({"infos": "fail", "wire": "fail"}, "success cannot travel"),
    envs.NoOutcome: ({"outcome": "warn"}, "step 12 ended an episode, and its info reports none"),
    envs.MetadataWithObject: ({"metadata": "warn"}, "lock cannot travel"),
    # Frames
    envs.FloatFrames: ({"render": "fail"}, r"float64\[4, 5, 3\]; expected uint8"),
    envs.NoFrame: ({"render": "warn"}, "gave no frame"),
    envs.RaisesInRender: ({"render": "fail"}, "RuntimeError: no display"),
    envs.UnlistedMode: ({"render": "warn"}, r"is not in metadata\['render_modes'\] \['human'\]"),
}
"""By env: what must be found, and in words. One instance is enough to find it."""


@pytest.mark.parametrize("env", ALONE, ids=lambda env: env.__name__)
def test_one_instance_shows_it(env: Any) -> None:
    expected, words = ALONE[env]
    report = check_env(env(), steps=30)
    assert found(report) == expected, str(report)
    assert report.passed == ("fail" not in expected.values())
    assert re.search(words, text_of(report, next(iter(expected))), re.DOTALL), str(report)


ANOTHER: dict[Any, tuple[dict[str, str], str]] = {
    envs.DrawnWhenMade: ({"instances": "fail"}, "a new env plays seed 0 otherwise than the first"),
    envs.SharedDice: ({"instances": "fail"}, "two envs in one process disturb each other"),
    envs.OfItsProcess: ({"processes": "fail"}, r"step 1: reward: \d+\.0 and \d+\.0"),
    envs.OfItsHash: ({"processes": "fail"}, "the order of a set, a hash"),
    envs.ClosesOnce: ({"close": "warn"}, "a second close.. raised RuntimeError: already closed"),
    envs.RaisesInClose: ({"close": "fail"}, r"close\(\) raised RuntimeError: cannot close"),
    envs.OfItsThread: ({"threads": "warn"}, r"step 1 raised RuntimeError: wrong thread"),
    envs.DiesElsewhere: ({"threads": "warn"}, "the process died of SIGKILL"),
    envs.HangsElsewhere: ({"threads": "warn"}, "it hangs"),
}
"""What takes a second instance, process or thread to show."""


@pytest.mark.parametrize("env", ANOTHER, ids=lambda env: env.__name__)
def test_another_one_shows_it(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_THREAD_SECONDS", 1.0)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    expected, words = ANOTHER[env]
    report = check_env(env, steps=30)
    assert found(report) == expected, str(report)
    assert re.search(words, text_of(report, next(iter(expected)))), str(report)


def test_what_cannot_be_told_is_said_to_be_unchecked() -> None:
    """An env that never ends says nothing of its outcome; a broken one nothing of what follows."""
    report = check_env(envs.NeverEnds(), steps=30)
    assert report.passed
    (outcome,) = [f for f in report.of("skipped") if f.check == "outcome"]
    assert outcome.message == "no episode ended in 30 steps"
    report = check_env(envs.IgnoresSeed, steps=30)
    skipped = {f.check: f.message for f in report.of("skipped")}
    assert set(skipped) == {"instances", "processes", "threads", "wire"}
    assert set(skipped.values()) == {"there is nothing to compare with, since seeds failed"}
    report = check_env(envs.RaisesInStep, steps=30)
    assert {f.check for f in report.of("ok")} == {"make", "metadata", "close"}
