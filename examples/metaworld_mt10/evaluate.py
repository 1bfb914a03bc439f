"""Evaluate Meta-World's scripted experts on MT10, every task served by processes of its own.

One `rlmesh.run` a task drives all of its servers at once. Prints a table and exits non-zero unless
every episode of every task succeeded.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import IO

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

import rlmesh
from task_env import TASKS, SeededTask

SERVERS_PER_TASK = 2
TASKS_ALIVE = 3
STARTUP_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """A running server process and, once it is ready, the address it answers on."""

    process: subprocess.Popen[bytes]
    ready: IO[bytes]

    def address(self) -> str:
        """Wait until the server is bound and return its address."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.ready, selectors.EVENT_READ)
            line = self.ready.readline() if selector.select(STARTUP_SECONDS) else b""
        if not line:
            status = self.process.poll()
            state = "is still starting" if status is None else f"exited with status {status}"
            raise RuntimeError(f"server {self.process.args} {state}; see its output above")
        return line.decode().strip()

    def stop(self) -> None:
        """End the process, by force if it does not go when asked. Idempotent."""
        self.ready.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_server(name: str, address: str) -> Server:
    script = Path(__file__).with_name("serve_task.py")
    ready, ready_child = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, script, name, address, "--ready-fd", str(ready_child)],
            stdin=subprocess.DEVNULL,
            pass_fds=(ready_child,),
            start_new_session=True,  # Ctrl-C is for this process, which then ends the servers
        )
    finally:
        os.close(ready_child)
    return Server(process, os.fdopen(ready, "rb"))


@contextmanager
def served_tasks(directory: str, servers: int) -> Iterator[Iterator[tuple[str, list[str]]]]:
    """Give each task with the addresses of its servers, starting the next ones meanwhile.

    Tasks alternate between unix sockets and TCP. No server outlives the block.
    """
    waiting: deque[tuple[str, list[Server]]] = deque()

    def start(index: int, name: str) -> None:
        started: list[Server] = []
        waiting.append((name, started))
        for number in range(servers):
            unix = f"unix://{directory}/{name}-{number}.sock"
            started.append(start_server(name, "127.0.0.1:0" if index % 2 else unix))

    def tasks() -> Iterator[tuple[str, list[str]]]:
        for index, name in enumerate((*TASKS, *(None,) * TASKS_ALIVE)):
            if name is not None:
                start(index, name)
            if waiting and index >= TASKS_ALIVE - 1:
                task, started = waiting[0]
                yield task, [server.address() for server in started]
                stop_all(started)
                waiting.popleft()

    try:
        yield tasks()
    finally:
        stop_all([server for _, started in waiting for server in started])


def stop_all(servers: list[Server]) -> None:
    """End them, all at once."""
    for server in servers:
        server.process.terminate()
    for server in servers:
        server.stop()


def expert(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Meta-World's scripted policy, clipped to the action space as the simulator clips it.

    It keeps no state, so one of them serves several episodes at once.
    """
    policy = ENV_POLICY_MAP[name]()

    def predict(observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            # The experts overshoot on purpose and warn about it at almost every step.
            warnings.simplefilter("ignore", UserWarning)
            return np.clip(policy.get_action(observation), -1.0, 1.0)

    return predict


def outcomes(result: rlmesh.RunResult) -> list[tuple[int | None, int, float]]:
    return [(episode.seed, episode.steps, episode.reward) for episode in result.episodes]


def table_row(name: str, result: rlmesh.RunResult, addresses: list[str]) -> str:
    low, high = result.success_interval
    steps = fmean(episode.steps for episode in result.episodes)
    predict_ms = fmean(episode.predict_ms or 0.0 for episode in result.episodes)
    step_ms = fmean(episode.step_ms or 0.0 for episode in result.episodes)
    return (
        f"{name:<24}{len(result.episodes):>9}{result.success_rate:>9.0%}"
        f"   {low:>4.0%} - {high:>4.0%}{steps:>8.1f}{predict_ms:>12.3f}{step_ms:>9.3f}"
        f"   {len(addresses)} x {addresses[0].partition('://')[0]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10, help="seeds 0..N-1 a task (default 10)")
    parser.add_argument(
        "--servers", type=int, default=SERVERS_PER_TASK, help="server processes a task (default 2)"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run every task in this process as well and require the same steps and rewards",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    started = time.perf_counter()
    solved = True
    print(
        f"{'task':<24}{'episodes':>9}{'success':>9}   {'95 % Wilson':<11}{'steps':>8}"
        f"{'predict ms':>12}{'step ms':>9}   endpoints"
    )
    with (
        tempfile.TemporaryDirectory(prefix="rlmesh-demo-") as directory,
        served_tasks(directory, args.servers) as tasks,
    ):
        for name, addresses in tasks:
            result = rlmesh.run(expert(name), addresses, seeds=range(args.episodes))
            print(table_row(name, result, addresses), flush=True)
            solved = solved and result.success_rate == 1.0
            if args.compare:
                local = rlmesh.run(expert(name), SeededTask(name), seeds=range(args.episodes))
                if outcomes(local) != outcomes(result):
                    print(f"  differs from the same seeds in process: {outcomes(local)}")
                    solved = False
    print(f"{len(TASKS)} tasks in {time.perf_counter() - started:.1f} s")
    if not solved:
        print("not every episode succeeded", file=sys.stderr)
    return 0 if solved else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
