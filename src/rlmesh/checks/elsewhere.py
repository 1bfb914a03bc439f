"""Checks in a process of their own: another process, and another thread than the env's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlmesh.checks.bench import Bench
from rlmesh.checks.differences import first_difference
from rlmesh.checks.findings import Finding
from rlmesh.checks.playing import play_from_plain
from rlmesh.checks.worker import Died, Silent, Worker

__all__ = ["elsewhere"]

_FIRST_SECONDS = 300.0
"""How long a process may import, make the env and play; simulators take their time."""

_THREAD_SECONDS = 20.0

_SERVE = (
    "serve() and `rlmesh serve` call an env on the thread that made it, so it works there; "
    "EnvServer.start() and other threads do not"
)


def elsewhere(bench: Bench) -> Iterator[Finding]:
    """Another process plays the same episodes; so does another thread than the one that made it."""
    recipe = bench.subject.recipe
    if recipe is None:
        for check in ("processes", "threads"):
            yield Finding(
                check,
                "skipped",
                "another process cannot make this env",
                "check MODULE:NAME of what makes it",
            )
        return
    job = {
        "job": "play",
        "target": recipe.target,
        "kwargs": recipe.kwargs,
        "packages": recipe.packages,
        "steps": bench.steps,
        "seed": bench.seed,
    }
    with Worker(job) as worker:
        try:
            answer = worker.line(_FIRST_SECONDS)
        except (Died, Silent) as exc:
            how = str(exc) or f"no answer within {_FIRST_SECONDS:.0f} s"
            yield Finding("processes", "fail", f"another process could not play: {how}")
            yield Finding("threads", "skipped", "another process could not play")
            return
        yield _processes(bench, answer)
        yield _threads(bench, worker, answer)


def _processes(bench: Bench, answer: dict[str, Any]) -> Finding:
    difference = first_difference(bench.first, play_from_plain(answer["play"]), bench.player.paths)
    if difference:
        return Finding(
            "processes",
            difference.level,
            f"in another process, seed {bench.seed} is another episode (here, there): {difference}",
            "something differs from process to process: the order of a set, a hash, the time, an "
            "unseeded generator",
        )
    return Finding("processes", "ok", f"seed {bench.seed} is the same episode in another process")


def _threads(bench: Bench, worker: Worker, answer: dict[str, Any]) -> Finding:
    deadline = _THREAD_SECONDS + 10 * answer["seconds"]
    try:
        there = play_from_plain(worker.line(deadline)["play"])
    except Silent:
        how = f"it hangs (no answer in {deadline:.0f} s)"
    except Died as exc:
        how = str(exc)
    else:
        here = play_from_plain(answer["play"])
        if there.stopped is not None and here.stopped is None:
            how = there.stopped.message
        else:
            difference = first_difference(here, there, bench.player.paths)
            if not difference:
                return Finding("threads", "ok", "made on one thread, driven on another: the same")
            how = f"it is another episode: {difference}"
    return Finding("threads", "warn", f"made on one thread, driven on another: {how}", _SERVE)
