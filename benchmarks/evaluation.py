"""The tables of `run`: against 0.1.0, a loop by hand and the closed-loop bound; and MT10."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from subprocess import Popen
from typing import Any

import scaling
from harness import hear, spawn, stop
from settings import Places, Settings
from table import duration

EXAMPLE = Path(__file__).parents[1] / "examples" / "metaworld_mt10"

ASIDE = f"""
The model sleeps `a + c` a row in `predict_batch`; every simulator is a process that sleeps, its
times normally distributed. The bound is that of a loop without jitter, the best of all splits of
the N lanes into k groups that take turns: N / max(k m, m + t), with m the cost of a batch of N / k
and t the mean of what the simulators drew. The first {scaling.LEARNING_BATCHES} batches, or a third
of them, are not counted.

"Best fixed wait, replayed" is the share of the bound that the best of {len(scaling.WAITS)} fixed
waits reaches in simulated time, where nothing takes any but the sleeps. With 60 % jitter none comes
near the bound where the times of model and simulator are alike: 0.78 at best for 16 endpoints with
80 + 0.5 ms and 50 ms. What is missing beyond that is CPU time: between two steps of a sleeper its
caches grow cold, and with 64 of them on two cores a step costs some 0.12 ms at the simulator's end.
"""


def ask(script: str, *args: str, path: Path | None = None) -> dict[str, Any]:
    """What a script announces once it is done."""
    process = spawn(sys.executable, script, *args, core=None, path=path)
    try:
        return hear(process)
    finally:
        stop(process)


# Against 0.1.0


def measure_remote(
    settings: Settings, transport: str, places: Places, rounds: int
) -> dict[str, float]:
    """Seconds per step of our `run`, our bare loop and the reference's `run`, taken in turn."""
    script = "evaluate_remote.py"
    with ExitStack() as stack:

        def start(python: str) -> Popen[str]:
            address = places.address(transport)
            server = spawn(python, script, "server", address, core=None)
            stack.callback(stop, server)
            bound = hear(server)["address"]
            client = spawn(python, script, "client", bound, core=None)
            stack.callback(stop, client)
            hear(client)
            return client

        ours = start(sys.executable)
        contenders = [("run", ours, "run"), ("bare", ours, "bare")]
        if settings.reference_python:
            contenders.append(("reference", start(settings.reference_python), "run"))
        taken: dict[str, list[float]] = {name: [] for name, _, _ in contenders}
        for _ in range(rounds):
            for name, client, kind in contenders:
                assert client.stdin is not None
                client.stdin.write(json.dumps({"kind": kind}) + "\n")
                client.stdin.flush()
                taken[name].append(hear(client)["step_s"])
    return {name: median(values) for name, values in taken.items()}


def remote(settings: Settings, transports: Sequence[str], places: Places) -> Iterator[str]:
    yield "### A remote env\n"
    yield (
        "`Model.run` with a trivial policy on one served env of 4 floats, 5 episodes of 200 steps; "
        f"medians of {settings.rounds} runs, taken in turn, on whatever core the system chooses; "
        "connecting and the resets are included.\n"
    )
    yield (
        "| transport | steps/s | 0.1.0 steps/s | ratio (aim: at least 5) | a step of `run` "
        "| of a bare `RemoteEnv.step` loop | overhead (aim: under 25 %) |\n| --- "
        + "| --: " * 6
        + "|"
    )
    for transport in transports:
        taken = measure_remote(settings, transport, places, settings.rounds)
        reference = taken.get("reference")
        cells = [
            transport,
            f"{1 / taken['run']:,.0f}",
            f"{1 / reference:,.0f}" if reference else "not run",
            f"{reference / taken['run']:.1f}x" if reference else "not run",
            duration(taken["run"] * 1e6),
            duration(taken["bare"] * 1e6),
            f"{taken['run'] / taken['bare'] - 1:+.0%}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


# In this process


def local(settings: Settings) -> Iterator[str]:
    taken = ask("evaluate_local.py", "--rounds", str(3 * settings.rounds))
    yield "### A local env\n"
    yield (
        "* `run` on a CartPole in this process, 10 episodes of 500 steps, fastest of the rounds: "
        f"{taken['by_run']:.1f} us a step; the same loop by hand: {taken['by_hand']:.1f} us; ratio "
        f"{taken['ratio']:.2f} (aim: at most 1.3)\n"
    )


# Many endpoints


def many(settings: Settings) -> Iterator[str]:
    cells = scaling.full_grid() if settings.full_grid else scaling.corners()
    grid = len(scaling.full_grid())
    yield "### Many endpoints\n"
    yield (
        f"{len(cells)} of the {grid} cases of {len(scaling.MODELS_MS)} models, "
        f"{len(scaling.SIMULATORS_MS)} simulators, {len(scaling.JITTERS)} jitters and "
        f"{len(scaling.ENDPOINTS)} numbers of endpoints"
        + (".\n" if len(cells) == grid else "; `make bench ARGS=--full-grid` runs them all.\n")
    )
    yield scaling.HEADER
    reached: list[scaling.Reached] = []
    for one in scaling.measure_all(cells[: settings.most_cells], settings.cell_seconds):
        reached.append(one)
        yield scaling.line(one)
    shares = [one.share for one in reached]
    yield ASIDE
    yield (
        f"* Reached on average {fmean(shares):.3f} (aim: 0.92), at worst {min(shares):.2f} (aim: "
        f"0.8); the best fixed wait replays at {fmean(one.replayed for one in reached):.3f} and "
        f"{min(one.replayed for one in reached):.2f}"
    )
    one, fifty = scaling.measure_all(scaling.SPEED_UP, settings.cell_seconds)
    yield (
        f"* {fifty.cell.endpoints} endpoints over one, simulators of {one.cell.env_ms:g} ms with "
        f"{one.cell.jitter:.0%} jitter, a model of {one.cell.fixed_ms:g} + {one.cell.row_ms:g} ms: "
        f"{one.rate:.2f} and {fifty.rate:.1f} steps/s, {fifty.rate / one.rate:.1f} times as many "
        f"(the bound says {fifty.cell.bound() / one.cell.bound():.1f}; vla-eval's record is 47)\n"
    )


# Real simulators


def metaworld(settings: Settings) -> Iterator[str]:
    episodes, tasks = str(settings.metaworld_episodes), str(settings.metaworld_tasks)
    arguments = ("client", "--episodes", episodes, "--tasks", tasks)
    taken = ask("metaworld_suite.py", *arguments, path=EXAMPLE)
    yield "### Meta-World MT10\n"
    yield (
        f"* The experts, {tasks} tasks, {episodes} episodes, {taken['steps']:,} steps, "
        f"{taken['success']:.0%} solved: one endpoint {taken['one_s']:.1f} s, ten endpoints "
        f"{taken['many_s']:.1f} s: {taken['one_s'] / taken['many_s']:.2f} times as fast on "
        f"{settings.cores} cores; the same steps and rewards: {'yes' if taken['same'] else 'NO'}\n"
    )
