"""The other end of a :class:`~rlmesh.checks.worker.Worker`.

Reads a job from standard input, a line of JSON, and says what it finds on standard output, a line
of JSON each. What the env prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, BinaryIO

__all__ = ["main"]

Say = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Do one job."""
    # Ctrl-C is for whoever started this process, and who then ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, say = _channel()
    job = json.loads(jobs.readline())
    threading.Thread(target=_end_with, args=(jobs,), daemon=True).start()
    if job["job"] == "check":
        _check(job, say)
    else:
        _play(job, say)
    # What an env left running does not hold the answer up.
    os._exit(0)


def _channel() -> tuple[BinaryIO, Say]:
    """Return where jobs come from and what takes answers, both out of the env's reach."""
    jobs = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer).encode() + b"\n")

    return jobs, say


def _end_with(jobs: BinaryIO) -> None:
    """End this process when whoever started it has ended."""
    jobs.read()
    os._exit(1)


def _check(job: Mapping[str, Any], say: Say) -> None:
    from rlmesh.checks.bench import Recipe
    from rlmesh.checks.checking import check_target

    recipe = Recipe(job["target"], job["kwargs"], tuple(job["packages"]))
    check_target(
        recipe.target,
        recipe.kwargs,
        recipe.packages,
        steps=job["steps"],
        seed=job["seed"],
        on_begin=lambda name: say({"begin": name}),
        on_finding=lambda finding: say({"finding": asdict(finding)}),
    )
    say({"end": True})


def _play(job: Mapping[str, Any], say: Say) -> None:
    """Play on the thread that made the env, then on another one."""
    from rlmesh.checks.bench import Bench, Recipe, Subject
    from rlmesh.checks.playing import play, play_to_plain

    recipe = Recipe(job["target"], job["kwargs"], tuple(job["packages"]))
    with Bench(Subject(recipe.target, source=recipe.source()), job["steps"], job["seed"]) as bench:
        began = time.perf_counter()
        say({"play": play_to_plain(bench.first), "seconds": time.perf_counter() - began})
        with bench.another() as player:

            def elsewhere() -> None:
                say({"play": play_to_plain(play(player, bench.seed, bench.actions))})

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            # An env that has seen two threads may not close; the answer is out.
            os._exit(0)
