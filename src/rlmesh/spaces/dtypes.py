"""The closed set of element types a space may have, and how they are named by callers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DTYPES", "integer_range", "is_exact", "resolve_dtype"]

AnyDType = np.dtype[Any]

DTYPES: dict[str, AnyDType] = {
    name: np.dtype(name)
    for name in (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    )
}
"""Name to native-endian numpy dtype, for every dtype of the wire."""

# Fixed widths: numpy's own int is 32 bits wide on some platforms.
_PYTHON_TYPES: dict[object, str] = {bool: "bool", int: "int64", float: "float64"}


def resolve_dtype(dtype: object) -> AnyDType:
    """The numpy dtype meant by ``dtype``.

    Accepts names (``"float32"``, ``"torch.float32"``, ``"<f4"``), numpy dtypes and scalar types,
    the Python types ``bool``, ``int`` (int64) and ``float`` (float64), and torch or jax dtypes.

    Raises:
        ValueError: The dtype is not one of :data:`DTYPES`.
    """
    for python_type, name in _PYTHON_TYPES.items():
        if dtype is python_type:
            return DTYPES[name]
    name = _dtype_name(dtype)
    found = DTYPES.get(name)
    if found is None:
        raise ValueError(
            f'unsupported dtype "{name}": expected one of {", ".join(DTYPES)}; {_remedy(name)}'
        )
    return found


def integer_range(dtype: AnyDType) -> tuple[int, int]:
    """The smallest and largest value of an integer or bool dtype."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def is_exact(dtype: AnyDType) -> bool:
    """Whether the dtype holds integers (bool included) rather than floats."""
    return dtype.kind in "biu"


def _dtype_name(dtype: object) -> str:
    text = str(dtype)
    short = text.rsplit(".", 1)[-1]
    # A torch dtype is known to numpy only by its name, which spares us importing torch.
    if short in DTYPES or dtype is None:
        return short
    try:
        return np.dtype(dtype).name  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return short.rstrip("'>")


def _remedy(name: str) -> str:
    if "bfloat16" in name or "float8" in name:
        return "declare float32 and cast the values to it"
    if "complex" in name:
        return "declare a float dtype with one more axis for the real and imaginary parts"
    return "declare one of these and cast the values to it"
