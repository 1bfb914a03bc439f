"""The published package, rlmesh 0.1.0, in processes of its own interpreter: a black box."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from interop_values import pack, unpack
from support import Child, reference_python

__all__ = ["Reference", "Served", "find_reference"]

HERE = Path(__file__).resolve().parent
VERSION = "0.1.0"
ORDER_SECONDS = 40.0
START_SECONDS = 20.0


def find_reference() -> Reference:
    """Return the reference; RuntimeError says what to do if there is none."""
    python = reference_python()
    reference = Reference(python)
    found = reference.version()
    if found != VERSION:
        raise RuntimeError(f"{python}: expected rlmesh {VERSION}, found {found}")
    return reference


class Reference:
    """Runs the programs under ``reference/``; none outlives its call or its block."""

    def __init__(self, python: str) -> None:
        self._python = python
        # Not the PYTHONPATH of the tests' own process: it may lead to our package.
        self._environ = {"PYTHONPATH": str(HERE), "RLMESH_WORKFLOW_EDITION": ""}

    def version(self) -> str:
        """Return the version of the package, or why it could not be told."""
        done = subprocess.run(
            [self._python, "-c", "import rlmesh; print(rlmesh.__version__)"],
            env={**os.environ, **self._environ},
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
        outcomes = self.order("drive.py", order)
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
        return self.order("evaluate.py", order)

    def evaluate_served(
        self, model: str, env: str, *, loop: str = "run", horizon: int = 1, **keywords: Any
    ) -> dict[str, Any]:
        """Run the published loop with a RemoteModel; return as :meth:`evaluate`."""
        order = {"model": model, "env": env, "loop": loop, "horizon": horizon}
        return self.order("evaluate_served.py", {**order, "keywords": keywords})

    def serving_model(self, name: str, address: str) -> Served:
        """Serve a model of ``interop_models`` with the published server."""
        program = str(HERE / "reference" / "serve_model.py")
        return Served([self._python, program, name, address], self._environ)

    def serving(self, name: str, address: str = "127.0.0.1:0", **options: Any) -> Served:
        """Serve the env called ``name`` with the published server; killed at the block's end."""
        program = str(HERE / "reference" / "serve.py")
        return Served([self._python, program, name, address, json.dumps(options)], self._environ)

    def order(self, program: str, order: Any) -> Any:
        """Run one of the programs with an order on stdin; return the answer on stdout."""
        try:
            done = subprocess.run(
                [self._python, str(HERE / "reference" / program)],
                input=json.dumps(order),
                env={**os.environ, **self._environ},
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


class Served(Child):
    """A running published server."""

    def __init__(self, argv: list[str], environ: dict[str, str]) -> None:
        super().__init__(argv, environ=environ)
        try:
            self.address = self.line()
        except BaseException:
            self.__exit__()
            raise


def _unpacked(outcome: dict[str, Any]) -> dict[str, Any]:
    return {"returned": unpack(outcome["returned"])} if "returned" in outcome else outcome
