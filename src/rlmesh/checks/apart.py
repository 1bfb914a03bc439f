"""All checks of an env in a process of its own, so that its crashes and hangs are findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlmesh.checks.findings import CheckReport, Finding
from rlmesh.checks.worker import Died, Silent, Worker

__all__ = ["check_apart"]


def check_apart(
    target: str,
    kwargs: Mapping[str, Any],
    packages: Sequence[str],
    *,
    steps: int,
    seed: int,
    timeout: float,
    on_begin: Callable[[str], None] | None = None,
) -> CheckReport:
    """Return the findings on what ``target`` names.

    Args:
        target: ``module:name`` or the id of a registered env.
        kwargs: keyword arguments of what makes it.
        packages: imported first.
        timeout: seconds for each check.
        on_begin: called with the name of each check before it runs.
    """
    job = {
        "job": "check",
        "target": target,
        "kwargs": kwargs,
        "packages": list(packages),
        "steps": steps,
        "seed": seed,
    }
    found: list[Finding] = []
    current = "make"
    with Worker(job) as worker:
        try:
            while True:
                said = worker.line(timeout)
                if "begin" in said:
                    current = said["begin"]
                    if on_begin is not None:
                        on_begin(current)
                elif "finding" in said:
                    found.append(Finding(**said["finding"]))
                else:
                    return CheckReport(target, tuple(found))
        except Died as exc:
            failure = f"{exc}; what was to be checked after this was not"
        except Silent:
            failure = f"no answer in {timeout:g} s: it hangs, or is slow (--timeout)"
    found.append(Finding(current, "fail", failure))
    return CheckReport(target, tuple(found))
