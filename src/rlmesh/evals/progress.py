"""Progress of a run: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from rlmesh.evals.results import EpisodeResult
from rlmesh.evals.statistics import wilson_interval

__all__ = ["Progress", "make_progress"]

_LINE_SECONDS = 10.0


class Progress(Protocol):
    """Is told of every finished episode."""

    def add(self, episode: EpisodeResult) -> None: ...

    def close(self) -> None: ...


class _Tally:
    """Counts episodes, those of a resumed journal first."""

    def __init__(self, total: int, done: Sequence[EpisodeResult]) -> None:
        self.total = total
        self.done = 0
        self.successes = 0
        for episode in done:
            self.add(episode)

    def add(self, episode: EpisodeResult) -> None:
        self.done += 1
        self.successes += episode.terminated if episode.success is None else episode.success

    def __str__(self) -> str:
        if not self.done:
            return "no episode yet"
        low, high = wilson_interval(self.successes, self.done)
        return f"success {self.successes / self.done:.1%} [{low:.1%}, {high:.1%}]"


class _Silent:
    def add(self, episode: EpisodeResult) -> None:
        return None

    def close(self) -> None:
        return None


class _Lines:
    """Plain lines on stderr: at most one every ten seconds, and one at the end."""

    def __init__(self, total: int, done: Sequence[EpisodeResult]) -> None:
        self._tally = _Tally(total, done)
        self._last = time.monotonic()
        self._shown: int | None = None

    def add(self, episode: EpisodeResult) -> None:
        self._tally.add(episode)
        if time.monotonic() - self._last >= _LINE_SECONDS:
            self._show()

    def _show(self) -> None:
        self._last = time.monotonic()
        self._shown = self._tally.done
        tally = self._tally
        print(f"rlmesh: {tally.done}/{tally.total} episodes, {tally}", file=sys.stderr)

    def close(self) -> None:
        if self._shown != self._tally.done:
            self._show()


class _Bar:
    """A rich progress bar with the running success rate and its 95 % interval."""

    def __init__(self, total: int, done: Sequence[EpisodeResult]) -> None:
        columns: Any = importlib.import_module("rich.progress")
        console: Any = importlib.import_module("rich.console")
        self._tally = _Tally(total, done)
        self._progress = columns.Progress(
            columns.TextColumn("rlmesh"),
            columns.BarColumn(),
            columns.MofNCompleteColumn(),
            columns.TextColumn("{task.fields[rate]}"),
            columns.TimeElapsedColumn(),
            columns.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=total, completed=len(done), rate="")
        self._progress.start()

    def add(self, episode: EpisodeResult) -> None:
        self._tally.add(episode)
        self._progress.update(self._task, advance=1, rate=str(self._tally))

    def close(self) -> None:
        self._progress.stop()


def make_progress(wanted: bool | None, total: int, done: Sequence[EpisodeResult]) -> Progress:
    """Return the progress display for a run of ``total`` episodes, ``done`` of them before it.

    Args:
        wanted: False: none. True: a bar on a terminal, lines elsewhere. None: a bar on a terminal,
            nothing elsewhere. Without the ``rich`` package the bar is lines too.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return _Silent()
    if terminal:
        try:
            return _Bar(total, done)
        except ImportError:
            pass  # without rich: lines
    return _Lines(total, done)
