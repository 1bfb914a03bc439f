"""What the run's own clock measured: one row an operation and metric."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Telemetry", "TelemetryRow", "format_telemetry"]


@dataclass(frozen=True)
class TelemetryRow:
    """The distribution of one metric of one operation.

    Attributes:
        op: ``env.reset``, ``env.step`` or ``model.predict``.
        component: who did the work: ``env`` or ``model``.
        metric: ``rpc.total`` as the run saw it, ``endpoint.total`` as the server measured it,
            ``batch.rows`` the rows of a prediction.
        unit: ``ms`` or ``count``.
        count: how many were measured.
        avg, p50, p95, p99: mean and percentiles.
    """

    op: str
    component: str
    metric: str
    unit: str
    count: int
    avg: float
    p50: float
    p95: float
    p99: float


class Telemetry:
    """Collects durations and counts; 8 bytes each."""

    def __init__(self) -> None:
        self.reset_s = array("d")
        self.step_s = array("d")
        self.env_s = array("d")
        self.predict_s = array("d")
        self.rows = array("d")

    def summary(self) -> tuple[TelemetryRow, ...]:
        """Return a row for each metric that was measured."""
        measured = [
            ("env.reset", "env", "rpc.total", "ms", self.reset_s),
            ("env.step", "env", "rpc.total", "ms", self.step_s),
            ("env.step", "env", "endpoint.total", "ms", self.env_s),
            ("model.predict", "model", "rpc.total", "ms", self.predict_s),
            ("model.predict", "model", "batch.rows", "count", self.rows),
        ]
        rows: list[TelemetryRow] = []
        for op, component, metric, unit, values in measured:
            if len(values):
                data = np.asarray(values) * (1000.0 if unit == "ms" else 1.0)
                p50, p95, p99 = np.percentile(data, (50, 95, 99)).tolist()
                rows.append(
                    TelemetryRow(
                        op, component, metric, unit, len(data), float(data.mean()), p50, p95, p99
                    )
                )
        return tuple(rows)


def format_telemetry(rows: Sequence[TelemetryRow]) -> str:
    """Return the rows as an aligned table with two decimals."""
    if not rows:
        return "(no telemetry: nothing was run)"
    cells = [("op", "metric", "unit", "count", "avg", "p50", "p95", "p99")]
    for row in rows:
        figures = (f"{value:.2f}" for value in (row.avg, row.p50, row.p95, row.p99))
        cells.append((row.op, row.metric, row.unit, str(row.count), *figures))  # pyright: ignore[reportArgumentType]
    widths = [max(len(line[i]) for line in cells) for i in range(8)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )
