"""Many env servers, each a process of its own, forked from one process that has imported already.

Starting 64 of them takes a fifth of a second. A script calls `answer_orders`; the driver starts it
with `nursery` and asks for servers.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import Any

from harness import announce, hear, spawn, stop
from rlmesh import EnvServer, ServeOptions  # before the forks

IDLE_SECONDS = 60.0
"""The last resort: servers whose nursery was killed end by themselves."""


def serve(env: Any, address: str, ready: int) -> None:
    server = EnvServer(env, address, options=ServeOptions(idle_timeout_seconds=IDLE_SECONDS))
    os.write(ready, b"\n")
    os.close(ready)
    server.serve()


def fork_servers(make_env: Callable[[], Any], addresses: list[str]) -> list[int]:
    """Start one for each address; give their process ids once all of them listen."""
    pids: list[int] = []
    heard, ready = os.pipe()
    for address in addresses:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(heard)
                serve(make_env(), address, ready)
            finally:
                os._exit(1)
        pids.append(pid)
    os.close(ready)
    with os.fdopen(heard, "rb") as lines:
        if len(lines.read(len(pids))) != len(pids):
            raise RuntimeError("a server did not start; see its output above")
    return pids


def end_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def answer_orders(make_env: Callable[..., Any]) -> None:
    """Answer each order on stdin with the addresses of new servers; the old ones are ended.

    An order is `{"count": n, **arguments of make_env}`, on a line.
    """
    numbers = itertools.count()
    running: list[int] = []
    with tempfile.TemporaryDirectory(prefix="rlmesh-nursery-") as directory:
        try:
            for text in sys.stdin:
                order = json.loads(text)
                end_all(running)
                running = []
                count = order.pop("count")
                addresses = [f"unix://{directory}/{next(numbers)}.sock" for _ in range(count)]
                running = fork_servers(lambda: make_env(**order), addresses)  # noqa: B023
                announce(addresses=addresses)
        finally:
            end_all(running)


class Nursery:
    """The driver's handle of a script that answers orders."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def servers(self, count: int, **arguments: Any) -> list[str]:
        """Addresses of new servers, each in its process; those of the last call are gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"count": count, **arguments}) + "\n")
        self._process.stdin.flush()
        return hear(self._process)["addresses"]


@contextmanager
def nursery(script: str, *args: str) -> Iterator[Nursery]:
    process = spawn(sys.executable, script, *args, core=None)
    try:
        yield Nursery(process)
    finally:
        stop(process)
