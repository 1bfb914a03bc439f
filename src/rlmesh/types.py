"""Types for annotations: what rlmesh takes and hands out.

The protocols are structural: what has their members is one, without inheriting from it, and
``isinstance`` looks for the members alone. Every name can be evaluated at run time
(``typing.get_type_hints``) and none loads a framework or a simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    Protocol,
    TypeAlias,
    Union,
    runtime_checkable,
)

from rlmesh._typevars import ActT, ActT_contra, ObsT, ObsT_co
from rlmesh.adapters.specs import ModelSpec
from rlmesh.evals.policy import RandomSample
from rlmesh.models.context import PredictContext
from rlmesh.models.model import _NoAdapter  # pyright: ignore[reportPrivateUsage]
from rlmesh.models.policies import PolicySource
from rlmesh.models.remote import RemoteModel
from rlmesh.values.tensor import Tensor
from rlmesh.wire.contract import EnvContract

__all__ = [
    "BatchPredictContext",
    "EnvLike",
    "EnvTarget",
    "HasAddress",
    "HasEnvContract",
    "InfoDict",
    "LocalEnvTarget",
    "Metadata",
    "ModelTarget",
    "PredictContext",
    "PrimitiveValue",
    "SpaceLike",
    "SpecArg",
    "SupportsMake",
    "SupportsResetStep",
    "Value",
    "VectorEnvLike",
    "ViewArg",
]

# ruff: noqa: UP007 - of a forward reference, Python 3.10 makes a Union but no X | Y.


@runtime_checkable
class SpaceLike(Protocol):
    """A space: of rlmesh, gymnasium or gym."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return a random value of the space."""
        ...

    def contains(self, value: Any, /) -> bool:
        """Whether ``value`` is one of the space's."""
        ...

    def seed(self, seed: Any = None, /) -> Any:
        """Restart the random stream of :meth:`sample`."""
        ...


@runtime_checkable
class SupportsResetStep(Protocol):
    """What can be stepped."""

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Begin an episode."""
        ...

    def step(self, action: Any, /) -> Any:
        """Take one step of it."""
        ...


@runtime_checkable
class EnvLike(SupportsResetStep, Protocol[ObsT_co, ActT_contra]):
    """An env with the gymnasium surface: what ``EnvServer`` serves and ``run`` drives.

    ``EnvLike[Observation, Action]`` says what its values are; without arguments they are Any.
    """

    def reset(self, *args: Any, **kwargs: Any) -> tuple[ObsT_co, Any]:
        """Begin an episode: (observation, info)."""
        ...

    def step(self, action: ActT_contra, /) -> tuple[ObsT_co, Any, Any, Any, Any]:
        """Take one step of it: (observation, reward, terminated, truncated, info)."""
        ...

    @property
    def observation_space(self) -> Any:
        """The space of an observation."""
        ...

    @property
    def action_space(self) -> Any:
        """The space of an action."""
        ...

    def close(self) -> Any:
        """Release what the env took."""
        ...


@runtime_checkable
class VectorEnvLike(SupportsResetStep, Protocol[ObsT_co, ActT_contra]):
    """A vector env: several envs that are stepped together, values batched along a first axis.

    ``VectorEnvLike[Observations, Actions]`` says what its batched values are.
    """

    def reset(self, *args: Any, **kwargs: Any) -> tuple[ObsT_co, Any]:
        """Begin an episode in every env: (observations, info)."""
        ...

    def step(self, actions: ActT_contra, /) -> tuple[ObsT_co, Any, Any, Any, Any]:
        """Step every env: (observations, rewards, terminated, truncated, info)."""
        ...

    @property
    def num_envs(self) -> int:
        """How many envs."""
        ...

    @property
    def single_observation_space(self) -> Any:
        """The space of one env's observation."""
        ...

    @property
    def single_action_space(self) -> Any:
        """The space of one env's action."""
        ...

    def close(self) -> Any:
        """Release what the envs took."""
        ...


@runtime_checkable
class SupportsMake(Protocol):
    """What makes envs, such as an ``EnvFactory``."""

    def make(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new env."""
        ...


@runtime_checkable
class HasAddress(Protocol):
    """What is reached at an address, such as a running ``EnvServer``."""

    @property
    def address(self) -> str:
        """The address, with its scheme."""
        ...


@runtime_checkable
class HasEnvContract(Protocol):
    """A client of an env server."""

    @property
    def env_contract(self) -> EnvContract:
        """What the server says of its env."""
        ...


PrimitiveValue: TypeAlias = Union[bool, int, float, str, bytes, None]
"""A leaf of a value that is no array."""

if TYPE_CHECKING:
    _Value: TypeAlias = "Value"
else:
    # A value holds values: looked up here, wherever the hint is evaluated.
    _Value = ForwardRef("Value", module=__name__)

Value: TypeAlias = Union[
    PrimitiveValue, Tensor, list[_Value], tuple[_Value, ...], dict[str, _Value]
]
"""What the classes without a framework take and hand out: leaves in lists, tuples and dicts."""

InfoDict: TypeAlias = dict[str, Any]
"""The info of a reset or step."""

Metadata: TypeAlias = Mapping[str, object]
"""What an env says of itself."""

BatchPredictContext: TypeAlias = list[PredictContext]
"""The ``context`` of a batch corner: one per row."""

SpecArg: TypeAlias = Union[ModelSpec, _NoAdapter, None]
"""A model's ``spec``."""

LocalEnvTarget: TypeAlias = Union[
    EnvLike[ObsT, ActT], SupportsResetStep, SupportsMake, HasAddress, str
]
"""One thing to evaluate on: an env, a factory, a server, an address."""

EnvTarget: TypeAlias = Union[
    LocalEnvTarget[ObsT, ActT], HasEnvContract, Sequence[LocalEnvTarget[ObsT, ActT]]
]
"""What ``run`` and ``session`` take as ``env``."""

ModelTarget: TypeAlias = Union[
    PolicySource[Any, Any], RemoteModel, Sequence[RemoteModel], RandomSample
]
"""What ``run`` and ``session`` take as ``model``."""

ViewArg: TypeAlias = Union[str, bool, None]
"""How a run is watched."""
