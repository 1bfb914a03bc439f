"""Time an adapter's `transform_obs` against the published 0.1.0's and the bare library calls.

All contenders of a row are up at once, each in a process of its own, and take turns on the same
input; a figure is the median over the rounds of the round's p50, ratios are within the row.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from harness import hear, spawn, stop
from table import duration, machine, reference_version, versions

RESULTS = Path(__file__).with_name("ADAPTERS.md")
HEADER = (
    "| one observation | rlmesh p50 | 0.1.0 p50 | 0.1.0 / rlmesh (aim) | bare library p50 "
    "| rlmesh over it (aim) |\n| --- | --: | --: | --: | --: | --: |"
)
NOTES = """
Three 480x640 cameras to 224x224, position + quaternion to axis-angle + gripper mapped to [-1, 1] as
one vector, the instruction. The bare library does the cameras only. 8 lanes are one call that gives
[8, 224, 224, 3] arrays; 0.1.0 is called once a lane and left unstacked.

Every process first frees an array of the observation's size, as one that receives observations
does, so that malloc keeps memory for results. 0.1.0's own buffers may be larger than that; where
they are mapped afresh at each call (seen with `bilinear_aa`), it takes up to twice its time.
"""


@dataclass(frozen=True)
class Case:
    key: str
    title: str
    faster: float | None
    over: float | None


CASES = (
    Case("bilinear", "3 cameras `bilinear` (OpenCV), state, text", 6.0, 1.15),
    Case("bilinear_aa", "3 cameras `bilinear_aa` (Pillow), state, text", 2.0, 1.15),
    Case("state", "state and text only", 1.0, None),
    Case("lanes", "8 lanes at once of the first row", None, 1.15),
)


class Contender:
    """A process that answers rounds."""

    def __init__(self, python: str, kind: str, case: Case, core: int | None) -> None:
        self._process = spawn(python, "adapter_contender.py", kind, case.key, core=core)
        self._rounds: list[float] = []
        hear(self._process)

    def round(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f'{{"seconds": {seconds}}}\n')
        self._process.stdin.flush()
        self._rounds.append(float(hear(self._process)["p50"]))

    def p50(self) -> float:
        stop(self._process)
        return median(self._rounds)


def measure(case: Case, args: argparse.Namespace) -> dict[str, float]:
    up = {"rlmesh": Contender(sys.executable, "rlmesh", case, args.core)}
    if args.reference_python is not None:
        path = os.environ.pop("PYTHONPATH", None)  # it may name our sources
        up["reference"] = Contender(args.reference_python, "rlmesh", case, args.core)
        if path is not None:
            os.environ["PYTHONPATH"] = path
    if case.key != "state":
        up["bare"] = Contender(sys.executable, "bare", case, args.core)
    for _ in range(args.rounds):
        for contender in up.values():
            contender.round(args.seconds)
    return {name: contender.p50() for name, contender in up.items()}


def line(case: Case, p50: dict[str, float]) -> str:
    ours, theirs, bare = p50["rlmesh"], p50.get("reference"), p50.get("bare")
    aim = "" if case.over is None else f" ({case.over:.2f})"
    faster = "" if case.faster is None else f" ({case.faster:g}x)"
    cells = [
        case.title,
        duration(ours),
        duration(theirs) if theirs else "not run",
        f"{theirs / ours:.2f}x{faster}" if theirs else "not run",
        duration(bare) if bare else "",
        f"{ours / bare:.3f}{aim}" if bare else "",
    ]
    return f"| {' | '.join(cells)} |"


def report(args: argparse.Namespace, lines: list[str]) -> Iterator[str]:
    yield "# Adapters\n"
    yield f"* Made {datetime.now(timezone.utc):%Y-%m-%d} by `benchmarks/adapters.py`"
    yield f"* Machine: {machine()}"
    libraries = (f"{name} {found(name)}" for name in ("opencv", "pillow", "scipy"))
    yield f"* Software: {versions()}, {', '.join(libraries)}"
    if args.reference_python is not None:
        yield f"* Reference: {reference_version(args.reference_python).strip()}"
    yield ""
    yield from lines
    yield NOTES


def found(name: str) -> str:
    names = ("opencv-python-headless", "opencv-python") if name == "opencv" else (name,)
    for candidate in names:
        with suppress(PackageNotFoundError):
            return version(candidate)
    return "absent"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-python", help="an interpreter that holds rlmesh 0.1.0")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one round")
    parser.add_argument("--core", type=int, help="pin all contenders to this core")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    lines = [HEADER]
    print(HEADER)
    for case in CASES:
        lines.append(line(case, measure(case, args)))
        print(lines[-1], flush=True)
    args.out.write_text("\n".join(report(args, lines)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
