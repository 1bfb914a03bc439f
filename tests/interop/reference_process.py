"""The published package, rlmesh 0.1.0, in processes of its own interpreter: a black box."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interop_values import pack, unpack

__all__ = ["Reference", "find_reference"]

HERE = Path(__file__).resolve().parent
VERSION = "0.1.0"
ORDER_SECONDS = 40.0
START_SECONDS = 20.0


def find_reference() -> Reference:
    """Return the reference; RuntimeError says what to do if there is none."""
    made = HERE.parents[1] / ".venvs" / "reference" / "bin" / "python"
    asked = os.environ.get("RLMESH_REFERENCE_PYTHON")
    places = [asked] if asked else [str(made), "/tmp/v/ref/bin/python"]
    python = next((place for place in places if os.access(place, os.X_OK)), None)
    if python is None:
        raise RuntimeError(
            f"no Python with rlmesh {VERSION} at {' or '.join(places)}: `make setup` makes one, or "
            "set RLMESH_REFERENCE_PYTHON to one"
        )
    reference = Reference(python)
    found = reference.version()
    if found != VERSION:
        raise RuntimeError(f"{python}: expected rlmesh {VERSION}, found {found}")
    return reference


class Reference:
    """Runs the programs under ``reference/``; none outlives the call or the block that started it."""

    def __init__(self, python: str) -> None:
        self._python = python
        # Not PYTHONPATH=src of the tests' own process: that would be our package.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RLMESH_"))}
        self._environ = {**kept, "PYTHONPATH": str(HERE), "RLMESH_WORKFLOW_EDITION": ""}

    def version(self) -> str:
        """Return the version of the package, or why it could not be told."""
        done = subprocess.run(
            [self._python, "-c", "import rlmesh; print(rlmesh.__version__)"],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]

    def drive(
        self, script: list[Any], *, vector: bool = False, backend: str = "numpy"
    ) -> list[dict[str, Any]]:
        """Play ``script`` on a published client; return its outcomes, see ``interop_player``."""
        kind = "RemoteVectorEnv" if vector else "RemoteEnv"
        order = {"backend": backend, "class": kind, "script": pack(script)}
        outcomes = self._order("drive.py", order)
        return [_unpacked(outcome) for outcome in outcomes]

    def evaluate(
        self,
        address: str,
        policy: str,
        *,
        corner: str = "predict",
        loop: str = "run",
        **keywords: Any,
    ) -> dict[str, Any]:
        """Run a published Model; return its episodes in order of index, or what was raised."""
        order = {
            "address": address,
            "policy": policy,
            "corner": corner,
            "loop": loop,
            "keywords": keywords,
        }
        return self._order("evaluate.py", order)

    @contextlib.contextmanager
    def serving(self, name: str, address: str = "127.0.0.1:0", **options: Any) -> Iterator[Served]:
        """Serve the env called ``name`` with the published server, for the block."""
        arguments = [name, address, json.dumps(options)]
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [self._python, str(HERE / "reference" / "serve.py"), *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                assert process.stdout is not None
                ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
                bound = process.stdout.readline().strip() if ready else ""
                if not bound:
                    log.seek(0)
                    raise RuntimeError(f"serve.py {name} did not start: {log.read().strip()}")
                yield Served(bound, process)
            finally:
                process.kill()
                process.communicate()

    def _order(self, program: str, order: Any) -> Any:
        try:
            done = subprocess.run(
                [self._python, str(HERE / "reference" / program)],
                input=json.dumps(order),
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=ORDER_SECONDS,
            )
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(
                f"{program} was killed after {ORDER_SECONDS:.0f} s: {exc.stderr!r}"
            ) from None
        assert done.returncode == 0, f"{program} exited {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)


class Served:
    """A running published server."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address = address
        self.process = process


def _unpacked(outcome: dict[str, Any]) -> dict[str, Any]:
    return {"returned": unpack(outcome["returned"])} if "returned" in outcome else outcome
