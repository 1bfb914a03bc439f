"""Time steps, evaluations and served models against floors, bounds and peers; print the tables and
keep them.

Every contender is two processes, a client and a server, each on a core of its own. All contenders
of a row are up at once and take turns, several short rounds each, so that what disturbs the machine
disturbs all of them. A figure is the median over the rounds of the round's p50; ratios are within
the row.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import evaluation
import import_time
import serving
import slow_link
from harness import Pair, hear, pin, spawn, start_pair, stop, take_turns
from payloads import PAYLOADS, Payload
from settings import Places, Settings
from table import HEADER, NOTES, Row, line, machine, reference_version, versions

RESULTS = Path(__file__).with_name("RESULTS.md")
PARTS = (
    *("step", "connect", "import"),
    *("remote", "local", "many", "metaworld"),
    *("predict", "clients", "link"),
)
SECTIONS = {
    **dict.fromkeys(("remote", "local", "many", "metaworld"), "Evaluation"),
    **dict.fromkeys(("predict", "clients", "link"), "Served models"),
}
"""What the heading above a part is, where it does not bring its own."""


def start_async(settings: Settings, payload: str) -> Pair:
    script = "peer_async_vector_env.py"
    client = spawn(sys.executable, script, payload, core=settings.client_core)
    try:
        worker = hear(client)["peer_pid"]
    except BaseException:
        stop(client)
        raise
    pin(worker, settings.server_core)
    return Pair(client, None, worker)


def contenders(
    settings: Settings, payload: str, transport: str, places: Places
) -> dict[str, Callable[[], Pair]]:
    def pair(python: str, script: str) -> Callable[[], Pair]:
        address = places.address(transport)
        return lambda: start_pair(settings, python, script, (payload, address))

    here = sys.executable
    starts = {
        "floor": pair(here, "floor.py"),
        "rlmesh": pair(here, "rlmesh_pair.py"),
        "async": lambda: start_async(settings, payload),
    }
    if settings.reference_python:
        starts["reference"] = pair(settings.reference_python, "rlmesh_pair.py")
    return starts


def measure_row(settings: Settings, payload: Payload, transport: str, places: Places) -> Row:
    figures = take_turns(settings, contenders(settings, payload.key, transport, places))
    return Row(payload, transport, figures)


def measure_connect(settings: Settings, transport: str, places: Places) -> dict[str, float]:
    address = places.address(transport)
    script = "rlmesh_pair.py"
    server = spawn(sys.executable, script, "server", "floats", address, core=settings.server_core)
    try:
        bound = hear(server)["address"]
        client = spawn(sys.executable, "connect.py", bound, core=settings.client_core)
        try:
            return hear(client)
        finally:
            stop(client)
    finally:
        stop(server)


def step(
    settings: Settings, payloads: list[str], transports: list[str], places: Places
) -> Iterator[str]:
    yield "## One step\n"
    yield HEADER
    for key in payloads:
        for transport in transports:
            yield line(measure_row(settings, PAYLOADS[key], transport, places))
    yield NOTES


def connect(settings: Settings, transports: list[str], places: Places) -> Iterator[str]:
    yield "## Connect\n"
    for transport in transports:
        taken = measure_connect(settings, transport, places)
        yield (
            f"* `RemoteEnv(address)` over {transport}: p50 {taken['p50']:.2f} ms, "
            f"p95 {taken['p95']:.2f} ms of 50 (aim: under 10 ms)"
        )
    yield ""


def imports(settings: Settings) -> Iterator[str]:
    taken = import_time.measure(5 * settings.rounds // 3)
    yield "## Import\n"
    yield (
        f"* `import rlmesh` {taken['rlmesh']:.0f} ms, `import numpy` {taken['numpy']:.0f} ms: "
        f"ratio {taken['rlmesh'] / taken['numpy']:.2f} (aim: at most 2); grpc is "
        f"{'' if taken['grpc'] else 'not '}in `sys.modules`"
    )
    yield (
        f"* `from rlmesh.numpy import RemoteEnv`, with numpy and all a client needs: "
        f"{taken['client']:.0f} ms\n"
    )


def report(
    settings: Settings, parts: Collection[str], payloads: list[str], transports: list[str]
) -> Iterator[str]:
    begun = time.monotonic()
    yield "# Benchmark results\n"
    yield f"Made by `make bench` on {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC.\n"
    yield f"* Machine: {machine()}"
    yield f"* Software: {versions()}"
    if settings.reference_python:
        yield f"* Reference: {reference_version(settings.reference_python).strip()}"
    pinned = "one core for each end" if settings.client_core is not None else "not pinned"
    yield (
        f"* Method: {settings.rounds} rounds of {settings.seconds} s a contender, in turn; medians "
        f"of the rounds; {pinned}"
    )
    yield f"* Load before the run: {load()}\n"
    with tempfile.TemporaryDirectory(prefix="rlmesh-bench-") as directory:
        places = Places(directory)
        written: dict[str, Iterator[str]] = {
            "step": step(settings, payloads, transports, places),
            "connect": connect(settings, transports, places),
            "import": imports(settings),
            "remote": evaluation.remote(settings, transports, places),
            "local": evaluation.local(settings),
            "many": evaluation.many(settings),
            "metaworld": evaluation.metaworld(settings),
            "predict": serving.predict(settings, payloads, transports, places),
            "clients": serving.clients(settings, places),
            "link": slow_link.table(settings),
        }
        section = ""
        for name in parts:
            if SECTIONS.get(name, section) != section:
                section = SECTIONS[name]
                yield f"## {section}\n"
            yield from written[name]
    yield f"The whole run took {time.monotonic() - begun:.0f} s; load at its end: {load()}."


def load() -> str:
    return "{:.1f} (1 min), {:.1f} (5 min)".format(*os.getloadavg())


@contextmanager
def results_file(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Collect lines, printing each, and write the file only when the run is complete."""
    lines: list[str] = []

    def emit(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    yield emit
    if path is not None:
        path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-python", help="interpreter that has rlmesh 0.1.0")
    parser.add_argument("--part", action="append", choices=PARTS, help="only these parts")
    parser.add_argument("--payload", action="append", choices=PAYLOADS, help="only these rows")
    parser.add_argument("--transport", action="append", choices=("unix", "tcp"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a round")
    parser.add_argument("--no-pin", action="store_true", help="let the system choose the cores")
    parser.add_argument("--full-grid", action="store_true", help="all cases of many endpoints")
    parser.add_argument("--most-cells", type=int, help="only the first cases of many endpoints")
    parser.add_argument("--cell-seconds", type=float, default=5.0, help="the longest one may take")
    parser.add_argument("--most-clients", type=int, default=64, help="of a served model")
    parser.add_argument("--clients-seconds", type=float, default=2.0, help="how long they count")
    parser.add_argument("--link-steps", type=int, default=40, help="steps on the slow link")
    parser.add_argument("--metaworld-episodes", type=int, default=100)
    parser.add_argument("--metaworld-tasks", type=int, default=10, help="only the first ones")
    args = parser.parse_args()

    cores = sorted(os.sched_getaffinity(0))
    pinned = len(cores) > 1 and not args.no_pin
    settings = Settings(
        rounds=args.rounds,
        seconds=args.seconds,
        reference_python=args.reference_python,
        client_core=cores[0] if pinned else None,
        server_core=cores[1] if pinned else None,
        cores=len(cores),
        full_grid=args.full_grid,
        most_cells=args.most_cells,
        cell_seconds=args.cell_seconds,
        most_clients=args.most_clients,
        clients_seconds=args.clients_seconds,
        link_steps=args.link_steps,
        metaworld_episodes=args.metaworld_episodes,
        metaworld_tasks=args.metaworld_tasks,
    )
    partial = bool(args.part or args.payload or args.transport or args.most_cells)
    parts = [part for part in PARTS if part in (args.part or PARTS)]
    payloads = args.payload or [*PAYLOADS]
    with results_file(None if partial else RESULTS) as emit:
        for text in report(settings, parts, payloads, args.transport or ["unix", "tcp"]):
            emit(text)


if __name__ == "__main__":
    main()
