"""How an evaluation ended: the status, the words and the document it leaves behind."""

from __future__ import annotations

import math
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rlmesh.cli.output import complain, strict_json, write_whole

if TYPE_CHECKING:
    from rlmesh.evals.results import RunResult

__all__ = ["Ended", "Terminated", "complain_of", "report", "status_of"]

_SCORED, _ERROR, _UNSCORED = 0, 1, 3


class Terminated(SystemExit):
    """SIGTERM."""


@dataclass(frozen=True)
class Ended:
    """What a run came to: its result so far, None if it did not begin, and what ended it early."""

    result: RunResult | None
    error: BaseException | None = None


def status_of(ended: Ended, asked: int, *, by: str) -> int:
    """Return the exit status, having said why it is 3.

    Args:
        asked: how many episodes were to be run.
        by: ``"success"``: an episode is scored when its env reported one, or a failure;
            ``"reward"``: when its reward is finite.
    """
    if isinstance(ended.error, KeyboardInterrupt):
        return 130
    if isinstance(ended.error, Terminated):
        return int(str(ended.error))
    if ended.error is not None or ended.result is None:
        return _ERROR
    episodes = ended.result.episodes
    if by == "reward":
        unscored, why = sum(not math.isfinite(e.reward) for e in episodes), "no finite reward"
    else:
        unscored = sum(episode.success is None for episode in episodes)
        why = (
            "no is_success, success or task_success in the info of their last step; with --score "
            "reward, those with a finite reward are"
        )
    if unscored:
        complain(f"{unscored} of {asked} episodes are not scored: {why}")
        return _UNSCORED
    if not episodes:
        complain("nothing was scored: no episode was asked for")
        return _UNSCORED
    return _SCORED


def complain_of(error: BaseException | None, *, verbose: bool) -> None:
    """Say what ended the run early; Ctrl-C is told by the run itself."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return
    if isinstance(error, Terminated):
        complain("stopped by SIGTERM")
        return
    from rlmesh.checks.crashes import crash_text

    complain(f"error: {crash_text(error)}")
    if verbose:
        traceback.print_exception(error)
        return
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)


def report(
    ended: Ended, asked: int, stdout: TextIO, *, out: Path | None, as_json: bool, table: bool
) -> bool:
    """Print and write the result; False if it could not be written."""
    from rlmesh.evals.results import RunResult

    began = ended.result is not None
    result = ended.result or RunResult(())
    document = strict_json(
        {**result.to_dict(), "asked": asked, "stopped_by": _stopped_by(ended.error)}
    )
    written = True
    if out is not None and began:
        try:
            write_whole(out, document)
        except OSError as exc:
            complain(f"error: {out} was not written: {exc}")
            written = False
    if as_json:
        print(document, file=stdout, flush=True)
    elif began:
        text = result.format_table() if table else _summary(result, asked)
        print(text, file=stdout, flush=True)
    return written


def _stopped_by(error: BaseException | None) -> dict[str, str] | None:
    if error is None:
        return None
    if isinstance(error, Terminated):
        return {"type": "SIGTERM", "message": ""}
    return {"type": type(error).__name__, "message": str(error)}


def _summary(result: RunResult, asked: int) -> str:
    lines = [f"episodes      {result.num_episodes} of {asked}, {result.total_steps} steps"]
    totals = result.to_dict()
    rate, interval = totals["success_rate"], totals["success_interval"]
    if rate is not None:
        shown = f"{rate:.3f} [{interval[0]:.3f}, {interval[1]:.3f}], 95 % Wilson interval"
        if any(episode.success is None for episode in result.episodes):
            shown = f"not reported; terminated {shown}"
        lines += [f"success rate  {shown}", f"mean reward   {result.mean_reward:.3f}"]
    if result.errors:
        lines.append(f"lost attempts {len(result.errors)}, all run again; --json lists them")
    return "\n".join(lines)
