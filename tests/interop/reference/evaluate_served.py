"""Evaluates a served model with the published loop: an order on stdin, the outcome on stdout.

Order: ``{"model": address, "env": address, "loop": "run" or "session", "horizon": n,
"keywords": {...}}``. Outcome: ``{"episodes": [...]}``, or what was raised.
"""

from __future__ import annotations

import json
import sys

import brief  # noqa: F401
from interop_player import episode_rows, raised

import rlmesh


def evaluate(order):
    """Return the run's result."""
    model, horizon = rlmesh.RemoteModel(order["model"]), order["horizon"]
    if order["loop"] == "run":
        keywords = order["keywords"]
        return rlmesh.run(model, order["env"], execution_horizon=horizon, **keywords)
    with rlmesh.session(model, order["env"], execution_horizon=horizon) as session:
        return session.run(**order["keywords"])


def main():
    order = json.load(sys.stdin)
    try:
        result = evaluate(order)
    except Exception as exc:
        json.dump(raised(exc), sys.stdout)
        return
    json.dump({"episodes": episode_rows(result)}, sys.stdout)


if __name__ == "__main__":
    main()
