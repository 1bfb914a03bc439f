"""Forms of option values that click does not know."""

from __future__ import annotations

import json
from typing import Any, cast

import click

__all__ = ["json_object", "seed_list"]

_MOST_SEEDS = 1_000_000


def json_object(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Return the dict that the text of a JSON object stands for; None for None."""
    if value is None:
        return None
    try:
        found: Any = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise click.BadParameter(
            f'expected a JSON object such as \'{{"task": "pick"}}\', got {value}: {exc}'
        ) from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"expected a JSON object, got {value}")
    return cast("dict[str, Any]", found)


def seed_list(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Return the seeds of a text: ``0:50`` is 0 to 49, ``0:50:5`` every fifth of them; ``1,2,7``
    these; ``0:3,10`` both."""
    if value is None:
        return None
    seeds: list[int] = []
    for part in value.split(","):
        try:
            numbers = [int(number) for number in part.split(":")]
            found = range(*numbers) if len(numbers) > 1 else numbers
        except (ValueError, TypeError):
            raise click.BadParameter(
                f"expected START:STOP, such as 0:50 for 0 to 49, or numbers, such as 0,1,7; got "
                f"{part!r}"
            ) from None
        if len(seeds) + len(found) > _MOST_SEEDS:
            raise click.BadParameter(f"{value} is more than {_MOST_SEEDS} episodes")
        seeds += found
    if not seeds:
        raise click.BadParameter(f"{value} holds no seed: it stops before it starts")
    return seeds
