"""One env of one client at a model server: its codecs, its adapter and its live episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlmesh.adapters import Adapter
from rlmesh.adapters.adapter import payload_signature
from rlmesh.models.adapting import check_history
from rlmesh.models.asked import Rows
from rlmesh.models.context import EpisodeContexts
from rlmesh.models.corners import Corners
from rlmesh.values import (
    Codec,
    Policy,
    ProcessedImage,
    compile_codec,
    leaf_spaces,
    leaves_under,
    part_of,
)
from rlmesh.wire.contract import EnvContract
from rlmesh.wire.status import ModelErrorCode, ModelFault

__all__ = ["Part", "Slot"]


@dataclass
class Part:
    """Rows of one slot that wait for a prediction."""

    slot: Slot
    episodes: list[str]
    rows: list[Any]
    """What the model is given, one per row."""
    contexts: list[Any] | None

    def describe(self) -> str:
        """Return what the adapter made of the observation, for errors; empty without one."""
        if self.slot.adapter is None or not self.rows:
            return ""
        return f"; the adapter gave it {payload_signature(self.rows[0])}"


class Slot:
    """An env that a client resolved, and its episodes.

    Args:
        contract: what the client says of the env.
        corners: the model's.
        adapter: its own, or None for raw values.
        horizon: how many actions of a chunk the client executes.
        key: equal for slots of equal env specs; rows of such may share a forward pass.
        plans: whether the client can use what :meth:`describe_plan` says.
        images: what of the observation comes processed already; the adapter's plan leaves it be.
    """

    def __init__(
        self,
        contract: EnvContract,
        corners: Corners,
        adapter: Adapter | None,
        horizon: int,
        key: bytes,
        *,
        plans: bool,
        images: Sequence[ProcessedImage] = (),
    ) -> None:
        self.adapter = adapter
        self.horizon = horizon
        self.key = key
        self._corners = corners
        self._plans = plans
        self._remembers = adapter is not None and adapter.remembers
        self._contexts = EpisodeContexts() if corners.takes_context else None
        self._live: dict[str, list[Any]] = {}  # the model's actions not yet known to be executed
        space = contract.observation_space
        count = sum(1 for _ in leaf_spaces(space))
        codec = compile_codec(space, "observation", policy=Policy.OFF)
        self._whole = codec.of_part(part_of(range(count), images)) if images else codec
        self._action = compile_codec(contract.action_space, "action", policy=Policy.OFF)
        self._leaves: list[int] = []
        self._part: Codec | None = None
        if plans and adapter is not None and not adapter.reads_all:
            self._leaves = leaves_under(space, adapter.read_paths())
            if len(self._leaves) < count:
                self._part = codec.of_part(part_of(self._leaves, images))

    @property
    def live(self) -> int:
        """How many episodes are held."""
        return len(self._live)

    def leaves(self, *, projected: bool) -> int:
        """Return how many leaves an observation arrives in."""
        return self._codec(projected).leaves

    def _codec(self, projected: bool) -> Codec:
        if not projected:
            return self._whole
        if self._part is None:
            raise _invalid("the observation is projected, but this env's plan projects nothing")
        return self._part

    def describe_plan(self, plan: Any) -> None:
        """Fill an AdapterPlan."""
        if self._part is not None:
            plan.projects = True
            plan.leaves.extend(self._leaves)
        if self._remembers and self.adapter is not None:
            plan.remembers = True
            plan.history = max([span - 1 for _, span, _ in self.adapter.history_windows()] or [0])

    def accept(self, rows: Rows, leaves: Sequence[memoryview]) -> Part:
        """Take in an observation; ModelFault, or what the adapter raises, refuses it."""
        count = len(rows.episodes)
        try:
            codec = self._codec(rows.projected)
            observations = (
                [codec.decode(leaves)] if count == 1 else codec.decode_rows(leaves, count)
            )
        except ValueError as exc:
            raise _invalid(str(exc)) from None
        if self._remembers:
            self._check_capacity(rows.episodes)
            self._note_executed(rows)
        part = Part(self, [], [], None if self._contexts is None else [])
        each = zip(observations, rows.episodes, rows.seeds, rows.passed, strict=True)
        for observation, episode, seed, gone in each:
            pending = self._live.setdefault(episode, [])
            if gone:
                self._pass(episode, observation, pending)
                continue
            if self.adapter is not None:
                observation = self.adapter.transform_obs(observation, episode=episode)
            part.episodes.append(episode)
            part.rows.append(observation)
            if part.contexts is not None and self._contexts is not None:
                part.contexts.append(self._contexts.next(episode, seed))
        return part

    def _check_capacity(self, episodes: Sequence[str]) -> None:
        assert self.adapter is not None
        fresh = {*episodes} - self._live.keys()
        if fresh:
            check_history((self.adapter,), len(self._live) + len(fresh))

    def _note_executed(self, rows: Rows) -> None:
        """Drop from each plan the actions whose observations the client does not send.

        It executes a plan to its end before it asks again, and sends what the history needs of it.
        """
        assert self.adapter is not None
        sent = dict.fromkeys(rows.episodes, 0)
        for episode, gone in zip(rows.episodes, rows.passed, strict=True):
            sent[episode] += gone
        for episode, count in sent.items():
            pending = self._live.get(episode)
            if pending and count < len(pending):
                skipped = pending[: len(pending) - count]
                del pending[: len(skipped)]
                self.adapter.note_action(skipped[-1], episode=episode)

    def _pass(self, episode: str, observation: Any, pending: list[Any]) -> None:
        if self.adapter is None or not self._remembers:
            return
        self.adapter.observe(observation, episode=episode)
        if pending:
            self.adapter.note_action(pending.pop(0), episode=episode)

    def answer(
        self, part: Part, plans: Sequence[Sequence[Any]]
    ) -> tuple[list[Any], int, Sequence[int]]:
        """Return the leaves of ``part``'s actions, how many actions they are a row, and how many of
        them are meant for each row: empty if all are.

        Raises:
            ValueError: the model returned something that is no action of the env.
        """
        lengths = [len(plan) for plan in plans]
        frames = lengths[0] if len(lengths) == 1 else max(lengths)
        told: Sequence[int] = ()
        if len(lengths) > 1 and min(lengths) != frames:
            if self._plans:
                told = lengths
                plans = [[*plan, *([plan[-1]] * (frames - len(plan)))] for plan in plans]
            else:
                frames = min(lengths)
                lengths = [frames] * len(lengths)
        columns = [[plan[frame] for plan in plans] for frame in range(frames)]
        if self.adapter is not None:
            columns = self._to_env(part, lengths, columns)
        leaves: list[Any] = []
        encode = self._action.encode_rows
        for column in columns:
            leaves += encode(column) if len(column) > 1 else self._action.encode(column[0])
        return leaves, frames, told

    def _to_env(
        self, part: Part, lengths: Sequence[int], columns: list[list[Any]]
    ) -> list[list[Any]]:
        """Return the env's actions for the model's: the first executed, the rest to come."""
        adapter = self.adapter
        assert adapter is not None
        if self._remembers:
            for row, episode in enumerate(part.episodes):
                adapter.note_action(columns[0][row], episode=episode)
                waiting = self._live.get(episode)
                if waiting is not None:
                    waiting[:] = [column[row] for column in columns[1 : lengths[row]]]
        return [[adapter.write_action(action) for action in column] for column in columns]

    def end(self, episode: str) -> None:
        """Forget an episode and tell the model; one that is not live is ignored."""
        if self._live.pop(episode, None) is None:
            return
        if self._contexts is not None:
            self._contexts.end(episode)
        if self.adapter is not None:
            self.adapter.reset(episode)
        self._corners.end_episode(episode)

    def end_all(self) -> None:
        """The same for every episode that is live."""
        for episode in list(self._live):
            self.end(episode)


def _invalid(message: str) -> ModelFault:
    return ModelFault(ModelErrorCode.INVALID_REQUEST, message)
