"""When a model server starts a batch, in simulated time: the same case gives the same number."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import Any

import pytest

from rlmesh.models.pacing import Pace

MS = 1e-3
ROW = 30e-6  # what the server's thread takes to read a request, and to send an answer


class Clock:
    """What ``time.perf_counter`` shows."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr("rlmesh.models.batching.time.perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@dataclass(eq=False)
class Client:
    """Its seat at the server."""

    rows: int = 0
    answered: float = 0.0
    busy: bool = False


@dataclass(eq=False)
class Asked:
    arrived: int
    rows: int = 1
    began: int = 0


@dataclass(frozen=True)
class Case:
    """Times in seconds; the env's have a standard deviation of a tenth."""

    clients: int
    env: float
    fixed: float = 20 * MS
    slope: float = 0.2 * MS


def served(clock: Clock, case: Case, pace: Any, *, seconds: float = 6.0) -> float:
    """Return the predictions per second after a while, of clients that start within a second.

    The thread that predicts looks for requests only when it does not.
    """
    rng = random.Random(0)
    clients = [Client() for _ in range(case.clients)]
    start = clock.now
    flying: list[tuple[float, int]] = []

    def leaves(number: int, delay: float = 0.0) -> None:
        env = max(0.05 * case.env, rng.gauss(case.env, 0.1 * case.env))
        heapq.heappush(flying, (clock.now + delay + env, number))

    for number in range(case.clients):
        leaves(number, rng.random())
    waiting: list[tuple[Client, Asked]] = []
    counted, since = 0, 0.0
    while clock.now < start + 2.5 + seconds:
        if not since and clock.now > start + 2.5:
            counted, since = 0, clock.now
        looked = clock.now
        pace.looks()
        while flying and flying[0][0] <= looked:
            client = clients[heapq.heappop(flying)[1]]
            clock.now += ROW
            client.busy = True
            asked = Asked(int(clock.now * 1e9))
            pace.arrived(client, asked)
            waiting.append((client, asked))
        if not waiting:
            clock.now = max(clock.now, flying[0][0])
            continue
        due = pace.start_at([asked for _, asked in waiting], clients)
        if due > clock.now and flying:
            clock.now = max(clock.now, min(due, flying[0][0]))
            continue
        batch, waiting = waiting, []
        for _, asked in batch:
            asked.began = int(clock.now * 1e9)
        clock.now += case.fixed + case.slope * len(batch)
        for client, _ in batch:
            clock.now += ROW
            client.answered, client.busy = clock.now, False
            leaves(clients.index(client))
        counted += len(batch)
        pace.answered([asked for _, asked in batch])
    return counted / (clock.now - since)


@pytest.mark.parametrize("env", [0.0, 1 * MS, 5 * MS, 20 * MS])
@pytest.mark.parametrize("clients", [1, 4, 16, 64])
@pytest.mark.parametrize(("fixed", "slope"), [(20 * MS, 0.2 * MS), (5 * MS, 1 * MS)])
def test_the_wait_found_is_as_good_as_any_fixed_one(
    clock: Clock, clients: int, env: float, fixed: float, slope: float
) -> None:
    case = Case(clients, env, fixed, slope)
    waits = (0.0, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 40 * MS)
    best = max(served(clock, case, Pace(None, wait)) for wait in waits)
    assert served(clock, case, Pace(None, None)) > 0.96 * best


def test_how_long_clients_are_away_is_not_how_long_batches_last(clock: Clock) -> None:
    """Two halves that take turns are back long before the thread sees it."""
    told: list[float] = []
    pace = Pace(None, None)
    pace._clock.returned = told.append  # type: ignore[method-assign]
    served(clock, Case(64, 5 * MS), pace)
    assert max(told[len(told) // 2 :]) < 10 * MS


def test_a_fixed_wait_stays(clock: Clock) -> None:
    """Neither reviews nor batches that wait for everybody."""
    pace = Pace(None, 0.0)
    asked: list[float] = []
    start_at = pace.start_at
    pace.start_at = lambda jobs, seats: asked.append(start_at(jobs, seats)) or asked[-1]  # type: ignore[method-assign, func-returns-value]
    served(clock, Case(16, 5 * MS), pace)
    assert set(asked) == {0.0}
