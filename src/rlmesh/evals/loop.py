"""The loop: every evaluation is this one, whether of one local env or of fifty endpoints.

A :class:`Group` is the lanes of one endpoint, which step together. One turn of the loop receives
from the groups that have answered, advances their lanes, serves queued chunk actions at once, and
gives the model a batch of the lanes that need a prediction, when the clock says so.

With one lane it steps aside (`alone`). What an episode is told and written is `episodes`, what is
lost and found again `losses`; a group plans its resets with `resets`.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlmesh.evals.alone import run_alone
from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.episodes import Episodes
from rlmesh.evals.group import Group
from rlmesh.evals.losses import Losses
from rlmesh.evals.policy import Policy
from rlmesh.evals.replica import Replica
from rlmesh.evals.results import EpisodeFailure
from rlmesh.evals.schedule import Assignment, Schedule
from rlmesh.evals.telemetry import Telemetry
from rlmesh.models.batching import BatchClock

__all__ = ["Loop"]

_GLANCE_SECONDS = 1.0
"""How often the loop looks for endpoints that have not answered in time."""

_DOWN_SECONDS = 0.02
"""How long a loop with nothing but lost endpoints sleeps before it looks again."""

_SETTLE_SECONDS = 5.0
"""How long a run that failed waits for the answers that are on their way."""


class Loop:
    """Runs a schedule over endpoints.

    Args:
        endpoints: where the lanes live.
        policy: the model.
        schedule: which episodes to run.
        episodes: tells record, model and hooks of each.
        clock: when batches start.
        prefetch_lead: plan a lane's next chunk while that many of its actions are still to be
            executed.
        retries: how often a lost episode is run again.
        on_failure: called with every lost attempt.
        options: reset options for an episode, at its endpoint.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        policy: Policy,
        schedule: Schedule,
        episodes: Episodes,
        *,
        clock: BatchClock,
        prefetch_lead: int = 0,
        retries: int = 0,
        on_failure: Callable[[EpisodeFailure], None],
        options: Callable[[Endpoint, Assignment], Mapping[str, Any] | None],
    ) -> None:
        self.policy = policy
        self.schedule = schedule
        self.episodes = episodes
        self.lead = prefetch_lead
        self.options = options
        self.telemetry = Telemetry()
        self._groups = [Group(endpoint, self) for endpoint in endpoints]
        self._local = [group for group in self._groups if group.local]
        self._remote = [group for group in self._groups if not group.local]
        self._replicas = self._share(clock)
        self.losses = Losses(
            self._groups,
            self._replicas,
            schedule,
            episodes,
            retries=retries,
            on_failure=on_failure,
        )
        self._selector: selectors.BaseSelector | None = None
        self._glanced = time.perf_counter()

    def run(self) -> None:
        """Run every episode of the schedule; what goes wrong is raised."""
        endpoint = self._groups[0].endpoint
        plain = len(self._groups) == 1 and not self.lead and not self.losses.retries
        if plain and isinstance(endpoint, (LocalScalar, RemoteScalar)):
            run_alone(
                endpoint,
                self.policy,
                self.schedule,
                self.episodes,
                self.telemetry,
                self.options,
            )
        else:
            self._run_together()

    def _share(self, clock: BatchClock) -> list[Replica]:
        """Divide the lanes among the copies of the model: whole groups, if there are enough."""
        copies = self.policy.copies
        if len(copies) < 2:
            return [Replica(self, 0, copies[0] if copies else None, clock)]
        slot = 0
        for index, group in enumerate(self._groups):
            count = len(group.lanes)
            at = [index] * count if len(self._groups) >= len(copies) else range(slot, slot + count)
            group.copies = [number % len(copies) for number in at]
            slot += count
        asked = [number for group in self._groups for number in group.copies]
        return [
            Replica(self, number, copy, clock.share(max(1, asked.count(number))))
            for number, copy in enumerate(copies)
        ]

    def _run_together(self) -> None:
        with selectors.DefaultSelector() as self._selector:
            try:
                for group in self._groups:
                    group.start()
                while self._unfinished():
                    for ready in self._ready(self._predict_due()):
                        ready.receive()
                    if self.losses.down:
                        self.losses.revive()
            finally:
                self.losses.give_up()

    def _unfinished(self) -> bool:
        if any(group.working or group.stale for group in self._groups):
            return True
        if not len(self.schedule):
            return False
        for group in self._groups:
            group.start()
        return True

    def watch(self, member: Group | Replica, descriptor: int | None) -> None:
        """Wake up when ``descriptor`` is readable, instead of what was watched for the member."""
        assert self._selector is not None
        if member.watched is not None:
            self._selector.unregister(member.watched)
        member.watched = descriptor
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, member)

    def _ready(self, wait: float | None) -> list[Group | Replica]:
        """Return those whose answers are there, waiting for one up to ``wait`` seconds."""
        assert self._selector is not None
        local: list[Group | Replica] = [group for group in self._local if group.awaiting]
        flying = any(replica.flight is not None for replica in self._replicas)
        if not flying and not any(group.awaiting for group in self._remote):
            if not local and wait != 0.0:
                time.sleep(_DOWN_SECONDS)  # every endpoint is lost, and being dialled
            return local
        if local:
            wait = 0.0
        glance = _GLANCE_SECONDS if wait is None else min(wait, _GLANCE_SECONDS)
        events = self._selector.select(glance)
        now = time.perf_counter()
        if now - self._glanced >= _GLANCE_SECONDS:
            self._glanced = now
            self._check_timeouts(now, [key.data for key, _ in events])
        return local + [key.data for key, _ in events if key.data.awaiting]

    def _check_timeouts(self, now: float, answered: Collection[Group | Replica]) -> None:
        for replica in self._replicas:
            overdue = replica.late(now)
            if overdue is not None and replica not in answered:
                self.losses.replica_lost(replica, overdue)
        for group in self._remote:
            timeout = group.endpoint.timeout
            late = timeout is not None and group.awaiting and now - group.sent_at > timeout
            if late and group not in answered:
                assert timeout is not None
                group.hang_up()
                self.losses.endpoint_lost(group, _no_answer(group, timeout))

    def _predict_due(self) -> float | None:
        """Start batches that are due; return how long to wait for lanes (None: no bound)."""
        waits = [replica.due() for replica in self._replicas]
        return min((wait for wait in waits if wait is not None), default=None)

    # What the replicas ask for

    @property
    def local_at_work(self) -> bool:
        """Whether envs of this process are about to work."""
        return any(group.awaiting for group in self._local)

    def outstanding(self, replica: Replica) -> bool:
        """Whether some lane may still ask the replica for a prediction; asked at every turn."""
        number = replica.number
        return any(group.outstanding and number in group.copies for group in self._groups)

    # What the groups ask for

    def replica(self, group: Group, slot: int) -> Replica:
        """Return the copy of the model that predicts for a slot."""
        return self._replicas[group.copies[slot]]

    def returned(self, group: Group, seconds: float) -> None:
        """Note how long the group's env took."""
        for number in set(group.copies):
            self._replicas[number].clock.returned(seconds)

    # The end

    def settle(self, endpoints: Collection[Endpoint]) -> None:
        """Take the answers that are on their way, so that these endpoints can be used again.

        One that does not answer soon is left.
        """
        with selectors.DefaultSelector() as selector:
            for group in self._remote:
                descriptor = group.endpoint.fileno()
                if group.awaiting and group.endpoint in endpoints and descriptor is not None:
                    selector.register(descriptor, selectors.EVENT_READ, group)
            deadline = time.perf_counter() + _SETTLE_SECONDS
            while selector.get_map():
                events = selector.select(deadline - time.perf_counter())
                for key, _ in events:
                    selector.unregister(key.fd)
                    key.data.discard()
                if not events:
                    for key in list(selector.get_map().values()):
                        key.data.endpoint.hang_up()
                    return


def _no_answer(group: Group, timeout: float) -> TimeoutError:
    return TimeoutError(
        f"env server at {group.endpoint.name} did not answer within {timeout:.3g} s; raise "
        "request_timeout_seconds, or see what its env is doing"
    )
