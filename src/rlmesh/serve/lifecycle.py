"""From a server to its end: the start line, readiness, signals, and how long starting took."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import IO

from rlmesh.transport.serving import Server

__all__ = ["Startup", "Terminated", "ending_on_sigterm", "open_ready"]
__all__ += ["run_server", "startup_marks"]


class Startup:
    """How long the parts of starting took, in seconds by name, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        age = _process_age()
        if age is not None:
            self.seconds["process"] = age

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        """Add the time of the block to ``name``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def marks(self) -> dict[str, str]:
        """Return them as the handshake tells them: whole milliseconds, as text."""
        return {
            f"rlmesh.startup.{name}_ms": str(round(spent * 1000))
            for name, spent in self.seconds.items()
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {spent:.1f}s" for name, spent in self.seconds.items())


def _process_age() -> float | None:
    """Return the seconds since this process began; None where /proc does not tell."""
    try:
        with open("/proc/self/stat") as file:
            # The command name, in parentheses, may hold spaces; the 22nd field is the start time.
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


_last: Startup | None = None


def startup_marks() -> dict[str, str]:
    """Return how long starting took, as clients are told: ``rlmesh.startup.<phase>_ms``.

    Of the server that this process served last; empty before the first.
    """
    return {} if _last is None else _last.marks()


def run_server(
    server: Server, kind: str, startup: Startup, ready: IO[str] | None, *, sigterm: bool
) -> None:
    """Say where ``server`` listens, and serve until it is stopped."""
    global _last
    _last = startup
    server.announce(startup.marks())
    with server:
        if sigterm and threading.current_thread() is threading.main_thread():
            _stop_on_sigterm(server)
        print(f"RLMesh serving {kind} on {server.address} (startup: {startup})", flush=True)
        if ready is not None:
            with ready:
                ready.write(f"{server.address}\n")
        server.serve()


def open_ready(descriptor: int) -> IO[str]:
    """Return the descriptor as a file; raises before anything is made, which may take long."""
    try:
        os.write(descriptor, b"")
        os.set_inheritable(descriptor, False)
        ready = open(descriptor, "w")  # noqa: SIM115 - closed once the address is written
    except OSError as exc:
        raise OSError(f"--ready-fd {descriptor} cannot be written to: {exc.strerror}") from None
    # Whoever waits for the end of file must not wait for the workers of an AsyncVectorEnv.
    os.register_at_fork(after_in_child=ready.close)
    return ready


class Terminated(BaseException):
    """SIGTERM, before there was a server that it could stop in good order."""


@contextmanager
def ending_on_sigterm() -> Generator[None, None, None]:
    """Let SIGTERM raise Terminated in the block, so that what was made so far is closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != owner:  # a worker of an AsyncVectorEnv, which its parent ends like this
            os.kill(os.getpid(), signal.SIGTERM)
            return
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_on_sigterm(server: Server) -> None:
    """Turn the first SIGTERM into an orderly stop; a second one kills."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        server.request_stop()

    signal.signal(signal.SIGTERM, stop)
