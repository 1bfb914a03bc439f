"""Random episode lengths, budgets, seeds and lanes: the numbers are those of one env."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eval_envs import Feedback, OpenLoop, Walk, feedback
from gymnasium.vector import SyncVectorEnv
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import serving
from traces import traced

import rlmesh

KINDS = ("envs", "served", "lanes", "NextStep", "SameStep", "Disabled")


@dataclass(frozen=True)
class Case:
    """An evaluation: some episodes, and where they run."""

    lengths: tuple[int, ...]
    seeds: tuple[int, ...] | None
    budget: int | None
    cap: int | None
    horizon: int
    kind: str
    lanes: int
    remote: bool
    max_batch: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "max_episodes": self.budget,
            "max_episode_steps": self.cap,
            "execution_horizon": self.horizon,
        }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    seeds = draw(st.none() | st.lists(st.integers(0, 12) | st.just(2**62), min_size=1, max_size=12))
    least = 0 if seeds else 1
    return Case(
        lengths=tuple(draw(st.lists(st.integers(1, 14), min_size=1, max_size=5))),
        seeds=None if seeds is None else tuple(seeds),
        budget=draw(st.none() | st.integers(least, 14)),
        cap=draw(st.none() | st.integers(1, 9)),
        horizon=draw(st.sampled_from([1, 1, 2, 4])),
        kind=draw(st.sampled_from(KINDS)),
        lanes=draw(st.integers(1, 6)),
        remote=draw(st.booleans()),
        max_batch=draw(st.none() | st.integers(1, 4)),
    )


@contextlib.contextmanager
def world(case: Case) -> Iterator[tuple[Any, list[Walk]]]:
    """What to evaluate on, and the envs in it."""
    envs = [Walk(case.lengths) for _ in range(case.lanes)]
    with contextlib.ExitStack() as stack:
        if case.kind == "envs":
            yield envs, envs
        elif case.kind == "served":
            yield [stack.enter_context(serving(env)).address for env in envs], envs
        elif case.kind == "lanes":
            yield stack.enter_context(serving(envs)).address, envs
        else:
            makers = [lambda env=env: env for env in envs]
            vector = SyncVectorEnv(makers, autoreset_mode=case.kind)
            yield (stack.enter_context(serving(vector)).address if case.remote else vector), envs


class Watch(rlmesh.RunHooks):
    """Notes who begins and ends, and how many steps are counted."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int | None]] = []
        self.steps: Counter[int] = Counter()
        self.ended: list[int] = []

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.begun.append((episode, seed))

    def on_step(self, event: rlmesh.StepEvent) -> None:
        assert event.step == self.steps[event.episode], "steps come in order"
        assert event.episode not in self.ended, "no step is counted past the end"
        self.steps[event.episode] += 1

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        assert self.steps[result.index] == result.steps
        self.ended.append(result.index)


def episodes_of(case: Case) -> list[int | None]:
    """The seed page's accounting, once more: which seeds a run of the case has."""
    if case.budget is None:
        return [None] if case.seeds is None else list(case.seeds)
    known = list(case.seeds or ())
    return (known + [None] * case.budget)[: case.budget]


@settings(max_examples=60, deadline=None)
@given(cases())
@example(Case((14, 1, 1), (0, 1, 2, 4, 5), None, None, 1, "NextStep", 2, False, None))
@example(Case((14, 1, 1), (0, 1, 2, 4, 5), None, 5, 4, "Disabled", 3, True, 1))
@example(Case((2, 9), (1, 1, 0, 1), 7, None, 2, "SameStep", 6, False, 2))
@example(Case((3,), (0, 0), 1, None, 1, "lanes", 4, True, None))
def test_any_schedule_gives_the_numbers_of_one_env(case: Case) -> None:
    model = Feedback() if case.horizon == 1 else OpenLoop()
    wanted = episodes_of(case)
    watch = Watch()
    with world(case) as (env, envs):
        result = rlmesh.run(model, env, hooks=watch, max_batch=case.max_batch, **case.arguments)
    assert [episode.index for episode in result.episodes] == list(range(len(wanted)))
    assert [episode.seed for episode in result.episodes] == wanted
    assert sorted(watch.begun) == sorted(enumerate(wanted)), "as many starts as episodes"
    resets = [seed for env in envs for seed in env.resets if seed is not None]
    seeded = [seed for seed in wanted if seed is not None]
    assert Counter(resets) == Counter(seeded), "each seed reaches reset once per episode"
    for episode, seed in zip(result.episodes, wanted, strict=True):
        length = 2 if seed is None else case.lengths[seed % len(case.lengths)]
        assert episode.steps == min(length, case.cap or length), "totals stop at the done step"
        assert episode.truncated == (length % 4 == 0 if episode.steps == length else True)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_any_schedule_gives_the_digests_of_one_env(case: Case) -> None:
    """To the last bit; unseeded episodes differ by nature and are left out."""
    model = Feedback() if case.horizon == 1 else OpenLoop()
    expected = traced(model, Walk(case.lengths), **case.arguments)
    with world(case) as (env, _):
        got = traced(model, env, max_batch=case.max_batch, **case.arguments)
    assert [row for row in got if row[1] is not None] == [
        row for row in expected if row[1] is not None
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 6))
def test_a_long_episode_is_not_crowded_out(lengths: list[int], lanes: int) -> None:
    """One lane is busy with a hundred steps; the budget is starts, so it is counted too."""
    watch = Watch()
    envs = [Walk((100, *lengths)) for _ in range(lanes)]
    seeds = range(1 + len(lengths))
    result = rlmesh.run(feedback, envs, seeds=seeds, hooks=watch)
    assert [episode.steps for episode in result.episodes] == [100, *lengths]
    assert result.total_steps == 100 + sum(lengths) == sum(env.steps for env in envs)
    if lanes > 1:
        assert watch.ended[-1] == 0 or sum(lengths) > 100, "the others did not wait for it"
