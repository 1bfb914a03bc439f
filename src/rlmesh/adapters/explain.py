"""A plan as text: its own steps, line by line."""

from __future__ import annotations

from rlmesh.adapters.plan import Plan, StateInput
from rlmesh.adapters.trees import path_name

__all__ = ["explain_plan"]


def explain_plan(plan: Plan) -> str:
    """What the plan does to observations and actions, what it drops, and where Python code runs."""
    lines = ["observation:"]
    steps = sorted(plan.inputs, key=lambda step: path_name(step.placement))
    lines += [f'  "{path_name(step.placement)}" <- {step.describe()}' for step in steps]
    lines.append("action:")
    lines += [f"  {block.describe()}" for block in plan.action.blocks]
    if plan.action.clip is not None:
        low, high = plan.action.clip
        lines.append(f"  clip to ({float(low)}, {float(high)})")
    if plan.notes:
        lines.append("dropped:")
        lines += [f"  {note.message}" for note in plan.notes]
    encodings = [
        encoding.describe()
        for step in plan.inputs
        if isinstance(step, StateInput)
        for encoding in step.encodings
    ]
    encodings += [encoding.describe() for encoding in plan.action.encodings]
    if encodings:
        lines.append("host-side encodings:")
        lines += [f"  {line}" for line in encodings]
    return "\n".join(lines)
