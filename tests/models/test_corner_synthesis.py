"""model_reference.txt, "The four corners" and "Corner synthesis": who receives what, and when."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_kinds import ACTION, CHUNK, NumpyModel, bits, corner_functions, make, resolve

from rlmesh.models import model_corners
from rlmesh.models.corners import CORNERS, sources
from rlmesh.models.model import Model

SUBSETS = [
    subset
    for subset in chain.from_iterable(combinations(CORNERS, n) for n in range(1, 5))
    if subset
]
OBSERVATION = {"s": np.arange(3, dtype=np.float32), "t": "go"}


class Recorder:
    """Corners that write down what they receive."""

    def __init__(self, **returns: Any) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.members = {name: self._corner(name, value) for name, value in returns.items()}

    def _corner(self, name: str, value: Any) -> Any:
        def corner(model: Any, observation: Any) -> Any:
            self.seen.append((name, observation))
            count = len(observation["t"]) if "batch" in name else None
            return value if count is None else np.stack([value] * count)

        return corner

    @property
    def calls(self) -> list[str]:
        return [name for name, _ in self.seen]


# Table "The four corners"


def test_row_predict_receives_one_observation_and_returns_one_action() -> None:
    record = Recorder(predict=ACTION)
    action = resolve(**record.members).predict(OBSERVATION)
    assert bits(action) == bits(ACTION)
    assert bits(record.seen) == bits([("predict", OBSERVATION)])


def test_row_predict_chunk_receives_one_observation_and_returns_a_chunk() -> None:
    record = Recorder(predict_chunk=CHUNK)
    actions = resolve(**record.members).plan(OBSERVATION, None, 5)
    assert bits(actions) == bits(list(CHUNK))
    assert bits(record.seen) == bits([("predict_chunk", OBSERVATION)])


def test_row_predict_batch_receives_one_fused_observation() -> None:
    record = Recorder(predict_batch=ACTION)
    plans = resolve(**record.members).predict_rows([OBSERVATION] * 3)
    assert bits(plans) == bits([[ACTION]] * 3)
    ((name, fused),) = record.seen
    assert (name, fused["s"].shape, fused["t"]) == ("predict_batch", (3, 3), ["go"] * 3)


def test_row_predict_chunk_batch_receives_one_fused_observation() -> None:
    record = Recorder(predict_chunk_batch=CHUNK)
    plans = resolve(**record.members).predict_rows([OBSERVATION] * 3, None, 5)
    assert bits(plans) == bits([list(CHUNK)] * 3)
    ((name, fused),) = record.seen
    assert (name, fused["s"].shape, fused["t"]) == ("predict_chunk_batch", (3, 3), ["go"] * 3)


@pytest.mark.parametrize("name", CORNERS)
def test_a_corner_that_is_not_overridden_raises(name: str) -> None:
    other = "predict" if name != "predict" else "predict_chunk"
    model = make(**{other: lambda self, o: ACTION})
    with pytest.raises(NotImplementedError, match=rf"Policy does not define {name}\(\)"):
        getattr(model, name)(OBSERVATION)


# Table "Derivation"


def test_de_batch_turns_predict_batch_into_predict() -> None:
    record = Recorder(predict_batch=ACTION)
    assert bits(resolve(**record.members).predict(OBSERVATION)) == bits(ACTION)
    ((_, fused),) = record.seen
    assert (fused["s"].shape, fused["t"]) == ((1, 3), ["go"])


def test_de_batch_turns_predict_chunk_batch_into_predict_chunk() -> None:
    record = Recorder(predict_chunk_batch=CHUNK)
    assert bits(resolve(**record.members).plan(OBSERVATION, None, 5)) == bits(list(CHUNK))
    assert record.seen[0][1]["s"].shape == (1, 3)


def test_de_chunk_turns_predict_chunk_into_predict() -> None:
    record = Recorder(predict_chunk=CHUNK)
    assert bits(resolve(**record.members).predict(OBSERVATION)) == bits(CHUNK[0])


def test_de_chunk_turns_predict_chunk_batch_into_predict_batch() -> None:
    record = Recorder(predict_chunk_batch=CHUNK)
    corners = resolve(**record.members)
    assert bits(corners.predict_rows([OBSERVATION] * 2)) == bits([[CHUNK[0]]] * 2)
    assert record.calls == ["predict_chunk_batch"]


def test_de_chunk_runs_the_chunk_corner_at_horizon_1() -> None:
    horizons: list[int] = []

    def predict_chunk(self: Any, observation: Any, execution_horizon: int = 7) -> Any:
        horizons.append(execution_horizon)
        return CHUNK[:execution_horizon]

    def predict_chunk_batch(self: Any, observation: Any, execution_horizon: int = 7) -> Any:
        horizons.append(execution_horizon)
        return np.stack([CHUNK[:execution_horizon]] * len(observation["t"]))

    resolve(predict_chunk=predict_chunk).predict(OBSERVATION)
    batched = resolve(predict_chunk_batch=predict_chunk_batch)
    batched.predict(OBSERVATION)
    batched.predict_rows([OBSERVATION] * 2)
    assert horizons == [1, 1, 1]


def test_predict_chunk_batch_alone_yields_all_four_corners() -> None:
    record = Recorder(predict_chunk_batch=CHUNK)
    corners = resolve(**record.members)
    assert corners.sources == dict.fromkeys(CORNERS, "predict_chunk_batch")
    assert bits(corners.predict(OBSERVATION)) == bits(CHUNK[0])
    assert bits(corners.plan(OBSERVATION, None, 2)) == bits(list(CHUNK[:2]))
    assert bits(corners.predict_rows([OBSERVATION] * 2)) == bits([[CHUNK[0]]] * 2)
    assert bits(corners.predict_rows([OBSERVATION] * 2, None, 2)) == bits([list(CHUNK[:2])] * 2)


def test_nothing_is_derived_upward() -> None:
    none = {"predict_chunk": None, "predict_batch": None, "predict_chunk_batch": None}
    assert sources(["predict"], fuses=True) == {"predict": "predict"} | none
    corners = resolve(predict=lambda self, o: ACTION)
    assert not corners.chunks
    assert corners.widest(8) == "predict"


def test_batching_up_is_left_to_a_loop_over_the_lanes() -> None:
    record = Recorder(predict=ACTION)
    plans = resolve(**record.members).predict_rows([OBSERVATION] * 3)
    assert record.calls == ["predict"] * 3
    assert bits(plans) == bits([[ACTION]] * 3)


def test_pinned_the_ambiguous_predict_is_derived_from_the_un_chunked_batch() -> None:
    record = Recorder(predict_batch=ACTION, predict_chunk=CHUNK)
    corners = resolve(**record.members)
    assert bits(corners.predict(OBSERVATION)) == bits(ACTION)
    assert record.calls == ["predict_batch"]
    assert corners.sources["predict"] == "predict_batch"


@pytest.mark.parametrize("name", ["predict_chunk", "predict_chunk_batch"])
def test_pinned_the_native_backend_cannot_de_chunk(name: str) -> None:
    loaded: list[int] = []
    members = {name: lambda self, o: [ACTION], "load": lambda self: loaded.append(1)}
    with pytest.raises(TypeError, match=r"could not derive predict\(\).*[Dd]efine predict"):
        make(Model, **members)
    assert loaded == []  # found before the weights are read
    assert make(NumpyModel, **members)


def test_pinned_a_native_chunk_model_with_predict_is_fine() -> None:
    members = {"predict": lambda s, o: 1, "predict_chunk": lambda s, o: [1, 2, 3]}
    corners = resolve(Model, **members)
    assert corners.predict(OBSERVATION) == 1
    assert corners.plan(OBSERVATION, None, 2) == [1, 2]


@pytest.mark.parametrize("defined", SUBSETS, ids="+".join)
def test_each_subset_derives_down_the_lattice(defined: tuple[str, ...]) -> None:
    found = sources(defined, fuses=True)
    assert all(found[name] == name for name in defined)
    chunked = {"predict_chunk", "predict_chunk_batch"} & set(defined)
    assert found["predict"] is not None
    assert (found["predict_chunk"] is not None) == bool(chunked)
    batched = {"predict_batch", "predict_chunk_batch"} & set(defined)
    assert (found["predict_batch"] is not None) == bool(batched)
    raw = sources(defined, fuses=False)
    assert (raw["predict"] is None) == (not {"predict", "predict_batch"} & set(defined))


# Byte consistency


def policy(keyed: bool, length: int) -> dict[str, Any]:
    """The four corners of one policy, elementwise so that batching changes no bit."""

    def chunk_of(row: dict[str, Any]) -> Any:
        scale = np.float32(len(row["t"]) + 1)
        frames = np.stack([row["s"] * scale / np.float32(7 + k) for k in range(length)])
        return {"arm": frames, "grip": frames[:, 0] > 0} if keyed else frames

    def split(observations: dict[str, Any], i: int) -> dict[str, Any]:
        return {key: leaf[i] for key, leaf in observations.items()}

    def first(chunk: Any) -> Any:
        return {key: leaf[0] for key, leaf in chunk.items()} if keyed else chunk[0]

    return corner_functions(chunk_of, split, first)


@given(
    defined=st.sampled_from(SUBSETS),
    keyed=st.booleans(),
    length=st.integers(1, 6),
    horizon=st.integers(1, 6),
    numbers=st.lists(
        st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=5
    ),
    texts=st.lists(st.text(max_size=3), min_size=5, max_size=5),
)
def test_derived_corners_equal_the_batched_path_to_the_last_bit(
    defined: tuple[str, ...],
    keyed: bool,
    length: int,
    horizon: int,
    numbers: list[list[float]],
    texts: list[str],
) -> None:
    members = policy(keyed, length)
    corners = resolve(**{name: members[name] for name in defined})
    horizon = min(horizon, length) if corners.chunks else 1
    rows = [
        {"s": np.array(row, np.float32), "t": text}
        for row, text in zip(numbers, texts, strict=False)
    ]
    reference = resolve(predict_chunk=members["predict_chunk"])
    expected = [bits(reference.plan(row, None, length)[:horizon]) for row in rows]
    assert [bits(plan) for plan in corners.predict_rows(rows, None, horizon)] == expected
    assert [bits(corners.plan(row, None, horizon)) for row in rows] == expected
    assert [bits([corners.predict(row)]) for row in rows] == [plan[:1] for plan in expected]


# Which corner runs


@pytest.mark.parametrize(
    ("defined", "rows", "horizon", "runs"),
    [
        ("predict", 1, 1, "predict"),
        ("predict", 4, 1, "predict"),
        ("predict predict_batch", 1, 1, "predict"),
        ("predict predict_batch", 4, 1, "predict_batch"),
        ("predict predict_chunk_batch", 4, 1, "predict_chunk_batch"),
        ("predict predict_chunk", 4, 3, "predict_chunk"),
        ("predict_chunk predict_chunk_batch", 1, 1, "predict_chunk"),
        ("predict_chunk predict_chunk_batch", 4, 3, "predict_chunk_batch"),
        ("predict_batch predict_chunk", 4, 3, "predict_chunk"),
        ("predict_batch", 1, 1, "predict_batch"),
    ],
)
def test_the_engine_prefers_the_batch_corner_and_falls_back_per_lane(
    defined: str, rows: int, horizon: int, runs: str
) -> None:
    record = Recorder(**{name: CHUNK if "chunk" in name else ACTION for name in defined.split()})
    corners = resolve(**record.members)
    assert corners.widest(rows, horizon) == runs
    corners.predict_rows([OBSERVATION] * rows, None, horizon)
    assert record.calls == [runs] * (1 if "batch" in runs else rows)


@pytest.mark.parametrize(
    ("defined", "horizon", "direct"),
    [
        ("predict_batch", 1, True),
        ("predict predict_batch", 1, False),
        ("predict_chunk_batch", 1, True),
        ("predict_chunk_batch", 3, True),
        ("predict_chunk predict_chunk_batch", 3, False),
        ("predict", 1, False),
    ],
)
def test_mod_18_whether_a_direct_predict_already_runs_the_batch_corner(
    defined: str, horizon: int, direct: bool
) -> None:
    record = Recorder(**{name: CHUNK if "chunk" in name else ACTION for name in defined.split()})
    assert resolve(**record.members).batches_directly(horizon) is direct


def test_corners_are_made_anew_for_each_run_and_follow_the_model() -> None:
    model = make(
        predict=lambda self, o: ACTION, predict_batch=lambda self, o: np.stack([ACTION] * 2)
    )
    assert model_corners(model).widest(2) == "predict_batch"
    model.allow_fusion = False
    assert model_corners(model).widest(2) == "predict"
