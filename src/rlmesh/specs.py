"""What an endpoint says of itself: `EnvContract`, and a space as plain data, `SpaceSpec`."""

from __future__ import annotations

from rlmesh.spaces import SpaceSpec
from rlmesh.wire.contract import AutoresetMode, EnvContract

__all__ = ["AutoresetMode", "EnvContract", "SpaceSpec"]
