"""What is odd about the values of one reset or step, though the server takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.checks.findings import Finding, Level
from rlmesh.envs.handler import WARNING_KEY
from rlmesh.envs.hosts import split_step
from rlmesh.evals.results import SUCCESS_KEYS
from rlmesh.spaces import Box, Dict, Discrete, Space, Text, Tuple
from rlmesh.wire.meta import encode_map

__all__ = ["Notes", "leaf_paths", "raw_leaves"]

_PAIR = "return (observation, info), info a dict"
_FIVE = "return (observation, reward, terminated, truncated, info)"


class Notes:
    """Collects findings: each kind once, where it was first seen."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Finding] = {}
        self.when = ""

    def add(
        self, check: str, kind: str, message: str, remedy: str = "", level: Level = "warn"
    ) -> None:
        """Note ``message`` unless ``check`` has had one of that kind."""
        text = f"{self.when}: {message}" if self.when else message
        self._found.setdefault((check, kind), Finding(check, level, text, remedy))

    def of(self, check: str) -> list[Finding]:
        """Return what was noted for a check."""
        return [finding for (name, _), finding in self._found.items() if name == check]

    def range(self, kind: str, path: str, detail: Callable[[], str]) -> None:
        """Take a value outside its bounds, as the server reports one."""
        self.add(
            "observations",
            f"{kind} {path}",
            detail(),
            "widen the space; RLMESH_VALIDATION_POLICY=strict would refuse it, the default warns",
        )

    def reset_form(self, raw: Any) -> None:
        """Look at what reset() returned."""
        pair = isinstance(raw, tuple) and len(cast("tuple[Any, ...]", raw)) == 2
        if not pair or not isinstance(raw[1], Mapping):
            self.add("steps", "pair", "reset() returned no (observation, info)", _PAIR)

    def step_form(self, raw: Any, lanes: int | None) -> None:
        """Look at what step() returned."""
        parts = cast("Sequence[Any]", raw)
        if len(parts) == 4:
            self.add(
                "steps", "four", "step() returned the 4 parts of old gym; done is terminated", _FIVE
            )
            return
        _, reward, *flags, _ = split_step(raw)  # tensors come to the host
        for name, value in zip(("terminated", "truncated"), flags, strict=True):
            expected = "a bool" if lanes is None else f"bool[{lanes}]"
            if np.asarray(value).dtype != np.bool_ or np.shape(value) not in ((), (lanes,)):
                self.add("steps", name, f"{name} is {_kind(value)}, expected {expected}")
        if not isinstance(parts[4], Mapping):
            self.add("steps", "info", f"info is {_kind(parts[4])}, expected a dict", _FIVE)
        rewards = np.asarray(reward, np.float64).reshape(-1)
        if np.isnan(rewards).any():
            self.add("rewards", "nan", "the reward is NaN", "mean_reward would be NaN", "fail")
        elif np.isinf(rewards).any():
            self.add("rewards", "inf", "the reward is infinite", "mean_reward would be infinite")

    def observation(self, space: Space, value: Any, batched: bool) -> None:
        """Look at the kinds of an observation's leaves, which the wire puts right."""
        for path, leaf_space, leaf in raw_leaves(space, value, "observation", self._extra):
            self._leaf(path, leaf_space, leaf, batched)

    def _extra(self, path: str, keys: list[str]) -> None:
        self.add(
            "observations",
            f"extra {path}",
            f"{path} has keys that its space lacks: {', '.join(map(repr, keys))}",
            "they do not travel; add them to the space, or leave them out",
        )

    def _leaf(self, path: str, space: Space, leaf: Any, batched: bool) -> None:
        if isinstance(space, Text):
            return
        dtype: Any = getattr(leaf, "dtype", None)
        name = str(dtype).rpartition(".")[2]  # torch.float32
        if dtype is None:
            if isinstance(leaf, (list, tuple)):
                self._converted(path, space, f"a {type(cast('object', leaf)).__name__}")
        elif name != space.dtype and not (isinstance(space, Discrete) and "int" in name):
            self._converted(path, space, name)
        if isinstance(space, Box) and space.bounds_implied and isinstance(leaf, np.ndarray):
            array = cast("np.ndarray[Any, Any]", leaf)
            if array.dtype.kind == "f" and np.isinf(array).any():
                self.add("observations", f"inf {path}", f"{path} holds an infinity")

    def _converted(self, path: str, space: Space, received: str) -> None:
        self.add(
            "observations",
            f"dtype {path}",
            f"{path} is {received}, its space declares {space.dtype}",
            f"it is converted at every step; return it as {space.dtype}",
        )

    def info(self, info: Mapping[str, Any]) -> None:
        """Look for what of an info map cannot travel, with the wire's own eyes."""
        encode_map(info, arrays=True, on_drop=self._dropped, what="info")
        told: Any = info.get(WARNING_KEY, ())
        for warning in cast("Sequence[Mapping[str, str]]", told):
            check = "infos" if warning["kind"] == "info_dropped" else "observations"
            self.add(check, f"{warning['kind']} {warning['path']}", warning["detail"])

    def _dropped(self, path: str, detail: str) -> None:
        outcome = path.split(".")[0] in SUCCESS_KEYS
        self.add(
            "infos",
            path,
            f"info {path} cannot travel and is left out: {detail}",
            "the outcome of the episode would be lost over the wire" if outcome else "",
            "fail" if outcome else "warn",
        )


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    if dtype is not None and getattr(value, "shape", ()):
        return f"{dtype}{list(value.shape)}"
    return type(value).__name__


def raw_leaves(
    space: Space, value: Any, path: str, on_extra: Callable[[str, list[str]], None]
) -> Iterator[tuple[str, Space, Any]]:
    """Yield (path, space, value) of each leaf of a raw value that fits ``space``, in its order."""
    if isinstance(space, Dict) and isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        extra = [str(key) for key in entries if key not in space]
        if extra:
            on_extra(path, extra)
        for key, child in space.items():
            yield from raw_leaves(child, entries[key], f"{path}[{key!r}]", on_extra)
    elif isinstance(space, Tuple) and isinstance(value, (tuple, list)):
        items = cast("Sequence[Any]", value)
        for index, (child, item) in enumerate(zip(space.spaces, items, strict=False)):
            yield from raw_leaves(child, item, f"{path}[{index}]", on_extra)
    elif not isinstance(space, (Dict, Tuple)):
        yield path, space, value


def leaf_paths(space: Space, path: str) -> list[tuple[str, Space]]:
    """Return (path, space) of each leaf, in the wire's order."""
    if isinstance(space, Dict):
        children = [(f"{path}[{key!r}]", child) for key, child in space.items()]
    elif isinstance(space, Tuple):
        children = [(f"{path}[{index}]", child) for index, child in enumerate(space.spaces)]
    else:
        return [(path, space)]
    return [leaf for name, child in children for leaf in leaf_paths(child, name)]
