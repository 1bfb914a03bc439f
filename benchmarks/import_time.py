"""What `import rlmesh` costs beside `import numpy`: medians over fresh processes, taken in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

_PROBE = """
import json, sys, time
begun = time.perf_counter()
import {module}
taken = time.perf_counter() - begun
print(json.dumps({{"ms": taken * 1e3, "grpc": "grpc" in sys.modules}}))
"""


def probe(module: str) -> dict[str, float | bool]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(module=module)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def measure(times: int = 15) -> dict[str, float | bool]:
    """Median milliseconds of both imports, and whether ours loaded grpc."""
    for module in ("numpy", "rlmesh"):
        probe(module)
    pairs = [(probe("numpy"), probe("rlmesh")) for _ in range(times)]
    return {
        "numpy": median(theirs["ms"] for theirs, _ in pairs),
        "rlmesh": median(ours["ms"] for _, ours in pairs),
        "grpc": any(ours["grpc"] for _, ours in pairs),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
