"""What `import rlmesh` costs beside `import numpy`: medians over fresh processes, taken in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

_PROBE = """
import json, sys, time
begun = time.perf_counter()
{statement}
taken = time.perf_counter() - begun
print(json.dumps({{"ms": taken * 1e3, "grpc": "grpc" in sys.modules}}))
"""


STATEMENTS = {
    "numpy": "import numpy",
    "rlmesh": "import rlmesh",
    "client": "from rlmesh.numpy import RemoteEnv",
}


def probe(statement: str) -> dict[str, float | bool]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def measure(times: int = 15) -> dict[str, float | bool]:
    """Median milliseconds of each import, and whether one of ours loaded grpc."""
    for statement in STATEMENTS.values():
        probe(statement)  # compiles and warms what the measured ones read
    turns = [
        {name: probe(statement) for name, statement in STATEMENTS.items()} for _ in range(times)
    ]
    medians = {name: median(turn[name]["ms"] for turn in turns) for name in STATEMENTS}
    return {**medians, "grpc": any(turn[name]["grpc"] for turn in turns for name in STATEMENTS)}


if __name__ == "__main__":
    print(json.dumps(measure()))
