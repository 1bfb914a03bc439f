"""An evaluation that is killed (SIGKILL) again and again, and resumed from its journal until it is
done: ``python -m evals.kill_program JOURNAL WORLD ADDRESS...``.

Prints one line of JSON: the numbers of the result, and how often it was killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any

from evals.eval_envs import Feedback, Walk
from evals.traces import numbers

import rlmesh

SEEDS = [*range(40), 3, 3, 2**40]


class Mortal(Feedback):
    """Takes a while, and may kill its process in the middle of some prediction."""

    left = 10**9

    def predict_batch(self, observations: Any) -> Any:
        Mortal.left -= 1
        if not Mortal.left:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.0003)
        return super().predict_batch(observations)


def evaluate(journal: str, world: str, addresses: list[str]) -> rlmesh.RunResult:
    envs: Any = {"one": Walk(), "list": [Walk(), Walk(), Walk()], "served": addresses}[world]
    return rlmesh.run(Mortal, envs, seeds=SEEDS, journal=journal)


def main(journal: str, world: str, *addresses: str) -> None:
    rng = random.Random(world)
    killed = 0
    while True:
        patience = rng.choice([rng.uniform(0.0, 0.06), 60.0])
        predictions = rng.randint(1, 60)
        if killed >= 12:
            patience = predictions = 10**9
        pid = os.fork()
        if pid == 0:
            Mortal.left = predictions
            result = evaluate(journal, world, list(addresses))
            print(json.dumps({"numbers": numbers(result), "killed": killed}), flush=True)
            os._exit(0)
        deadline = time.monotonic() + patience
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.0005)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        killed += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
