"""Whether a CustomEncoding can be run where a spec puts it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlmesh.adapters.actions import Actuator
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.specs import Concat, State

__all__ = ["check_action_encoding", "check_observation_encoding", "repack"]

_PROBES = {
    "quat_xyzw": (0.1, 0.2, 0.3, 0.9273618495495703),
    "quat_wxyz": (0.9273618495495703, 0.1, 0.2, 0.3),
    "axis_angle": (0.2, 0.4, 0.6),
    "euler_xyz": (0.2, 0.4, 0.6),
    "gravity_xyz": (0.6, 0.0, -0.8),
    "rot6d": (0.8, 0.6, 0.0, -0.6, 0.8, 0.0),
    "rot6d_rowmajor": (0.8, -0.6, 0.6, 0.8, 0.0, 0.0),
}
"""A rotation in general position per base, on which both callables are tried."""
_TOLERANCE = 1e-5


def check_observation_encoding(
    state: State, leaf: State | Concat, name: str, check_inverse: bool
) -> None:
    """Raise AdapterResolutionError where the encoding of an observation part cannot be run."""
    encoding = state.encoding
    assert isinstance(encoding, CustomEncoding)
    where = f"state input {name!r}"
    if encoding.from_base is None:
        raise AdapterResolutionError(
            f"{where}: an observation CustomEncoding needs from_base (base to packed)"
        )
    _check_callable(encoding, where)
    if state.optional:
        raise AdapterResolutionError(f"{where}: a CustomEncoding part cannot be optional")
    if state.index is not None or state.dim not in (None, encoding.width):
        raise AdapterResolutionError(
            f"{where}: a CustomEncoding part keeps the width of its base; drop index, and set "
            f"dim={encoding.width} or drop it"
        )
    if leaf.reshape is not None:
        raise AdapterResolutionError(
            f"{where}: a CustomEncoding works on the flat vector; drop reshape"
        )
    if leaf.container != "array":
        raise AdapterResolutionError(f"{where}: a CustomEncoding requires container='array'")
    if check_inverse:
        _check_inverse(encoding)


def check_action_encoding(item: Actuator, check_inverse: bool) -> None:
    """Raise AdapterResolutionError where the encoding of a model's actuator cannot be run."""
    encoding = item.encoding
    assert isinstance(encoding, CustomEncoding)
    where = f"actuator {item.role!r}"
    if encoding.to_base is None:
        raise AdapterResolutionError(
            f"{where}: an action CustomEncoding needs to_base (packed to base)"
        )
    _check_callable(encoding, where)
    if item.binary:
        raise AdapterResolutionError(f"{where}: a CustomEncoding cannot be binary")
    if check_inverse:
        _check_inverse(encoding)


def _check_callable(encoding: CustomEncoding, where: str) -> None:
    if encoding.stayed_home:
        raise AdapterResolutionError(
            f"{where}: this custom encoding was read back from JSON and its functions did not "
            "travel; resolve the original spec, which holds them, in this process"
        )
    if encoding.is_entrypoint:
        raise AdapterResolutionError(
            f"{where}: entrypoint custom-encoding execution is not supported yet; a string only "
            "describes the encoding, pass a callable to run it"
        )


def _check_inverse(encoding: CustomEncoding) -> None:
    if encoding.from_base is None or encoding.to_base is None:
        return
    probe = np.asarray(_PROBES[encoding.base], dtype=np.float32)
    there = repack(encoding, "from_base", probe.copy())
    back = repack(encoding, "to_base", there.astype(np.float32))
    if not np.allclose(back, probe, rtol=0.0, atol=_TOLERANCE):
        raise AdapterResolutionError(
            f"CustomEncoding {encoding.name!r} arms are not inverses: to_base(from_base("
            f"{probe.tolist()})) = {np.asarray(back).tolist()}; pass resolve(..., "
            "check_inverse=False) to skip this check"
        )


def repack(
    encoding: CustomEncoding, arm: str, values: np.ndarray[Any, Any], where: str = ""
) -> np.ndarray[Any, Any]:
    """What one of the user's functions makes of one flat rotation.

    Raises:
        ValueError: it returns anything but a flat vector of the same width.
    """
    function: Any = getattr(encoding, arm)
    result: np.ndarray[Any, Any] = np.asarray(function(values))
    if result.shape != (encoding.width,):
        raise ValueError(
            f"custom encoding {encoding.name!r}{where} must return a flat width-{encoding.width} "
            f"vector, {arm} returned shape {result.shape}"
        )
    return result
