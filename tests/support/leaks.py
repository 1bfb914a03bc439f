"""What a process holds: threads, descriptors, socket files. Counted before and after."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from support.waiting import eventually

__all__ = ["Resources"]


@dataclass(frozen=True)
class Resources:
    """A count of this process's resources; :meth:`now` takes one.

    Attributes:
        threads: names of the running threads.
        descriptors: how many there are.
        files: rlmesh's own entries in the folder for temporary files.
    """

    threads: tuple[str, ...]
    descriptors: int
    files: tuple[str, ...]

    @classmethod
    def now(cls) -> Resources:
        gc.collect()
        return cls(
            tuple(sorted(t.name for t in threading.enumerate())),
            len(os.listdir("/dev/fd")),
            tuple(sorted(str(p) for p in Path(tempfile.gettempdir()).glob("rlmesh-*"))),
        )

    def assert_back(self, *, seconds: float = 20.0) -> None:
        """Fail unless the process soon holds no more than it did then."""
        last = self

        def back() -> bool:
            nonlocal last
            last = self.now()
            return (
                len(last.threads) <= len(self.threads)
                and last.descriptors <= self.descriptors
                and set(last.files) <= set(self.files)
            )

        try:
            eventually(back, "resources are back to the start", seconds=seconds)
        except AssertionError:
            raise AssertionError(f"leaked: {self} became {last}") from None
