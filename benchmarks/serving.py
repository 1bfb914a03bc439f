"""The tables of served models: one predict against the floor, and many clients of one model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from subprocess import Popen

from harness import Figures, Pair, hear, spawn, start_pair, stop, take_turns
from payloads import PAYLOADS
from rlmesh.models.batching import closed_loop_bound
from settings import Places, Settings, free_address
from table import duration, size

# One predict

PREDICT_AIMS = {"floats": 2.5, "vision": 2.0, "cameras": 1.4}
"""The highest ratio to the floor that is good enough."""

PREDICT_HEADER = (
    "| observation | bytes | transport | floor p50 | rlmesh p50 | ratio (aim) | rlmesh p95 "
    "| floor CPU client + server | rlmesh CPU client + server | 0.1.0 p50 "
    "| 0.1.0 CPU client + server | 0.1.0 / rlmesh |\n| --- | --: | --- " + "| --: " * 9 + "|"
)

PREDICT_NOTES = """
`Session.predict` of a `RemoteModel` whose model returns a constant action: the observation there,
7 floats back. The floor is the same bytes through a raw Python socket, as above. A client of 0.1.0
does not dial unix sockets.
"""


def predict_contenders(
    settings: Settings, payload: str, transport: str, places: Places
) -> dict[str, Callable[[], Pair]]:
    def pair(python: str, script: str, address: str, *more: str) -> Callable[[], Pair]:
        return lambda: start_pair(settings, python, script, (payload, address, *more))

    here = sys.executable
    starts = {
        "floor": pair(here, "floor.py", places.address(transport), "predict"),
        "rlmesh": pair(here, "predict_pair.py", places.address(transport)),
    }
    if settings.reference_python and transport == "tcp":
        starts["reference"] = pair(settings.reference_python, "predict_pair.py", free_address())
    return starts


def predict_line(payload: str, transport: str, figures: dict[str, Figures], absent: str) -> str:
    floor, ours, reference = figures["floor"], figures["rlmesh"], figures.get("reference")

    def cpu(figures: Figures) -> str:
        return f"{duration(figures.client_cpu)} + {duration(figures.server_cpu)}"

    cells = [
        PAYLOADS[payload].title,
        size(PAYLOADS[payload].nbytes),
        transport,
        duration(floor.p50),
        duration(ours.p50),
        f"{ours.p50 / floor.p50:.2f} ({PREDICT_AIMS[payload]})",
        duration(ours.p95),
        cpu(floor),
        cpu(ours),
        duration(reference.p50) if reference else absent,
        cpu(reference) if reference else absent,
        f"{reference.p50 / ours.p50:,.1f}x" if reference else absent,
    ]
    return f"| {' | '.join(cells)} |"


def predict(
    settings: Settings, payloads: Sequence[str], transports: Sequence[str], places: Places
) -> Iterator[str]:
    yield "### One predict\n"
    yield PREDICT_HEADER
    for payload in PREDICT_AIMS:
        for transport in transports if payload in payloads else ():
            starts = predict_contenders(settings, payload, transport, places)
            absent = "no unix" if settings.reference_python else "not run"
            yield predict_line(payload, transport, take_turns(settings, starts), absent)
    yield PREDICT_NOTES


# Many clients

FIXED_S, ROW_S, ENV_S, JITTER = 0.020, 0.0002, 0.005, 0.1
CLIENTS = (1, 4, 16, 64)
CLIENT_ROUNDS = 3
WAITS = {"found": None, "0": 0.0}
"""What the server's `batch_wait_ms` is."""

LEARNING_BATCHES = 64
"""Not counted, or what a model has done by then: the server measures what it is dealing with."""

LEARNING_SECONDS = 5.0

CLIENTS_NOTES = f"""
The model sleeps {FIXED_S * 1e3:g} + {ROW_S * 1e3:g} ms a row in `predict_batch`. Every client is a
process that runs `rlmesh.run` with a `RemoteModel` on an env of its own, whose step sleeps
{ENV_S * 1e3:g} ms, normally distributed with {JITTER:.0%}; all of them on a unix socket (0.1.0: on
TCP, every env behind a server in its client's process, which is what its loop drives). Medians of
{{rounds}} rounds, taken in turn.

The bound is the most that any schedule reaches if times do not vary and moving data takes none: N
clients in k groups that take turns, N / max(k m, m + t) for the best k, with m the cost of a batch
of N / k rows and t the env's time. What is missing with many clients is CPU time: {{processes}}
processes share {{cores}} cores.
"""


@dataclass(frozen=True)
class Served:
    """What a contender came to: predictions per second, rows a batch, CPU of the server a row."""

    rate: float
    rows: float
    cpu_us: float


def count(server: Popen[str]) -> dict[str, float]:
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return hear(server)


def measure_clients(
    settings: Settings, python: str, address: str, clients: int, wait_ms: float | None
) -> Served:
    case = {
        "fixed_s": FIXED_S,
        "row_s": ROW_S,
        "wait_ms": wait_ms,
        "count": clients,
        "env_s": ENV_S,
        "jitter": JITTER,
    }
    args = ("serve_many.py", "server", address, json.dumps(case))
    server = spawn(python, *args, core=None)
    try:
        args = ("serve_many.py", "clients", hear(server)["address"], json.dumps(case))
        process = spawn(python, *args, core=None)
        try:
            hear(process)
            began = learn(server, min(LEARNING_SECONDS, 5 * settings.clients_seconds))
            time.sleep(settings.clients_seconds)
            ended = count(server)
        finally:
            stop(process)
    finally:
        stop(server)
    done = {name: ended[name] - began[name] for name in ended}
    return Served(
        rate=done["rows"] / done["at"],
        rows=done["rows"] / done["batches"],
        cpu_us=done["cpu"] / done["rows"] * 1e6,
    )


def learn(server: Popen[str], most_seconds: float) -> dict[str, float]:
    """Wait until the server knows its clients; return the counts from which to count."""
    deadline = time.monotonic() + most_seconds
    while True:
        counts = count(server)
        if counts["batches"] >= LEARNING_BATCHES:
            return counts
        if time.monotonic() > deadline and counts["batches"]:
            return counts
        time.sleep(0.05)


def clients_line(number: int, turns: dict[str, list[Served]], absent: str) -> str:
    bound = closed_loop_bound(number, FIXED_S, ROW_S, ENV_S)
    cells = [f"{number}", f"{bound:,.0f}"]
    for name in (*WAITS, "reference"):
        served = turns.get(name)
        if served is None:
            cells += [absent] * 2
            continue
        rate = median(turn.rate for turn in served)
        cells.append(f"{rate:,.0f} ({rate / bound:.2f})")
        cells.append(f"{median(turn.rows for turn in served):.1f}")
    cells.append(f"{median(turn.cpu_us for turn in turns['found']):.0f} us")
    return f"| {' | '.join(cells)} |"


def clients(settings: Settings, places: Places) -> Iterator[str]:
    yield "### Many clients of one model\n"
    yield (
        "| clients | bound | wait found by the server: per second (of the bound) | rows a batch "
        "| no wait: per second (of the bound) | rows a batch | 0.1.0: per second (of the bound) "
        "| rows a batch | server CPU a row |\n| --: " + "| --: " * 8 + "|"
    )
    rounds = min(CLIENT_ROUNDS, settings.rounds)
    for number in CLIENTS:
        if number > settings.most_clients:
            break
        turns: dict[str, list[Served]] = {}
        for _ in range(rounds):
            for name, wait_ms in WAITS.items():
                address = places.address("unix")
                one = measure_clients(settings, sys.executable, address, number, wait_ms)
                turns.setdefault(name, []).append(one)
            if settings.reference_python:
                python = settings.reference_python
                one = measure_clients(settings, python, free_address(), number, None)
                turns.setdefault("reference", []).append(one)
        yield clients_line(number, turns, "not run")
    yield CLIENTS_NOTES.format(
        rounds=rounds, processes=settings.most_clients + 1, cores=settings.cores
    )
