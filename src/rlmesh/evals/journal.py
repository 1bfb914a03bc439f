"""The journal: every finished episode on disk before the next is counted, and a run that resumes.

One JSON object a line. The first names the run's configuration; each later one is a finished
episode, or an attempt that was lost. A line is flushed when it is written, and synced to the disk
at least once a second, so a killed process loses nothing and a power cut at most the last second.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlmesh.evals.results import EpisodeFailure, EpisodeResult

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

__all__ = ["Journal"]

_VERSION = 1
_ABSENT = {"trial_index_base": 0}
"""What a configuration means that does not name these."""
_SYNC_SECONDS = 1.0


class Journal:
    """An open journal file.

    Args:
        path: created if it is not there; otherwise the run it holds is resumed.
        config: what the run is: plain JSON data. A file of another configuration is refused.

    Attributes:
        episodes: the episodes the file already holds, by index.
        failures: the lost attempts it already holds.

    Raises:
        ValueError: the file is no journal, is damaged before its last line, or is of a run with
            another configuration; the message shows the difference.
        RuntimeError: another process is writing to it.
    """

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any]) -> None:
        self.path = Path(path)
        self.episodes: dict[int, EpisodeResult] = {}
        self.failures: list[EpisodeFailure] = []
        config = json.loads(json.dumps(config))
        self._file = self.path.open("a+b")
        try:
            self._lock()
            if not self._load(config):
                self._write({"rlmesh_journal": _VERSION, "config": config})
                self._sync()
        except BaseException:
            self._file.close()
            raise
        self._synced = time.monotonic()

    def _lock(self) -> None:
        """Keep other processes out; the lock ends with this one, however it ends."""
        if fcntl is None:
            return
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise RuntimeError(
                f"{self.path} is the journal of a run that is still going on in another process; "
                "wait for it, or give journal= another path"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _load(self, config: dict[str, Any]) -> bool:
        """Read what is there; False when there is no run yet. Cuts off a torn last line."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if not lines:
            if not data.startswith(b'{"rlmesh_journal"'[: len(data)]):
                raise self._not_a_journal("its first line is cut short")
            self._file.truncate(0)
            return False
        entries = [self._parse(number, line) for number, line in enumerate(lines, 1)]
        head = entries[0]
        if "rlmesh_journal" not in head:
            raise self._not_a_journal("it does not begin with a journal's first line")
        if head["rlmesh_journal"] != _VERSION:
            raise self._not_a_journal(f"it is of format {head['rlmesh_journal']}, not {_VERSION}")
        if not isinstance(head.get("config"), dict):
            raise self._not_a_journal("its first line names no configuration")
        self._compare(head["config"], config)
        for number, entry in enumerate(entries[1:], 2):
            try:
                if "episode" in entry:
                    facts = entry["episode"]
                    episode = EpisodeResult(**{"trial": facts["index"], **facts})
                    self.episodes[episode.index] = episode
                else:
                    self.failures.append(EpisodeFailure(**entry["failure"]))
            except (KeyError, TypeError) as exc:
                raise self._not_a_journal(f"line {number} is no episode ({exc})") from None
        self._file.truncate(whole)  # not before it is known to be this run's
        return True

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise self._not_a_journal(f"line {number} is no JSON object")
        return entry  # pyright: ignore[reportUnknownVariableType]

    def _not_a_journal(self, why: str) -> ValueError:
        return ValueError(
            f"{self.path} is not a journal that can be resumed: {why}; give journal= another path, "
            "or move the file away"
        )

    def _compare(self, held: dict[str, Any], config: dict[str, Any]) -> None:
        held, config = {**_ABSENT, **held}, {**_ABSENT, **config}
        keys = sorted({*held, *config})
        changed = [key for key in keys if held.get(key) != config.get(key)]
        if changed:
            shown = "; ".join(
                f"{key}: the journal has {_short(held.get(key))}, this run has "
                f"{_short(config.get(key))}"
                for key in changed
            )
            raise ValueError(
                f"{self.path} is the journal of another run: {shown}. Resume with the same "
                "arguments, or give journal= another path"
            )

    def add(self, episode: EpisodeResult) -> None:
        """Put a finished episode on record."""
        self._write({"episode": asdict(episode)})

    def add_failure(self, failure: EpisodeFailure) -> None:
        """Put a lost attempt on record."""
        self._write({"failure": asdict(failure)})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        now = time.monotonic()
        if now - getattr(self, "_synced", now) > _SYNC_SECONDS:
            self._sync()
            self._synced = now

    def _sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close the file. Idempotent."""
        if not self._file.closed:
            self._file.flush()
            self._sync()
            self._file.close()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:60]}...({len(text)} characters)"
