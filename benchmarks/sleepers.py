"""Sleeping simulators, each a server process of its own, forked from one process that has imported.

The nursery, `python sleepers.py`, reads orders `{"count": n, "mean_ms": t, "jitter": j}` on stdin,
one a line, and answers each with the addresses of that many new simulators; the old ones are ended.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


from harness import announce, hear, spawn, stop
from rlmesh import EnvServer, ServeOptions, spaces  # before the forks, which then cost little

LEAST_SHARE = 0.05
"""No draw is below that share of the mean."""


def durations(seed: int, mean_s: float, jitter: float) -> Iterator[float]:
    """The times of the steps of the episode with that seed: normal, never below a small share."""
    rng = random.Random(seed)
    while True:
        yield max(LEAST_SHARE * mean_s, rng.gauss(mean_s, jitter * mean_s))


def drawn(seed: int, mean_s: float, jitter: float, steps: int) -> float:
    """What the first steps of that episode took in all."""
    return sum(itertools.islice(durations(seed, mean_s, jitter), steps))


class SleepingEnv:
    """A step sleeps; an episode never ends."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    observation_space = spaces.Box(-1.0, 1.0, (4,))
    action_space = spaces.Box(-1.0, 1.0, (7,))

    def __init__(self, mean_s: float, jitter: float) -> None:
        self._mean_s, self._jitter = mean_s, jitter
        self._times = durations(0, mean_s, jitter)
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._times = durations(seed or 0, self._mean_s, self._jitter)
        return self._observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(next(self._times))
        return self._observation, 1.0, False, False, {}

    def close(self) -> None:
        pass


def serve(env: SleepingEnv, address: str, ready: int) -> None:
    # The idle limit is the last resort: simulators whose nursery was killed end by themselves.
    options = ServeOptions(idle_timeout_seconds=30)
    server = EnvServer(env, address, options=options)
    os.write(ready, b"\n")
    os.close(ready)
    server.serve()


def fork_simulators(addresses: list[str], mean_s: float, jitter: float) -> list[int]:
    """Start one for each address; give their process ids once all of them listen."""
    pids: list[int] = []
    heard, ready = os.pipe()
    for address in addresses:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(heard)
                serve(SleepingEnv(mean_s, jitter), address, ready)
            finally:
                os._exit(1)
        pids.append(pid)
    os.close(ready)
    with os.fdopen(heard, "rb") as lines:
        if len(lines.read(len(pids))) != len(pids):
            raise RuntimeError("a sleeping simulator did not start; see its output above")
    return pids


def end_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


class Nursery:
    """The process that forks the simulators."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def simulators(self, count: int, mean_ms: float, jitter: float) -> list[str]:
        """Addresses of new simulators; those of the last call are gone."""
        order = {"count": count, "mean_ms": mean_ms, "jitter": jitter}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return hear(self._process)["addresses"]


@contextmanager
def nursery() -> Iterator[Nursery]:
    process = spawn(sys.executable, "sleepers.py", core=None)
    try:
        yield Nursery(process)
    finally:
        stop(process)


def main() -> None:
    numbers = itertools.count()
    running: list[int] = []
    with tempfile.TemporaryDirectory(prefix="rlmesh-sleepers-") as directory:
        try:
            for text in sys.stdin:
                order = json.loads(text)
                end_all(running)
                running = []
                addresses = [
                    f"unix://{directory}/{next(numbers)}.sock" for _ in range(order["count"])
                ]
                running = fork_simulators(addresses, order["mean_ms"] / 1e3, order["jitter"])
                announce(addresses=addresses)
        finally:
            end_all(running)


if __name__ == "__main__":
    main()
