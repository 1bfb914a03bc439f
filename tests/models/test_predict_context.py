"""PredictContext, predict_seed and per-episode state: features.md CTX-1 to CTX-5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_kinds import ACTION, resolve

from rlmesh.models import EpisodeContexts, predict_seed
from rlmesh.models.context import EPISODE_CAPACITY

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("seed", "index", "value"),
    [
        # What 0.1.0 computes. features.md gives another value for (-1, 0), which it does not.
        (0, 0, 3060724065),
        (1, 0, 1884569518),
        (-1, 0, 3873212537),
        (2**63 - 1, 0, 4093090297),
        (-(2**63), 3, 3024300546),
        (5, 0, 4240517498),
        (5, 1, 129004443),
        (5, 2, 3873609016),
    ],
)
def test_ctx_5_predict_seed_has_the_exact_values(seed: int, index: int, value: int) -> None:
    assert predict_seed(seed, index) == value


@given(seed=INT64, index=st.integers(0, 2**64 - 1))
def test_ctx_5_predict_seed_is_the_low_half_of_fnv_1a(seed: int, index: int) -> None:
    value = 14695981039346656037
    for byte in [*(seed % 2**64).to_bytes(8, "little"), 0xFE, *index.to_bytes(8, "little")]:
        value = (value ^ byte) * 1099511628211 % 2**64
    assert predict_seed(seed, index) == value % 2**32


@pytest.mark.parametrize(("seed", "index"), [(2**63, 0), (-(2**63) - 1, 0), (0, -1), (0, 2**64)])
def test_ctx_5_what_does_not_fit_overflows(seed: int, index: int) -> None:
    with pytest.raises(OverflowError, match="predict_seed: expected an int64 seed"):
        predict_seed(seed, index)


def test_ctx_5_arguments_are_integers_of_any_library() -> None:
    assert predict_seed(np.int64(5), np.uint8(1)) == 129004443  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        predict_seed(1.5, 0)  # type: ignore[arg-type]


def test_ctx_2_a_context_has_five_keys() -> None:
    contexts = EpisodeContexts()
    assert contexts.next("e", 5) == {
        "episode_id": "e",
        "episode_seed": 5,
        "predict_index": 0,
        "predict_seed": 4240517498,
        "state": {},
    }
    assert contexts.next("u", None)["predict_seed"] is None


def test_ctx_2_the_index_counts_the_predicts_of_an_episode() -> None:
    contexts = EpisodeContexts()
    seen = [contexts.next("a", 5), contexts.next("b", 5), contexts.next("a", 5)]
    assert [c["predict_index"] for c in seen] == [0, 0, 1]
    assert seen[2]["predict_seed"] == 129004443


def test_ctx_2_state_lives_as_long_as_the_episode_and_is_its_own() -> None:
    contexts = EpisodeContexts()
    contexts.next("a", 1)["state"]["hidden"] = 7
    assert contexts.next("b", 1)["state"] == {}
    assert contexts.next("a", 1)["state"] == {"hidden": 7}
    contexts.end("a")
    again = contexts.next("a", 1)
    assert (again["state"], again["predict_index"]) == ({}, 0)


def test_what_a_policy_does_to_its_context_does_not_reach_the_next() -> None:
    contexts = EpisodeContexts()
    first: Any = contexts.next("a", 1)
    first["predict_index"] = 40
    del first["state"]
    assert contexts.next("a", 1)["predict_index"] == 1


def test_ctx_2_an_anonymous_lane_shares_nothing() -> None:
    contexts = EpisodeContexts(capacity=1)
    contexts.next("", 5)["state"]["x"] = 1
    second = contexts.next("", 5)
    assert (second["state"], second["predict_index"]) == ({}, 0)
    assert len(contexts) == 0


def test_ctx_4_an_entry_is_made_at_the_first_predict_and_dropped_at_the_end() -> None:
    contexts = EpisodeContexts()
    assert len(contexts) == 0
    contexts.next("a", 1)
    contexts.next("a", 1)
    contexts.next("b", 1)
    assert len(contexts) == 2
    contexts.end("a")
    contexts.end("never predicted")
    assert len(contexts) == 1
    contexts.clear()
    assert len(contexts) == 0


def test_ctx_4_a_full_registry_refuses_a_new_episode_and_evicts_none() -> None:
    contexts = EpisodeContexts(capacity=2)
    for episode in ("a", "b"):
        contexts.next(episode, 1)["state"]["kept"] = episode
    with pytest.raises(RuntimeError, match=r"2 episodes .* episode c .*RLMESH_EPISODE_CAPACITY"):
        contexts.next("c", 1)
    assert contexts.next("a", 1)["state"] == {"kept": "a"}
    contexts.end("b")
    assert contexts.next("c", 1)["predict_index"] == 0


def test_ctx_4_the_capacity_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EPISODE_CAPACITY == 65_536
    monkeypatch.setenv("RLMESH_EPISODE_CAPACITY", "1")
    contexts = EpisodeContexts()
    contexts.next("a", 1)
    with pytest.raises(RuntimeError):
        contexts.next("b", 1)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_ctx_4_an_impossible_capacity_names_the_variable(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLMESH_EPISODE_CAPACITY", text)
    with pytest.raises(ValueError, match="RLMESH_EPISODE_CAPACITY: expected a positive integer"):
        EpisodeContexts()
    with pytest.raises(ValueError, match="episode capacity"):
        EpisodeContexts(capacity=0)


def test_a_policy_sees_its_context_and_keeps_state_in_it() -> None:
    def predict(self: Any, observation: Any, context: Any) -> Any:
        context["state"]["steps"] = context["state"].get("steps", 0) + 1
        return context["state"]["steps"]

    corners, contexts = resolve(predict=predict), EpisodeContexts()
    assert corners.takes_context
    steps = [
        corners.predict(ACTION, contexts.next(episode, None)) for episode in ("a", "b", "a", "a")
    ]
    assert steps == [1, 1, 2, 3]
