"""One served batch model and many clients, each a process: ours or 0.1.0, whichever is installed.

``server`` serves a model that sleeps, and answers each line on stdin with the rows and batches it
has predicted so far. ``clients`` forks N processes that each evaluate that model on an env of their
own, until stdin ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import rlmesh
from harness import announce
from rlmesh.numpy import Model
from sleepers import SleepingEnv

PUBLISHED = not hasattr(rlmesh, "ModelServer")
"""Whether this is 0.1.0: its model server has no handle, and its loop drives served envs only."""


class SleepingModel(Model):
    """Sleeps what a batch costs, and counts."""

    def __init__(self, fixed_s: float, row_s: float) -> None:
        self.fixed_s, self.row_s = fixed_s, row_s
        self.counts = (0, 0)
        super().__init__()

    def predict_batch(self, observation: np.ndarray) -> np.ndarray:
        rows = len(observation)
        time.sleep(self.fixed_s + self.row_s * rows)
        self.counts = (self.counts[0] + rows, self.counts[1] + 1)
        return np.zeros((rows, 7), np.float32)


def answer_counts(model: SleepingModel) -> None:
    """Tell what was predicted whenever asked, on a thread of its own; end with the driver."""

    def answer() -> None:
        for _ in sys.stdin:
            rows, batches = model.counts
            cpu = time.process_time()
            announce(at=time.perf_counter(), rows=rows, batches=batches, cpu=cpu)
        os._exit(0)

    threading.Thread(target=answer, daemon=True).start()


def serve(address: str, model: SleepingModel, wait_ms: float | None) -> None:
    if PUBLISHED:
        announce(address=address)  # its server does not say when it listens: clients ask again
        answer_counts(model)
        model.serve(address)
    else:
        server = rlmesh.ModelServer(model, address, batch_wait_ms=wait_ms)
        announce(address=server.address)
        answer_counts(model)
        server.serve()


def evaluate(address: str, seed: int, env_s: float, jitter: float) -> None:
    env: Any = SleepingEnv(env_s, jitter)
    if PUBLISHED:
        server = rlmesh.EnvServer(env, "127.0.0.1:0")
        threading.Thread(target=server.serve, daemon=True).start()
        env = server.address
    rlmesh.run(rlmesh.RemoteModel(address), env, seeds=[seed])


def fork_clients(address: str, count: int, env_s: float, jitter: float) -> list[int]:
    pids: list[int] = []
    for seed in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                evaluate(address, seed, env_s, jitter)
            finally:
                os._exit(1)
        pids.append(pid)
    return pids


def drive(address: str, count: int, env_s: float, jitter: float) -> None:
    pids = fork_clients(address, count, env_s, jitter)
    announce(ready=True)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "clients"))
    parser.add_argument("address")
    parser.add_argument("case", type=json.loads, help="what serving.measure_clients says")
    args = parser.parse_args()
    case = args.case
    if args.end == "server":
        model = SleepingModel(case["fixed_s"], case["row_s"])
        serve(args.address, model, case.get("wait_ms"))
    else:
        drive(args.address, case["count"], case["env_s"], case["jitter"])


if __name__ == "__main__":
    main()
