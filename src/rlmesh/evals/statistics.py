"""The few statistics a success rate needs."""

from __future__ import annotations

import math

__all__ = ["wilson_interval"]

_Z95 = 1.959963984540054  # the 97.5 % point of the standard normal distribution


def wilson_interval(successes: int, trials: int, z: float = _Z95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion.

    Unlike the textbook interval it stays inside [0, 1] and is honest at 0 and 100 %. Source: E. B.
    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).

    Args:
        successes: how many of the trials succeeded.
        trials: at least 1.
        z: quantile of the standard normal distribution; the default gives 95 %.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"expected 0 <= successes <= trials and trials >= 1, got {successes} of {trials}"
        )
    rate = successes / trials
    spread = z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials)) / (1 + spread)
    # At the ends the interval touches 0 and 1 exactly; rounding must not push it past them.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high
