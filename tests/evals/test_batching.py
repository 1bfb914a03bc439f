"""When a batch starts: what the clock measures, what it decides, and what that is worth in a
simulated loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_loop import Case, served

from rlmesh.models.batching import (
    BatchClock,
    CostModel,
    best_wait,
    closed_loop_bound,
    replay,
)

MS = 1e-3


def clock_for(lanes: int, wait_s: float | None = None, max_batch: int | None = None) -> BatchClock:
    """A clock whose replays are never too dear for the run: real time takes no part."""
    clock = BatchClock(lanes, max_batch, wait_s)
    clock._began = -1e9
    return clock


# What a batch costs

positive = st.floats(1e-4, 1.0)


@given(positive, positive, st.lists(st.integers(1, 64), min_size=3, max_size=30))
def test_the_cost_is_fitted_exactly_where_it_is_linear(
    fixed: float, slope: float, sizes: list[int]
) -> None:
    model = CostModel()
    model.add(5, 99.0)  # the first: it compiles and warms up
    for rows in sizes:
        model.add(rows, fixed + slope * rows)
    a, c = model.fit()
    if len(set(sizes)) > 1:
        assert (a, c) == pytest.approx((fixed, slope), rel=1e-4, abs=1e-6)
    else:
        assert (a, c) == pytest.approx((fixed + slope * sizes[0], 0.0))


def test_one_batch_that_stood_still_is_left_out_and_a_slower_model_is_not() -> None:
    model = CostModel()
    for rows in (1, 2, 3, 4, 5, 6, 7):
        model.add(rows, 0.02 + 0.001 * rows)
    model.add(3, 5.0)
    assert model.fit() == pytest.approx((0.02, 0.001))
    for _ in range(200):
        model.add(3, 5.0)
    assert model.fit()[0] == pytest.approx(5.0, rel=0.01)


def test_nothing_is_known_before_the_second_batch() -> None:
    model = CostModel()
    assert model.fit() == (0.0, 0.0)
    model.add(3, 0.5)
    assert model.fit() == (0.0, 0.0)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.0, 1.0)), max_size=40))
def test_a_fit_is_never_negative(batches: list[tuple[int, float]]) -> None:
    model = CostModel()
    for rows, seconds in batches:
        model.add(rows, seconds)
    fixed, slope = model.fit()
    assert fixed >= 0.0 and slope >= 0.0


def test_an_old_cost_is_forgotten() -> None:
    """A model that was moved to another device, or shares it with somebody now."""
    model = CostModel()
    for rows in [1, 2, 4, 8] * 10:
        model.add(rows, 0.1 + 0.01 * rows)
    for rows in [1, 2, 4, 8] * 80:
        model.add(rows, 0.02 + 0.001 * rows)
    assert model.fit() == pytest.approx((0.02, 0.001), rel=0.02)


# When to start


def test_it_starts_at_once_when_nobody_else_comes_or_the_batch_is_full() -> None:
    clock = clock_for(8, wait_s=1.0, max_batch=4)
    assert clock.start_at(4, True, 10.0) == 0.0
    assert clock.start_at(7, True, 10.0) == 0.0
    assert clock.start_at(1, False, 10.0) == 0.0
    assert clock.start_at(3, True, 10.0) == 11.0
    assert clock_for(8, wait_s=0.0).start_at(1, True, 10.0) == 0.0


def test_the_wait_counts_from_when_a_batch_could_have_started() -> None:
    clock = clock_for(8, wait_s=0.5)
    clock.predicted(2, 0.1, 20.0)
    assert clock.start_at(1, True, 10.0) == 20.5, "the model was busy"
    assert clock.start_at(1, True, 30.0) == 30.5


@pytest.mark.parametrize(("asked", "most"), [(None, 8), (3, 3), (100, 8)])
def test_a_batch_is_no_larger_than_asked_or_possible(asked: int | None, most: int) -> None:
    assert clock_for(8, max_batch=asked).max_batch == most


def test_a_given_wait_is_left_alone() -> None:
    clock = clock_for(8, wait_s=0.25)
    for number in range(40):
        clock.returned(0.01)
        clock.predicted(1 + number % 4, 0.1, float(number))
    assert clock.wait_s == 0.25
    assert clock.share(2).start_at(1, True, 5.0) == 5.25


def test_one_lane_never_waits() -> None:
    clock = clock_for(1)
    for number in range(40):
        clock.returned(0.01)
        clock.predicted(1, 0.1, float(number))
    assert clock.start_at(1, False, 99.0) == 0.0 and clock.wait_s == 0.0


def test_the_first_waits_are_a_fraction_of_the_fixed_cost() -> None:
    clock = clock_for(8)
    assert clock.wait_s == 0.0
    for rows in (1, 2, 4):
        clock.returned(0.01)
        clock.predicted(rows, 0.1 + 0.01 * rows, 1.0)
    assert clock.wait_s == pytest.approx(0.6 * 0.1)


def test_replays_are_made_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    clock = clock_for(4)
    monkeypatch.setattr(clock, "_replan", lambda: made.append(clock._batches))
    for number in range(200):
        clock.returned(0.01)
        clock.predicted(1 + number % 3, 0.1, float(number))
    assert made == [8, 16, 32, 64, 128]


def test_replays_take_a_small_share_of_the_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of its own: a replay of a second, in a run that is ten seconds old."""
    now = [0.0]
    monkeypatch.setattr("rlmesh.models.batching.time.perf_counter", lambda: now[0])
    replays: list[float] = []

    def dear(*arguments: Any) -> float:
        replays.append(now[0])
        now[0] += 1.0
        return 0.125

    monkeypatch.setattr("rlmesh.models.batching.best_wait", dear)
    clock = BatchClock(4, None, None)
    for number in range(600):
        now[0] += 0.01
        clock.returned(0.01)
        clock.predicted(1 + number % 3, 0.1, now[0])
    assert len(replays) == 1, "the second would exceed 2 % of the seven seconds"
    assert clock.wait_s == 0.125
    now[0] += 60.0
    for number in range(700):
        clock.returned(0.01)
        clock.predicted(1 + number % 3, 0.1, now[0])
    assert len(replays) == 2


# What the replay says


def test_the_replay_of_an_even_loop_is_that_loop() -> None:
    """Four lanes in step: every 50 + 20 + 4 ms a batch of four."""
    rate = replay(4, 4, 20 * MS, 1 * MS, [50 * MS], 0.0, ahead=0)
    assert rate == pytest.approx(4 / (74 * MS))


def test_the_replay_of_one_row_at_a_time() -> None:
    """A model that takes one row is the bottleneck: its rate is all there is."""
    rate = replay(8, 1, 10 * MS, 0.0, [5 * MS], 0.0, ahead=1)
    assert rate == pytest.approx(1 / (10 * MS))


def test_a_loop_of_no_cost_at_all() -> None:
    assert replay(4, 4, 0.0, 0.0, [0.0], 0.0, ahead=0) == float("inf")
    assert best_wait(4, 4, 0.0, 0.0, [0.0]) == 0.0


def test_fast_envs_and_a_slow_model_are_worth_a_wait() -> None:
    """The case of design section 6: greedy, the first lane back starts a batch of one."""
    durations = [1 * MS * (1 + 0.1 * (i % 5)) for i in range(100)]
    wait = best_wait(64, 64, 80 * MS, 0.5 * MS, durations)
    assert wait > 0
    at_once = replay(64, 64, 80 * MS, 0.5 * MS, durations, 0.0, ahead=1)
    waited = replay(64, 64, 80 * MS, 0.5 * MS, durations, wait, ahead=1)
    assert waited > 1.5 * at_once


def test_slow_envs_and_a_quick_model_are_not() -> None:
    durations = [200 * MS * (1 + 0.5 * (i % 7 - 3) / 3) for i in range(100)]
    assert best_wait(4, 4, 1 * MS, 0.1 * MS, durations) <= 1.2 * MS


@pytest.mark.parametrize("fixed", [20 * MS, 80 * MS])
@pytest.mark.parametrize("env", [20 * MS, 50 * MS, 200 * MS])
def test_the_wait_found_is_not_in_vain_whatever_rhythm_the_lanes_are_in(
    fixed: float, env: float
) -> None:
    """Three lanes and one, by turns, that wait for each other just not long enough: 0.57."""
    durations = [env * (1 + 0.05 * (i % 5 - 2) / 2) for i in range(100)]
    wait = best_wait(4, 4, fixed, 0.2 * MS, durations)
    bound = closed_loop_bound(4, fixed, 0.2 * MS, env)
    for ahead in range(4):
        rate = replay(4, 4, fixed, 0.2 * MS, durations, wait, ahead=ahead, cycles=100)
        assert rate > 0.8 * bound, (ahead, wait)


@given(
    st.integers(1, 32),
    st.floats(0.1, 100).map(lambda ms: ms * MS),
    st.floats(0, 5).map(lambda ms: ms * MS),
    st.lists(st.floats(0.1, 300).map(lambda ms: ms * MS), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    st.integers(0, 32),
)
def test_no_replay_beats_the_model_or_the_lanes(
    lanes: int, fixed: float, slope: float, durations: list[float], wait: float, ahead: int
) -> None:
    rate = replay(lanes, lanes, fixed, slope, durations, wait * fixed, ahead=ahead)
    model = lanes / (fixed + slope * lanes)
    assert 0 < rate <= model * 1.5, "the first turn, which is not counted, may lend it a batch"


@given(st.integers(1, 64), st.floats(0.001, 0.1), st.floats(0, 0.01), st.floats(0.001, 0.3))
def test_the_bound_is_the_best_of_all_splits(
    lanes: int, fixed: float, slope: float, env: float
) -> None:
    bound = closed_loop_bound(lanes, fixed, slope, env)
    rates = []
    for groups in range(1, lanes + 1):
        cost = fixed + slope * (lanes / groups)
        rates.append(lanes / max(groups * cost, cost + env))
    assert bound == pytest.approx(max(rates))


# What it is worth

GRID = [
    Case(lanes, fixed * MS, slope * MS, env * MS, jitter)
    for lanes in (1, 4, 16, 64)
    for fixed, slope in ((20, 0.2), (5, 1), (80, 0.5))
    for env in (1, 5, 50, 200)
    for jitter in (0.05, 0.3, 0.6)
]


def shares(wait_s: float | None) -> dict[Case, float]:
    """Of each case the share of its closed-loop bound that is reached."""
    return {
        case: served(case, clock_for(case.lanes, wait_s))
        / closed_loop_bound(case.lanes, case.fixed, case.slope, case.env)
        for case in GRID
    }


def test_the_clock_reaches_the_bound_on_the_grid_of_the_issue() -> None:
    """0.92 on average. The bound is that of a loop without jitter: at 60 % no fixed wait reaches
    more than 0.78 of it in the worst case, so 0.75 is asked for everywhere."""
    found = shares(None)
    several = [share for case, share in found.items() if case.lanes > 1]
    assert sum(several) / len(several) >= 0.92
    worst = min(found, key=lambda case: found[case])
    assert found[worst] >= 0.75, worst
    assert min(share for case, share in found.items() if case.jitter < 0.5) >= 0.8
    greedy = shares(0.0)
    assert sum(greedy.values()) / len(GRID) < 0.87 and min(greedy.values()) < 0.55
    assert all(found[case] == pytest.approx(1.0, rel=0.06) for case in GRID if case.lanes == 1)
