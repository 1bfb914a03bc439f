"""What a request asks, read off its header; most repeat the one before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlmesh.wire import messages
from rlmesh.wire.status import ModelErrorCode, ModelFault

__all__ = ["Asked", "Rows", "fill_answer", "read_rows"]


class Rows(NamedTuple):
    """Whose rows an observation holds, in order."""

    episodes: Sequence[str]
    seeds: Sequence[int | None]
    passed: Sequence[bool]
    """Whether the row is only to be remembered."""
    projected: bool


def read_rows(predict: Any) -> Rows:
    """Return the rows of a PredictRequest; ModelFault if they do not add up."""
    infos = predict.episode_info
    if not infos:
        raise _invalid("expected episode_info for at least one row, got none")
    passed = tuple(predict.passed) or (False,) * len(infos)
    if len(passed) != len(infos):
        raise _invalid(f"expected a passed flag for each of {len(infos)} rows, got {len(passed)}")
    if all(passed):
        raise _invalid("every row is marked as passed; one to predict for is missing")
    return Rows(
        tuple(info.episode_id for info in infos),
        tuple(info.seed if info.HasField("seed") else None for info in infos),
        passed,
        predict.projected,
    )


def _invalid(message: str) -> ModelFault:
    return ModelFault(ModelErrorCode.INVALID_REQUEST, message)


class Asked:
    """A JoinRequest, parsed.

    Raises:
        ProtocolException: ``header`` is no JoinRequest.
    """

    __slots__ = ("_heads", "_rows", "env_id", "header", "kind", "request")

    def __init__(self, header: bytes) -> None:
        self.header = header
        self.request = messages.parse(messages.model.JoinRequest, header)
        self.kind: str = self.request.WhichOneof("kind") or ""
        self.env_id: str = self.request.predict.context.env_id if self.kind == "predict" else ""
        self._rows: Rows | None = None
        self._heads: dict[int, bytes] = {}

    @property
    def rows(self) -> Rows:
        """The rows of a predict; ModelFault if they do not add up."""
        if self._rows is None:
            self._rows = read_rows(self.request.predict)
        return self._rows

    def head(self, frames: int, lengths: Sequence[int]) -> bytes:
        """Return the JoinResponse to a predict, serialised, without its leaves and times."""
        head = None if lengths else self._heads.get(frames)
        if head is None:
            response = messages.model.JoinResponse(request_id=self.request.request_id)
            fill_answer(response.predict, self.request.predict, frames, lengths)
            head = response.SerializeToString()
            if not lengths:
                self._heads[frames] = head
        return head


def fill_answer(response: Any, predict: Any, frames: int, lengths: Sequence[int]) -> None:
    """Fill the PredictResponse to a PredictRequest, but for its leaves.

    Args:
        frames: how many actions each row's plan has in the leaves.
        lengths: how many of them are meant, per row; empty: all.
    """
    response.context.CopyFrom(predict.context)
    response.lengths.extend(lengths)
    for _ in range(frames):
        response.actions.add()
