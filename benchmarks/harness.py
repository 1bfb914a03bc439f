"""A contender's two ends: how its client answers rounds, and how the driver runs the pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from settings import Settings

HERE = Path(__file__).parent
WARMUP_STEPS = 5


def announce(**facts: Any) -> None:
    """Tell the driver something, on one line."""
    print(json.dumps(facts), flush=True)


def answer_rounds(step: Callable[[], object], **facts: Any) -> None:
    """Time `step` for each `{"seconds": s}` line on stdin and answer with the round's figures.

    Latencies are wall clock, CPU is this process's with all its threads; both in microseconds.
    """
    for _ in range(WARMUP_STEPS):
        step()
    announce(ready=True, **facts)
    for line in sys.stdin:
        budget = int(json.loads(line)["seconds"] * 1e9)
        taken: list[int] = []
        clock = time.perf_counter_ns
        cpu = time.process_time_ns()
        begun = before = clock()
        while before - begun < budget or len(taken) < 3:
            step()
            after = clock()
            taken.append(after - before)
            before = after
        cpu = time.process_time_ns() - cpu
        taken.sort()
        announce(
            steps=len(taken),
            p50=taken[len(taken) // 2] / 1e3,
            p95=taken[int(len(taken) * 0.95)] / 1e3,
            cpu=cpu / 1e3,
        )


def end_with_driver() -> None:
    """Let this process end as soon as its stdin does, however the driver went."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def cpu_us(pid: int) -> float:
    """CPU time of another process so far, all its threads, in microseconds."""
    # Linux numbers the CPU clock of a process so (clock_getcpuclockid(3)).
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e3


@dataclass
class Figures:
    """A contender's result: medians over the rounds, and CPU per step over all of them."""

    p50: float
    p95: float
    client_cpu: float
    server_cpu: float


@dataclass
class Pair:
    """A contender that is running: a client process and the process it talks to."""

    client: subprocess.Popen[str]
    server: subprocess.Popen[str] | None
    server_pid: int
    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def round(self, seconds: float) -> None:
        assert self.client.stdin is not None
        before = cpu_us(self.server_pid)
        self.client.stdin.write(json.dumps({"seconds": seconds}) + "\n")
        self.client.stdin.flush()
        reply = hear(self.client)
        self.rounds.append({**reply, "server_cpu": cpu_us(self.server_pid) - before})

    def figures(self) -> Figures:
        steps = sum(r["steps"] for r in self.rounds)
        return Figures(
            p50=median(r["p50"] for r in self.rounds),
            p95=median(r["p95"] for r in self.rounds),
            client_cpu=sum(r["cpu"] for r in self.rounds) / steps,
            server_cpu=sum(r["server_cpu"] for r in self.rounds) / steps,
        )

    def stop(self) -> None:
        stop(self.client)
        if self.server is not None:
            stop(self.server)


def start_pair(settings: Settings, python: str, script: str, args: Sequence[str]) -> Pair:
    """Start both ends of a script.

    Args:
        args: the payload, where to listen, and more. The client is told the address that the server
            announces.
    """
    server = spawn(python, script, "server", *args, core=settings.server_core)
    try:
        told = [*args]
        told[1] = hear(server)["address"]
        client = spawn(python, script, "client", *told, core=settings.client_core)
        try:
            hear(client)
        except BaseException:
            stop(client)
            raise
    except BaseException:
        stop(server)
        raise
    return Pair(client, server, server.pid)


def take_turns(settings: Settings, starts: Mapping[str, Callable[[], Pair]]) -> dict[str, Figures]:
    """Start all contenders, let each answer its rounds in turn with the others, and end them."""
    with ExitStack() as stack:
        pairs: dict[str, Pair] = {}
        for name, start in starts.items():
            pairs[name] = start()
            stack.callback(pairs[name].stop)
        for _ in range(settings.rounds):
            for running in pairs.values():
                running.round(settings.seconds)
        return {name: running.figures() for name, running in pairs.items()}


def hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line a process announces."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with status {process.wait()}")
    return json.loads(line)


def stop(process: subprocess.Popen[str]) -> None:
    """End a process: its input ends, and after a while it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def spawn(
    python: str | Sequence[str],
    script: str,
    *args: str,
    core: int | None,
    path: Path | None = None,
) -> subprocess.Popen[str]:
    """Run a script of this folder, on one core where `core` says which.

    Args:
        python: the interpreter, after a command that runs it where that is to be elsewhere.
        path: a folder where modules are found, too.
    """
    environ = {**os.environ, "RLMESH_WORKFLOW_EDITION": ""}
    if path is not None:
        environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(path), environ.get("PYTHONPATH")))
        )
    process = subprocess.Popen(
        [*([python] if isinstance(python, str) else python), str(HERE / script), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    pin(process.pid, core)
    return process


def pin(pid: int, core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(pid, {core})
