"""What an env accepts and returns, as frozen data that samples, checks and converts itself.

>>> from rlmesh.spaces import Box, Dict, Discrete
>>> space = Dict({"image": Box(0, 255, (2, 2, 3), "uint8"), "task": Discrete(10)})
>>> space.contains(space.sample())
True
"""

from __future__ import annotations

from rlmesh.spaces.base import Space, SpaceSpec, space_from_spec
from rlmesh.spaces.box import Box
from rlmesh.spaces.containers import Dict, Tuple
from rlmesh.spaces.discrete import Discrete
from rlmesh.spaces.gym_bridge import from_gymnasium_space, to_gymnasium_space
from rlmesh.spaces.multi_binary import MultiBinary
from rlmesh.spaces.multi_discrete import MultiDiscrete
from rlmesh.spaces.text import Text

__all__ = [
    "Box",
    "Dict",
    "Discrete",
    "MultiBinary",
    "MultiDiscrete",
    "Space",
    "SpaceSpec",
    "Text",
    "Tuple",
    "from_gymnasium_space",
    "space_from_spec",
    "to_gymnasium_space",
]
