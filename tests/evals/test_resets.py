"""Which slots are reset, and in what order, for endpoints of every ability."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlmesh.evals.resets import Reset, apart, plan_resets
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.contract import AutoresetMode

MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


def lanes(
    count: int, mode: AutoresetMode, *, resets_lanes: bool = True, steps_lanes: bool = False
) -> Any:
    return SimpleNamespace(
        lanes=count,
        resets_lanes=resets_lanes,
        steps_lanes=steps_lanes,
        contract=SimpleNamespace(autoreset_mode=mode),
    )


def episodes(seeds: dict[int, int | None]) -> dict[int, Assignment]:
    return {slot: Assignment(slot, seed) for slot, seed in seeds.items()}


@dataclass(frozen=True)
class Case:
    """Free slots of an endpoint, and the seeds of the episodes that begin in some of them."""

    endpoint: Any
    free: list[int]
    assigned: dict[int, Assignment]
    begun: bool

    def plan(self) -> list[Reset]:
        working = bool(self.assigned) or len(self.free) < self.endpoint.lanes
        return plan_resets(
            self.endpoint, self.free, self.assigned, begun=self.begun, working=working
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count, begun = draw(st.integers(1, 5)), draw(st.booleans())
    endpoint = lanes(count, draw(st.sampled_from(MODES)), steps_lanes=draw(st.booleans()))
    slots = list(range(count))
    free = slots if not begun else [slot for slot in slots if draw(st.booleans())]
    begins = free[: draw(st.integers(0, len(free)))]
    assigned = episodes({slot: draw(st.none() | st.integers(0, 9)) for slot in begins})
    return Case(endpoint, free, assigned, begun)


@given(cases())
def test_every_episode_begins_once_and_every_seed_has_its_slot(case: Case) -> None:
    resets = case.plan()
    begun = [slot for reset in resets for slot in reset.begins]
    assert sorted(begun) == sorted(case.assigned)
    for reset in resets:
        assert reset.slots and set(reset.begins) <= set(reset.slots)
        seeded = [slot for slot in reset.begins if case.assigned[slot].seed is not None]
        assert not seeded or seeded == list(reset.slots), "one seed a slot, or none"


@given(cases())
def test_no_slot_with_an_episode_is_reset(case: Case) -> None:
    begun: set[int] = set()
    for reset in case.plan():
        assert set(reset.slots) <= set(case.free)
        assert not begun & set(reset.slots), "an episode that has just begun would be lost"
        begun |= set(reset.begins)


@given(cases())
def test_lanes_that_step_together_are_reset_as_a_whole_first(case: Case) -> None:
    resets = case.plan()
    if resets and not case.begun and not case.endpoint.steps_lanes:
        assert sorted(resets[0].slots) == list(range(case.endpoint.lanes))


@given(cases())
def test_apart_begins_the_same_episodes_one_by_one(case: Case) -> None:
    for reset in case.plan():
        alone = apart(case.endpoint, reset, begun=case.begun)
        assert [slot for one in alone for slot in one.begins] == list(reset.begins)
        assert all(len(one.slots) == 1 for one in alone if one.begins)
        if not case.begun and not case.endpoint.steps_lanes:
            assert list(alone[0].slots) == list(range(case.endpoint.lanes))


def test_without_autoreset_a_free_slot_is_reset_although_nothing_begins() -> None:
    for mode in MODES:
        resets = plan_resets(lanes(3, mode), [1], {}, begun=True, working=True)
        assert resets == ([Reset([1], [])] if mode is AutoresetMode.DISABLED else [])
    stands = lanes(3, AutoresetMode.DISABLED)
    assert plan_resets(stands, [0, 1, 2], {}, begun=True, working=False) == []
    apart_lanes = lanes(3, AutoresetMode.DISABLED, steps_lanes=True)
    assert plan_resets(apart_lanes, [1], {}, begun=True, working=True) == []


def test_lanes_that_cannot_be_reset_alone_are_reset_together_and_once() -> None:
    endpoint = lanes(3, AutoresetMode.NEXT_STEP, resets_lanes=False)
    both = episodes({0: None, 1: None})
    first = plan_resets(endpoint, [0, 1, 2], both, begun=False, working=True)
    assert first == [Reset([0, 1, 2], [0, 1])]
    assert plan_resets(endpoint, [0], episodes({0: None}), begun=True, working=True) == []
