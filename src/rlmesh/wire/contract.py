"""The env contract: what a server tells a client about its env, and how it travels."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from rlmesh.errors import ProtocolException
from rlmesh.spaces import Space
from rlmesh.wire import messages
from rlmesh.wire.meta import OnDrop, decode_map, encode_map
from rlmesh.wire.spaces_codec import (
    apply_extensions,
    space_extensions,
    space_from_message,
    space_to_message,
)

__all__ = [
    "EXTENSIONS_KEY",
    "AutoresetMode",
    "EnvContract",
    "contract_from_message",
    "contract_to_message",
]

EXTENSIONS_KEY = "rlmesh.spaces.v1.extensions"
"""Metadata key under which the contract carries what a ``SpaceSpec`` message cannot say."""


class AutoresetMode(enum.Enum):
    """What a lane does after its episode ended; the values are gymnasium's."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


_MODE_NUMBERS = {
    AutoresetMode.NEXT_STEP: 1,
    AutoresetMode.SAME_STEP: 2,
    AutoresetMode.DISABLED: 3,
}
_MODES = {number: mode for mode, number in _MODE_NUMBERS.items()} | {0: AutoresetMode.DISABLED}


@dataclass(frozen=True, repr=False, eq=False)
class EnvContract:
    """What an env server serves. Read-only.

    Attributes:
        id: the env's id, as in its gymnasium spec.
        observation_space: the space of one lane's observation.
        action_space: the space of one lane's action.
        num_envs: lanes; 1 for a scalar env.
        render_mode: the env's render mode or None.
        autoreset_mode: what a lane does after its episode ended.
        metadata: the env's metadata, or None when it has none.
    """

    id: str
    observation_space: Space
    action_space: Space
    num_envs: int = 1
    render_mode: str | None = None
    autoreset_mode: AutoresetMode = AutoresetMode.DISABLED
    metadata: dict[str, Any] | None = field(default=None)

    @property
    def env(self) -> EnvContract:
        """The contract itself."""
        return self

    @property
    def spec(self) -> EnvContract:
        """The contract itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict; the spaces as ``rlmesh.describe`` has them, and the
        autoreset mode by value."""
        return {
            "id": self.id,
            "num_envs": self.num_envs,
            "render_mode": self.render_mode,
            "autoreset_mode": self.autoreset_mode.value,
            "metadata": self.metadata,
            "observation_space": self.observation_space._to_dict(),  # pyright: ignore[reportPrivateUsage]
            "action_space": self.action_space._to_dict(),  # pyright: ignore[reportPrivateUsage]
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EnvContract):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name) for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f'EnvContract(id="{self.id}", num_envs={self.num_envs})'


def contract_to_message(contract: EnvContract, *, on_drop: OnDrop | None = None) -> Any:
    """Return the ``EnvContract`` message for ``contract``.

    Args:
        contract: what is served.
        on_drop: called as ``on_drop(path, detail)`` for metadata that is left out because it cannot
            travel.

    Raises:
        TypeError: without ``on_drop``, for metadata of a kind that cannot travel.
        ValueError: for a space or, without ``on_drop``, metadata that does not fit the wire.
    """
    metadata = dict(contract.metadata or {})
    metadata.pop(EXTENSIONS_KEY, None)
    extensions = {
        name: extension
        for name, space in _spaces_of(contract).items()
        if (extension := space_extensions(space))
    }
    if extensions:
        metadata[EXTENSIONS_KEY] = extensions
    message = messages.core.EnvContract(
        num_envs=contract.num_envs,
        render_mode=contract.render_mode or "",
        autoreset_mode=_MODE_NUMBERS[contract.autoreset_mode],
    )
    message.spec.id = contract.id
    message.spec.observation_space.CopyFrom(space_to_message(contract.observation_space))
    message.spec.action_space.CopyFrom(space_to_message(contract.action_space))
    if metadata:
        encoded = encode_map(metadata, on_drop=on_drop, what="env metadata")
        message.spec.metadata.CopyFrom(encoded)
    return message


def contract_from_message(message: Any) -> EnvContract:
    """Return the contract an ``EnvContract`` message holds.

    Raises:
        ProtocolException: a space, the autoreset mode or the lane count breaks the protocol.
    """
    spec = message.spec
    mode = _MODES.get(message.autoreset_mode)
    if mode is None:
        raise ProtocolException(
            f"env contract {spec.id!r}: unknown autoreset mode {message.autoreset_mode}; expected "
            "NEXT_STEP (1), SAME_STEP (2) or DISABLED (3). Update rlmesh on this side"
        )
    if message.num_envs < 1:
        raise ProtocolException(f"env contract {spec.id!r}: expected num_envs >= 1, got 0")
    metadata = decode_map(spec.metadata)
    extensions = metadata.pop(EXTENSIONS_KEY, {})
    return EnvContract(
        id=spec.id,
        observation_space=_space(spec, "observation", extensions),
        action_space=_space(spec, "action", extensions),
        num_envs=message.num_envs,
        render_mode=message.render_mode or None,
        autoreset_mode=mode,
        metadata=metadata or None,
    )


def _spaces_of(contract: EnvContract) -> dict[str, Space]:
    return {"observation": contract.observation_space, "action": contract.action_space}


def _space(spec: Any, name: str, extensions: Any) -> Space:
    field_name = f"{name}_space"
    if not spec.HasField(field_name):
        raise ProtocolException(f"env contract {spec.id!r}: the {name} space is missing")
    try:
        space = space_from_message(getattr(spec, field_name))
        if isinstance(extensions, Mapping):
            extension = cast("Mapping[str, Any]", extensions).get(name)
            if isinstance(extension, Mapping) and extension:
                space = apply_extensions(space, cast("Mapping[str, Any]", extension))
    except (ProtocolException, ValueError) as error:
        raise ProtocolException(f"env contract {spec.id!r}, {name} {error}") from None
    return space
