"""Many endpoints and one model: the engine's rows per second beside the closed-loop bound."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from nursery import Nursery, nursery
from rlmesh.models.batching import closed_loop_bound, replay
from rlmesh.numpy import Model
from sleepers import durations, slept

MODELS_MS = ((20.0, 0.2), (5.0, 1.0), (80.0, 0.5))
SIMULATORS_MS = (1.0, 5.0, 50.0, 200.0)
JITTERS = (0.05, 0.3, 0.6)
ENDPOINTS = (1, 4, 16, 64)

LEARNING_BATCHES = 16
"""Not counted: until then the engine measures what it is dealing with. Never above a third."""

WAITS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
"""Fixed waits replayed, as multiples of the model's fixed cost."""


@dataclass(frozen=True)
class Cell:
    """One case: N endpoints whose simulators sleep, and a model that sleeps `a + c` a row."""

    endpoints: int
    fixed_ms: float
    row_ms: float
    env_ms: float
    jitter: float

    def bound(self, env_s: float | None = None) -> float:
        """Rows per second that no schedule exceeds, with the simulators' mean time in seconds."""
        env_s = self.env_ms / 1e3 if env_s is None else env_s
        return closed_loop_bound(self.endpoints, self.fixed_ms / 1e3, self.row_ms / 1e3, env_s)


@dataclass(frozen=True)
class Reached:
    """What a cell came to.

    Attributes:
        rate: rows per second.
        bound: the most there can be, with the times that the simulators really drew.
        rows: mean rows of a batch.
        cpu_us: CPU time of the evaluating process per row, in microseconds.
        replayed: share of the bound that the best fixed wait reaches in simulated time.
    """

    cell: Cell
    rate: float
    bound: float
    rows: float
    cpu_us: float
    replayed: float

    @property
    def share(self) -> float:
        return self.rate / self.bound


class SleepingModel(Model):
    """Sleeps what a batch costs and notes when it was done."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.batches: list[tuple[float, float, int]] = []  # when, CPU time so far, rows
        self.began = 0.0
        super().__init__()

    def predict_batch(self, observation: np.ndarray) -> np.ndarray:
        self.began = self.began or time.perf_counter()
        rows = len(observation)
        time.sleep((self.cell.fixed_ms + self.cell.row_ms * rows) / 1e3)
        self.batches.append((time.perf_counter(), time.process_time(), rows))
        return np.zeros((rows, 7), np.float32)


def full_grid() -> list[Cell]:
    return [
        Cell(endpoints, *model, env_ms, jitter)
        for model in MODELS_MS
        for env_ms, jitter, endpoints in itertools.product(SIMULATORS_MS, JITTERS, ENDPOINTS)
    ]


def corners() -> list[Cell]:
    """Every model with every simulator, few to many endpoints, and the hardest of the grid."""
    cases = ((4, 0.6), (16, 0.05), (64, 0.6))
    more = {Cell(16, 80.0, 0.5, 50.0, 0.6), *(Cell(1, *model, 5.0, 0.3) for model in MODELS_MS)}
    return [cell for cell in full_grid() if (cell.endpoints, cell.jitter) in cases or cell in more]


def measure(simulators: Nursery, cell: Cell, most_seconds: float) -> Reached:
    """Run one episode an endpoint for a bounded number of batches, and count the rows."""
    seconds = min(most_seconds, max(1.2, 24 * cell.endpoints / cell.bound()))
    mean_s = cell.env_ms / 1e3
    addresses = simulators.servers(cell.endpoints, mean_s=mean_s, jitter=cell.jitter)
    model = SleepingModel(cell)
    result = model.run(
        addresses, seeds=range(cell.endpoints), max_episode_seconds=seconds, progress=False
    )
    batches = [batch for batch in model.batches if batch[0] <= model.began + seconds]
    learning = 0 if cell.endpoints == 1 else min(LEARNING_BATCHES, len(batches) // 3)
    (began, cpu, _), *counted = batches[learning:]
    ended, cpu_ended, _ = counted[-1]
    rows = sum(batch[2] for batch in counted)
    slept_s = sum(slept(e.seed or 0, mean_s, cell.jitter, e.steps) for e in result.episodes)
    return Reached(
        cell,
        rate=rows / (ended - began),
        bound=cell.bound(slept_s / result.total_steps),
        rows=rows / len(counted),
        cpu_us=(cpu_ended - cpu) / rows * 1e6,
        replayed=replayed(cell),
    )


def replayed(cell: Cell) -> float:
    """Share of the bound that the best fixed wait reaches where nothing takes time but sleeps."""
    fixed, row, mean_s = cell.fixed_ms / 1e3, cell.row_ms / 1e3, cell.env_ms / 1e3
    lanes = cell.endpoints
    times = [
        seconds
        for seed in range(16)
        for seconds in itertools.islice(durations(seed, mean_s, cell.jitter), 64)
    ]
    rates = (
        replay(lanes, lanes, fixed, row, times, wait * fixed, ahead=ahead, cycles=32)
        for wait in WAITS
        for ahead in (0, lanes // 2)
    )
    return max(rates) / cell.bound(fmean(times))


def measure_all(cells: Sequence[Cell], most_seconds: float) -> Iterator[Reached]:
    with nursery("sleepers.py") as simulators:
        for cell in cells:
            yield measure(simulators, cell, most_seconds)


SPEED_UP = (Cell(1, 1.0, 0.02, 200.0, 0.3), Cell(50, 1.0, 0.02, 200.0, 0.3))
"""A slow simulator and a fast model: one endpoint, and fifty."""


HEADER = (
    "| model | simulator | jitter | endpoints | rows/s | bound | reached "
    "| best fixed wait, replayed | rows a batch | engine CPU a row |\n| --- " + "| --: " * 9 + "|"
)


def line(reached: Reached) -> str:
    cell = reached.cell
    cells = [
        f"{cell.fixed_ms:g} + {cell.row_ms:g} ms a row",
        f"{cell.env_ms:g} ms",
        f"{cell.jitter:.0%}",
        f"{cell.endpoints}",
        f"{reached.rate:,.1f}",
        f"{reached.bound:,.1f}",
        f"{reached.share:.2f}",
        f"{min(1.0, reached.replayed):.2f}",
        f"{reached.rows:.1f}",
        f"{reached.cpu_us:.0f} us",
    ]
    return f"| {' | '.join(cells)} |"
