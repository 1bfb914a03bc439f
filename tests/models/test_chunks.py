"""model_reference.txt, "Replay semantics", "The execution horizon"; features.md CHK-1 to CHK-5."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_kinds import ACTION, CHUNK, bits, make, resolve

from rlmesh.models import ChunkQueue, check_horizon, split_chunk
from rlmesh.models.chunks import chunk_length

# CHK-1, and the impossible values of the issue


@pytest.mark.parametrize("value", [True, 2.5, "4", None, np.float32(2), np.bool_(True)])
def test_a_horizon_that_is_no_integer_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="execution_horizon must be an int"):
        check_horizon(value)


def test_chk_1_a_horizon_lies_in_1_to_1024() -> None:
    assert [check_horizon(h) for h in (1, 1024, np.int64(3))] == [1, 1024, 3]
    with pytest.raises(ValueError, match="execution_horizon must be >= 1, got 0"):
        check_horizon(0)
    with pytest.raises(ValueError, match="execution_horizon must be <= 1024, got 1025"):
        check_horizon(1025)


def test_chk_2_a_horizon_without_a_chunk_corner_warns_and_runs_un_chunked() -> None:
    corners = resolve(predict=lambda self, o: ACTION)
    with pytest.warns(UserWarning, match=r"execution_horizon=8 .* no predict_chunk\(\)"):
        assert corners.check_horizon(8) == 1
    assert corners.check_horizon(1) == 1  # always safe, and silent


@pytest.mark.parametrize("name", ["predict_chunk", "predict_chunk_batch"])
def test_a_chunk_corner_runs_at_the_horizon_requested(name: str) -> None:
    assert resolve(**{name: lambda self, o: CHUNK}).check_horizon(8) == 8


# CHK-3: splitting


@pytest.mark.parametrize(
    ("chunk", "actions"),
    [
        (
            np.arange(6.0).reshape(3, 2),
            [np.array([0.0, 1]), np.array([2.0, 3]), np.array([4.0, 5])],
        ),
        (np.array([4, 5]), [np.int64(4), np.int64(5)]),
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 2}]),
        ((ACTION, ACTION), [ACTION, ACTION]),
        (
            {"a": np.arange(2), "b": {"c": np.arange(4.0).reshape(2, 2)}, "w": ["x", "y"]},
            [
                {"a": np.int64(0), "b": {"c": np.array([0.0, 1.0])}, "w": "x"},
                {"a": np.int64(1), "b": {"c": np.array([2.0, 3.0])}, "w": "y"},
            ],
        ),
    ],
)
def test_row_an_axis_or_a_list_counts_actions(chunk: Any, actions: list[Any]) -> None:
    assert bits(split_chunk(chunk)) == bits(actions)
    assert chunk_length(chunk) == len(actions)
    assert bits(split_chunk(chunk, 1)) == bits(actions[:1])


@pytest.mark.parametrize(
    "single", ["forward", b"\x01", 3, 1.5, np.float32(2), np.array(7), {"a": 1, "b": "go"}, {}]
)
def test_row_text_bytes_mapping_and_scalar_are_a_single_step(single: Any) -> None:
    assert bits(split_chunk(single)) == bits([single])
    assert chunk_length(single) == 1


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        ({"arm": np.zeros((3, 2)), "grip": np.zeros(4)}, "'arm' has 3 frames, 'grip' has 4 frames"),
        ({"arm": np.zeros((3, 2)), "mode": 1}, "'arm' has 3 frames, 'mode' has no chunk axis"),
        ({"x": {"a": [1], "b": [1, 2]}}, "'a' has 1 frames, 'b' has 2 frames"),
    ],
)
def test_chk_3_a_ragged_dict_chunk_is_refused_by_name(chunk: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"action chunk leaves disagree on length: {text}"):
        split_chunk(chunk)
    corners = resolve(predict_chunk=lambda self, o: chunk)
    for horizon in (1, 2):
        with pytest.raises(ValueError, match=rf"predict_chunk\(\): .*disagree.*{text}"):
            corners.plan(ACTION, None, horizon)


@pytest.mark.parametrize("empty", [np.zeros((0, 2)), [], (), {"a": np.zeros((0, 2)), "b": []}])
@pytest.mark.parametrize("horizon", [1, 2])
def test_chk_3_an_empty_chunk_is_refused(empty: Any, horizon: int) -> None:
    corners = resolve(predict_chunk=lambda self, o: empty)
    with pytest.raises(ValueError, match=r"predict_chunk\(\): returned an empty chunk"):
        corners.plan(ACTION, None, horizon)


def test_a_none_among_the_actions_is_refused() -> None:
    corners = resolve(predict_chunk=lambda self, o: [ACTION, None])
    with pytest.raises(ValueError, match=r"predict_chunk\(\): .*None for an action"):
        corners.plan(ACTION, None, 2)


def test_actions_outlive_the_buffer_their_model_reuses() -> None:
    buffer = {"a": np.zeros((3, 2)), "l": [np.zeros(1), np.zeros(1), np.zeros(1)]}
    corners = resolve(predict_chunk=lambda self, o: buffer)
    actions = corners.plan(ACTION, None, 3)
    buffer["a"][...] = 9
    buffer["l"][1][...] = 9
    assert all(not action["a"].any() and not action["l"].any() for action in actions)


# "The execution horizon"


def test_form_predict_chunk_obs_the_horizon_is_swallowed_and_a_prefix_runs() -> None:
    corners = resolve(predict_chunk=lambda self, obs: CHUNK)
    assert bits(corners.plan(ACTION, None, 2)) == bits(list(CHUNK[:2]))


def test_form_predict_chunk_obs_execution_horizon_gets_the_horizon() -> None:
    seen: list[int] = []

    def predict_chunk(self: Any, observation: Any, execution_horizon: int = 1) -> Any:
        seen.append(execution_horizon)
        return CHUNK[:execution_horizon]

    corners = resolve(predict_chunk=predict_chunk)
    assert len(corners.plan(ACTION, None, 4)) == 4
    assert seen == [4]


def test_a_horizon_above_1_caps_a_longer_chunk() -> None:
    corners = resolve(predict_chunk_batch=lambda self, o: np.stack([CHUNK] * len(o)))
    assert [len(plan) for plan in corners.predict_rows([ACTION] * 2, None, 3)] == [3, 3]


# CHK-4


def test_chk_4_a_short_chunk_warns_once_and_replays_what_there_is() -> None:
    corners = resolve(predict_chunk=lambda self, o: CHUNK[:2])
    with pytest.warns(RuntimeWarning, match="returned 2 actions for execution_horizon=8"):
        assert len(corners.plan(ACTION, None, 8)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(corners.plan(ACTION, None, 8)) == 2


# MOD-14: native_chunk


def test_mod_14_a_declared_chunk_length_is_exact() -> None:
    corners = resolve(predict_chunk=lambda self, o: CHUNK[:3], native_chunk=4)
    text = "model declares native_chunk=4 but its chunk corner returned 3 frames at "
    for horizon in (1, 2):
        with pytest.raises(ValueError, match=f"{text}execution_horizon={horizon}"):
            corners.plan(ACTION, None, horizon)
    whole = resolve(predict_chunk=lambda self, o: CHUNK, native_chunk=5)
    assert len(whole.plan(ACTION, None, 2)) == 2


def test_mod_14_a_horizon_beyond_the_declared_length_is_refused() -> None:
    corners = resolve(predict_chunk=lambda self, o: CHUNK, native_chunk=4)
    assert corners.check_horizon(4) == 4
    with pytest.raises(ValueError, match=r"execution_horizon=5 exceeds .* native_chunk=4"):
        corners.check_horizon(5)


@pytest.mark.parametrize(
    ("native", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("4", TypeError)]
)
def test_mod_14_native_chunk_is_a_positive_integer(native: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="native_chunk must be"):
        make(predict_chunk=lambda self, o: CHUNK, native_chunk=native)


def test_mod_14_native_chunk_without_a_chunk_corner_is_refused() -> None:
    with pytest.raises(TypeError, match=r"native_chunk=4 .* no predict_chunk\(\)"):
        make(predict=lambda self, o: ACTION, native_chunk=4)


# The queue


def test_replay_one_action_a_step_until_the_queue_drains() -> None:
    queue = ChunkQueue()
    assert queue.start(list("abc")) == "a"
    assert (len(queue), queue.take(), queue.take(), bool(queue)) == (2, "b", "c", False)
    with pytest.raises(IndexError):
        queue.take()


def test_a_horizon_of_1_is_a_passthrough_that_never_queues() -> None:
    queue = ChunkQueue()
    assert queue.start(["a"]) == "a"
    assert not queue


def test_chk_5_the_episode_boundary_drops_what_was_not_replayed() -> None:
    queue = ChunkQueue()
    queue.start(list("abc"))
    queue.clear()
    assert not queue
    queue.start(list("abc"))
    assert queue.start(list("xy")) == "x"  # a fresh plan replaces what waits
    assert [queue.take() for _ in range(len(queue))] == ["y"]


def test_a_plan_made_ahead_runs_after_what_waits() -> None:
    queue = ChunkQueue()
    queue.start(list("ab"))
    queue.extend(list("xy"))
    assert [queue.take() for _ in range(len(queue))] == list("bxy")


@given(
    length=st.integers(1, 9),
    horizon=st.integers(1, 9),
    episodes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_replay_executes_the_prefix_of_each_chunk_and_never_bleeds(
    length: int, horizon: int, episodes: list[int]
) -> None:
    """The loop a lane runs: actions are (episode, plan, frame), so any bleed would show."""
    planned = [0, 0]

    def predict_chunk(self: Any, observation: Any) -> Any:
        planned[1] += 1
        return [(planned[0], planned[1], frame) for frame in range(length)]

    corners, queue = resolve(predict_chunk=predict_chunk, predict=lambda s, o: 0), ChunkQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for episode, steps in enumerate(episodes):
            planned[:] = [episode, 0]
            done = [
                queue.take() if queue else queue.start(corners.plan(ACTION, None, horizon))
                for _ in range(steps)
            ]
            queue.clear()
            run = min(length, horizon)
            if horizon == 1:
                assert done == [0] * steps
            else:
                assert done == [(episode, 1 + step // run, step % run) for step in range(steps)]
