"""The model as the loop drives it: lanes in, plans (one or more actions a lane) out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from rlmesh.errors import add_note
from rlmesh.evals.lanes import Lane
from rlmesh.models.context import EpisodeContexts
from rlmesh.models.corners import Corners
from rlmesh.spaces import Space
from rlmesh.values import ProcessedImage
from rlmesh.values.tree import describe_tree

if TYPE_CHECKING:
    from rlmesh.adapters.advisory import Advisory
    from rlmesh.evals.endpoints import Endpoint

__all__ = [
    "RANDOM_SAMPLE",
    "Copy",
    "CornersPolicy",
    "Policy",
    "PushableImages",
    "RandomPolicy",
    "RandomSample",
    "fitted",
    "misfit",
    "note_lanes",
    "planned",
    "replayed",
]


class RandomSample:
    """The type of :data:`RANDOM_SAMPLE`."""

    def __repr__(self) -> str:
        return "RANDOM_SAMPLE"


RANDOM_SAMPLE: Final = RandomSample()
"""Pass as the model for a baseline that ignores observations: it samples the env's action space. A
seeded episode samples the same actions wherever its env lives."""


PushableImages = tuple[Sequence[ProcessedImage], Sequence[str]]
"""Images that may be processed elsewhere, and why some may not that otherwise could."""


class Copy(Protocol):
    """A copy of the model that is served elsewhere, split-phase: started, then taken in."""

    name: str
    """How errors call it: the address."""

    @property
    def timeout(self) -> float | None:
        """Seconds an answer may take; None: as long as it takes."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable once there is something to take in."""
        ...

    def start(self, lanes: Sequence[Lane], observations: Sequence[Any]) -> None:
        """Start the one prediction it works on at a time."""
        ...

    def advance(self) -> Sequence[Sequence[Any]] | None:
        """Take in what has come; the plans of the prediction if that was all of it."""
        ...

    def keep(self, observation: Any) -> Any:
        """Return the observation as it is now, whatever its env does to its arrays."""
        ...

    def hang_up(self) -> None:
        """Leave the server at once."""
        ...


class Policy(Protocol):
    """What the loop asks of a model."""

    horizon: int
    remembers: bool
    """Whether what it is given depends on earlier steps."""
    adapts: bool
    """Whether its actions are not yet the env's: then each goes through :meth:`deliver`."""

    @property
    def copies(self) -> Sequence[Copy]:
        """Where it is served; none for a model in this process, which answers while it is asked."""
        ...

    @property
    def advisories(self) -> Sequence[Advisory]:
        """What resolving its adapters found."""
        ...

    def reads(self, endpoint: Endpoint) -> Sequence[int] | None:
        """Return which leaves of an endpoint's observations it looks at; None: all of them."""
        ...

    def pushable(self, endpoint: Endpoint) -> PushableImages:
        """Return what the endpoint may do to its images in its place, and why not more."""
        ...

    def process(self, endpoint: Endpoint, images: Sequence[ProcessedImage]) -> None:
        """Take these images of an endpoint as processed from now on, and all others raw."""
        ...

    def replay(self, lane: Lane) -> None:
        """Note a step whose action comes from the lane's queue."""
        ...

    def deliver(self, lane: Lane, action: Any) -> Any:
        """Return the env's action for one of a plan, as it is about to be executed."""
        ...

    def act(self, lane: Lane) -> Any:
        """Return the lane's next action; for a horizon of 1."""
        ...

    def plan(self, lane: Lane) -> Sequence[Any]:
        """Return the lane's next actions, 1 to ``horizon``."""
        ...

    def plan_many(self, lanes: Sequence[Lane]) -> Sequence[Sequence[Any]]:
        """The same for several lanes, through the widest corner the model has."""
        ...

    def corner(self, rows: int) -> str:
        """Return the name of the corner that answers for that many rows, for errors."""
        ...

    def end(self, lane: Lane) -> None:
        """Note that the lane's episode is over."""
        ...

    def close(self) -> None:
        """Note that the run is over."""
        ...

    def hang_up(self) -> None:
        """Wait for nobody any more: the run was interrupted."""
        ...


class _TakesRaw:
    """What policies share that do nothing to images before they look at them."""

    advisories: Sequence[Advisory] = ()

    def pushable(self, endpoint: Endpoint) -> PushableImages:
        return (), ()

    def process(self, endpoint: Endpoint, images: Sequence[ProcessedImage]) -> None:
        return None


class CornersPolicy(_TakesRaw):
    """A model's resolved corners, on raw observations."""

    adapts = False
    remembers = False
    copies: Sequence[Copy] = ()

    def __init__(self, corners: Corners, horizon: int) -> None:
        self.horizon = horizon if corners.chunks else 1
        self._corners = corners
        self._predict = corners.predict
        self._contexts = EpisodeContexts() if corners.takes_context else None

    def reads(self, endpoint: Endpoint) -> Sequence[int] | None:
        return None

    def seen(self, lane: Lane) -> Any:
        """Return what the model is given of the lane's observation."""
        return lane.observation

    def replay(self, lane: Lane) -> None:
        return None

    def deliver(self, lane: Lane, action: Any) -> Any:
        return action

    def act(self, lane: Lane) -> Any:
        if self._contexts is None:
            return self._predict(lane.observation)
        return self._predict(lane.observation, self._context(lane))

    def plan(self, lane: Lane) -> Sequence[Any]:
        context = None if self._contexts is None else self._context(lane)
        return self._corners.plan(self.seen(lane), context, self.horizon)

    def _context(self, lane: Lane) -> Any:
        assert self._contexts is not None
        return self._contexts.next(lane.episode_id, lane.assignment.seed)

    def plan_many(self, lanes: Sequence[Lane]) -> Sequence[Sequence[Any]]:
        contexts = None
        if self._contexts is not None:
            contexts = [self._context(lane) for lane in lanes]
        return self._corners.predict_rows(
            [self.seen(lane) for lane in lanes],
            contexts,
            self.horizon,
            lanes=lanes,
            groups=[lane.group for lane in lanes],
        )

    def corner(self, rows: int) -> str:
        return self._corners.widest(rows, self.horizon)

    def end(self, lane: Lane) -> None:
        if self._contexts is not None:
            self._contexts.end(lane.episode_id)
        self._corners.end_episode(lane.episode_id)

    def close(self) -> None:
        self._corners.close()

    def hang_up(self) -> None:
        return None


class RandomPolicy(_TakesRaw):
    """RANDOM_SAMPLE bound to an action space: every episode has a stream of its own."""

    horizon = 1
    adapts = False
    remembers = False
    copies: Sequence[Copy] = ()

    def __init__(self, space: Space) -> None:
        self._space = space
        self._streams: dict[str, Space] = {}

    def reads(self, endpoint: Endpoint) -> Sequence[int] | None:
        return ()

    def replay(self, lane: Lane) -> None:
        return None

    def deliver(self, lane: Lane, action: Any) -> Any:
        return action

    def act(self, lane: Lane) -> Any:
        stream = self._streams.get(lane.episode_id)
        if stream is None:
            stream = self._streams[lane.episode_id] = self._space.bound_to(None)
            seed = lane.assignment.seed
            stream.seed(None if seed is None else seed % 2**64)  # a space takes no negative one
        return stream.sample()

    def plan(self, lane: Lane) -> Sequence[Any]:
        return (self.act(lane),)

    def plan_many(self, lanes: Sequence[Lane]) -> Sequence[Sequence[Any]]:
        return [self.plan(lane) for lane in lanes]

    def corner(self, rows: int) -> str:
        return "RANDOM_SAMPLE"

    def end(self, lane: Lane) -> None:
        self._streams.pop(lane.episode_id, None)

    def close(self) -> None:
        self._streams.clear()

    def hang_up(self) -> None:
        return None


def planned(policy: Policy, lanes: Sequence[Lane]) -> Sequence[Sequence[Any]]:
    """Return the plans of one lane or several; what goes wrong says for which."""
    try:
        return [policy.plan(lanes[0])] if len(lanes) == 1 else policy.plan_many(lanes)
    except Exception as exc:
        note_lanes(exc, lanes)
        raise


def replayed(policy: Policy, lane: Lane) -> Any:
    """Return the next action of the lane's queue."""
    try:
        policy.replay(lane)
    except Exception as exc:
        note_lanes(exc, (lane,))
        raise
    return lane.queue.take()


def fitted(policy: Policy, lane: Lane, action: Any, conform: Callable[[Any], Any]) -> Any:
    """Return the lane's action as its env gets it; ValueError says what does not fit, and where."""
    if policy.adapts:
        try:
            action = policy.deliver(lane, action)
        except Exception as exc:
            note_lanes(exc, (lane,))
            raise
    try:
        return conform(action)
    except ValueError as exc:
        raise misfit(exc, policy, lane, action) from None


def misfit(exc: ValueError, policy: Policy, lane: Lane, action: Any) -> ValueError:
    """Return what is wrong with an action the policy returned: where, from what, and which one."""
    return ValueError(
        f"{exc}. {policy.corner(lane.rows)}() returned it for {lane}; it was given "
        f"{describe_tree(lane.observation)} and returned {describe_tree(action)}"
    )


def note_lanes(exc: BaseException, lanes: Sequence[Lane]) -> None:
    """Note on what a prediction raised for which episodes it was, if that is not noted yet."""
    notes: Sequence[str] = getattr(exc, "__notes__", ())
    if not any(note.startswith(_WHILE) for note in notes):
        add_note(exc, _WHILE + "; ".join(map(str, lanes)))


_WHILE = "while predicting for "
