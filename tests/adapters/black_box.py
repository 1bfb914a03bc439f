"""The conversions of the published rlmesh 0.1.0, asked for one by one in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from support import reference_python

__all__ = ["BlackBox", "reference_python"]

HERE = Path(__file__).resolve().parent


class BlackBox:
    """Runs ``reference_adapter.py``; a refusal of the package comes back as AssertionError."""

    def __init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RLMESH_"))}
        self._process = subprocess.Popen(
            [reference_python(), str(HERE / "reference_adapter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept,
        )

    def ask(self, **job: Any) -> np.ndarray[Any, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump(job, self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        assert not isinstance(answer, str), f"rlmesh 0.1.0 refuses: {answer}"
        return answer

    def image(
        self, value: Any, shape: Any = None, *, low: float = 0, high: float = 255, **image: Any
    ) -> np.ndarray[Any, Any]:
        """A frame through an Image leaf of these arguments; encoded bytes need their shape."""
        dtype = value.dtype.name if isinstance(value, np.ndarray) else "uint8"
        return self.ask(
            kind="image",
            value=value,
            shape=value.shape if shape is None else shape,
            dtype=dtype,
            low=low,
            high=high,
            image=image,
        )

    def rotation(self, values: Any, source: str, target: str, **state: Any) -> np.ndarray[Any, Any]:
        """Rotations, one a row, through a State leaf."""
        state["encoding"] = target
        return self.ask(kind="state", values=values, tag={"encoding": source}, state=state)

    def close(self) -> None:
        self._process.communicate(timeout=20)
