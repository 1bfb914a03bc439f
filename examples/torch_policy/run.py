"""Train a PyTorch policy, save it, load it and evaluate it on a simulator in another process.

The simulator is served by `rlmesh.serve` from a factory; the policy gets named parts of its 39
numbers through an adapter, predicts eight actions at a time for all lanes at once, and plays them
all, four, or one before it looks again. Exits non-zero unless it does well each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rlmesh
from policy import CHUNK, Cloned
from train import SEEDS, TASK
from train import main as train

HERE = Path(__file__).parent
HELD_OUT = range(10)
LANES = 4


@contextmanager
def served() -> Iterator[str]:
    """Give the address of a process that serves several lanes of the task."""
    command = [sys.executable, "-m", "rlmesh.serve", "tasks:MetaWorld"]
    command += ["--kwargs-json", json.dumps({"task": TASK}), "--num-envs", str(LANES)]
    ready, theirs = os.pipe()
    command += ["--address", "127.0.0.1:0", "--idle-timeout", "60", "--ready-fd", str(theirs)]
    process = subprocess.Popen(command, cwd=HERE.parent / "metaworld_factory", pass_fds=[theirs])
    os.close(theirs)
    try:
        with os.fdopen(ready) as file:
            address = file.readline().strip()
        if not address:
            raise RuntimeError("the server did not start; see its output above")
        yield address
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    assert not set(HELD_OUT) & set(SEEDS)
    with tempfile.TemporaryDirectory(prefix="cloned-") as directory, served() as address:
        checkpoint = f"{directory}/cloned.pt"
        train(checkpoint)
        model = Cloned.from_config(checkpoint=checkpoint)
        print(f"\n{'horizon':>7}{'success':>9}{'95 % Wilson':>15}{'steps':>7}{'seconds':>9}")
        solved = True
        for horizon in (CHUNK, CHUNK // 2, 1):
            began = time.perf_counter()
            result = rlmesh.run(model, address, seeds=HELD_OUT, execution_horizon=horizon)
            low, high = result.success_interval
            spent = time.perf_counter() - began
            print(
                f"{horizon:>7}{result.success_rate:>9.0%}{f'{low:.0%} - {high:.0%}':>15}"
                f"{result.total_steps:>7}{spent:>9.1f}"
            )
            solved = solved and result.success_rate >= 0.9
    return 0 if solved else 1


if __name__ == "__main__":
    sys.exit(main())
