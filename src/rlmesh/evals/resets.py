"""Which slots of an endpoint to reset for the episodes that begin in them, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.contract import AutoresetMode

__all__ = ["Reset", "apart", "plan_resets"]


class Reset(NamedTuple):
    """A reset to be sent: of which slots, in order, and in which of them an episode begins."""

    slots: Sequence[int]
    begins: Sequence[int]


def plan_resets(
    endpoint: Endpoint,
    free: Sequence[int],
    assigned: Mapping[int, Assignment],
    *,
    begun: bool,
    working: bool,
) -> list[Reset]:
    """Return the resets that free slots need: those with a seed, and those without.

    Args:
        endpoint: whose slots they are.
        free: the slots without an episode, as far as they may be reset.
        assigned: the episodes that begin, each in its free slot.
        begun: whether all slots have been reset together before.
        working: whether any slot has an episode, or is about to.
    """
    fresh = list(assigned)
    if begun and not endpoint.resets_lanes:
        return []  # its lanes go on by themselves
    if not fresh and not (begun and working and free and _stands(endpoint)):
        return []
    whole = list(range(endpoint.lanes))
    if not endpoint.resets_lanes:
        return [Reset(whole, fresh)]
    seeded = [slot for slot in fresh if assigned[slot].seed is not None]
    plain = [slot for slot in fresh if slot not in seeded]
    idle: list[int] = []
    if _stands(endpoint) or not (begun or endpoint.steps_lanes):
        idle = [slot for slot in free if slot not in fresh]
    resets = [Reset(seeded, seeded), Reset(sorted([*plain, *idle]), plain)]
    if seeded and resets[1].slots and not begun and not endpoint.steps_lanes:
        # A vector env may be reset in part only after it was reset as a whole.
        resets = [Reset(whole, plain), resets[0]]
    return [reset for reset in resets if reset.slots]


def apart(endpoint: Endpoint, reset: Reset, *, begun: bool) -> list[Reset]:
    """Return the same reset slot by slot, since its lanes begin with unlike options."""
    if begun or endpoint.steps_lanes:
        return [Reset([slot], [slot] if slot in reset.begins else []) for slot in reset.slots]
    # A vector env may be reset in part only after it was reset as a whole.
    alone = [Reset([slot], [slot]) for slot in reset.begins]
    return [Reset(range(endpoint.lanes), ()), *alone]


def _stands(endpoint: Endpoint) -> bool:
    """Whether a slot whose episode ended must be reset before the others can be stepped."""
    mode = endpoint.contract.autoreset_mode
    return mode is AutoresetMode.DISABLED and not endpoint.steps_lanes
