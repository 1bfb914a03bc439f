"""Values: tensors, frameworks and the space-directed codec."""

from rlmesh.values.codec import Codec, compile_codec
from rlmesh.values.conformance import Policy, Report
from rlmesh.values.frameworks import NATIVE, NUMPY, Framework
from rlmesh.values.tensor import Tensor
from rlmesh.values.views import (
    ObservationView,
    ProcessedImage,
    SpacePart,
    leaf_spaces,
    leaves_under,
    part_of,
)

__all__ = [
    "NATIVE",
    "NUMPY",
    "Codec",
    "Framework",
    "ObservationView",
    "Policy",
    "ProcessedImage",
    "Report",
    "SpacePart",
    "Tensor",
    "compile_codec",
    "leaf_spaces",
    "leaves_under",
    "part_of",
]
