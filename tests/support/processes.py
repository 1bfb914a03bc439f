"""Child processes that cannot outlive their test."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rlmesh

__all__ = ["Child", "ServerProcess", "python_child", "server_process"]

TESTS = Path(__file__).resolve().parents[1]
SOURCE = Path(str(rlmesh.__file__)).resolve().parents[1]  # the package the tests themselves use


class Child:
    """A child process whose output is read line by line; killed at the end of the block."""

    def __init__(
        self,
        argv: list[str],
        *,
        environ: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        paths = [str(SOURCE), str(TESTS), os.environ.get("PYTHONPATH", "")]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            pass_fds=pass_fds,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYTHONUNBUFFERED": "1",
                **(environ or {}),
            },
        )
        self._unread = b""

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, *, seconds: float = 30.0) -> str:
        """Return its next line of output; AssertionError, with its errors, if none comes."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._process.stdout], [], [], left)[0]
            if not ready:
                raise AssertionError(f"no output within {seconds} s; errors: {self.errors()}")
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"it ended without a word; errors: {self.errors()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def errors(self) -> str:
        """Return what it has written to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it (SIGSTOP), and return once it stands still."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL), and return once it is gone."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, seconds: float = 30.0) -> int:
        """Return its exit status; AssertionError, with its errors, if it does not end."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {seconds} s; errors: {self.errors()}"
            ) from None


def python_child(code: str, *arguments: str, environ: dict[str, str] | None = None) -> Child:
    """Run ``code`` in a Python of its own, with warnings as errors."""
    return Child([sys.executable, "-W", "error", "-c", code, *arguments], environ=environ)


class ServerProcess(Child):
    """A process that serves an env; ``address`` is known once it is constructed."""

    def __init__(self, argv: list[str]) -> None:
        super().__init__(argv)
        self.address = self.line()


def server_process(
    target: str, address: str | None = None, *, options: dict[str, Any] | None = None, **kwargs: Any
) -> ServerProcess:
    """Serve what ``target`` (``module:callable``) makes, from the main thread of a process."""
    settings = json.dumps({"address": address, "options": options or {}, "kwargs": kwargs})
    return ServerProcess(
        [sys.executable, "-W", "error", "-m", "support.serve_program", target, settings]
    )
