"""Good envs pass, whatever they are: classes, instances, factories, simulators, addresses."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import check_envs
import gymnasium
import pytest
from check_envs import Good
from lanes_envs import Lanes
from support import Resources, server_process, serving
from support.zoo import Everything, countdowns

import rlmesh
from rlmesh.checks import CheckReport, check_env
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv

EXAMPLES = Path(__file__).parents[2] / "examples"
ALL = [
    *("make", "steps", "observations", "actions", "rewards", "infos", "outcome", "seeds", "render"),
    *("metadata", "instances", "processes", "threads", "wire", "close", "time"),
]


class Walks(rlmesh.EnvFactory):
    closed = 0

    def make(self, render_mode: str = "rgb_array") -> Any:
        env = Good()
        env.render_mode = render_mode
        return env

    def close(self) -> None:
        type(self).closed += 1


def levels(report: CheckReport, level: Any) -> list[str]:
    return [finding.check for finding in report.of(level)]


def test_everything_is_checked_of_what_makes_an_env() -> None:
    for target in (Good, "check_envs:Good", "check_envs:make_good"):
        kwargs = {"render_mode": "rgb_array"} if target == "check_envs:make_good" else None
        report = check_env(target, steps=30, make_kwargs=kwargs)
        assert levels(report, "ok") == ALL, str(report)
        assert len(report.findings) == len(ALL)


def test_a_factory() -> None:
    """Its envs are made by it, and it is closed."""
    before = Walks.closed
    report = check_env(Walks, steps=30, make_kwargs={"render_mode": "none"})
    assert (levels(report, "fail"), levels(report, "warn")) == ([], [])
    assert levels(report, "skipped") == ["render"]
    assert Walks.closed == before + 1


def test_an_instance_stays_open() -> None:
    """Of one env, what another one would be needed for is not checked."""
    env = check_envs.ClosesOnce()
    before = Resources.now()
    report = check_env(env, steps=30)
    before.assert_back()
    assert report.passed and not env.closed
    assert levels(report, "skipped") == ["instances", "processes", "threads", "close"]
    env.reset(seed=0)


def test_a_registered_env() -> None:
    """By its id, or an instance, of which its spec makes more."""
    for target in ("CartPole-v1", gymnasium.make("CartPole-v1")):
        report = check_env(target)
        assert levels(report, "fail") == [], str(report)
        assert levels(report, "warn") == ["outcome"]
        assert {"instances", "close", "wire"} <= set(levels(report, "ok"))


def test_a_wrapped_env_is_not_taken_for_what_its_spec_makes() -> None:
    class Half(gymnasium.RewardWrapper):  # type: ignore[type-arg]
        def reward(self, reward: Any) -> float:
            return float(reward) / 2

    report = check_env(Half(gymnasium.make("CartPole-v1")))
    assert levels(report, "fail") == [], str(report)
    assert "instances" in levels(report, "skipped")


def test_every_kind_of_space() -> None:
    report = check_env(Everything, steps=20)
    assert levels(report, "fail") == [], str(report)


@pytest.mark.filterwarnings("ignore::UserWarning")  # what gymnasium says of Meta-World's spaces
def test_metaworld(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the demo is reproducible; Meta-World's own ignores its seed, and that is seen."""
    monkeypatch.syspath_prepend(EXAMPLES / "metaworld_mt10")
    task = importlib.import_module("task_env").SeededTask("reach-v3")
    report = check_env(task, steps=20)
    task.close()
    assert levels(report, "fail") == [], str(report)
    assert {"seeds", "observations", "wire"} <= set(levels(report, "ok"))
    assert sys.modules.pop("task_env")

    theirs: Any = gymnasium.make("Meta-World/MT1", env_name="reach-v3", seed=1)
    report = check_env(theirs, steps=20)
    theirs.close()
    assert levels(report, "fail") == ["seeds"], str(report)


def test_an_address(tmp_path: Path) -> None:
    """Only the outside is seen; the server is there for the next client, and nothing is left."""
    before = Resources.now()
    with server_process("checks.check_envs:Good") as server:
        for target in (server.address, server.address.removeprefix("tcp://")):
            report = check_env(target, steps=30)
            assert report.target == target
            assert levels(report, "fail") == [] and levels(report, "warn") == [], str(report)
            assert levels(report, "skipped") == [
                *("metadata", "instances", "processes", "threads", "wire", "close"),
            ]
            (time,) = [f for f in report.findings if f.check == "time"]
            assert "outside the server's own time" in time.message
        with RemoteEnv(server.address) as env:
            env.reset(seed=0)
            report = check_env(env, steps=30)  # a handle stays open
            assert report.passed
            env.reset(seed=0)
    before.assert_back()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled", "list"])
def test_an_address_of_lanes(mode: str) -> None:
    made = countdowns(3, 5, 9)
    env: Any = [make() for make in made]
    if mode != "list":
        env = gymnasium.vector.SyncVectorEnv(made, autoreset_mode=mode)
    with serving(env) as server:
        report = check_env(server, steps=20)
        assert levels(report, "fail") == [] and levels(report, "warn") == [], str(report)
        assert {"autoreset", "lanes", "seeds"} <= set(levels(report, "ok"))
        with RemoteVectorEnv(server.address) as envs:
            envs.reset(seed=0)


def test_faults_of_a_served_env_are_seen_from_outside() -> None:
    """What the server let through or left out, it tells; what broke it is a finding."""
    for env, check, level, words in (
        (check_envs.OutOfBounds(), "observations", "warn", "is outside Box"),
        (check_envs.InfoWithObject(), "infos", "warn", "sim.handle was dropped"),
        (check_envs.IgnoresSeed(), "seeds", "fail", "another episode"),
        (check_envs.RaisesInStep(), "steps", "fail", "KeyError: 'gripper'"),
        (Lanes("NextStep", "SameStep"), "steps", "fail", "NEXT_STEP lane 0"),
    ):
        with serving(env) as server:
            report = check_env(server.address, steps=30)
        told = [f for f in report.findings if (f.check, f.level) == (check, level)]
        assert len(told) == 1 and words in told[0].message, str(report)


def test_nobody_there() -> None:
    report = check_env("127.0.0.1:9")
    (finding,) = report.findings
    assert (finding.check, finding.level) == ("make", "fail")
    assert "ConnectionError" in finding.message and "127.0.0.1:9" in finding.message


def test_a_token() -> None:
    with serving(Good(), token="secret") as server:
        assert not check_env(server.address, steps=5).passed
        assert check_env(server.address, steps=5, token="secret").passed


def test_what_is_no_env() -> None:
    for wrong in (3, None):
        with pytest.raises(TypeError, match="expected a function or class that makes an env"):
            check_env(wrong)
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        check_env(Good, steps=0)
    for target, words in (
        ("no_such_module:Env", "No module named 'no_such_module'"),
        ("check_envs:Goood", "did you mean 'Good'"),
        ("Nope-v0", "Nope"),
    ):
        (finding,) = check_env(target).findings
        assert (finding.check, finding.level) == ("make", "fail")
        assert words in finding.message


def test_a_report_reads_and_travels() -> None:
    report = check_env(check_envs.NoOutcome(), steps=30)
    lines = str(report).splitlines()
    assert lines[0].startswith("warn: outcome: step 12 ended")
    assert lines[1].startswith("    success_rate counts terminated episodes instead")
    assert lines[-1] == "NoOutcome: 0 failed, 1 warnings, 4 not checked, 11 ok"
    data = report.to_dict()
    assert data["passed"] is True and len(data["findings"]) == 16
    assert set(data["findings"][-1]["values"]) == {
        *("reset_p50", "reset_p99", "step_p50", "step_p99", "wire_p50", "wire_share"),
    }
