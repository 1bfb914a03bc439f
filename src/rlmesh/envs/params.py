"""Declared parameters: what a factory's ``make`` and a model's ``load`` take, and which values."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

__all__ = [
    "Misfit",
    "MissingParamError",
    "Param",
    "ParamError",
    "ParamSpec",
    "UnknownParamError",
    "Vector",
    "coerce",
    "fit",
    "nearest",
    "type_name",
]

_UNIT_TOLERANCE = 1e-3
_SHOWN_CHOICES = 20


class ParamError(ValueError):
    """A parameter cannot have the value it was given."""


class UnknownParamError(ParamError):
    """Parameters that the target does not take.

    Attributes:
        names: the parameters, sorted.
    """

    def __init__(self, names: Iterable[str], message: str | None = None) -> None:
        self.names = sorted(names)
        super().__init__(message or f"unknown parameters: {', '.join(self.names)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.names, str(self)), vars(self)


class MissingParamError(ParamError):
    """A required parameter that was not given.

    Attributes:
        name: the parameter; the first one, where several are missing.
    """

    def __init__(self, name: str, message: str | None = None) -> None:
        self.name = name
        super().__init__(message or f"missing required parameter: {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, str(self)), vars(self)


class Misfit(Exception):
    """Why a value is none of a parameter's; whoever knows the parameter makes the error."""


@dataclass(frozen=True)
class Vector:
    """The type of a parameter that is a vector: ``dim`` finite numbers, passed on as floats.

    Attributes:
        dim: how many, 1 or more.
        unit: whether the Euclidean norm must be 1, to within 1e-3.

    Raises:
        TypeError, ValueError: ``dim`` is no whole number >= 1.

    Example:
        >>> import rlmesh
        >>> rlmesh.Param("gravity", rlmesh.Vector(3))
        Param(name='gravity', type=Vector(dim=3, unit=False), choices=None, description='', group=None)
    """  # noqa: E501

    dim: int
    unit: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Vector dim must be an int, got {self.dim!r}")
        if self.dim < 1:
            raise ValueError(f"Vector dim must be >= 1, got {self.dim}")


@dataclass(frozen=True)
class Param:
    """One parameter: its type and, where they are few, its values.

    There is no default here: the default is the one in the signature that takes the parameter.

    Attributes:
        name: the keyword it is passed by.
        type: ``int``, ``float``, ``str`` or ``bool``, or its name; ``"enum"``, any of ``choices``;
            a :class:`Vector`; any other class or name says what the value is, and is not checked.
        choices: the values it may have, of its type. Default: any.
        description: a sentence for people.
        group: a heading to show it under.

    Raises:
        TypeError, ValueError: an argument is impossible, or a choice is none of the type.

    Example:
        >>> import rlmesh
        >>> suite = rlmesh.Param("suite", choices=("spatial", "object"), description="Task suite")
        >>> suite.choices
        ('spatial', 'object')
    """

    name: str
    type: type | str | Vector = "str"
    choices: tuple[Any, ...] | None = None
    description: str = ""
    group: str | None = None

    def __post_init__(self) -> None:
        _check_text("Param name", self.name)
        what = f"Param {self.name!r}"
        if not isinstance(self.type, (type, Vector)):
            _check_text(f"{what}: type", self.type)
        if not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{what}: description must be a str, got {self.description!r}")
        if self.group is not None and not isinstance(self.group, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{what}: group must be a str or None, got {self.group!r}")
        if self.choices is not None:
            object.__setattr__(self, "choices", _checked_choices(what, self.type, self.choices))
        elif self.type == "enum":
            raise ValueError(f"{what} is an enum without choices; list its values in choices=")


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, got {value!r}")
    if not value:
        raise ValueError(f"{what} must not be empty")


def _checked_choices(what: str, kind: Any, choices: Any) -> tuple[Any, ...]:
    if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
        raise TypeError(f"{what}: choices must be a tuple of values, got {choices!r}")
    values = tuple(cast("Iterable[Any]", choices))
    if not values:
        raise ValueError(f"{what}: choices is empty, so it could have no value; drop it")
    for value in values:
        try:
            coerce(kind, value)
        except Misfit as exc:
            raise ValueError(f"{what}: choice {value!r} is {exc}") from None
    return values


@dataclass(frozen=True, init=False)
class ParamSpec:
    """The parameters that a factory's ``make`` or a model's ``load`` takes.

    Attributes:
        params: the declared parameters, in order.
        extra: what becomes of a parameter that is neither declared nor in the signature:
            ``"forbid"`` refuses it, ``"passthrough"`` hands it to the signature's ``**kwargs``.

    Raises:
        ValueError: a name is declared twice, or ``extra`` is neither of the two.
        TypeError: something is no :class:`Param`.

    Example:
        >>> import rlmesh
        >>> spec = rlmesh.ParamSpec(
        ...     rlmesh.Param("suite", choices=("spatial", "object")), rlmesh.Param("task", int)
        ... )
        >>> [param.name for param in spec.params]
        ['suite', 'task']
    """

    params: tuple[Param, ...]
    extra: Literal["forbid", "passthrough"]

    def __init__(self, *params: Param, extra: Literal["forbid", "passthrough"] = "forbid") -> None:
        seen: set[str] = set()
        for param in params:
            if not isinstance(param, Param):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"ParamSpec takes Param objects, got {param!r}")
            if param.name in seen:
                raise ValueError(f"ParamSpec declares {param.name!r} more than once")
            seen.add(param.name)
        if extra not in ("forbid", "passthrough"):
            raise ValueError(f"ParamSpec extra must be 'forbid' or 'passthrough', got {extra!r}")
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "extra", extra)

    def get(self, name: str) -> Param | None:
        """Return the parameter of that name, or None."""
        return next((param for param in self.params if param.name == name), None)


# Values


def type_name(kind: Any) -> str:
    """Return a parameter's type as it is written for others: ``int``, ``vec3``, ``camera``."""
    if isinstance(kind, Vector):
        return f"vec{kind.dim}"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def fit(param: Param, value: Any) -> Any:
    """Return ``value`` as ``param`` has it.

    Raises:
        Misfit: it is of another type, or none of the choices.
    """
    value = coerce(param.type, value)
    if param.choices is None:
        return value
    for choice in param.choices:
        known = coerce(param.type, choice)
        if _same(known, value):
            return known
    raise Misfit(f"not in choices {_listed(param.choices)}{_meant(value, param.choices)}")


def coerce(kind: Any, value: Any) -> Any:
    """Return ``value`` as one of a parameter type; what the type does not check passes as it is.

    Raises:
        Misfit: it is none.
    """
    if isinstance(kind, Vector):
        return _vector(kind, value)
    check = _CHECKED.get(kind)
    return value if check is None else check(value)


def _whole(value: Any) -> int:
    if not isinstance(value, (bool, np.bool_)):
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            real: Any = value
            if math.isfinite(real) and real == int(real):
                return int(real)
            raise Misfit("no whole number, expected an int")
    raise Misfit(f"{_article(value)}, expected an int")


def _real(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise Misfit(f"{_article(value)}, expected a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Misfit("not finite, expected a finite float")
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # a member of a str enum, too, as its value
    raise Misfit(f"{_article(value)}, expected a str")


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(cast("Any", value))
    raise Misfit(f"{_article(value)}, expected a bool")


_CHECKED: dict[Any, Callable[[Any], Any]] = {}
for _class, _check in ((int, _whole), (float, _real), (str, _text), (bool, _flag)):
    _CHECKED[_class] = _CHECKED[_class.__name__] = _check


def _vector(kind: Vector, value: Any) -> tuple[float, ...]:
    expected = f"expected a list or tuple of {kind.dim} numbers"
    if not isinstance(value, (list, tuple)):
        raise Misfit(f"{_article(value)}, {expected}")
    items = cast("Sequence[Any]", value)
    if len(items) != kind.dim:
        raise Misfit(f"of length {len(items)}, {expected}")
    numbers_: list[float] = []
    for index, item in enumerate(items):
        try:
            numbers_.append(_real(item))
        except Misfit as exc:
            raise Misfit(f"a vector whose element {index}, {item!r}, is {exc}") from None
    if kind.unit:
        norm = math.hypot(*numbers_)
        if abs(norm - 1) > _UNIT_TOLERANCE:
            raise Misfit(f"of norm {norm:.6g}, expected a unit vector (norm 1 to within 1e-3)")
    return tuple(numbers_)


def _article(value: Any) -> str:
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; a bool is no number, and a list equals the same tuple."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        ours, theirs = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    try:
        return bool(one == other)
    except Exception:
        return False  # compared with an array, say


# What was meant


def _listed(choices: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, choices[:_SHOWN_CHOICES]))
    more = len(choices) - _SHOWN_CHOICES
    return f"[{shown}, and {more} more]" if more > 0 else f"[{shown}]"


def _meant(value: Any, choices: Sequence[Any]) -> str:
    close: Any = None
    if isinstance(value, str):
        close = nearest(value, [choice for choice in choices if isinstance(choice, str)])
    elif _is_number(value):
        known = [choice for choice in choices if _is_number(choice)]
        close = min(known, key=lambda choice: abs(choice - value), default=None)
    return "" if close is None else f"; did you mean {close!r}?"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` that ``name`` was probably meant to be, or None."""
    by_folded = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None
