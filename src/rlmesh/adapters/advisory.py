"""What resolving an adapter can say: an error that ends it, or an advisory that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["AdapterResolutionError", "Advisory"]


class AdapterResolutionError(ValueError):
    """An env and a model do not fit; the message names the leaf, the offer and the remedy."""


@dataclass(frozen=True)
class Advisory:
    """Something a person should know about an adapter that resolved.

    Attributes:
        severity: ``"info"`` for what is lost or chosen knowingly, ``"caution"`` for what was made
            up or cannot be verified. Advisory today: a runner may refuse cautions.
        message: the sentence; also what ``str()`` gives.
        code: a stable name of the finding, for filters and tests.
    """

    severity: Literal["info", "caution"]
    message: str
    code: str = ""

    def __str__(self) -> str:
        return self.message
