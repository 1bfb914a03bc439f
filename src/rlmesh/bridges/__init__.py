"""Policy servers that speak something else, as models: no change on their side.

:func:`openpi` is the first. Another kind is one small class, a :class:`PolicyLink`, given to a
:class:`BridgedModel`.
"""

from rlmesh.bridges.link import PolicyLink
from rlmesh.bridges.model import BridgedModel
from rlmesh.bridges.openpi_link import openpi

__all__ = ["BridgedModel", "PolicyLink", "openpi"]
