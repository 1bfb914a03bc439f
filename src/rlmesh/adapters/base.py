"""The interface every adapter has, for those that no plan can describe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["AdapterBase"]

ActionT = TypeVar("ActionT")


class AdapterBase(ABC, Generic[ActionT]):
    """What stands between an env and a model.

    :func:`~rlmesh.adapters.resolve` builds one from tags and a spec. Write your own by implementing
    the two transforms; it may remember things from step to step, and clears them in :meth:`reset`.

    >>> class Half(AdapterBase[float]):
    ...     def transform_obs(self, raw_obs):
    ...         return raw_obs / 2
    ...
    ...     def transform_action(self, raw_action):
    ...         return raw_action + 1
    >>> Half().wrap_predict(lambda observation: observation)(4)
    3.0
    """

    @abstractmethod
    def transform_obs(self, raw_obs: Any) -> Any:
        """The model's input for a raw observation (a mapping, or the leaf of a flat space)."""

    @abstractmethod
    def transform_action(self, raw_action: Any) -> ActionT:
        """The env's action for what the model gave."""

    def reset(self) -> None:
        """Forget the episode. Called at every episode boundary; does nothing by default."""

    def observe(self, raw_obs: Any) -> None:
        """See the observation of a step whose action was replayed from a chunk.

        Called once for every such step, so that a memory of frames holds consecutive steps; does
        nothing by default.
        """

    def explain(self) -> str:
        """What the adapter does, for a person to read."""
        return f"{type(self).__name__} (hand-written adapter)"

    def wrap_predict(self, predict_fn: Callable[[Any], Any]) -> Callable[[Any], ActionT]:
        """A function from raw observation to env action: both transforms around ``predict_fn``."""

        def predict(raw_obs: Any) -> ActionT:
            return self.transform_action(predict_fn(self.transform_obs(raw_obs)))

        return predict
