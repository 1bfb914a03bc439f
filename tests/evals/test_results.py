"""Results: what counts as success, the totals, and the forms for machines and people."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
from eval_envs import Walk, feedback
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from support import serving

import rlmesh
from rlmesh.evals.results import read_success
from rlmesh.evals.statistics import wilson_interval


def episode(index: int = 0, **fields: Any) -> rlmesh.EpisodeResult:
    given = {"seed": None, "steps": 2, "reward": 1.0, "terminated": True, "truncated": False}
    return rlmesh.EpisodeResult(index=index, **{**given, "success": None, **fields})


# Success


@pytest.mark.parametrize(
    ("info", "success"),
    [
        ({}, None),
        ({"is_success": True}, True),
        ({"success": False}, False),
        ({"task_success": 1}, True),
        ({"success": 0.0}, False),
        ({"success": np.bool_(True)}, True),
        ({"success": np.array([1.0])}, True),
        ({"is_success": False, "success": True}, False),
        ({"is_success": None, "success": True}, True),
        ({"success": None}, None),
        ({"success": float("nan")}, None),
        ({"success": np.array([True, False])}, None),
        ({"terminated": True, "other": True}, None),
    ],
)
def test_what_counts_as_success(info: dict[str, Any], success: bool | None) -> None:
    """RES-2: the first key that is present; never inferred from anything else."""
    assert read_success(info) is success


class Scripted(Walk):
    """Reports these successes, one a step; nothing where it is None."""

    def __init__(self, *reports: bool | None) -> None:
        super().__init__((len(reports) or 3,))
        self.reports = reports

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        report = self.reports[self._n - 1] if self.reports else None
        return (*rest, {} if report is None else {"is_success": report})


@pytest.mark.parametrize(
    ("reports", "success", "once"),
    [
        ((), None, None),
        ((False, True), True, True),
        ((False, False), False, False),
        ((True, False), False, True),
        ((True, None), None, True),
        ((None, False), False, False),
        ((None, True, None), None, True),
    ],
)
@pytest.mark.parametrize("world", ["local", "remote", "list", "lanes", "SameStep", "NextStep"])
def test_the_last_step_decides_and_success_once_remembers(
    reports: tuple[bool | None, ...], success: bool | None, once: bool | None, world: str
) -> None:
    envs = [Scripted(*reports) for _ in range(2)]

    def check(env: Any) -> None:
        result = rlmesh.run(feedback, env, seeds=[1, 2, 3])
        for found in result.episodes:
            assert (found.success, found.success_once) == (success, once)

    if world in ("local", "list"):
        check(envs if world == "list" else envs[0])
    elif world in ("remote", "lanes"):
        with serving(envs if world == "lanes" else envs[0]) as server:
            check(server.address)
    else:
        check(SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=world))


def test_success_rate_is_the_share_of_reported_successes() -> None:
    result = rlmesh.RunResult(tuple(episode(i, success=i == 1, terminated=False) for i in range(4)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert result.success_rate == 0.25
    assert result.success_interval == wilson_interval(1, 4)


def test_success_rate_falls_back_to_terminated_with_one_warning() -> None:
    """Seed page "Episode accounting"."""
    result = rlmesh.RunResult((episode(0), episode(1, terminated=False, truncated=True)))
    with pytest.warns(UserWarning, match="counting episodes that terminated instead") as caught:
        assert result.success_rate == 0.5
        assert result.success_rate == 0.5
        assert result.success_interval == wilson_interval(1, 2)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "it points at who asked"
    assert repr(result) == (
        "RunResult(episodes=2, success_rate=0.500 [0.095, 0.905] (terminated), mean_reward=1.000, "
        "total_steps=4)"
    )


def test_episodes_that_report_count_by_their_report_beside_others() -> None:
    result = rlmesh.RunResult((episode(0), episode(1, success=False)))
    with pytest.warns(UserWarning, match="success_rate"):
        assert result.success_rate == 0.5


# Totals and forms


def test_totals() -> None:
    """RES-3."""
    result = rlmesh.RunResult((episode(0, reward=0.5), episode(1, steps=5, reward=-2.0)))
    assert (result.num_episodes, result.total_steps, result.mean_reward) == (2, 7, -0.75)
    empty = rlmesh.RunResult(())
    assert (empty.num_episodes, empty.total_steps, empty.mean_reward) == (0, 0, 0.0)
    assert (empty.success_rate, empty.success_interval) == (None, None)
    assert repr(empty) == "RunResult(episodes=0, mean_reward=0.000, total_steps=0)"
    assert repr(rlmesh.RunResult((episode(success=True),))) == (
        "RunResult(episodes=1, success_rate=1.000 [0.207, 1.000], mean_reward=1.000, total_steps=2)"
    )


def test_results_are_frozen_data() -> None:
    result = rlmesh.run(feedback, Walk(), seeds=[0])
    for value, field in ((result, "episodes"), (result.episodes[0], "reward")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, None)
    assert hash(result) == hash(dataclasses.replace(result))


def test_to_dict_and_to_json_say_the_same_and_all_of_it() -> None:
    result = rlmesh.run(feedback, Walk(), seeds=[2, 0, 2**40])
    data = result.to_dict()
    assert json.loads(result.to_json()) == data == json.loads(result.to_json(indent=2))
    assert data["num_episodes"] == 3 and data["total_steps"] == result.total_steps
    assert data["mean_reward"] == result.mean_reward, "floats are exact"
    assert data["success_rate"] == result.success_rate
    assert data["success_interval"] == list(result.success_interval or ())
    assert data["errors"] == []
    fields = [field.name for field in dataclasses.fields(rlmesh.EpisodeResult)]
    for row, found in zip(data["episodes"], result.episodes, strict=True):
        assert list(row) == fields
        assert rlmesh.EpisodeResult(**row) == found
    assert rlmesh.RunResult(()).to_dict()["success_rate"] is None


def test_the_table_has_a_line_an_episode_and_the_totals() -> None:
    result = rlmesh.RunResult(
        (
            episode(0, seed=7, success=True, predict_ms=1.5, step_ms=0.25),
            episode(10, steps=100, reward=-12.5, terminated=False, truncated=True),
        )
    )
    lines = result.format_table().splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["episode", "seed", "steps", "reward", "end", "success", "predict", "ms", "step", "ms"],
        ["0", "7", "2", "1.000", "terminated", "yes", "1.500", "0.250"],
        ["10", "-", "100", "-12.500", "truncated", "-", "-", "-"],
    ]
    assert len({len(line) for line in lines[:3]}) == 1, "columns line up"
    assert lines[3:] == [repr(result)]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_solves_wilsons_equation(case: tuple[int, int]) -> None:
    """Its ends are the proportions p from which the observed rate is z standard errors away."""
    successes, trials = case
    low, high = wilson_interval(successes, trials)
    rate, z = successes / trials, 1.959963984540054
    assert 0.0 <= low <= rate <= high <= 1.0
    for end in (low, high):
        if 0.0 < end < 1.0:
            error = z * math.sqrt(end * (1 - end) / trials)
            assert abs(rate - end) == pytest.approx(error, rel=1e-6)
    mirrored = wilson_interval(trials - successes, trials)
    assert (1 - high, 1 - low) == pytest.approx(mirrored)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_an_impossible_proportion_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} of {trials}"):
        wilson_interval(successes, trials)


# Telemetry


def rows_of(result: rlmesh.RunResult) -> dict[tuple[str, str], rlmesh.TelemetryRow]:
    return {(row.op, row.metric): row for row in result.telemetry}


def test_telemetry_counts_what_was_measured() -> None:
    """RES-4: a metric that was never measured has no row."""
    alone = rlmesh.run(feedback, Walk(), seeds=range(4))
    rows = rows_of(alone)
    assert set(rows) == {
        ("env.reset", "rpc.total"),
        ("env.step", "rpc.total"),
        ("model.predict", "rpc.total"),
    }
    assert rows["env.reset", "rpc.total"].count == 4
    assert rows["env.step", "rpc.total"].count == alone.total_steps
    assert rows["model.predict", "rpc.total"].count == alone.total_steps
    with serving(Walk()) as a, serving(Walk()) as b:
        several = rlmesh.run(feedback, [a.address, b.address], seeds=range(4))
    rows = rows_of(several)
    assert rows["env.step", "endpoint.total"].count == several.total_steps
    assert rows["env.step", "endpoint.total"].avg <= rows["env.step", "rpc.total"].avg
    batches = rows["model.predict", "batch.rows"]
    assert (batches.unit, batches.count * batches.avg) == ("count", several.total_steps)
    for row in rows.values():
        assert 0 <= row.p50 <= row.p95 <= row.p99
        assert row.component in row.op


def test_format_telemetry_is_an_aligned_table() -> None:
    """RES-5."""
    result = rlmesh.run(feedback, Walk(), seeds=range(3))
    lines = result.format_telemetry().splitlines()
    assert lines[0].split() == ["op", "metric", "unit", "count", "avg", "p50", "p95", "p99"]
    assert len({len(line) for line in lines}) == 1
    for line in lines[1:]:
        cells = line.split()
        assert cells[1:3] == ["rpc.total", "ms"] and cells[3].isdigit()
        assert all(len(cell.partition(".")[2]) == 2 for cell in cells[4:])
    assert rlmesh.RunResult(()).format_telemetry() == "(no telemetry: nothing was run)"


def test_partial_result_of_an_exception_that_ended_no_run() -> None:
    assert rlmesh.partial_result(ValueError()) is None
