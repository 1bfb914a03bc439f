"""The table of a slow link: bytes and time per step between two network namespaces."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from subprocess import Popen

from harness import hear, spawn, stop
from settings import Settings
from table import size

RATE, DELAY_S = "1gbit", 0.001
BURST = "10kb"
"""What may pass at once after a pause: little, or the small frames would not feel the limit."""

NEAR, FAR = "10.213.71.1", "10.213.71.2"
ROUNDS = 3

CASES = {
    ("env", "everything"): "the env is served, everything crosses",
    ("env", "projection"): "what the policy reads",
    ("env", "pushdown"): "`pushdown=True`",
    ("model", "everything"): "the model is served, everything crosses",
    ("model", "projection"): "what the model reads",
}
"""What is at the far end, and what crosses."""

NOTES = """
Three 480x640 cameras, of which the policy reads one at 224x224 (resized by OpenCV): `rlmesh.run` at
one end, an env or a model that costs nothing served at the other. The bytes are those that the
interface counted, both ways, headers of TCP and IP included. The floor is a raw socket's round trip
of the bytes that have to cross: three cameras, one, or one of 224x224. A policy without a spec gets
everything, and resizes it itself. Medians of {rounds} runs of {steps} steps, taken in turn.
"""


class Unavailable(Exception):
    """This machine cannot be made to have such a link."""


@dataclass(frozen=True)
class Link:
    """Two namespaces, ``near`` and ``far``, and whether the kernel delays what passes."""

    near: str
    far: str
    delays: bool


def order(*command: str) -> None:
    """Run a command that sets the link up."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as exc:
        raise Unavailable(f"`{command[0]}`: {exc.strerror}") from None
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}`: {done.stderr.strip()}")


@contextmanager
def slow_link() -> Iterator[Link]:
    """Make the link; Unavailable says why it cannot be."""
    near, far = (f"rlmesh-bench-{os.getpid()}-{end}" for end in ("near", "far"))
    with ExitStack() as stack:
        for name in (near, far):
            order("ip", "netns", "add", name)
            stack.callback(order, "ip", "netns", "delete", name)
        pair = ("v0", "netns", near, "type", "veth", "peer", "name", "v0", "netns", far)
        order("ip", "link", "add", *pair)
        delays = True
        for name, address in ((near, NEAR), (far, FAR)):
            order("ip", "-n", name, "address", "add", f"{address}/30", "dev", "v0")
            for device in ("lo", "v0"):
                order("ip", "-n", name, "link", "set", device, "up")
            tc = ("tc", "-n", name, "qdisc", "add", "dev", "v0")
            limit = ("tbf", "rate", RATE, "burst", BURST, "latency", "100ms")
            order(*tc, "root", "handle", "1:", *limit)
            delay = ("netem", "delay", f"{DELAY_S * 1e3:g}ms", "limit", "100000")
            try:
                order(*tc, "parent", "1:1", "handle", "2:", *delay)
            except Unavailable:
                delays = False
        yield Link(near, far, delays)


@dataclass(frozen=True)
class Crossing:
    """What a step took."""

    seconds: float
    nbytes: float


def ask(client: Popen[str], steps: int) -> Crossing:
    assert client.stdin is not None
    client.stdin.write(json.dumps({"steps": steps}) + "\n")
    client.stdin.flush()
    told = hear(client)
    return Crossing(told["step_s"], told["bytes"])


def start(stack: ExitStack, namespace: str, script: str, *args: str) -> Popen[str]:
    enter = ("ip", "netns", "exec", namespace, sys.executable)
    process = spawn(enter, script, *args, core=None)
    stack.callback(stop, process)
    return process


def start_case(stack: ExitStack, link: Link, what: str, way: str) -> Popen[str]:
    """Start both ends, and what delays in between where the kernel does not; give the near one."""
    server = start(stack, link.far, "link_pair.py", "serve", what, way, f"{FAR}:0")
    address = hear(server)["address"].removeprefix("tcp://")
    if not link.delays:
        relay = start(stack, link.near, "delay.py", address, f"{DELAY_S}")
        address = hear(relay)["address"]
    client = start(stack, link.near, "link_pair.py", "run", what, way, address)
    hear(client)
    return client


def measure(
    link: Link, cases: Sequence[tuple[str, str]], steps: int, rounds: int
) -> dict[tuple[str, str], Crossing]:
    with ExitStack() as stack:
        clients = {case: start_case(stack, link, *case) for case in cases}
        for client in clients.values():
            ask(client, 2)  # opens the window of TCP, imports
        turns = [
            {case: ask(client, steps) for case, client in clients.items()} for _ in range(rounds)
        ]
    return {case: typical([turn[case] for turn in turns]) for case in cases}


def typical(turns: Sequence[Crossing]) -> Crossing:
    return Crossing(median(turn.seconds for turn in turns), median(turn.nbytes for turn in turns))


def table(settings: Settings) -> Iterator[str]:
    yield "### A slow link\n"
    if importlib.util.find_spec("cv2") is None:
        yield "* Not run: OpenCV is not installed (`pip install 'rlmesh[adapters]'`)\n"
        return
    rounds = min(ROUNDS, settings.rounds)
    floors = [("floor", way) for way in dict.fromkeys(way for _, way in CASES)]
    try:
        with slow_link() as link:
            taken = measure(link, [*CASES, *floors], settings.link_steps, rounds)
    except Unavailable as exc:
        yield f"* Not run: this machine cannot be made to have such a link ({exc})\n"
        return
    how = "by netem" if link.delays else "by a relay process, as this kernel has no netem"
    yield f"{RATE}, by tbf, and {DELAY_S * 1e3:g} ms each way, {how}.\n"
    yield "| | bytes a step | time a step | floor | ratio |\n| --- " + "| --: " * 4 + "|"
    for (what, way), title in CASES.items():
        one, least = taken[what, way], taken["floor", way]
        cells = [
            title,
            size(round(one.nbytes)),
            f"{one.seconds * 1e3:.2f} ms",
            f"{least.seconds * 1e3:.2f} ms",
            f"{one.seconds / least.seconds:.2f}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield NOTES.format(rounds=rounds, steps=settings.link_steps)
