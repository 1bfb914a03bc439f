"""`Corners`: the four predict corners of a model, resolved to what an evaluation calls.

Two axes make the corners, a batch axis and a chunk axis:

===================== ===================================== ==========================
corner                gets                                  returns
===================== ===================================== ==========================
predict               one observation                       one action
predict_chunk         one observation                       chunk ``[H, ...]``
predict_batch         fused observation, leaves ``[N, ..]`` actions ``[N, ...]``
predict_chunk_batch   fused observation, leaves ``[N, ..]`` chunks ``[N, H, ...]``
===================== ===================================== ==========================

What the author left out is derived downward along the axes and never upward: *de-batch* calls a
batch corner with a batch of one and peels it off; *de-chunk* calls a chunk corner at horizon 1 and
takes the first action.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlmesh.errors import add_note
from rlmesh.models.chunks import ChunkLength, check_horizon, chunk_length, first_action, split_chunk
from rlmesh.models.signatures import Call, Corner, bind
from rlmesh.values.frameworks import NUMPY, Framework
from rlmesh.values.tree import (
    describe_tree,
    tree_adopter,
    tree_stack,
    tree_to_host,
    tree_unstack,
)

__all__ = ["CHUNKED", "CORNERS", "Corners", "check_derivable", "resolve_corners", "sources"]

CORNERS: Final = ("predict", "predict_chunk", "predict_batch", "predict_chunk_batch")
CHUNKED: Final = frozenset({"predict_chunk", "predict_chunk_batch"})


def sources(defined: Sequence[str], *, fuses: bool) -> dict[str, str | None]:
    """Return for each corner which of the ``defined`` ones answers it: itself, another, or None.

    ``fuses`` is False for the raw-value backend, which has no chunk axis to index and so cannot
    de-chunk.
    """
    above = {
        "predict_chunk_batch": (),
        "predict_chunk": ("predict_chunk_batch",),
        "predict_batch": ("predict_chunk_batch",) if fuses else (),
        # predict_batch before predict_chunk: a single step does not pay for a chunk it discards.
        "predict": ("predict_batch", *(CORNERS[1::2] if fuses else ())),
    }
    return {
        name: next((other for other in (name, *above[name]) if other in defined), None)
        for name in CORNERS
    }


def check_derivable(defined: Sequence[str], framework: Framework) -> dict[str, str | None]:
    """Return :func:`sources`, if they include a ``predict``; TypeError otherwise."""
    answers = sources(defined, fuses=framework.fuses)
    if answers["predict"] is None:
        raise TypeError(
            f"could not derive predict() from {', '.join(defined)}: {framework.name} values are "
            "opaque, so a chunk cannot be cut. Define predict(), or use rlmesh.numpy.Model"
        )
    return answers


@dataclass(frozen=True)
class Corners:
    """A model as one run drives it. Made by :func:`~rlmesh.models.model_corners`.

    Values go in as the env gives them and are converted to the model's framework (and moved to its
    ``device``) here; actions come out as NumPy arrays, numbers and text.

    Attributes:
        framework: the model's.
        defined: the corners its author wrote.
        sources: which of them answers each of the four; None where none can.
        native_chunk: the declared chunk length, or None.
        allow_fusion: whether rows of different envs may share a forward pass.
        takes_context: whether a corner wants a :class:`~rlmesh.PredictContext`; if not, none need
            be made.
        predict: ``predict(observation, context=None) -> action``, one row at horizon 1.
        end_episode: ``end_episode(episode_id)``, to be called once at the end of every episode.
        close: ``close()``, to be called at the end of a run.
    """

    framework: Framework
    defined: tuple[str, ...]
    sources: Mapping[str, str | None]
    native_chunk: int | None
    allow_fusion: bool
    takes_context: bool
    predict: Callable[..., Any]
    end_episode: Callable[[str], None]
    close: Callable[[], None]
    _calls: Mapping[str, Call]
    _place: Callable[[Any], Any]
    _device: Callable[[], Any]
    _length: ChunkLength

    @property
    def chunks(self) -> bool:
        """Whether the model has a chunk corner, its own or derived."""
        return self.sources["predict_chunk"] is not None

    def check_horizon(self, requested: Any) -> int:
        """Return the execution horizon to run at.

        Without a chunk corner that is 1, with a warning if another was requested.

        Raises:
            TypeError: ``requested`` is no integer.
            ValueError: it is below 1, above 1024 or above ``native_chunk``.
        """
        horizon, native = check_horizon(requested), self.native_chunk
        if native is not None and horizon > native:
            raise ValueError(
                f"execution_horizon={horizon} exceeds the model's declared native_chunk={native}: "
                f"it cannot produce that many actions per predict; use at most {native}"
            )
        if horizon > 1 and not self.chunks:
            warnings.warn(
                f"execution_horizon={horizon} was requested but the model defines no "
                "predict_chunk(); running un-chunked.",
                UserWarning,
                stacklevel=2,
            )
            return 1
        return horizon

    def widest(self, rows: int, horizon: int = 1) -> str:
        """Return the author's corner that :meth:`predict_rows` calls for that many rows."""
        name = self._batch_source(horizon) if rows > 1 and self.allow_fusion else None
        if name is None:
            name = self.sources["predict" if horizon == 1 else "predict_chunk"]
        assert name is not None
        return name

    def batches_directly(self, horizon: int = 1) -> bool:
        """Whether a single prediction already runs the batch corner that several would run.

        Then predictions of unrelated clients may be fused without changing what each computes.
        """
        return self.widest(1, horizon) == self._batch_source(horizon)

    def plan(self, observation: Any, context: Any = None, horizon: int = 1) -> list[Any]:
        """Predict for one row: the actions to execute before the next predict, ``horizon`` at most.

        Raises:
            ValueError: the corner returned None, an empty chunk, a dict chunk whose leaves
                disagree, or not ``native_chunk`` actions.
            Exception: whatever the policy raises, with a note on what it was given.
        """
        if horizon == 1:
            return [self.predict(observation, context)]
        given, name = self._place(observation), self.widest(1, horizon)
        chunk = self._calls["predict_chunk"](given, horizon, context)
        return self._split(name, given, _hosted(name, given, chunk, self.framework), horizon)

    def predict_rows(
        self,
        observations: Sequence[Any],
        contexts: Sequence[Any] | None = None,
        horizon: int = 1,
        *,
        lanes: Sequence[object] | None = None,
        groups: Sequence[Hashable] | None = None,
    ) -> list[list[Any]]:
        """Predict for several rows, through the batch corner where there is one.

        Args:
            observations: one value per row.
            contexts: one context per row; None where :attr:`takes_context` is False.
            horizon: at most so many actions per row.
            lanes: what to call the rows in an error, e.g. "lane 3"; their ``str`` is taken only
                then.
            groups: the env of each row, hashable. With ``allow_fusion = False`` rows are fused only
                within one env; without ``groups`` not at all.

        Returns:
            One list of 1 to ``horizon`` actions per row.

        Raises:
            ValueError: as :meth:`plan`, or the rows do not align, or the corner returned another
                number of rows.
            Exception: whatever the policy raises, with notes on what it was given and for which
                row.
        """
        name = self._batch_source(horizon) if len(observations) > 1 else None
        if name is None or (groups is None and not self.allow_fusion):
            return self._one_by_one(observations, contexts, horizon, lanes)
        if self.allow_fusion or groups is None:
            return self._fused(name, observations, contexts, horizon, lanes)
        members: dict[Hashable, list[int]] = {}
        for row, group in enumerate(groups):
            members.setdefault(group, []).append(row)
        plans: dict[int, list[Any]] = {}
        for rows in members.values():
            part = (
                [observations[row] for row in rows],
                None if contexts is None else [contexts[row] for row in rows],
                horizon,
                None if lanes is None else [lanes[row] for row in rows],
            )
            found = self._fused(name, *part) if len(rows) > 1 else self._one_by_one(*part)
            plans.update(zip(rows, found, strict=True))
        return [plans[row] for row in range(len(observations))]

    def _batch_source(self, horizon: int) -> str | None:
        return self.sources["predict_batch" if horizon == 1 else "predict_chunk_batch"]

    def _one_by_one(
        self,
        observations: Sequence[Any],
        contexts: Sequence[Any] | None,
        horizon: int,
        lanes: Sequence[object] | None,
    ) -> list[list[Any]]:
        plans: list[list[Any]] = []
        for row, observation in enumerate(observations):
            try:
                context = None if contexts is None else contexts[row]
                plans.append(self.plan(observation, context, horizon))
            except Exception as exc:
                _note_row(exc, row, lanes)
                raise
        return plans

    def _fused(
        self,
        name: str,
        observations: Sequence[Any],
        contexts: Sequence[Any] | None,
        horizon: int,
        lanes: Sequence[object] | None,
    ) -> list[list[Any]]:
        count = len(observations)
        if self.framework.fuses:
            device = self._device()
            given = tree_stack(observations, self.framework, device=device, lanes=lanes)
        else:
            given = [self._place(observation) for observation in observations]
        returned = self._calls[name](given, horizon, contexts)
        returned = _hosted(name, given, returned, self.framework)
        rows = _unstack(name, given, returned, count, NUMPY)
        if name == "predict_batch":
            return [[row] for row in rows]
        plans: list[list[Any]] = []
        for row, chunk in enumerate(rows):
            try:
                plans.append(self._split(name, given, chunk, horizon))
            except ValueError as exc:
                _note_row(exc, row, lanes)
                raise
        return plans

    def _split(self, name: str, given: Any, chunk: Any, horizon: int) -> list[Any]:
        try:
            self._length.check(chunk_length(chunk), horizon)
            actions = split_chunk(chunk, horizon)
            if any(action is None for action in actions):
                raise ValueError("returned a chunk with None for an action")
            return actions
        except ValueError as exc:
            raise _faulty(name, str(exc), given, chunk) from None


def resolve_corners(
    written: Sequence[Corner],
    *,
    framework: Framework,
    native_chunk: int | None,
    allow_fusion: bool,
    device: Callable[[], Any],
    end_episode: Callable[[str], None],
    close: Callable[[], None],
) -> Corners:
    """Derive what the author left out and compile the rest.

    Args:
        written: the author's corners; see :func:`check_derivable`.
        framework: what the corners eat.
        native_chunk: the declared chunk length.
        allow_fusion: the model's attribute.
        device: returns the device to place observations on, or None; asked at every predict.
        end_episode: the episode-end edge.
        close: the end-of-run edge.
    """
    length = ChunkLength(native_chunk)
    where = device if framework.has_device else _nowhere
    place = _placer(framework, where)
    calls = {corner.name: _guard(corner) for corner in written}
    answers = check_derivable([corner.name for corner in written], framework)
    if "predict_chunk" not in calls and "predict_chunk_batch" in calls:
        calls["predict_chunk"] = _de_batch("predict_chunk_batch", calls, framework, where)
    source = answers["predict"]
    if source == "predict_batch":
        calls["predict"] = _de_batch(source, calls, framework, where)
    elif source is not None and source != "predict":
        calls["predict"] = _de_chunk(source, calls["predict_chunk"], length)
    single = next((corner for corner in written if corner.name == "predict"), None)
    if single is not None and single.signature.plain and not framework.has_device:
        predict = _compile_plain(single, framework, place)
    else:
        assert source is not None
        predict = _compile_predict(source, calls["predict"], framework, place)
    return Corners(
        framework=framework,
        defined=tuple(corner.name for corner in written),
        sources=answers,
        native_chunk=native_chunk,
        allow_fusion=allow_fusion,
        takes_context=any(corner.signature.context is not None for corner in written),
        predict=predict,
        end_episode=end_episode,
        close=close,
        _calls=calls,
        _place=place,
        _device=where,
        _length=length,
    )


def _compile_plain(
    corner: Corner, framework: Framework, place: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return the hot path of a predict that takes only the observation: one call above its own."""
    function, array_type, array = corner.function, framework.array_type, np.ndarray

    def predict(observation: Any, context: Any = None) -> Any:
        if type(observation) is not array_type:
            observation = place(observation)
        try:
            action = function(observation)
        except Exception as exc:
            _note_input(exc, corner.name, observation)
            raise
        if type(action) is array:
            return action
        if action is None:
            raise _nothing(corner.name, observation)
        return _hosted(corner.name, observation, action, framework)

    return predict


def _compile_predict(
    name: str, call: Call, framework: Framework, place: Callable[[Any], Any]
) -> Callable[..., Any]:
    def predict(observation: Any, context: Any = None) -> Any:
        given = place(observation)
        return _hosted(name, given, call(given, 1, context), framework)

    return predict


def _nowhere() -> None:
    return None


def _placer(framework: Framework, device: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return what brings an observation to the framework, and to the device where there are any."""
    adopt = tree_adopter(framework)
    if not framework.has_device:
        return adopt
    return lambda tree: adopt(tree, device())


def _guard(corner: Corner) -> Call:
    """Return the corner such that its faults say what it was given."""
    call, name = bind(corner.function, corner.signature), corner.name

    def guarded(observation: Any, horizon: int, context: Any) -> Any:
        try:
            returned = call(observation, horizon, context)
        except Exception as exc:
            _note_input(exc, name, observation)
            raise
        if returned is None:
            raise _nothing(name, observation)
        return returned

    return guarded


def _de_batch(
    name: str, calls: Mapping[str, Call], framework: Framework, device: Callable[[], Any]
) -> Call:
    call, fuses = calls[name], framework.fuses

    def alone(observation: Any, horizon: int, context: Any) -> Any:
        batch = [observation]
        if fuses:
            batch = tree_stack(batch, framework, device=device())
        returned = call(batch, horizon, None if context is None else [context])
        return _unstack(name, batch, returned, 1, framework)[0]

    return alone


def _de_chunk(name: str, call: Call, length: ChunkLength) -> Call:
    def first(observation: Any, horizon: int, context: Any) -> Any:
        chunk = call(observation, 1, context)
        try:
            length.check(chunk_length(chunk), 1)
        except ValueError as exc:
            raise _faulty(name, str(exc), observation, chunk) from None
        return first_action(chunk)

    return first


def _hosted(name: str, given: Any, returned: Any, framework: Framework) -> Any:
    """Return what a corner returned in host memory; ValueError says what cannot come there."""
    try:
        return tree_to_host(returned, framework)
    except ValueError as exc:
        raise _faulty(name, str(exc), given, returned) from None


def _unstack(name: str, given: Any, returned: Any, count: int, framework: Framework) -> list[Any]:
    try:
        rows = tree_unstack(returned, count, framework)
        if any(row is None for row in rows):
            raise ValueError("returned None for a row: expected one action per row")
        return rows
    except ValueError as exc:
        raise _faulty(name, str(exc), given, returned) from None


def _faulty(name: str, fault: str, given: Any, returned: Any) -> ValueError:
    return ValueError(
        f"{name}(): {fault}. It was given {describe_tree(given)} and returned "
        f"{describe_tree(returned)}"
    )


def _nothing(name: str, given: Any) -> ValueError:
    return ValueError(
        f"{name}() returned None: expected an action. It was given {describe_tree(given)}; is a "
        "return missing?"
    )


def _note_row(exc: BaseException, row: int, lanes: Sequence[object] | None) -> None:
    add_note(exc, f"while predicting for {f'lane {row}' if lanes is None else lanes[row]}")


def _note_input(exc: BaseException, name: str, given: Any) -> None:
    add_note(exc, f"{name}() was given {describe_tree(given)}")
