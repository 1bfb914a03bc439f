"""The adapter that follows a plan, for one lane or for many."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.adapters.advisory import Advisory
from rlmesh.adapters.apply_action import action_writer, model_action, shaped_action
from rlmesh.adapters.apply_inputs import InputReader, compile_input
from rlmesh.adapters.base import AdapterBase
from rlmesh.adapters.explain import explain_plan
from rlmesh.adapters.history import EpisodeHistory
from rlmesh.adapters.plan import (
    CustomInput,
    ImageInput,
    Plan,
    PreviousPiece,
    StateInput,
    TextInput,
)
from rlmesh.adapters.trees import Path, assemble, path_name

__all__ = ["Adapter", "payload_signature"]

Array = np.ndarray[Any, Any]


class Adapter(AdapterBase[Array]):
    """An env and a model joined by :func:`~rlmesh.adapters.resolve`.

    Memory of past steps (stacked frames, previous actions) is kept per episode: name the episode by
    any hashable key, or none where there is only one at a time.

    Attributes:
        plan: the frozen steps it follows.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._write = action_writer(plan.action)
        self._readers: list[tuple[Path, InputReader]] = [
            (step.placement, compile_input(step, index)) for index, step in enumerate(plan.inputs)
        ]
        self._watchers = [reader for _path, reader in self._readers if reader.remembers]
        self._remembers = bool(self.history_keys())
        self._episodes: dict[Hashable, EpisodeHistory] = {}

    # One lane

    def transform_obs(
        self, raw_obs: Any, *, episode: Hashable = None, instruction: str | None = None
    ) -> Any:
        """The model's input: a dict, list or leaf as the spec's tree says, leaves in NumPy.

        Args:
            raw_obs: a mapping, a sequence for a Tuple space, or the leaf of a plain space; only the
                leaves the plan reads are touched, and none is altered.
            episode: whose memory to use and extend.
            instruction: stands in every text input instead of the env's text.

        Raises:
            ValueError: a leaf is missing or is not what its space says; the message names it.
        """
        lanes = self._transform([raw_obs], [episode], instruction)
        return assemble(self.plan.tree, lambda path: lanes[path][0])

    def transform_action(self, raw_action: Any, *, episode: Hashable = None) -> Array:
        """The env's action, float32, for a model's: an array, Tensor, nested list or number.

        Raises:
            ValueError: it has the wrong number of elements.
            TypeError: it is a mapping or nothing numeric.
        """
        action = model_action(raw_action, self.plan.action.model_dim)
        if self._remembers:
            self._episode(episode).act(action)
        return self._write(action)

    def write_action(self, raw_action: Any) -> Array:
        """The same for an action that is not executed yet: nothing is remembered."""
        return self._write(model_action(raw_action, self.plan.action.model_dim))

    def note_action(self, raw_action: Any, *, episode: Hashable = None) -> None:
        """Remember that the model's action was executed for the observation seen last."""
        if self._remembers:
            self._episode(episode).act(model_action(raw_action, self.plan.action.model_dim))

    def env_action(self, raw_action: Any, *, episode: Hashable = None) -> Array:
        """The same in the shape and dtype of the env's Box, as its step takes it.

        Raises:
            ValueError: likewise; or the Box holds integers and a value is none of them.
            TypeError: likewise.
        """
        return shaped_action(self.plan.action, self.transform_action(raw_action, episode=episode))

    def observe(self, raw_obs: Any, *, episode: Hashable = None) -> None:
        """Extend the memory by the observation of a step that asked for no prediction."""
        if not self._remembers:
            return
        history = self._episode(episode)
        history.steps += 1
        for reader in self._watchers:
            reader.watch(raw_obs, history)

    # Many lanes

    def transform_obs_batch(
        self,
        raw_obs: Sequence[Any],
        *,
        episodes: Sequence[Hashable] | None = None,
        instruction: str | Sequence[str] | None = None,
    ) -> Any:
        """The model's input for N lanes, fused: array leaves [N, ...], all others lists of N.

        Args:
            raw_obs: one raw observation per lane.
            episodes: the lane's episode; by default the lane numbers.
            instruction: one for all lanes, or one per lane.
        """
        keys = self._keys(len(raw_obs), episodes)
        lanes = self._transform(list(raw_obs), keys, instruction)
        return assemble(self.plan.tree, lambda path: lanes[path])

    def transform_action_batch(
        self, raw_actions: Any, *, episodes: Sequence[Hashable] | None = None
    ) -> Array:
        """The env's actions float32[N, ...] for N of the model's, an array [N, ...] or a list."""
        dim = self.plan.action.model_dim
        actions = np.stack([model_action(action, dim) for action in raw_actions])
        if self._remembers:
            keys = self._keys(len(actions), episodes)
            for key, action in zip(keys, actions, strict=True):
                self._episode(key).act(action)
        return self._write(actions)

    def reset(self, episode: Hashable = None) -> None:
        """Forget one episode, or with no key all of them."""
        if episode is None:
            self._episodes.clear()
        else:
            self._episodes.pop(episode, None)

    def _keys(self, count: int, episodes: Sequence[Hashable] | None) -> list[Hashable]:
        keys: list[Hashable] = list(range(count)) if episodes is None else list(episodes)
        if len(keys) != count:
            raise ValueError(f"expected one episode key per lane ({count}), got {len(keys)}")
        if self._remembers and len(set(keys)) != count:
            raise ValueError(f"expected distinct episode keys, got {keys}")
        return keys

    def _episode(self, key: Hashable) -> EpisodeHistory:
        history = self._episodes.get(key)
        if history is None:
            history = self._episodes[key] = EpisodeHistory()
        return history

    def _transform(
        self, raws: list[Any], keys: list[Hashable], instruction: Any
    ) -> dict[Path, Any]:
        histories: list[EpisodeHistory] = []
        if self._remembers:
            histories = [self._episode(key) for key in keys]
            for history in histories:
                history.steps += 1
        return {path: reader.read(raws, histories, instruction) for path, reader in self._readers}

    # Looking at it

    def explain(self) -> str:
        """The plan's steps, line by line."""
        return explain_plan(self.plan)

    def preview(self, raw_obs: Any, *, title: str = "What the policy sees") -> str:
        """One self-contained HTML page: every input before and after, the action path, the plan.

        The adapter's memory is neither used nor changed.

        Raises:
            ImportError: Pillow is not installed.
            ValueError: the observation lacks a leaf the plan reads.
        """
        from rlmesh.adapters.preview import preview

        return preview(self, raw_obs, title=title)

    def advisories(self) -> list[Advisory]:
        """What a person should know: what is dropped, made up, or cannot be verified."""
        return list(self.plan.advisories)

    @property
    def remembers(self) -> bool:
        """Whether what the model is given depends on earlier steps."""
        return self._remembers

    @property
    def reads_all(self) -> bool:
        """Whether an input is of the user's own making, and so may read any leaf."""
        return any(isinstance(step, CustomInput) for step in self.plan.inputs)

    def read_paths(self) -> tuple[Path, ...]:
        """The leaves of the observation the plan reads, in order of the inputs."""
        paths: dict[Path, None] = {}
        for step in self.plan.inputs:
            if isinstance(step, (ImageInput, TextInput)):
                sources = [step.source]
            elif isinstance(step, StateInput):
                sources = [getattr(piece, "source", None) for piece in step.pieces]
            else:
                sources = []
            paths.update((path, None) for path in sources if path is not None)
        return tuple(paths)

    def read_keys(self) -> tuple[str, ...]:
        """The names of :meth:`read_paths`."""
        return tuple(dict.fromkeys(path_name(path) for path in self.read_paths()))

    def history_windows(self) -> tuple[tuple[str, int, int], ...]:
        """(placement, frames kept, bytes per frame) of every stacked input."""
        return tuple(
            (
                path_name(step.placement),
                step.window.span,
                math.prod(step.out_shape) * np.dtype(step.out_dtype).itemsize,
            )
            for step in self.plan.inputs
            if isinstance(step, ImageInput) and step.window is not None
        )

    def history_keys(self) -> tuple[str, ...]:
        """The placements that depend on earlier steps: stacked frames and previous actions."""
        return tuple(
            path_name(step.placement)
            for step in self.plan.inputs
            if (isinstance(step, ImageInput) and step.window is not None)
            or (
                isinstance(step, StateInput)
                and any(isinstance(piece, PreviousPiece) for piece in step.pieces)
            )
        )

    def __repr__(self) -> str:
        inputs = ", ".join(path_name(step.placement) for step in self.plan.inputs)
        action = self.plan.action
        return f"Adapter(inputs=[{inputs}], action={action.model_dim}->{action.env_dim})"


def payload_signature(payload: Any) -> str:
    """The keys, dtypes and shapes of a model's input, for a note on an error.

    >>> payload_signature({"s": np.zeros(2, np.float32), "task": "stack"})
    '{s: float32[2], task: str}'
    """
    if isinstance(payload, dict):
        mapping = cast("dict[str, Any]", payload)
        items = (f"{key}: {payload_signature(value)}" for key, value in mapping.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(payload, (list, tuple)):
        values = cast("list[Any]", payload)
        return "[" + ", ".join(payload_signature(value) for value in values) + "]"
    dtype, shape = getattr(payload, "dtype", None), getattr(payload, "shape", None)
    if dtype is None or shape is None:
        return type(payload).__name__
    name = str(dtype).removeprefix("torch.")
    return f"{name}[{', '.join(str(int(size)) for size in shape)}]"
