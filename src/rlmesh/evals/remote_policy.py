"""A served model as the loop drives it: one copy per replica, and the same numbers as a local one.

The server holds the model's adapters and memory. What it cannot see, the steps whose actions come
from a chunk, is sent along with the next prediction where its plan asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import PushableImages
from rlmesh.models.link import ModelLink, RemoteSlot, Row
from rlmesh.models.remote import RemoteModel
from rlmesh.values import ProcessedImage
from rlmesh.values.tree import tree_map

__all__ = ["RemotePolicy", "remote_handles"]


def remote_handles(model: Any) -> tuple[RemoteModel, ...]:
    """Return the handles that ``model`` is: one, or a list of replicas; none for anything else.

    Raises:
        TypeError: a list that holds handles and other things.
    """
    if isinstance(model, RemoteModel):
        return (model,)
    if not isinstance(model, (list, tuple)):
        return ()
    items = cast("Sequence[Any]", model)
    handles = tuple(item for item in items if isinstance(item, RemoteModel))
    if handles and len(handles) != len(items):
        raise TypeError("a list of models holds replicas of one served model: RemoteModel only")
    return handles


class RemoteCopy:
    """One replica: a connection, and what its server was told of each endpoint."""

    def __init__(self, link: ModelLink, endpoints: Sequence[Endpoint], horizon: int) -> None:
        self.link = link
        self.name = link.address
        self.dialling = threading.Lock()
        self.slots: dict[object, RemoteSlot] = {
            endpoint: link.resolve(endpoint.contract, horizon) for endpoint in endpoints
        }
        self._passed: dict[str, list[Any]] = {}

    @property
    def timeout(self) -> float | None:
        return self.link.options.request_timeout

    def fileno(self) -> int:
        return self.link.fileno()

    def start(self, lanes: Sequence[Lane], observations: Sequence[Any]) -> None:
        passed = self._passed
        self.link.send_predict(
            [
                Row(
                    self.slots[lane.group],
                    observation,
                    lane.episode_id,
                    lane.assignment.seed,
                    passed.pop(lane.episode_id, ()) if passed else (),
                )
                for lane, observation in zip(lanes, observations, strict=True)
            ]
        )

    def advance(self) -> Sequence[Sequence[Any]] | None:
        return self.link.advance()

    def replay(self, lane: Lane) -> None:
        slot = self.slots[lane.group]
        if slot.history:
            passed = self._passed.setdefault(lane.episode_id, [])
            passed.append(self.keep(lane.observation))
            del passed[: -slot.history]

    def keep(self, observation: Any) -> Any:
        return tree_map(_copied, observation)

    def end(self, lane: Lane) -> None:
        self._passed.pop(lane.episode_id, None)
        self.link.end(self.slots[lane.group], lane.episode_id)

    def reopen(self) -> None:
        self.link.reopen()

    def hang_up(self) -> None:
        self.link.hang_up()
        self._passed.clear()


def _copied(leaf: Any) -> Any:
    return np.array(cast("Any", leaf)) if isinstance(leaf, np.ndarray) else leaf


class RemotePolicy:
    """A served model. Its actions are the env's already, and its chunks are replayed here."""

    adapts = False
    advisories = ()  # those of its adapters stay on the server

    def __init__(
        self, handles: Sequence[RemoteModel], endpoints: Sequence[Endpoint], horizon: int
    ) -> None:
        self.horizon = horizon
        self.copies: list[RemoteCopy] = []
        links: list[ModelLink] = []
        try:
            for handle in handles:
                links.append(handle.connect())
                self.copies.append(RemoteCopy(links[-1], endpoints, horizon))
        except BaseException:
            for link in links:
                link.hang_up()
            raise
        slots = [slot for copy in self.copies for slot in copy.slots.values()]
        self.remembers = any(slot.remembers for slot in slots)

    def reads(self, endpoint: Endpoint) -> Sequence[int] | None:
        read: set[int] = set()
        for copy in self.copies:
            leaves = copy.slots[endpoint].leaves
            if leaves is None:
                return None
            read.update(leaves)
        return sorted(read)

    def pushable(self, endpoint: Endpoint) -> PushableImages:
        first, *others = [copy.link.offer(copy.slots[endpoint]) for copy in self.copies]
        shared = [image for image in first if all(image in offer for offer in others)]
        unlike = [image.leaf for image in first if image not in shared]
        return shared, [f"replicas of the model process leaf {leaf} unlike" for leaf in unlike]

    def process(self, endpoint: Endpoint, images: Sequence[ProcessedImage]) -> None:
        for copy in self.copies:
            copy.link.process(copy.slots[endpoint], images)

    def replay(self, lane: Lane) -> None:
        if self.remembers:
            self.copies[lane.copy].replay(lane)

    def deliver(self, lane: Lane, action: Any) -> Any:
        return action

    def act(self, lane: Lane) -> Any:
        return self.plan(lane)[0]

    def plan(self, lane: Lane) -> Sequence[Any]:
        return self.plan_many((lane,))[0]

    def plan_many(self, lanes: Sequence[Lane]) -> Sequence[Sequence[Any]]:
        copy = self.copies[lanes[0].copy]
        copy.start(lanes, [lane.observation for lane in lanes])
        return copy.link.finish()

    def corner(self, rows: int) -> str:
        return "RemoteModel.predict"

    def end(self, lane: Lane) -> None:
        self.copies[lane.copy].end(lane)

    def close(self) -> None:
        first: Exception | None = None
        for copy in self.copies:
            try:
                copy.link.close()
            except Exception as exc:
                first = first or exc
        if first is not None:
            raise first

    def hang_up(self) -> None:
        for copy in self.copies:
            copy.hang_up()
