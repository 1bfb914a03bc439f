"""The type variables of the generic classes: what an observation and an action are.

``ObsT`` and ``ActT`` are for what takes and gives both; the others say in which direction.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

__all__ = ["ActT", "ActT_co", "ActT_contra", "ObsT", "ObsT_co", "ObsT_contra", "Subscriptable"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:

    def TypeVar(name, *, bound, default, **variance):
        # typing's own knows no default before Python 3.13, and typing_extensions may be missing.
        return typing.TypeVar(name, **variance)


# The default lets `class Policy(Model)` be written without arguments, strictly checked or not. With
# a bound of Any the parameter of a lambda that is to be a policy is Any; without one it is object.
ObsT = TypeVar("ObsT", bound=Any, default=Any)
ActT = TypeVar("ActT", bound=Any, default=Any)
ObsT_co = TypeVar("ObsT_co", covariant=True, bound=Any, default=Any)
ActT_co = TypeVar("ActT_co", covariant=True, bound=Any, default=Any)
ObsT_contra = TypeVar("ObsT_contra", contravariant=True, bound=Any, default=Any)
ActT_contra = TypeVar("ActT_contra", contravariant=True, bound=Any, default=Any)


class Subscriptable:
    """Fills in the type arguments that are left out, as type checkers do: ``Model[Obs]``."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item):
            given = item if isinstance(item, tuple) else (item,)
            left_out = len(cls.__parameters__) - len(given)
            return super().__class_getitem__((*given, *[Any] * left_out))
