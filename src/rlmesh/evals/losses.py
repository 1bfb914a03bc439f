"""What a run loses and finds again: endpoints, copies of the model, and the episodes with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlmesh.evals.episodes import Episodes
from rlmesh.evals.lanes import Lane
from rlmesh.evals.redial import Redial
from rlmesh.evals.results import EpisodeFailure
from rlmesh.evals.schedule import Assignment, Schedule

if TYPE_CHECKING:
    from rlmesh.evals.group import Group
    from rlmesh.evals.replica import Replica

__all__ = ["Losses"]

_RECONNECT_SECONDS = 60.0
"""How long a run goes on with no endpoint at all before it gives up."""


class _Outage(NamedTuple):
    """What something was lost with, when, and the dialling that goes on since."""

    error: Exception
    since: float
    redial: Redial


class Losses:
    """Gives the episodes of what is lost back to the schedule, and dials it again.

    Args:
        groups: the lanes of every endpoint.
        replicas: the copies of the model.
        schedule: where a lost episode goes back to.
        episodes: those in flight.
        retries: how often a lost episode is run again.
        on_failure: called with every lost attempt.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        replicas: Sequence[Replica],
        schedule: Schedule,
        episodes: Episodes,
        *,
        retries: int,
        on_failure: Callable[[EpisodeFailure], None],
    ) -> None:
        self.retries = retries
        self.down: dict[Group | Replica, _Outage] = {}
        """What is lost and not found again yet."""
        self.reruns = False
        """Whether any episode was given back."""
        self._groups = groups
        self._replicas = replicas
        self._schedule = schedule
        self._episodes = episodes
        self._on_failure = on_failure

    def endpoint_lost(self, group: Group, exc: Exception) -> None:
        """Give a lost endpoint's episodes back to the schedule; raise if they are out of tries."""
        attempts = group.abandon()
        self._note(group, group.endpoint, exc)
        self._give_back(group.endpoint.name, [group], attempts, exc, group.hang_up)

    def replica_lost(self, replica: Replica, exc: Exception) -> None:
        """The same for the episodes that a lost copy of the model predicted for."""
        assert replica.copy is not None
        replica.abandon()
        self._note(replica, replica.copy, exc)
        groups = [g for g in self._groups if not g.down and replica.number in g.copies]
        attempts = [attempt for group in groups for attempt in group.drop()]
        self._give_back(replica.copy.name, groups, attempts, exc, lambda: None)

    def _note(self, lost: Group | Replica, peer: object, exc: Exception) -> None:
        self.down[lost] = _Outage(exc, time.perf_counter(), Redial(peer, exc))

    def _give_back(
        self,
        name: str,
        groups: Sequence[Group],
        attempts: Sequence[tuple[Assignment, Lane | None]],
        exc: Exception,
        hang_up: Callable[[], None],
    ) -> None:
        for replica in self._replicas:
            for group in groups:
                replica.forget(group)
        self._episodes.drop(lane for _, lane in attempts if lane is not None)
        if not self.retries or any(a.attempt > self.retries for a, _ in attempts):
            raise exc
        hang_up()
        for assignment, _ in reversed(attempts):  # the first of them is the next to run
            self._schedule.give_back(assignment)
        for assignment, _ in attempts:
            self._on_failure(
                EpisodeFailure(
                    index=assignment.index,
                    seed=assignment.seed,
                    attempt=assignment.attempt,
                    endpoint=name,
                    error=f"{type(exc).__name__}: {exc}",
                )
            )
        self.reruns = True
        for group in self._groups:
            group.start()

    def revive(self) -> None:
        """Dial what was lost again while there is work for it.

        Raises:
            Exception: what the first endpoint, or copy, was lost with, if all have long been lost.
        """
        if not len(self._schedule):
            return
        for lost, outage in list(self.down.items()):
            if outage.redial.poll():
                del self.down[lost]
                lost.down = False
                for group in self._groups:
                    group.start()
        now = time.perf_counter()
        members: tuple[Sequence[Group | Replica], ...] = (self._groups, self._replicas)
        for kind in members:
            outages = [self.down[member] for member in kind if member in self.down]
            gone = [out.error for out in outages if now - out.since > _RECONNECT_SECONDS]
            if gone and len(gone) == len(kind):
                raise gone[0]

    def give_up(self) -> None:
        """Dial no more."""
        for outage in self.down.values():
            outage.redial.give_up()
