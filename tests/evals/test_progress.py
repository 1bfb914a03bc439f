"""`progress=`: a bar on a terminal, lines elsewhere, silence on request."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from eval_envs import Walk, feedback
from support import eventually

import rlmesh
import rlmesh.evals.progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in place of standard error, which pytest has put its own file in place of."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", found := Terminal())
    return found


def run(**arguments: Any) -> rlmesh.RunResult:
    return rlmesh.run(feedback, Walk(), seeds=range(5), **arguments)


def test_elsewhere_it_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    run()
    run(progress=False)
    assert capfd.readouterr() == ("", "")


def test_lines_say_how_far_and_how_well(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(progress=True)
    low, high = result.success_interval or (0, 0)
    last = f"rlmesh: 5/5 episodes, success {result.success_rate:.1%} [{low:.1%}, {high:.1%}]"
    assert capfd.readouterr() == ("", last + "\n"), "one line at the end of a short run"
    monkeypatch.setattr(rlmesh.evals.progress, "_LINE_SECONDS", 0.0)
    run(progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [f"{i}/5" for i in range(1, 6)]
    assert lines[-1] == last


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    result = run()
    shown = terminal.getvalue()
    assert "\x1b[" in shown and "5/5" in shown
    assert f"success {result.success_rate:.1%}" in shown
    before = len(shown)
    run(progress=False)
    assert len(terminal.getvalue()) == before


def test_without_rich_the_bar_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    run()
    assert terminal.getvalue().startswith("rlmesh: 5/5 episodes, success ")


@pytest.mark.parametrize("bar", [False, True])
def test_a_resumed_run_counts_what_the_journal_holds(
    bar: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The rate on display is that of the whole run."""

    class Stop(rlmesh.RunHooks):
        def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
            if result.index == 3:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        run(journal=tmp_path / "run.jsonl", hooks=Stop())
    terminal = on_terminal(monkeypatch) if bar else None
    result = run(journal=tmp_path / "run.jsonl", progress=True)
    shown = capfd.readouterr().err if terminal is None else terminal.getvalue()
    assert "5/5" in shown and f"success {result.success_rate:.1%}" in shown


@pytest.mark.parametrize("bar", [False, True])
def test_the_display_ends_with_a_failing_run(bar: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    if not bar:
        monkeypatch.setitem(sys.modules, "rich.progress", None)

    def policy(observation: Any) -> Any:
        raise RuntimeError("no weights")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no weights"):
        rlmesh.run(policy, Walk(), seeds=range(5))
    eventually(lambda: threading.active_count() <= before, "its thread has ended")
    assert ("0/5" in terminal.getvalue()) or "no episode yet" in terminal.getvalue()


def test_no_standard_error_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under pythonw, or a daemon."""
    monkeypatch.setattr(sys, "stderr", None)
    assert run().num_episodes == 5
    assert run(progress=True).num_episodes == 5
