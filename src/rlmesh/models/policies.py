"""What a `Model` can be made of, as a type checker reads it.

Only the observation's type and the action's matter here. What else a corner may take is read from
its signature when the model is made (``signatures.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from rlmesh._typevars import ActT, ActT_co, ObsT, ObsT_contra
from rlmesh.models.context import PredictContext

__all__ = [
    "PolicyClass",
    "PolicyObject",
    "PolicySource",
    "PredictCallable",
    "SupportsCall",
    "SupportsPredict",
    "SupportsPredictBatch",
    "SupportsPredictChunk",
    "SupportsPredictChunkBatch",
]


class SupportsPredict(Protocol[ObsT_contra, ActT_co]):
    """Returns one action for one observation."""

    def predict(self, observation: ObsT_contra, /, *args: Any, **kwargs: Any) -> ActT_co:
        """Return the action."""
        ...


class SupportsPredictChunk(Protocol[ObsT_contra]):
    """Returns a chunk of actions for one observation."""

    def predict_chunk(self, observation: ObsT_contra, /, *args: Any, **kwargs: Any) -> Any:
        """Return the actions ``[H, ...]``."""
        ...


class SupportsPredictBatch(Protocol):
    """Returns actions for several observations."""

    def predict_batch(self, observations: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the actions ``[N, ...]``."""
        ...


class SupportsPredictChunkBatch(Protocol):
    """Returns chunks of actions for several observations."""

    def predict_chunk_batch(self, observations: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the actions ``[N, H, ...]``."""
        ...


class SupportsCall(Protocol[ObsT_contra, ActT_co]):
    """Returns one action for one observation when it is called."""

    def __call__(self, observation: ObsT_contra, /, *args: Any, **kwargs: Any) -> ActT_co:
        """Return the action."""
        ...


class _TakesContext(Protocol[ObsT_contra, ActT_co]):
    def __call__(self, observation: ObsT_contra, /, *, context: PredictContext) -> ActT_co: ...


PolicyObject: TypeAlias = (
    SupportsPredict[ObsT, ActT]
    | SupportsPredictChunk[ObsT]
    | SupportsPredictBatch
    | SupportsPredictChunkBatch
)
"""A policy with any of the four corners."""

PolicyClass: TypeAlias = type[PolicyObject[ObsT, ActT]]
"""A class of such policies, which is made without arguments."""

PredictCallable: TypeAlias = (
    Callable[[ObsT], ActT] | Callable[[ObsT, PredictContext], ActT] | _TakesContext[ObsT, ActT]
)
"""A predict of its own."""

PolicySource: TypeAlias = (
    PredictCallable[ObsT, ActT]
    | PolicyObject[ObsT, ActT]
    | PolicyClass[ObsT, ActT]
    | type[SupportsCall[ObsT, ActT]]
)
"""Anything that a ``Model`` can be made of."""
