"""model_reference.txt, "Batched observation fusion"; features.md BCK-6, BCK-8, MOD-8, MOD-13."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_kinds import ACTION, CHUNK, NumpyModel, bits, make, resolve

from rlmesh.models.model import Model
from rlmesh.values import Tensor

ROWS = [{"s": np.full(3, i, np.float32), "t": f"t{i}"} for i in range(3)]


def batch(returned: Any) -> dict[str, Any]:
    return {"predict_batch": lambda self, o: returned}


def test_row_return_shape_the_batch_axis_is_split_back_per_lane() -> None:
    actions = np.arange(6.0).reshape(3, 2)
    assert bits(resolve(**batch(actions)).predict_rows(ROWS)) == bits([[row] for row in actions])


def test_row_return_shape_of_a_chunk_corner_keeps_the_chunk_axis() -> None:
    chunks = np.arange(24.0).reshape(3, 4, 2)
    corners = resolve(predict_chunk_batch=lambda self, o: chunks)
    assert bits(corners.predict_rows(ROWS, None, 3)) == bits([list(c[:3]) for c in chunks])


def test_mod_8_a_list_of_n_is_a_batch_too() -> None:
    actions = [{"a": ACTION, "m": "go"}] * 3
    assert bits(resolve(**batch(actions)).predict_rows(ROWS)) == bits([[a] for a in actions])


def test_dict_actions_are_split_per_key() -> None:
    returned = {"arm": np.arange(6.0).reshape(3, 2), "word": ["a", "b", "c"]}
    plans = resolve(**batch(returned)).predict_rows(ROWS)
    assert bits(plans[1]) == bits([{"arm": returned["arm"][1], "word": "b"}])


def test_row_text_leaves_stay_per_lane_lists() -> None:
    seen: list[Any] = []
    resolve(predict_batch=lambda self, o: seen.append(o) or [ACTION] * 3).predict_rows(ROWS)
    assert seen[0]["t"] == ["t0", "t1", "t2"]
    assert seen[0]["s"].shape == (3, 3)


def test_row_ragged_leaves_error_names_leaf_shapes_and_lanes() -> None:
    rows = [{"s": np.zeros(3)}, {"s": np.zeros(3)}, {"s": np.zeros(4)}]
    with pytest.raises(
        ValueError, match=r"observation\['s'\]: lane 5 has float64\[3\], lane 9 has float64\[4\]"
    ):
        resolve(**batch(None)).predict_rows(rows, lanes=["lane 5", "lane 7", "lane 9"])


def test_bck_6_a_none_leaf_cannot_be_fused() -> None:
    with pytest.raises(ValueError, match="cannot fuse a None observation leaf"):
        resolve(**batch(None)).predict_rows([{"s": None}] * 2)


@pytest.mark.parametrize(
    "returned", [np.zeros((2, 2)), [ACTION] * 4, {"a": np.zeros((3, 1)), "b": np.zeros(2)}, 1.0]
)
def test_bck_6_a_wrong_count_says_which_corner_what_it_got_and_returned(returned: Any) -> None:
    with pytest.raises(ValueError, match=r"predict_batch\(\): .*leading batch axis of 3") as caught:
        resolve(**batch(returned)).predict_rows(ROWS)
    text = str(caught.value)
    assert "{s: float32[3, 3], t: [str, str, str]}" in text
    assert "and returned" in text


def test_a_wrong_count_is_refused_in_a_batch_of_one_too() -> None:
    with pytest.raises(ValueError, match="leading batch axis of 1"):
        resolve(**batch(np.zeros((2, 2)))).predict(ROWS[0])


@pytest.mark.parametrize("rows", [1, 3])
def test_none_for_a_batch_or_for_a_row_is_refused(rows: int) -> None:
    with pytest.raises(ValueError, match=r"predict_batch\(\) returned None.*t: \[str"):
        resolve(**batch(None)).predict_rows(ROWS[:rows])
    with pytest.raises(ValueError, match=r"predict_batch\(\): returned None for a row"):
        resolve(**batch([None] * rows)).predict_rows(ROWS[:rows])


@pytest.mark.parametrize("name", ["predict", "predict_chunk", "predict_batch"])
def test_none_for_an_action_says_which_corner_and_what_it_was_given(name: str) -> None:
    corners = resolve(**{name: lambda self, o: None})
    with pytest.raises(ValueError, match=rf"{name}\(\) returned None: .*s: float32\["):
        corners.predict(ROWS[0])


def test_an_exception_keeps_its_type_and_gains_the_input() -> None:
    def fail(self: Any, observation: Any) -> Any:
        raise KeyError("weights")

    for name in ("predict", "predict_chunk"):
        with pytest.raises(KeyError) as caught:
            resolve(**{name: fail}).predict(ROWS[0])
        assert caught.value.__notes__ == [f"{name}() was given {{s: float32[3], t: str}}"]
    with pytest.raises(KeyError) as caught:
        resolve(predict_batch=fail).predict_rows(ROWS)
    assert caught.value.__notes__ == [
        "predict_batch() was given {s: float32[3, 3], t: [str, str, str]}"
    ]


def test_an_exception_in_a_loop_over_lanes_says_which() -> None:
    def fail(self: Any, observation: Any) -> Any:
        if observation["t"] == "t1":
            raise ZeroDivisionError
        return ACTION

    with pytest.raises(ZeroDivisionError) as caught:
        resolve(predict=fail).predict_rows(ROWS, lanes=["a", "lane 4, seed 9", "c"])
    assert caught.value.__notes__[-1] == "while predicting for lane 4, seed 9"


def test_a_bad_chunk_in_a_batch_says_whose() -> None:
    chunks = [CHUNK, np.zeros((0, 2)), CHUNK]
    with pytest.raises(ValueError, match=r"predict_chunk_batch\(\): returned an empty chunk") as e:
        resolve(predict_chunk_batch=lambda self, o: chunks).predict_rows(ROWS, None, 2)
    assert e.value.__notes__ == ["while predicting for lane 1"]


# Note: the native model


def test_note_native_batch_corners_receive_the_per_lane_list_and_return_one() -> None:
    seen: list[Any] = []
    corners = resolve(Model, predict_batch=lambda self, o: seen.append(o) or [1, 2, 3])
    assert corners.predict_rows(ROWS) == [[1], [2], [3]]
    assert [row["t"] for row in seen[0]] == ["t0", "t1", "t2"]
    assert all(isinstance(row["s"], Tensor) for row in seen[0])


def test_note_native_a_batch_of_one_is_a_list_of_one() -> None:
    corners = resolve(Model, predict_batch=lambda self, o: [len(o)] * len(o))
    assert corners.predict(ROWS[0]) == 1
    with pytest.raises(ValueError, match="leading batch axis of 1"):
        resolve(Model, predict_batch=lambda self, o: [1, 2]).predict(ROWS[0])


def test_bck_8_native_predict_gets_raw_values_and_its_tensors_leave_as_arrays() -> None:
    corners = resolve(Model, predict=lambda self, o: {"a": o["s"]})
    action = corners.predict(ROWS[1])
    assert bits(action) == bits({"a": ROWS[1]["s"]})
    assert type(action["a"]) is np.ndarray


def test_native_lanes_with_their_own_spaces_need_not_align() -> None:
    rows = [{"s": np.zeros(3)}, {"s": np.zeros(4)}]
    assert resolve(Model, predict_batch=lambda self, o: [1, 2]).predict_rows(rows) == [[1], [2]]


# allow_fusion


def sized(seen: list[int]) -> dict[str, Any]:
    def predict_batch(self: Any, observations: Any) -> Any:
        seen.append(len(observations["t"]))
        return observations["s"] * 2

    return {"predict_batch": predict_batch}


def test_mod_13_rows_of_all_envs_share_a_forward() -> None:
    seen: list[int] = []
    resolve(**sized(seen)).predict_rows(ROWS, groups=["a", "b", "a"])
    assert seen == [3]


def test_mod_13_without_fusion_each_env_has_its_own_forward() -> None:
    seen: list[int] = []
    corners = resolve(**sized(seen), allow_fusion=False)
    plans = corners.predict_rows(ROWS, groups=["a", "b", "a"], lanes=[0, 1, 2])
    assert seen == [2, 1]
    assert bits(plans) == bits([[row["s"] * 2] for row in ROWS])


def test_mod_13_without_fusion_or_groups_rows_go_one_by_one() -> None:
    seen: list[int] = []
    corners = resolve(**sized(seen), allow_fusion=False)
    assert bits(corners.predict_rows(ROWS)) == bits([[row["s"] * 2] for row in ROWS])
    assert seen == [1, 1, 1]


def test_contexts_follow_their_rows() -> None:
    seen: list[Any] = []

    def predict_batch(self: Any, observations: Any, context: Any) -> Any:
        seen.append((observations["t"], context))
        return observations["s"]

    corners = resolve(predict_batch=predict_batch, allow_fusion=False)
    contexts: list[Any] = [{"episode_id": row["t"]} for row in ROWS]
    corners.predict_rows(ROWS, contexts, groups=["a", "b", "a"])
    corners.predict(ROWS[0], contexts[0])
    assert seen == [
        (["t0", "t2"], [contexts[0], contexts[2]]),
        (["t1"], [contexts[1]]),
        (["t0"], [contexts[0]]),
    ]


def test_a_model_may_return_another_librarys_arrays() -> None:
    tensor = Tensor(np.arange(6.0), [3, 2], "float64")
    assert bits(resolve(**batch(tensor)).predict_rows(ROWS)[2]) == bits([np.array([4.0, 5.0])])
    assert make(NumpyModel, **batch(tensor))
