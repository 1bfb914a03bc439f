"""Running a state input: raw observations of one lane or of N in, their vectors out.

One implementation: arrays have the element axis last, and before it a lane axis only if there is
more than one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.adapters.custom_encodings import repack
from rlmesh.adapters.history import EpisodeHistory
from rlmesh.adapters.plan import (
    ConstPiece,
    EncodingStep,
    FillPiece,
    Piece,
    PreviousPiece,
    SourcePiece,
    StateInput,
)
from rlmesh.adapters.reading import number_reader
from rlmesh.adapters.state_steps import Rotate, VectorStep
from rlmesh.adapters.trees import path_name

__all__ = ["exact_integers", "run_steps", "vector_reader"]

Array = np.ndarray[Any, Any]
Lanes = Sequence[Any]
Histories = Sequence[EpisodeHistory]
Reader = Callable[[Lanes, Histories], Any]


def vector_reader(step: StateInput) -> Reader:
    """A function from the lanes' raw observations (and histories) to their values, lanes first.

    Its result is an array [N, ...], or a list of N lists of floats.
    """
    name = path_name(step.placement)
    dtype = np.dtype(step.dtype)
    floats = dtype if dtype.kind == "f" else np.dtype(np.float64)
    width, padded = step.width, max(step.width, step.pad_to or 0)
    allocate = np.zeros if padded > width else np.empty
    pieces: list[tuple[slice, Reader]] = []
    at = 0
    for piece in step.pieces:
        pieces.append((slice(at, at + piece.width), _piece_reader(piece)))
        at += piece.width

    def read(raws: Lanes, histories: Histories) -> Any:
        count = len(raws)
        lead = () if count == 1 else (count,)
        out: Array = allocate((*lead, padded), floats)
        for place, values in pieces:
            out[..., place] = values(raws, histories)
        if step.clip is not None:
            out[..., :width].clip(*step.clip, out=out[..., :width])
        if step.container == "list":
            return _lists(out.reshape(count, padded))
        if dtype is not floats:
            out = exact_integers(out, dtype, f"state '{name}'")
        for encoding in step.encodings:
            _encode(encoding, out.reshape(count, padded))
        return out.reshape((count, *step.shape))

    return read


def _lists(rows: Array) -> list[list[float]]:
    return cast("list[list[float]]", rows.tolist())


def _piece_reader(piece: Piece) -> Reader:
    if isinstance(piece, SourcePiece):
        return _source_reader(piece)
    if isinstance(piece, PreviousPiece):
        return _previous_reader(piece)
    assert isinstance(piece, (FillPiece, ConstPiece))
    value = piece.value
    return lambda raws, histories: value


def _source_reader(piece: SourcePiece) -> Reader:
    read = number_reader(piece.source, piece.leaf_width, piece.start, piece.width_in)
    steps = piece.steps

    def gather(raws: Lanes, histories: Histories) -> Array:
        values = read(raws[0]) if len(raws) == 1 else np.stack([read(raw) for raw in raws])
        return run_steps(steps, values.astype(np.float64)) if steps else values

    return gather


def run_steps(steps: tuple[VectorStep, ...], values: Array) -> Array:
    """The values after all steps, computed in their own dtype whatever a rotation returns."""
    dtype = values.dtype
    for step in steps:
        values = step.apply(values)
        if isinstance(step, Rotate):
            values = values.astype(dtype, copy=False)
    return values


def _previous_reader(piece: PreviousPiece) -> Reader:
    stop = piece.start + piece.width

    def one(history: EpisodeHistory) -> Any:
        action = history.previous()
        if action is None:
            return np.full(piece.width, piece.fill)
        values = action[piece.start : stop]
        return values if piece.order is None else values[list(piece.order)]

    def read(raws: Lanes, histories: Histories) -> Any:
        rows = [one(history) for history in histories]
        return rows[0] if len(raws) == 1 else np.stack(rows)

    return read


def _encode(step: EncodingStep, rows: Array) -> None:
    place = slice(step.start, step.start + step.encoding.width)
    for row in rows:
        row[place] = repack(
            step.encoding, "from_base", row[place].copy(), f" for {step.placement!r}"
        )


def exact_integers(values: Array, dtype: np.dtype[Any], who: str) -> Array:
    """Float values as integers or bools.

    Raises:
        ValueError: a value the dtype does not hold exactly.
    """
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in values.reshape(-1):
        number = float(value)
        if number != np.rint(number):
            raise ValueError(f"{who}: cannot cast non-integral value {number} to {dtype.name}")
        if not low <= number <= high:
            raise ValueError(f"{who}: value {number:g} is out of range for {dtype.name}")
    return values.astype(dtype)
