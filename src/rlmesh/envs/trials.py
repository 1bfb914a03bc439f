"""Trials: which of its initial conditions an env should begin an episode with."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["ENV_RESET_OPTIONS_KEY", "TRIAL_INDEX", "takes_trials", "trial_index"]

ENV_RESET_OPTIONS_KEY = "rlmesh.env.v1.reset_options"
"""Env metadata key: the names of the reset options that the env understands."""

TRIAL_INDEX = "trial_index"


def trial_index(options: Mapping[str, Any] | None) -> int | None:
    """Return the trial that a reset's ``options`` ask for; None if they ask for none.

    Args:
        options: what the env's ``reset`` was given.

    Returns:
        ``options["trial_index"]`` as an int; None where it is absent or no finite number.

    Example:
        >>> import rlmesh
        >>> rlmesh.trial_index({"trial_index": 7}), rlmesh.trial_index(None)
        (7, None)
    """
    value: Any = None if options is None else options.get(TRIAL_INDEX)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    number = cast("Any", value)
    return int(number) if math.isfinite(number) else None


def takes_trials(metadata: Mapping[str, Any] | None) -> bool:
    """Whether an env with this metadata understands the reset option ``trial_index``."""
    declared = (metadata or {}).get(ENV_RESET_OPTIONS_KEY)
    return isinstance(declared, (list, tuple)) and TRIAL_INDEX in cast("list[Any]", declared)
