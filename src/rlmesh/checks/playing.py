"""Playing an env with a fixed list of actions, and what two plays have in common."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from rlmesh.checks.crashes import CRASHES, crash_text
from rlmesh.checks.findings import Finding
from rlmesh.checks.notes import Notes, leaf_paths, raw_leaves
from rlmesh.checks.watched import watch
from rlmesh.envs.factory import made_framework
from rlmesh.envs.framework_env import env_binder
from rlmesh.envs.hosts import Bind, Host, ScalarHost, as_reward, is_vector_env, peek, split_step
from rlmesh.envs.vector_host import SqueezedVectorEnv, VectorHost
from rlmesh.evals.results import read_success
from rlmesh.spaces import Space, Text
from rlmesh.spaces.base import LeafSpace
from rlmesh.values import Framework, Report, compile_codec
from rlmesh.wire.contract import AutoresetMode

__all__ = ["Actions", "Leaf", "Moment", "Play", "Player", "Stopped", "draw_actions", "play"]
__all__ += ["play_from_plain", "play_to_plain", "taken"]

Actions = Sequence[Sequence[bytes]]
"""One step's action after the other, as the leaves that would travel."""

_SMALL = 512


@dataclass(frozen=True)
class Leaf:
    """One leaf: a digest for each lane, and its bytes where they are few."""

    rows: tuple[str, ...]
    content: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Moment:
    """What one reset or step gave, as it would travel; one entry a lane."""

    what: str
    leaves: tuple[Leaf, ...]
    rewards: tuple[float, ...] = ()
    terminated: tuple[bool, ...] = ()
    truncated: tuple[bool, ...] = ()
    rolled: tuple[int, ...] = field(default=(), compare=False)
    """Lanes whose step was the reset that NEXT_STEP promises."""
    outcomes: Mapping[int, bool | None] = field(default_factory=dict[int, "bool | None"])
    """By lane that ended: what its last info says of success."""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def ended(self) -> tuple[int, ...]:
        """The lanes whose episode this step ended."""
        return tuple(self.outcomes)


@dataclass(frozen=True)
class Play:
    """A seeded reset and the steps after it.

    Attributes:
        moments: as far as they went.
        stopped: what ended the play early, or None.
    """

    moments: tuple[Moment, ...]
    stopped: Finding | None = None


class Stopped(Exception):
    """The play cannot go on; ``finding`` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Player:
    """Drives one env through the code that serves it; everything on the calling thread.

    Args:
        env: single or vector, of this process or remote.
        remote: the env is served elsewhere, so its raw values are this package's own.
        framework: what the env speaks; default what its factory was bound to, else NumPy.

    Raises:
        TypeError, ValueError: the env lacks a method, or has a space that cannot travel.
    """

    def __init__(
        self, env: Any, *, remote: bool = False, framework: Framework | None = None
    ) -> None:
        self.env = watch(env)
        self.remote = remote
        self.notes = Notes()
        bind = env_binder(framework or made_framework(env))
        self.host: Any = _host(self.env, self.notes.range, bind)
        self.contract = self.host.contract
        self.lanes: int = self.host.lanes
        self.batched = is_vector_env(self.env)
        self.vector = isinstance(self.host, VectorHost)  # not so a vector env of one lane
        self.mode: AutoresetMode = self.contract.autoreset_mode
        if self.vector and remote:
            self.host.partial_reset = env.link.resets_lanes
        self.paths = leaf_paths(self.contract.observation_space, "observation")
        self.served: list[float] = []
        """Of a remote env: the seconds of every step that its server counted."""
        self._before: list[Any] = []
        self._digests: tuple[Leaf, ...] = ()

    def moments(self, seed: int, actions: Actions) -> Iterator[Moment]:
        """Yield what the env gives: after a seeded reset, and after every action.

        An episode that ends is followed by the next, seeded one higher, unless the env resets by
        itself.

        Raises:
            Stopped: the env raised, or gave something that cannot be read.
        """
        yield self.reset(range(self.lanes), self.seeds(seed))
        rolls = self.vector and self.mode is AutoresetMode.NEXT_STEP
        resets = not self.vector or self.mode is AutoresetMode.DISABLED
        rolling: tuple[int, ...] = ()
        episode = 0
        for number, leaves in enumerate(actions, 1):
            moment = self.step(leaves, f"step {number}", rolling)
            yield moment
            ended = moment.ended
            rolling = ended if rolls else ()
            if ended and resets:
                episode += 1
                seeds = [seed + episode * self.lanes + lane for lane in ended]
                yield self.reset(ended, seeds)

    def seeds(self, seed: int) -> list[int]:
        """Return the seeds of a reset of all lanes, as an evaluation would give them."""
        if self.vector and not self.host.partial_reset:
            return [seed]  # for the env to spread
        return [seed + lane for lane in range(self.lanes)]

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> Moment:
        """Reset some lanes, or all of them."""
        some = None if len(lanes) == self.lanes else list(lanes)
        shown = seeds[0] if len(seeds) == 1 else list(seeds)
        what = f"reset(seed={shown})" if some is None else f"reset of lanes {some}, seeds {shown}"
        self.notes.when = what
        try:
            leaves, info = self.host.reset(some, list(seeds), None)
        except CRASHES as exc:
            raise Stopped(self._fault(exc, what)) from exc
        if not self.remote:
            self.notes.reset_form(self.env.raw)
        self._look(info)
        return Moment(what, self._taken(leaves), info=info)

    def step(self, leaves: Sequence[bytes], what: str, rolling: Sequence[int] = ()) -> Moment:
        """Step all lanes."""
        self.notes.when = what
        sent = [bytearray(leaf) for leaf in leaves]
        try:
            out, rewards, terminated, truncated, info = self.host.step(
                None, [memoryview(leaf) for leaf in sent]
            )
        except CRASHES as exc:
            raise Stopped(self._fault(exc, what)) from exc
        if not self.remote:
            self.notes.step_form(self.env.raw, self.lanes if self.batched else None)
            if any(bytes(now) != before for now, before in zip(sent, leaves, strict=True)):
                self.notes.add(
                    "actions",
                    "written",
                    "step() wrote into the action it was given",
                    "the policy, or a hook, may still hold that array; copy it first",
                )
        else:
            self.served.append(self.env.link.env_ns / 1e9)
        self._look(info)
        flags = list(zip(map(bool, terminated), map(bool, truncated), strict=True))
        ended = [lane for lane, either in enumerate(flags) if any(either)]
        return Moment(
            what,
            self._taken(out),
            tuple(map(float, rewards)),
            tuple(flag for flag, _ in flags),
            tuple(flag for _, flag in flags),
            tuple(rolling),
            {lane: read_success(self.host.final_info(info, lane)) for lane in ended},
            info,
        )

    def _taken(self, leaves: Sequence[Any]) -> tuple[Leaf, ...]:
        """Return the leaves, and note it if they overwrote those before."""
        fresh = taken(leaves, self.paths)
        if not self.remote:
            self._note_overwritten(fresh)
        self._digests = fresh
        return fresh

    def _note_overwritten(self, fresh: tuple[Leaf, ...]) -> None:
        arrays = [leaf for _, _, leaf in self._raw_observation()]
        pairs = zip(self._before, arrays, self._digests, fresh, self.paths, strict=False)
        for before, now, old, new, (path, _) in pairs:
            both = isinstance(before, np.ndarray) and isinstance(now, np.ndarray)
            if both and old != new and np.may_share_memory(cast("Any", before), cast("Any", now)):
                self.notes.add(
                    "observations",
                    f"overwritten {path}",
                    f"{path} is the array of the step before, overwritten",
                    "whoever kept it (a frame stack, a hook) now holds the new one; return a copy",
                )
        self._before = arrays

    def _raw_observation(self) -> list[tuple[str, Space, Any]]:
        raw = self.env.raw
        if isinstance(raw, (tuple, list)) and len(cast("Sequence[Any]", raw)) in (2, 4, 5):
            space = self.contract.observation_space
            try:
                return list(raw_leaves(space, raw[0], "observation", lambda path, keys: None))
            except (KeyError, TypeError):
                pass  # a list of rows, or a bare observation
        return []

    def _look(self, info: Mapping[str, Any]) -> None:
        self.notes.info(info)
        leaves = self._raw_observation()
        if not self.remote and leaves:
            self.notes.observation(self.contract.observation_space, self.env.raw[0], self.vector)

    def _fault(self, exc: BaseException, what: str) -> Finding:
        """Return whose fault it is that a reset or step ended in ``exc``."""
        if self.env.crash is not None:
            remedy = ""
            if "unexpected keyword argument 'seed'" in str(exc):
                remedy = "reset(*, seed=None, options=None): without a seed no episode can be named"
            return Finding("steps", "fail", f"{what} raised {crash_text(exc)}", remedy)
        check = "observations"
        raw = self.env.raw
        if what.startswith("reset") and isinstance(raw, tuple) and len(raw) == 2:  # pyright: ignore[reportUnknownArgumentType]
            info = cast("tuple[Any, Any]", raw)[1]
            if not isinstance(info, Mapping):
                message = f"{what} returned (observation, {type(info).__name__})"
                return Finding("steps", "fail", message, "return (observation, info), info a dict")
        if what.startswith("step"):
            try:
                reward = split_step(raw)[1]
            except TypeError:
                check = "steps"
            else:
                check = check if self._is_reward(reward) else "rewards"
        return Finding(check, "fail", f"{what}: {exc}", "the server would end the session here")

    def _is_reward(self, reward: Any) -> bool:
        try:
            if self.vector:
                np.asarray(reward, np.float64).reshape(self.lanes)
            else:
                as_reward(reward)
        except (TypeError, ValueError):
            return False
        return True


def _host(env: Any, report: Report, bind: Bind) -> Host:
    """Return what the server would hold ``env`` in."""
    if not is_vector_env(env):
        return ScalarHost(env, report, bind)
    if int(peek(env, "num_envs") or 0) == 1:
        return ScalarHost(SqueezedVectorEnv(env, bind), report)
    return VectorHost(env, report, bind)


def taken(leaves: Sequence[Any], paths: Sequence[tuple[str, Space]]) -> tuple[Leaf, ...]:
    """Return encoded leaves as they are at this moment."""
    return tuple(_leaf(leaf, space) for leaf, (_, space) in zip(leaves, paths, strict=True))


def _leaf(leaf: Any, space: Space) -> Leaf:
    data = bytes(memoryview(leaf))
    size = len(data)  # of a row
    if isinstance(space, LeafSpace) and not isinstance(space, Text):
        size = space.np_dtype.itemsize * math.prod(space.shape)
    rows = [data[at : at + size] for at in range(0, len(data), size)]
    digests = tuple(hashlib.blake2b(row, digest_size=16).hexdigest() for row in rows)
    return Leaf(digests, data if len(data) <= _SMALL else None)


def draw_actions(space: Space, lanes: int, vector: bool, steps: int, seed: int) -> Actions:
    """Return ``steps`` random actions of ``space``, the same for the same seed."""
    own = space.bound_to(None)
    own.seed(seed)
    codec = compile_codec(own, "action")
    drawn: list[list[bytes]] = []
    for _ in range(steps):
        rows = [own.sample() for _ in range(lanes)]
        leaves = codec.encode_rows(rows) if vector else codec.encode(rows[0])
        drawn.append([bytes(memoryview(leaf)) for leaf in leaves])
    return drawn


def play(player: Player, seed: int, actions: Actions) -> Play:
    """Return what ``actions`` after a reset with ``seed`` lead to; never raises for the env."""
    found: list[Moment] = []
    try:
        for moment in player.moments(seed, actions):
            found.append(moment)
    except Stopped as stop:
        return Play(tuple(found), stop.finding)
    return Play(tuple(found))


def play_to_plain(found: Play) -> dict[str, Any]:
    """Return a play as JSON data, without its infos."""
    return {
        "moments": [
            {
                "what": moment.what,
                "leaves": [
                    [leaf.rows, None if leaf.content is None else leaf.content.hex()]
                    for leaf in moment.leaves
                ],
                "rewards": moment.rewards,
                "terminated": moment.terminated,
                "truncated": moment.truncated,
                "outcomes": list(moment.outcomes.items()),
            }
            for moment in found.moments
        ],
        "stopped": None if found.stopped is None else asdict(found.stopped),
    }


def play_from_plain(data: Mapping[str, Any]) -> Play:
    """Return the play that :func:`play_to_plain` took apart."""
    moments = [
        Moment(
            moment["what"],
            tuple(
                Leaf(tuple(rows), None if content is None else bytes.fromhex(content))
                for rows, content in moment["leaves"]
            ),
            tuple(moment["rewards"]),
            tuple(moment["terminated"]),
            tuple(moment["truncated"]),
            outcomes=dict(moment["outcomes"]),
        )
        for moment in data["moments"]
    ]
    stopped = data["stopped"]
    return Play(tuple(moments), None if stopped is None else Finding(**stopped))
