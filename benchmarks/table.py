"""The table: a row's cells, the machine and the software it was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness import Figures
from payloads import Payload

AIMS = {"floats": 2.2, "atari": 2.0, "vision": 2.0, "cameras": 1.3}
"""The highest ratio to the floor that is good enough."""

NOTES = """
The floor is a raw Python socket ping-pong of the same bytes with the fastest socket settings found.
Up to some 100 KB it is mostly the time a sleeping core takes to wake, which changes from round to
round; CPU per step is the steadier figure. AsyncVectorEnv has shared memory and one worker process;
it uses no socket, so both rows of a payload measure the same thing.
"""


@dataclass(frozen=True)
class Row:
    payload: Payload
    transport: str
    figures: dict[str, Figures]


def duration(us: float) -> str:
    return f"{us / 1e3:,.2f} ms" if us >= 1e3 else f"{us:.0f} us"


def size(nbytes: int) -> str:
    for unit, scale in (("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"


HEADER = (
    "| payload | bytes | transport | floor p50 | rlmesh p50 | ratio (aim) | rlmesh p95 "
    "| floor CPU client + server "
    "| rlmesh CPU client + server | AsyncVectorEnv p50 | 0.1.0 p50 | 0.1.0 CPU client + server "
    "| 0.1.0 / rlmesh |\n| --- | --: | --- " + "| --: " * 10 + "|"
)


def line(row: Row) -> str:
    floor, ours, other = row.figures["floor"], row.figures["rlmesh"], row.figures["async"]
    reference = row.figures.get("reference")
    aim = AIMS.get(row.payload.key)

    def cpu(figures: Figures) -> str:
        return f"{duration(figures.client_cpu)} + {duration(figures.server_cpu)}"

    cells = [
        row.payload.title,
        size(row.payload.nbytes),
        row.transport,
        duration(floor.p50),
        duration(ours.p50),
        f"{ours.p50 / floor.p50:.2f}" + (f" ({aim})" if aim else ""),
        duration(ours.p95),
        cpu(floor),
        cpu(ours),
        duration(other.p50),
        duration(reference.p50) if reference else "not run",
        cpu(reference) if reference else "not run",
        f"{reference.p50 / ours.p50:,.0f}x" if reference else "not run",
    ]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    model = next(
        (
            text.partition(":")[2].strip()
            for text in Path("/proc/cpuinfo").read_text().splitlines()
            if text.startswith("model name")
        ),
        platform.processor() or platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> str:
    def installed(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} absent"

    names = ("rlmesh", "numpy", "protobuf", "grpcio", "gymnasium")
    return ", ".join((f"Python {platform.python_version()}", *map(installed, names)))


def reference_version(python: str) -> str:
    code = (
        "from importlib.metadata import version as v;"
        "print(', '.join(f'{n} {v(n)}' for n in ('rlmesh', 'numpy', 'gymnasium')))"
    )
    return subprocess.run(
        [python, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
