"""What a policy server of another kind has to offer to be evaluated: `PolicyLink`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["PolicyLink"]


class PolicyLink(Protocol):
    """A connection to a policy server: connect (which reads its metadata), infer, reset.

    The seam for other servers (GR00T's over ZeroMQ, LeRobot's over gRPC): write these methods, and
    ``BridgedModel(link, spec=...)`` is a model like any other. One thread calls them, one at a
    time. Errors name :attr:`address`: ConnectionError for a server that is not there or went away,
    TimeoutError for one that does not answer, ProtocolException for one that answers something
    else, ModelException for what its policy raised.
    """

    address: str
    """Where the server is, as errors write it."""

    def connect(self) -> Mapping[str, Any]:
        """Dial, and return what the server says of itself. Again after a loss or a hang-up."""
        ...

    def infer(self, observation: Any) -> Any:
        """Return the chunk for one observation, ``[H, ...]``; dials first where it has to."""
        ...

    def reset(self, episode_id: str) -> None:
        """Note that the episode is over; nothing where the server keeps none."""
        ...

    def hang_up(self) -> None:
        """Close the connection; nothing if there is none."""
        ...
