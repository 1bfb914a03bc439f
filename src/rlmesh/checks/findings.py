"""What a check found: a `Finding` each, and the `CheckReport` over all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["LEVELS", "CheckReport", "Finding", "Level"]

Level = Literal["fail", "warn", "skipped", "ok"]

LEVELS: dict[Level, str] = {
    "fail": "FAIL",
    "warn": "warn",
    "skipped": "not checked",
    "ok": "ok",
}
"""The levels, worst first, and how a report for people calls them."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        check: which check it was, such as ``"seeds"``.
        level: ``"fail"``: an evaluation on this env is wrong or breaks. ``"warn"``: it runs, with
            something to know. ``"skipped"``: it could not be looked at. ``"ok"``.
        message: what was expected and what was seen, where.
        remedy: what to do; empty where there is nothing to be done.
        values: the numbers in the message, by name; times in milliseconds.
    """

    check: str
    level: Level
    message: str
    remedy: str = ""
    values: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class CheckReport:
    """The findings on one env, in the order of the checks.

    Attributes:
        target: what was checked.
        findings: one or more a check.

    Example:
        >>> from rlmesh.checks import CheckReport, Finding
        >>> report = CheckReport("my_env:make", (Finding("seeds", "ok", "seed 0 is one episode"),))
        >>> report.passed
        True
        >>> print(report)
        ok: seeds: seed 0 is one episode
        my_env:make: 0 failed, 0 warnings, 0 not checked, 1 ok
    """

    target: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; warnings do not count."""
        return not self.of("fail")

    def of(self, level: Level) -> tuple[Finding, ...]:
        """Return the findings of one level."""
        return tuple(finding for finding in self.findings if finding.level == level)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "target": self.target,
            "passed": self.passed,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        lines: list[str] = []
        for level, name in LEVELS.items():
            alike: dict[tuple[str, str], list[str]] = {}
            for finding in self.of(level):
                alike.setdefault((finding.message, finding.remedy), []).append(finding.check)
            for (message, remedy), checks in alike.items():
                lines.append(f"{name}: {', '.join(checks)}: {message}")
                if remedy:
                    lines.append(f"    {remedy}")
        counts = Counter(finding.level for finding in self.findings)
        lines.append(
            f"{self.target}: {counts['fail']} failed, {counts['warn']} warnings, "
            f"{counts['skipped']} not checked, {counts['ok']} ok"
        )
        return "\n".join(lines)
