"""Running any input of a plan: one object per input, with its work looked up beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from rlmesh.adapters.apply_image import frame_reader
from rlmesh.adapters.apply_state import vector_reader
from rlmesh.adapters.history import EpisodeHistory, stacked
from rlmesh.adapters.plan import CustomInput, ImageInput, InputStep, StateInput, TextInput
from rlmesh.adapters.reading import leaf_reader
from rlmesh.adapters.trees import path_name

__all__ = ["InputReader", "compile_input"]

Histories = Sequence[EpisodeHistory]


class InputReader(Protocol):
    """What an adapter asks of an input."""

    remembers: bool
    """Whether it must see also the observations nobody predicts on."""

    def read(self, raws: list[Any], histories: Histories, instruction: Any) -> Any:
        """The values of all lanes: an array [N, ...], or a list of N."""
        ...

    def watch(self, raw: Any, history: EpisodeHistory) -> None:
        """Remember an observation that nobody predicts on."""
        ...


def compile_input(step: InputStep, index: int) -> InputReader:
    """The reader of an input; ``index`` names its place in an episode's history."""
    if isinstance(step, ImageInput):
        return _Frames(step, index)
    if isinstance(step, StateInput):
        return _Vector(step)
    if isinstance(step, TextInput):
        return _Text(step)
    return _Custom(step)


class _Forgetful:
    remembers = False

    def watch(self, raw: Any, history: EpisodeHistory) -> None:
        """Nothing to remember."""


class _Frames:
    def __init__(self, step: ImageInput, index: int) -> None:
        self._frame = frame_reader(step)
        self._window = step.window
        self._index = index
        self.remembers = step.window is not None

    def read(self, raws: list[Any], histories: Histories, instruction: Any) -> Any:
        if self._window is None:
            frames = [self._frame(raw) for raw in raws]
        else:
            frames = [
                self._stack(raw, history) for raw, history in zip(raws, histories, strict=True)
            ]
        return frames[0][None] if len(frames) == 1 else np.stack(frames)

    def watch(self, raw: Any, history: EpisodeHistory) -> None:
        assert self._window is not None
        history.see(self._index, self._window, self._frame(raw))

    def _stack(self, raw: Any, history: EpisodeHistory) -> Any:
        assert self._window is not None
        self.watch(raw, history)
        return stacked(self._window, history.frames[self._index])


class _Vector(_Forgetful):
    def __init__(self, step: StateInput) -> None:
        self._vectors = vector_reader(step)

    def read(self, raws: list[Any], histories: Histories, instruction: Any) -> Any:
        return self._vectors(raws, histories)


class _Text(_Forgetful):
    def __init__(self, step: TextInput) -> None:
        self._step = step
        self._get = None if step.source is None else leaf_reader(step.source)

    def read(self, raws: list[Any], histories: Histories, instruction: Any) -> Any:
        if instruction is None:
            texts = [self._text(raw) for raw in raws]
        elif isinstance(instruction, str):
            texts = [instruction] * len(raws)
        else:
            texts = [str(text) for text in instruction]
            if len(texts) != len(raws):
                raise ValueError(f"expected {len(raws)} instructions, one per lane, got {texts}")
        return [[text] for text in texts] if self._step.as_list else texts

    def _text(self, raw: Any) -> str:
        if self._get is None:
            return self._step.fill or ""
        value = self._get(raw)
        if not isinstance(value, str):
            source = path_name(self._step.source or ())
            raise ValueError(
                f"text input '{path_name(self._step.placement)}' resolved to '{source}', but "
                f"{value!r:.60} ({type(value).__name__}) is not a string"
            )
        return str(value)


class _Custom(_Forgetful):
    def __init__(self, step: CustomInput) -> None:
        assert step.custom.transform is not None
        self._function = step.custom.transform

    def read(self, raws: list[Any], histories: Histories, instruction: Any) -> Any:
        values = [self._function(_as_mapping(raw)) for raw in raws]
        if len(values) > 1 and all(type(value) is np.ndarray for value in values):
            return np.stack(values)
        return values


def _as_mapping(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Mapping):
        return cast("Mapping[str, Any]", raw)
    return {"<obs>": raw}
