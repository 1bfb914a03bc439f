"""Checks of vector envs: that a lane begins its next episode when it says it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlmesh.checks.bench import Bench
from rlmesh.checks.differences import lanes_difference, row_of
from rlmesh.checks.findings import Finding
from rlmesh.checks.playing import Actions, Moment, Player, Stopped, draw_actions, play, taken
from rlmesh.envs.hosts import lane_info
from rlmesh.values import compile_codec
from rlmesh.wire.contract import AutoresetMode

__all__ = ["autoreset", "lanes"]

_SAYS = "metadata['autoreset_mode'] must say what the env does, or every episode is off by a step"
_FINAL = ("final_obs", "final_observation")


def autoreset(bench: Bench) -> Iterator[Finding]:
    """The step that ends a lane's episode, and the one after it, are what the mode says."""
    player, moments = bench.player, bench.first.moments
    ends = [index for index, moment in enumerate(moments) if moment.ended]
    if not ends:
        yield from bench.nothing_ended("autoreset")
        return
    found: list[Finding] = []
    if player.mode is AutoresetMode.NEXT_STEP:
        found = [_fault(text) for text in (_next_step(bench, ends),) if text]
    elif player.mode is AutoresetMode.SAME_STEP:
        found = _same_step(bench, ends)
    else:
        found = [_fault(text) for text in (_told(bench, ends),) if text]
    yield from found
    if not found:
        count = sum(len(moments[index].ended) for index in ends)
        yield Finding("autoreset", "ok", f"{player.mode.value}: {count} ends are as it says")


def _fault(message: str) -> Finding:
    return Finding("autoreset", "fail", message, _SAYS)


def _told(bench: Bench, ends: Sequence[int]) -> str:
    """Only where a lane is reset in the same step does the info need its last observation."""
    for index in ends:
        moment = bench.first.moments[index]
        told = [key for key in _FINAL if key in moment.info]
        if told:
            return (
                f"{moment.what}: the mode is {bench.player.mode.value}, but the info has "
                f"{told[0]!r}: the lane was reset in that same step"
            )
    return ""


def _next_step(bench: Bench, ends: Sequence[int]) -> str:
    """The step after the end is the reset: reward 0, not done, its action ignored."""
    moments = bench.first.moments
    told = _told(bench, ends)
    if told:
        return told
    for moment in moments:
        for lane in moment.rolled:
            reward, done = moment.rewards[lane], lane in moment.ended
            if reward or done:
                return (
                    f"{moment.what}: expected the reset of lane {lane} (reward 0, not done), got "
                    f"reward {reward}, done {done}"
                )
    after = ends[0] + 1
    if after < len(moments) and _action_matters(bench, after, moments[after].rolled):
        return (
            f"{moments[after].what}: expected the reset of lanes {list(moments[after].rolled)}, "
            "which no action changes; another action gave another observation, so it was a step "
            "of the next episode"
        )
    return ""


def _same_step(bench: Bench, ends: Sequence[int]) -> list[Finding]:
    """The end brings the last observation in the info, and the next episode's first one."""
    player, moments = bench.player, bench.first.moments
    space = player.contract.observation_space
    codec = compile_codec(space, "final_obs", lenient=True)
    for index in ends:
        moment = moments[index]
        for lane in moment.ended:
            own = lane_info(moment.info, lane, player.lanes)
            final = own.get("final_obs", own.get("final_observation"))
            if final is None:
                return [
                    _fault(
                        f"{moment.what}: lane {lane} ended under SameStep, and the info has no "
                        "'final_obs': the episode's last observation is lost"
                    )
                ]
            try:
                last = taken(codec.encode(final), player.paths)
            except (ValueError, TypeError) as exc:
                return [_fault(f"{moment.what}: final_obs of lane {lane} is none: {exc}")]
            if [row_of(leaf, lane) for leaf in moment.leaves] == list(last):
                late = _late(bench, index, lane)
                if late:
                    return [_fault(late)]
    if any("final_info" in moments[index].info for index in ends):
        return []
    return [
        Finding(
            "autoreset",
            "warn",
            f"{moments[ends[0]].what} ended an episode, and the info has no 'final_info'",
            "the outcome is read from the info itself, which may be the next episode's",
        )
    ]


def _late(bench: Bench, index: int, lane: int) -> str:
    """Return what is wrong with a lane that observes the end of the episode it should have left."""
    moments, after = bench.first.moments, index + 1
    what = (
        f"{moments[index].what}: lane {lane} ended under SameStep, but observes what 'final_obs' "
        "says"
    )
    if after == len(moments):
        return ""
    if lane in moments[after].ended:
        return f"{what}, and is at an end again with the next step: it was not reset"
    if not _action_matters(bench, after, [lane]):
        return f"{what}, and the next step ignores its action: it is reset a step late"
    return ""


def _action_matters(bench: Bench, at: int, lanes: Sequence[int]) -> bool:
    """Whether some other action in the step of moment ``at`` changes what ``lanes`` observe.

    Played again from the seed with other actions in that step; False, too, where the env does not
    repeat itself, so that nothing can be told.
    """
    player, expected = bench.player, bench.first.moments[at]
    space = player.contract.action_space
    others = draw_actions(space, player.lanes, True, 8, bench.seed + 1)
    for number, action in enumerate([bench.actions[at - 1], *others]):
        found = play(player, bench.seed, [*bench.actions[: at - 1], action]).moments
        differs = len(found) <= at or lanes_difference(expected, found[at], player.paths, lanes)
        if differs:
            return number > 0
    return False


def lanes(bench: Bench) -> Iterator[Finding]:
    """A lane that is reset alone plays the episode of its seed, and the others go on."""
    player = bench.player
    if not player.host.partial_reset:
        yield Finding(
            "lanes",
            "warn",
            f"the {player.lanes} lanes cannot be reset one by one, so an evaluation with seeds "
            "refuses them",
            'take options={"reset_mask": ...}, or serve a list of single envs',
        )
        return
    try:
        fault = _in_mid_play(bench) or _at_an_end(bench)
    except Stopped as stop:
        fault = stop.finding.message
    if fault:
        remedy = 'options={"reset_mask": mask} resets the lanes of the mask, to their seeds, now'
        yield Finding("lanes", "fail", fault, remedy)
        return
    yield Finding("lanes", "ok", "a lane that is reset alone plays its seed, and the others go on")


_AFTER = 3
"""Steps that are compared after a lane was reset alone."""


def _in_mid_play(bench: Bench) -> str:
    """Reset the last lane early in its episode; compare with plays in which that did not happen."""
    player = bench.player
    everyone, chosen = range(player.lanes), player.lanes - 1
    started = max(0, min(2, _first_end(bench) - 1))
    before, after = bench.actions[:started], bench.actions[started : started + _AFTER]
    _play(player, player.seeds(bench.seed), before)
    undisturbed = _until_end(player, after)
    fault, got = _reset_alone(bench, before, after, [chosen])
    if fault:
        return fault
    for ours, theirs in zip(undisturbed, got, strict=False):
        difference = lanes_difference(ours, theirs, player.paths, everyone[:-1])
        if difference:
            return f"resetting lane {chosen} alone changed another lane: {difference}"
    return ""


def _at_an_end(bench: Bench) -> str:
    """Reset the lanes that ended first, right then."""
    end = _first_end(bench)
    if end > bench.steps:
        return ""
    before, after = bench.actions[:end], bench.actions[end : end + _AFTER]
    return _reset_alone(bench, before, after, bench.first.moments[end].ended)[0]


def _first_end(bench: Bench) -> int:
    """Return the first step that ends an episode; one past the last where none does."""
    ends = (index for index, moment in enumerate(bench.first.moments) if moment.ended)
    return next(ends, bench.steps + 1)


def _reset_alone(
    bench: Bench, before: Actions, after: Actions, lanes: Sequence[int]
) -> tuple[str, Sequence[Moment]]:
    """Reset ``lanes`` between two parts of a play.

    Returns:
        Where the first of them does not play the episode of its seed, and what came after.
    """
    player, chosen = bench.player, lanes[0]
    fresh = [bench.seed + (7 + number) * player.lanes for number, _ in enumerate(lanes)]
    seeds = player.seeds(bench.seed)
    seeds[chosen] = fresh[0]
    first = _play(player, seeds, ())
    expected = _until_end(player, after)
    _play(player, player.seeds(bench.seed), before)
    alone = player.reset(lanes, fresh)
    got = _until_end(player, after)

    begun = Moment(first.what, tuple(row_of(leaf, chosen) for leaf in first.leaves))
    started = Moment(alone.what, tuple(row_of(leaf, 0) for leaf in alone.leaves))
    difference = lanes_difference(begun, started, player.paths, [0])
    if not difference:
        pairs = zip(expected, got, strict=False)
        differences = (lanes_difference(*pair, player.paths, [chosen]) for pair in pairs)
        difference = next(filter(None, differences), "")
    if not difference:
        return "", got
    return (
        f"lane {chosen}, reset alone with seed {fresh[0]}, does not play that seed's episode: "
        f"{difference}"
    ), got


def _play(player: Player, seeds: Sequence[int], actions: Actions) -> Moment:
    """Reset all lanes and take some steps; returns the reset."""
    first = player.reset(range(player.lanes), seeds)
    for number, action in enumerate(actions, 1):
        player.step(action, f"step {number}")
    return first


def _until_end(player: Player, actions: Actions) -> Sequence[Moment]:
    """Step until an episode ends."""
    found: list[Moment] = []
    for number, action in enumerate(actions, 1):
        found.append(player.step(action, f"step {number}"))
        if found[-1].ended:
            break
    return found
