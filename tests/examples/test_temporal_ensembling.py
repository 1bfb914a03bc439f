"""The ensembling adapter against the formula of the paper, written out step by step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmesh.adapters import AdapterBase

PATH = Path(__file__).resolve().parents[2] / "examples" / "temporal_ensembling" / "ensembling.py"


class Same(AdapterBase[np.ndarray]):
    """Converts nothing, and notes what it was told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def transform_obs(self, raw_obs: Any) -> Any:
        return raw_obs

    def transform_action(self, raw_action: Any) -> np.ndarray:
        return np.asarray(raw_action)

    def observe(self, raw_obs: Any) -> None:
        self.seen.append(raw_obs)

    def reset(self) -> None:
        self.seen.append("reset")


@pytest.fixture(scope="module")
def ensembling() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("example_ensembling", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TemporalEnsembling


def expected(chunks: list[np.ndarray], step: int, decay: float) -> np.ndarray:
    """The weighted mean of row step - s of all chunks that began at step s and reach this one."""
    rows = [chunk[step - s] for s, chunk in enumerate(chunks[: step + 1]) if step - s < len(chunk)]
    weights = [np.exp(-decay * i) for i in range(len(rows))]
    return sum(w * row for w, row in zip(weights, rows, strict=True)) / sum(weights)


@pytest.mark.parametrize("decay", [0.0, 0.01, 1.0])
def test_every_step_is_the_weighted_mean_of_all_chunks_that_reach_it(
    ensembling: Callable[..., Any], decay: float
) -> None:
    rng = np.random.default_rng(1)
    chunks = [rng.normal(size=(length, 3)) for length in (4, 4, 1, 6, 4, 2, 4, 4)]
    adapter = ensembling(Same(), decay)
    act = adapter.wrap_predict(lambda step: chunks[step])
    for step in range(len(chunks)):
        np.testing.assert_allclose(act(step), expected(chunks, step, decay), rtol=1e-12)


def test_a_replayed_step_is_past_and_a_reset_forgets(ensembling: Callable[..., Any]) -> None:
    inner = Same()
    adapter = ensembling(inner, 0.0)
    first, second = np.arange(4.0).reshape(4, 1), np.full((4, 1), 10.0)
    assert adapter.transform_action(first) == 0.0
    adapter.observe("skipped")
    assert adapter.transform_action(second) == (2.0 + 10.0) / 2
    adapter.reset()
    assert adapter.transform_action(first) == 0.0
    assert inner.seen == ["skipped", "reset"]
