"""Checks over a socket: the served env is the same env, and what serving it costs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from rlmesh.checks.bench import Bench
from rlmesh.checks.crashes import CRASHES, crash_text
from rlmesh.checks.differences import first_difference
from rlmesh.checks.findings import Finding
from rlmesh.checks.playing import Play, Player, play
from rlmesh.checks.watched import watch
from rlmesh.envs.remote import RemoteEnv, RemoteVectorEnv
from rlmesh.envs.server import EnvServer
from rlmesh.transport.options import ServeOptions
from rlmesh.wire.editions import EDITION

__all__ = ["time", "wire"]


def wire(bench: Bench) -> Iterator[Finding]:
    """Served on the loopback and driven from there, the env plays what it played here."""
    with contextlib.ExitStack() as stack:
        inner = bench.player.env.inner
        if bench.can_make:
            inner = stack.enter_context(bench.new_env())
        yield _served(bench, watch(inner))


def _served(bench: Bench, env: Any) -> Finding:
    source = bench.subject.source
    try:
        server = EnvServer(
            env,
            options=ServeOptions(workflow_edition=EDITION),
            tags=None if source is None else source.tags,
            close_env_on_shutdown=False,
            framework=bench.framework,
        )
    except CRASHES as exc:
        return Finding("wire", "fail", f"the env cannot be served: {crash_text(exc)}")
    before = len(env.steps)
    client = _Client(bench, server.address, server.request_stop)
    with server, _quiet():
        client.start()
        server.serve()  # on this thread, which made the env
        client.join()
    if client.failure is not None:
        return Finding("wire", "fail", f"driving it over a socket raised {client.failure}")
    bench.wire_steps = list(zip(client.seconds, env.steps[before:], strict=False))
    difference = first_difference(bench.first, client.play, bench.player.paths)
    if difference:
        return Finding(
            "wire",
            difference.level,
            f"over a socket, seed {bench.seed} is another episode (here, there): {difference}",
            "an env that repeats itself here and not there depends on time, on other threads, or "
            "on what it did before",
        )
    return Finding("wire", "ok", f"over a socket, seed {bench.seed} is the same episode to the bit")


@contextlib.contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep the server from logging what is a finding already."""

    def nothing(record: logging.LogRecord) -> bool:
        return False

    log = logging.getLogger("rlmesh")
    log.addFilter(nothing)
    try:
        yield
    finally:
        log.removeFilter(nothing)


class _Client(threading.Thread):
    """Plays the bench's actions against an address, then has ``done`` called."""

    def __init__(self, bench: Bench, address: str, done: Any) -> None:
        super().__init__(name="rlmesh-check", daemon=True)
        self._vector = bench.player.vector
        self._seed, self._actions = bench.seed, bench.actions
        self._address, self._done = address, done
        self.play = Play(())
        self.seconds: Sequence[float] = ()
        self.failure: str | None = None

    def run(self) -> None:
        try:
            kind: Any = RemoteVectorEnv if self._vector else RemoteEnv
            with contextlib.closing(kind(self._address)) as remote:
                player = Player(remote, remote=True)
                self.play = play(player, self._seed, self._actions)
                self.seconds = player.env.steps
        except Exception as exc:
            self.failure = crash_text(exc)
        finally:
            self._done()


def time(bench: Bench) -> Iterator[Finding]:
    """How long a reset and a step take, and how much of it is the wire's."""
    env = bench.player.env
    values = {**_points("reset", env.resets), **_points("step", env.steps)}
    text = (
        f"reset p50 {values['reset_p50']:.3g} ms, p99 {values['reset_p99']:.3g} ms; "
        f"step p50 {values['step_p50']:.3g} ms, p99 {values['step_p99']:.3g} ms"
    )
    if bench.subject.remote and any(bench.player.served):
        pairs = list(zip(env.steps, bench.player.served, strict=False))
        what = "outside the server's own time"
    else:
        pairs = bench.wire_steps
        what = "added by the wire, on the loopback"
    if pairs:
        added = float(np.median([seen - spent for seen, spent in pairs])) * 1e3
        whole = float(np.median([seen for seen, _ in pairs])) * 1e3
        values["wire_p50"], values["wire_share"] = added, added / whole
        text += f"; {added:.3g} ms a step ({added / whole:.1%} of {whole:.3g} ms) {what}"
    yield Finding("time", "ok", text, values=values)


def _points(name: str, seconds: Sequence[float]) -> dict[str, float]:
    half, most = np.percentile(np.asarray(seconds) * 1e3, [50, 99])
    return {f"{name}_p50": float(half), f"{name}_p99": float(most)}
