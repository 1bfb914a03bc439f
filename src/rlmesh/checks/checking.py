"""`check_env`: an env against its own contract."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from rlmesh.checks import autoreset, determinism, values, wire
from rlmesh.checks.bench import Bench, Subject, subject_of
from rlmesh.checks.crashes import CRASHES, crash_text
from rlmesh.checks.elsewhere import elsewhere
from rlmesh.checks.findings import CheckReport, Finding

__all__ = ["check_env", "check_target"]

Check = Callable[[Bench], Iterator[Finding]]

_LOOKS: tuple[tuple[str, Check], ...] = (
    ("steps", values.steps),
    ("observations", values.observations),
    ("actions", values.actions),
    ("rewards", values.rewards),
    ("infos", values.infos),
    ("outcome", values.outcome),
    ("autoreset", autoreset.autoreset),
)
"""What can be told of the first play, however far it went."""

_VECTOR = ("autoreset", "lanes")

_SAYS = {"processes": ("processes", "threads")}

_PLAYS: tuple[tuple[str, Check], ...] = (
    ("seeds", determinism.seeds),
    ("lanes", autoreset.lanes),
    ("render", values.render),
)
"""What plays on, so that the env must have come through the first play."""

_INSIDE: tuple[tuple[str, Check], ...] = (
    ("metadata", values.metadata),
    ("instances", determinism.instances),
    ("processes", elsewhere),
    ("wire", wire.wire),
    ("close", values.close),
)
"""What cannot be seen from outside."""


def check_env(
    env: Any,
    *,
    steps: int = 100,
    seed: int = 0,
    make_kwargs: Mapping[str, Any] | None = None,
    token: str | None = None,
) -> CheckReport:
    """Return what an evaluation would meet in ``env``.

    The same seed is played again, after another one, on other instances, in another process and
    over a socket, with the same random actions, and compared to the bit. What the env raises is a
    finding. ``docs/cli.md`` lists the checks.

    Args:
        env: an env, single or vector, which stays open; what makes one (a class, a function, an
            ``EnvFactory``), which allows more checks; the address of a served one, or a remote
            handle, of which only the outside is seen; ``"module:name"`` or the id of a registered
            env.
        steps: how many steps are played each time. Episodes that do not end within them are not
            seen to end.
        seed: the first seed.
        make_kwargs: keyword arguments of what makes the env.
        token: what the server at an address asks for.

    Returns:
        One or more findings a check.

    Raises:
        TypeError: ``env`` is nothing of that kind.
        ValueError: ``steps`` is below 1.

    Example:
        >>> import gymnasium as gym
        >>> from rlmesh.checks import check_env
        >>> report = check_env(gym.make("CartPole-v1"))
        >>> report.passed
        True
        >>> [finding.check for finding in report.of("warn")]
        ['outcome']
    """
    if steps < 1:
        raise ValueError(f"steps must be 1 or more, got {steps}")
    kwargs = make_kwargs or {}
    if isinstance(env, str):
        return check_target(env, kwargs, (), steps=steps, seed=seed, token=token)
    return _check(subject_of(env, kwargs, token=token), steps, seed)


def check_target(
    target: str,
    kwargs: Mapping[str, Any],
    packages: Sequence[str],
    *,
    steps: int,
    seed: int,
    token: str | None = None,
    on_begin: Callable[[str], None] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> CheckReport:
    """Return the same of what a text names; a module that cannot be imported is a finding, too.

    Args:
        packages: imported first.
        on_begin: called with the name of each check before it runs.
        on_finding: called with each finding.
    """
    if on_begin is not None:
        on_begin("make")
    try:
        subject = subject_of(target, kwargs, packages, token)
    except CRASHES as exc:
        finding = Finding("make", "fail", f"there is no env: {crash_text(exc)}")
        if on_finding is not None:
            on_finding(finding)
        return CheckReport(target, (finding,))
    return _check(subject, steps, seed, on_begin, on_finding)


def _check(
    subject: Subject,
    steps: int,
    seed: int,
    on_begin: Callable[[str], None] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> CheckReport:
    found: list[Finding] = []
    with contextlib.closing(_run(subject, steps, seed, on_begin)) as findings:
        for finding in findings:
            found.append(finding)
            if on_finding is not None:
                on_finding(finding)
    return CheckReport(subject.name, tuple(found))


def _run(
    subject: Subject, steps: int, seed: int, on_begin: Callable[[str], None] | None
) -> Generator[Finding, None, None]:
    """Run one check after the other."""
    order = (("make", values.make), *_LOOKS, *_PLAYS, *_INSIDE, ("time", wire.time))
    failed: set[str] = set()
    with Bench(subject, steps, seed) as bench:
        for name, check in order:
            if on_begin is not None:
                on_begin(name)
            if name in _VECTOR and not bench.player.vector:
                continue
            reason = _cannot(name, bench, failed)
            if reason:
                for each in _SAYS.get(name, (name,)):
                    yield Finding(each, "skipped", reason)
                continue
            for finding in _guarded(name, check, bench):
                if finding.level == "fail":
                    failed.add(finding.check)
                yield finding
            if "make" in failed:
                return


def _guarded(name: str, check: Check, bench: Bench) -> Iterator[Finding]:
    """Run one check; what an env raises where none is looked for is a finding of it."""
    try:
        yield from check(bench)
    except CRASHES as exc:
        what = "the env cannot be made or taken" if name == "make" else "the env raised"
        yield Finding(name, "fail", f"{what}: {crash_text(exc)}")


def _cannot(name: str, bench: Bench, failed: Collection[str]) -> str:
    """Return why a check cannot be made, or nothing."""
    if bench.subject.remote and any(name == inside for inside, _ in _INSIDE):
        return "cannot be seen from outside"
    if name in ("make", "metadata", "close") or any(name == look for look, _ in _LOOKS):
        return ""
    stopped = bench.first.stopped
    if stopped is not None:
        return f"the first play ended early: {stopped.check}"
    if name in ("lanes", "instances", "processes", "wire"):
        differs = "seeds" if "seeds" in failed else "instances" if bench.others_differ else ""
        if differs:
            return f"there is nothing to compare with, since {differs} failed"
    return ""
