"""`BridgedModel`: a policy server of another kind as a model."""

from __future__ import annotations

from typing import Any

from rlmesh.bridges.link import PolicyLink
from rlmesh.models.chunks import chunk_length
from rlmesh.numpy import Model

__all__ = ["BridgedModel"]


class BridgedModel(Model):
    """A model whose chunks another server predicts: one request a prediction, lane by lane.

    The server is dialled at construction and again when a lost connection is needed. It is a model
    like any other: evaluate it with ``rlmesh.run`` and ``rlmesh.session``, or serve it to many
    clients with :class:`rlmesh.ModelServer`.

    Args:
        link: how the server is spoken to.
        spec: what its policy eats and emits (``rlmesh.adapters.ModelSpec``), under the keys the
            server knows; or ``rlmesh.NO_ADAPTER`` for an env that has them already.
        native_chunk: how many actions each of its chunks has. Default: as many as the first one.

    Attributes:
        metadata: what the server said of itself when it was dialled.

    Raises:
        ConnectionError, TimeoutError: nobody answers; with the address.
        ProtocolException: somebody does, but no such server.
    """

    def __init__(self, link: PolicyLink, *, spec: Any = None, native_chunk: int | None = None):
        self.link = link
        self.native_chunk = native_chunk
        super().__init__(spec=spec)
        self.metadata: dict[str, Any] = dict(link.connect())

    def predict_chunk(self, observation: Any, execution_horizon: int = 1) -> Any:
        """Return the server's chunk for one observation, ``[H, ...]``."""
        chunk = self.link.infer(observation)
        length = chunk_length(chunk)
        if length and self.native_chunk is None:
            self.native_chunk = length
        if length != self.native_chunk:
            raise ValueError(
                f"{self.link.address} returned {length} actions: expected {self.native_chunk}, as "
                "in its chunks before or as native_chunk declares"
            )
        if length < execution_horizon:
            raise ValueError(
                f"execution_horizon={execution_horizon}, but the chunks of {self.link.address} "
                f"have {length} actions; use at most {length}"
            )
        return chunk

    def on_episode_end(self, episode_id: str = "") -> None:
        """Tell the server, if it keeps episodes."""
        self.link.reset(episode_id)

    def close(self) -> None:
        """Hang up; the next prediction dials again."""
        self.link.hang_up()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.link.address!r})"
