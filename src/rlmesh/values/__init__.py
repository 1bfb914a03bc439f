"""Values: tensors, frameworks and the space-directed codec."""

from rlmesh.values.codec import Codec, compile_codec
from rlmesh.values.conformance import Policy, Report
from rlmesh.values.frameworks import NATIVE, NUMPY, Framework
from rlmesh.values.tensor import Tensor

__all__ = ["NATIVE", "NUMPY", "Codec", "Framework", "Policy", "Report", "Tensor", "compile_codec"]
