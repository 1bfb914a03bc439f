"""Checks that a seed is an episode: again, on another instance, beside another one."""

from __future__ import annotations

from collections.abc import Iterator

from rlmesh.checks.bench import Bench
from rlmesh.checks.differences import first_difference
from rlmesh.checks.findings import Finding
from rlmesh.checks.playing import Moment, Play, Player, Stopped, play

__all__ = ["instances", "seeds"]

_DRAW = (
    "draw everything from a generator that reset(seed=) makes anew (gymnasium: "
    "super().reset(seed=seed), then self.np_random), and keep nothing from the last episode"
)


def seeds(bench: Bench) -> Iterator[Finding]:
    """The same seed is the same episode; another one is another."""
    player, seed, other = bench.player, bench.seed, bench.next_seed
    second = bench.second
    again = play(player, seed, bench.actions)
    difference = first_difference(bench.first, again, player.paths)
    if difference:
        yield Finding(
            "seeds",
            difference.level,
            f"seed {seed}, played again after seed {other} with the same actions, is another "
            f"episode: {difference}",
            _DRAW,
        )
        return
    # The resets are called by their seeds, so they are left out.
    alike = [a.leaves == b.leaves for a, b in zip(bench.first.moments, second.moments)]  # noqa: B905
    if all(alike) and len(bench.first.moments) == len(second.moments):
        yield Finding(
            "seeds",
            "warn",
            f"seeds {seed} and {other} are the same episode: nothing depends on the seed",
            "if that is meant, one episode says as much as fifty",
        )
        return
    yield Finding("seeds", "ok", f"seed {seed} again is the same episode, seed {other} another")


def instances(bench: Bench) -> Iterator[Finding]:
    """Two new envs, stepped in turn, play what the first one did: lanes do not touch each other."""
    if not bench.can_make:
        yield Finding(
            "instances",
            "skipped",
            "there is only this one env",
            "check the class, function or factory that makes it",
        )
        return
    seed, other = bench.seed, bench.next_seed
    with bench.another() as one, bench.another() as two:
        ours, theirs = _in_turn(bench, one, two)
    paths = bench.player.paths
    beside = first_difference(bench.first, ours, paths) or first_difference(
        bench.second, theirs, paths
    )
    if not beside:
        yield Finding("instances", "ok", f"new envs play seeds {seed} and {other} as the first did")
        return
    with bench.another() as third:
        alone = first_difference(bench.first, play(third, seed, bench.actions), paths)
    if alone:
        bench.others_differ = alone.level == "fail"
        yield Finding(
            "instances",
            alone.level,
            f"a new env plays seed {seed} otherwise than the first: {alone}",
            "something is drawn when it is made, or kept between episodes; " + _DRAW,
        )
        return
    yield Finding(
        "instances",
        beside.level,
        f"two envs in one process disturb each other (seeds {seed} and {other}, stepped in turn): "
        f"{beside}",
        "they share state, such as the generators of the modules random and numpy.random; " + _DRAW,
    )


def _in_turn(bench: Bench, one: Player, two: Player) -> tuple[Play, Play]:
    streams = (
        one.moments(bench.seed, bench.actions),
        two.moments(bench.next_seed, bench.actions),
    )
    found: tuple[list[Moment], list[Moment]] = ([], [])
    stopped: list[Finding | None] = [None, None]
    running = [0, 1]
    while running:
        for index in list(running):
            try:
                found[index].append(next(streams[index]))
            except StopIteration:
                running.remove(index)
            except Stopped as stop:
                stopped[index] = stop.finding
                running.remove(index)
    return Play(tuple(found[0]), stopped[0]), Play(tuple(found[1]), stopped[1])
