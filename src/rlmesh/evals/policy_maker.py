"""From what a session is given as its model to the policy that drives its env."""

from __future__ import annotations

from typing import Any, cast

from rlmesh.evals.policy import CornersPolicy, Policy, RandomPolicy, RandomSample
from rlmesh.evals.remote_policy import RemotePolicy, remote_handles
from rlmesh.evals.targets import Targets
from rlmesh.models import Corners, as_model, model_corners

__all__ = ["PolicyMaker"]


class PolicyMaker:
    """Makes the policy of a model. What cannot be one is refused at once.

    A class is made, and its weights are read, once its spec is known to fit the env: by
    :meth:`make`, which may be tried again.

    Args:
        model: what ``rlmesh.run`` takes.
        horizon: how many actions of a chunk to execute; 1 once the model proves to have none.
        instruction: fills the text leaves of the model's spec.
        trust_entrypoints: allow the spec to name code to import; None: as the model says.

    Raises:
        TypeError, ValueError: it is no model, or an argument is of no use with it.
    """

    def __init__(
        self,
        model: Any,
        horizon: int,
        *,
        instruction: str | None,
        trust_entrypoints: bool | None,
    ) -> None:
        self.horizon = horizon
        self.instruction = instruction
        self._trust = trust_entrypoints
        self._served = remote_handles(model)
        if self._served:
            model = self._served[0]
            _refuse_served("instruction", instruction)
            _refuse_served("trust_entrypoints", trust_entrypoints)
        if model is None:
            raise TypeError(
                "model must be a Model, a policy object or class, a callable, a RemoteModel or "
                "RANDOM_SAMPLE; got None"
            )
        self._model: Any = None if isinstance(model, RandomSample) else model
        self.name = "RANDOM_SAMPLE" if self._model is None else _name_of(model)
        self._corners: Corners | None = None
        if self._model is not None and not isinstance(model, type) and not self._served:
            self._make_model()

    def _make_model(self) -> Corners:
        self._model = as_model(self._model)
        self._corners = model_corners(self._model)
        self.horizon = self._corners.check_horizon(self.horizon)
        return self._corners

    def make(self, targets: Targets) -> Policy:
        """Return the policy for these endpoints; a served model is dialled.

        Raises:
            AdapterResolutionError: the model and an env do not fit.
        """
        endpoints = targets.endpoints
        if self._model is None:
            return RandomPolicy(endpoints[0].contract.action_space)
        if self._served:
            return RemotePolicy(self._served, endpoints, self.horizon)
        from rlmesh.evals.adapted import AdaptedPolicy, check_history, resolve_adapters

        trust = self._trust
        if trust is None:
            trust = bool(getattr(self._model, "trust_entrypoints", False))
        spec = getattr(self._model, "spec", None)
        adapters = resolve_adapters(spec, endpoints, trust_entrypoints=trust)
        corners = self._corners
        if corners is None:
            corners = self._make_model()
            if self._model.spec is not spec:  # load() or __init__ chose another
                adapters = resolve_adapters(self._model.spec, endpoints, trust_entrypoints=trust)
        if adapters is None:
            return CornersPolicy(corners, self.horizon)
        check_history(adapters.values(), targets.lanes)
        return AdaptedPolicy(corners, self.horizon, adapters, self.instruction)

    def close(self) -> None:
        """Close a model that no policy was made of."""
        if self._corners is not None:
            self._corners.close()


def _refuse_served(name: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            f"{name}={value!r} is of no use with a RemoteModel: its adapters live on the server; "
            "set it there"
        )


def _name_of(model: Any) -> str:
    named = cast("Any", model if hasattr(model, "__qualname__") else type(model))
    return f"{named.__module__}:{named.__qualname__}"
