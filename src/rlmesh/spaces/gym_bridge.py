"""Gymnasium (or legacy gym) spaces in and out, without loss or not at all.

Gymnasium is never imported to read a space: its classes are recognised by name, so every version of
it, and legacy gym, reads alike.
"""

from __future__ import annotations

import importlib
import string
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from rlmesh.spaces.base import Space
from rlmesh.spaces.box import Box
from rlmesh.spaces.containers import Dict, Tuple
from rlmesh.spaces.discrete import Discrete
from rlmesh.spaces.dtypes import integer_range, is_exact
from rlmesh.spaces.multi_binary import MultiBinary
from rlmesh.spaces.multi_discrete import MultiDiscrete
from rlmesh.spaces.text import Text

__all__ = ["from_gymnasium_space", "to_gymnasium_space"]

_MODULES = ("gymnasium", "gym")
_ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)

_SpaceT = TypeVar("_SpaceT", bound=Space)


def from_gymnasium_space(space: Any) -> Space:
    """The rlmesh space with the same values, layout and dtypes as a Gymnasium space.

    Accepts spaces of gymnasium and of legacy gym, and their subclasses; an rlmesh space is returned
    as it is. Charsets are carried as declared and the key order of a Dict is kept.

    Raises:
        TypeError: The space, or one inside it, cannot be carried; the message names its path, its
            type and what to declare instead.

    >>> from_gymnasium_space(Discrete(3))
    Discrete(3)
    """
    return _read(space, "space")


def to_gymnasium_space(space: Any) -> Any:
    """The Gymnasium space with the same values, layout and dtypes: the inverse of
    :func:`from_gymnasium_space`.

    Gymnasium has no Text that allows any character, so one without charset becomes a Text of
    ``string.printable``, and its MultiBinary is always int8. A Gymnasium space is returned
    as it is.

    Raises:
        ImportError: Neither gymnasium nor gym is installed.
        TypeError: ``space`` is no space.
        ValueError: Gymnasium cannot hold the space (a count that does not fit its dtype).
    """
    if not isinstance(space, Space):
        if _gym_class(space)[0]:
            return space
        raise TypeError(
            f"expected an rlmesh space, got {space!r} ({type(space).__name__}); build one from "
            "rlmesh.spaces"
        )
    return _write(space, _import_spaces())


# Reading


def _read(space: Any, path: str) -> Space:
    if isinstance(space, Space):
        return space
    is_gym, name = _gym_class(space)
    reader = _READERS.get(name)
    if not is_gym or reader is None:
        _refuse_type(space, path, name if is_gym else "")
    return reader(space, path)


def _gym_class(space: object) -> tuple[bool, str]:
    """Whether ``space`` is a Gymnasium space, and the name of its nearest class of Gymnasium's."""
    for cls in type(space).__mro__:
        root, _, rest = cls.__module__.partition(".")
        if root in _MODULES and rest.startswith("spaces"):
            return True, cls.__name__
    return False, ""


def _read_box(space: Any, path: str) -> Space:
    low, high = np.asarray(space.low), np.asarray(space.high)
    if low.size == 0:
        _refuse(space, path, "holds no elements", "leave it out of the space, or give it one")
    if _is_open_integer_box(space, low, high):
        return _build(Box, path, "-inf", "inf", low.shape, space.dtype)
    return _build(Box, path, low, high, low.shape, space.dtype)


def _is_open_integer_box(space: Any, low: Any, high: Any) -> bool:
    """Whether infinity was declared, which Gymnasium stores as the extremes of the dtype."""
    if low.dtype.kind not in "iu" or np.any(space.bounded_below) or np.any(space.bounded_above):
        return False
    lowest, highest = integer_range(low.dtype)
    return bool(np.all(low == lowest) and np.all(high == highest))


def _read_discrete(space: Any, path: str) -> Space:
    return _build(Discrete, path, int(space.n), int(getattr(space, "start", 0)), space.dtype)


def _read_multi_binary(space: Any, path: str) -> Space:
    if not space.shape:
        _refuse(space, path, "has no axis", "declare MultiBinary(1)")
    return _build(MultiBinary, path, space.shape, space.dtype)


def _read_multi_discrete(space: Any, path: str) -> Space:
    if not np.size(space.nvec) or not np.ndim(space.nvec):
        _refuse(space, path, "has no elements or no axis", "declare MultiDiscrete([n])")
    if np.any(getattr(space, "start", 0)):
        _refuse(
            space,
            path,
            f"has start={np.asarray(space.start).tolist()}, which the wire does not carry",
            "subtract start in a wrapper, or declare Box(low=start, high=start + nvec - 1, "
            f"dtype={space.dtype})",
        )
    return _build(MultiDiscrete, path, space.nvec, space.dtype)


def _read_text(space: Any, path: str) -> Space:
    characters = [str(c) for c in space.character_list]
    if space.max_length == 0:
        _refuse(space, path, "allows no character", "declare max_length >= 1")
    if not characters:
        _refuse(space, path, "has an empty charset", "list the characters it may hold")
    if any(len(character) != 1 for character in characters):
        _refuse(space, path, "has a charset of longer strings", "list single characters")
    # The published implementation widens this default charset to "any character". Carried as it
    # is, contains() agrees on both ends and the round trip is exact. Gymnasium before 1.0 holds it
    # in hash order, which differs between processes.
    if frozenset(characters) == _ALPHANUMERIC:
        characters.sort()
    return _build(Text, path, space.max_length, space.min_length, "".join(characters))


def _read_dict(space: Any, path: str) -> Space:
    entries: list[tuple[str, Space]] = []
    for key, child in space.spaces.items():
        if not isinstance(key, str) or not key:
            _refuse(space, path, f"has the key {key!r}", "use non-empty strings as keys")
        entries.append((key, _read(child, f"{path}[{key!r}]")))
    return Dict.ordered(entries)


def _read_tuple(space: Any, path: str) -> Space:
    return Tuple(_read(child, f"{path}[{i}]") for i, child in enumerate(space.spaces))


_READERS: dict[str, Callable[[Any, str], Space]] = {
    "Box": _read_box,
    "Discrete": _read_discrete,
    "MultiBinary": _read_multi_binary,
    "MultiDiscrete": _read_multi_discrete,
    "Text": _read_text,
    "Dict": _read_dict,
    "Tuple": _read_tuple,
}

_REMEDIES = {
    "Sequence": "declare a Box of the longest length, padded, with its length beside it in a Dict",
    "Graph": "declare a Dict of padded Boxes for nodes, edges and edge_links",
    "OneOf": "declare a Tuple of the choices with a Discrete that says which one counts",
}


def _build(make: Callable[..., _SpaceT], path: str, *args: Any) -> _SpaceT:
    try:
        return make(*args)
    except (TypeError, ValueError) as exc:
        raise TypeError(f"cannot carry {path}: {exc}") from exc


def _refuse(space: Any, path: str, problem: str, remedy: str) -> NoReturn:
    raise TypeError(f"cannot carry {path}: {_describe(space)} {problem}; {remedy}")


def _refuse_type(space: Any, path: str, name: str) -> NoReturn:
    kind = type(space).__name__
    if not name:
        remedy = "pass a gymnasium space"
    elif name in _REMEDIES:
        remedy = _REMEDIES[name]
    else:
        remedy = "wrap the env so that it declares one of these"
    raise TypeError(
        f"Unsupported space type: {kind} at {path}: expected {', '.join(_READERS)}, got "
        f"{_describe(space)}; {remedy}"
    )


def _describe(space: Any) -> str:
    cls = cast("type[object]", type(space))
    return f"{cls.__module__.partition('.')[0]} {cls.__name__} ({space!r})"


# Writing


def _import_spaces() -> Any:
    for name in _MODULES:
        try:
            return importlib.import_module(f"{name}.spaces")
        except ModuleNotFoundError as exc:
            if exc.name != name:
                raise
    raise ImportError(
        "converting to a Gymnasium space needs gymnasium (or legacy gym), and neither is "
        'installed; pip install "rlmesh[gymnasium]"'
    )


def _write(space: Space, gym: Any) -> Any:
    if isinstance(space, Box):
        return _write_box(space, gym)
    if isinstance(space, Discrete):
        return _write_discrete(space, gym)
    if isinstance(space, MultiBinary):
        return gym.MultiBinary(space.shape[0] if space.size else tuple(space.shape))
    if isinstance(space, MultiDiscrete):
        _check_counts(space.nvec, space)
        return gym.MultiDiscrete(space.nvec_array.astype(space.np_dtype), dtype=space.np_dtype.type)
    if isinstance(space, Text):
        return gym.Text(
            space.max_length,
            min_length=space.min_length,
            charset=space.charset or string.printable,
        )
    if isinstance(space, Dict):
        # Some versions sort every mapping, OrderedDict too; none sorts a list of pairs.
        return gym.Dict([(key, _write(child, gym)) for key, child in space.items()])
    if isinstance(space, Tuple):
        return gym.Tuple([_write(child, gym) for child in space])
    raise TypeError(f"no Gymnasium space for {space!r}; use one of {', '.join(_READERS)}")


def _write_box(space: Box, gym: Any) -> Any:
    low, high = space.low_array.copy(), space.high_array.copy()
    box = gym.Box(low, high, tuple(space.shape), space.np_dtype.type)
    if is_exact(space.np_dtype):
        # Arrays of integers cannot say "no bound", and Gymnasium's sampler overflows on the
        # extremes of int64 unless they mean it (two less is what older versions store for inf).
        lowest, highest = integer_range(space.np_dtype)
        unbounded = space.bounds_kind == "unbounded"
        if unbounded or space.dtype == "int64":
            box.bounded_below = (low > lowest + 2) & (not unbounded)
            box.bounded_above = (high < highest - 2) & (not unbounded)
    return box


def _write_discrete(space: Discrete, gym: Any) -> Any:
    _check_counts([space.n], space)
    if space.dtype == "int64":
        return gym.Discrete(space.n, start=space.start)
    try:
        return gym.Discrete(space.n, start=space.start, dtype=space.np_dtype.type)
    except TypeError:
        # Gymnasium before 1.2 knows int64 only; the values are the same.
        return gym.Discrete(space.n, start=space.start)


def _check_counts(counts: list[int], space: Space) -> None:
    dtype: Any = np.dtype(space.dtype)
    highest = integer_range(dtype)[1]
    if max(counts) > highest:
        raise ValueError(
            f"{space!r}: expected counts of at most {highest}, since Gymnasium stores them in "
            f"{space.dtype}, got {max(counts)}; declare a wider dtype"
        )
