"""Checks of what reset and step return, and of what the env says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from rlmesh.checks.bench import Bench
from rlmesh.checks.crashes import CRASHES, crash_text
from rlmesh.checks.findings import Finding
from rlmesh.envs.png import encode_png
from rlmesh.evals.results import SUCCESS_KEYS
from rlmesh.wire.contract import EnvContract, contract_to_message

__all__ = ["actions", "close", "infos", "make", "metadata"]
__all__ += ["observations", "outcome", "render", "rewards", "steps"]


def make(bench: Bench) -> Iterator[Finding]:
    """The env is there, and has the surface and the spaces of one."""
    contract = bench.player.contract
    lanes = ""
    if contract.num_envs > 1:
        lanes = f"{contract.num_envs} lanes ({contract.autoreset_mode.value}), each "
    door = f", {bench.player.env.transport} door" if bench.subject.address else ""
    yield Finding(
        "make",
        "ok",
        f"{contract.id}: {lanes}observation {contract.observation_space!r}, action "
        f"{contract.action_space!r}{door}",
    )


def steps(bench: Bench) -> Iterator[Finding]:
    """reset() and step() do not raise, and return what they should."""
    yield from _noted(bench, "steps", f"reset and {bench.steps} steps have the form they should")


def observations(bench: Bench) -> Iterator[Finding]:
    """Every observation lies in its space: structure, shape, dtype, bounds, no NaN."""
    yield from _noted(bench, "observations", "every one lies in its space, in its dtype")


def actions(bench: Bench) -> Iterator[Finding]:
    """Samples of the action space are taken, and left as they are."""
    yield from _noted(bench, "actions", f"{bench.steps} samples of the action space were taken")


def rewards(bench: Bench) -> Iterator[Finding]:
    """Every reward is one finite number."""
    yield from _noted(bench, "rewards", "every one is a finite number")


def infos(bench: Bench) -> Iterator[Finding]:
    """Everything in the infos can travel."""
    yield from _noted(bench, "infos", "everything in them can travel")


def _noted(bench: Bench, check: str, good: str) -> Iterator[Finding]:
    stopped = bench.first.stopped
    found = bench.noted(check)
    if found:
        yield from found
    elif stopped is not None:
        yield Finding(check, "skipped", f"the first play ended early: {stopped.check}")
    else:
        yield Finding(check, "ok", good)


def metadata(bench: Bench) -> Iterator[Finding]:
    """All of the metadata can travel."""
    dropped: list[tuple[str, str]] = []

    def drop(path: str, detail: str) -> None:
        dropped.append((path, detail))

    contract_to_message(bench.player.contract, on_drop=drop)
    for path, detail in dropped:
        yield Finding("metadata", "warn", f"{path} cannot travel and is left out: {detail}")
    if not dropped:
        yield Finding("metadata", "ok", "all of it can travel")


def outcome(bench: Bench) -> Iterator[Finding]:
    """Episodes that end say whether the task was solved."""
    ended = [moment for moment in bench.first.moments if moment.outcomes]
    if not ended:
        yield from bench.nothing_ended("outcome")
        return
    for moment in ended:
        if None in moment.outcomes.values():
            yield Finding(
                "outcome",
                "warn",
                f"{moment.what} ended an episode, and its info reports none of "
                f"{', '.join(SUCCESS_KEYS)}",
                "success_rate counts terminated episodes instead; report the task's outcome in the "
                "info of the last step",
            )
            return
    count = sum(len(moment.outcomes) for moment in ended)
    yield Finding("outcome", "ok", f"the last info of {count} episodes reports success or failure")


def render(bench: Bench) -> Iterator[Finding]:
    """A render mode that promises frames gives uint8 ones."""
    player = bench.player
    contract: EnvContract = player.contract
    mode = contract.render_mode
    if mode is None or not mode.startswith("rgb"):
        yield Finding("render", "skipped", f"render_mode {mode!r} promises no frames")
        return
    declared: Any = (contract.metadata or {}).get("render_modes")
    if isinstance(declared, (list, tuple)) and mode not in declared:
        modes = [*cast("list[str]", declared)]
        yield Finding(
            "render", "warn", f"render_mode {mode!r} is not in metadata['render_modes'] {modes}"
        )
    try:
        frame = player.host.render(0)
    except CRASHES as exc:
        yield Finding("render", "fail", f"render() raised {crash_text(exc)}")
        return
    if isinstance(frame, list):
        frames = cast("list[Any]", frame)
        frame = frames[-1] if frames else None  # what the server sends of them
    if frame is None:
        yield Finding("render", "warn", f"render() gave no frame, though render_mode is {mode!r}")
        return
    try:
        encode_png(frame)
    except ValueError as exc:
        yield Finding("render", "fail", str(exc))
        return
    yield Finding("render", "ok", f"uint8{list(np.shape(frame))}")


def close(bench: Bench) -> Iterator[Finding]:
    """close() works, and a second one does nothing."""
    if not bench.can_make:
        yield Finding("close", "skipped", "the env is its owner's to close")
        return
    with bench.new_env() as env:
        env.reset(seed=bench.seed)
        try:
            env.close()
        except CRASHES as exc:
            yield Finding("close", "fail", f"close() raised {crash_text(exc)}")
            return
        try:
            env.close()
        except CRASHES as exc:
            yield Finding(
                "close",
                "warn",
                f"a second close() raised {crash_text(exc)}",
                "whoever cleans up twice expects the second to do nothing",
            )
            return
    yield Finding("close", "ok", "works, and again")
