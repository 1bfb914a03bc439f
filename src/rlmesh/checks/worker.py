"""A process of its own for code that may hang or crash, and the lines it says meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Died", "Silent", "Worker"]


_START = "from rlmesh.checks.child import main; main()"


class Died(Exception):
    """The process ended before it said all; the message says how."""


class Silent(Exception):
    """The process said nothing for too long."""


class Worker:
    """A process at work on a job; :mod:`rlmesh.checks.child`. A context manager: its exit kills it.

    Args:
        job: JSON data.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._unread = b""
        # The child ends when its standard input does: it cannot outlive this process.
        # Not by PYTHONPATH, which would also reach another Python that an env may start.
        code = f"import sys; sys.path[:] = {[path or os.getcwd() for path in sys.path]!r}; {_START}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Unless it was fixed, the order of sets must differ, as it does from run to run.
            env={"PYTHONHASHSEED": "random", **os.environ},
            bufsize=0,
        )
        assert self._process.stdin is not None
        # Where it has ended already, the first line that does not come says how.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")

    def line(self, seconds: float) -> dict[str, Any]:
        """Return the next thing it says.

        Raises:
            Silent: nothing within ``seconds``.
            Died: it ended instead.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise Silent
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise Died(_ending(self._process.wait()))
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def _ending(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        return f"the process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"the process died of signal {-status}"
