"""model_reference.txt, the four lifecycle seams; features.md MOD-10, MOD-11."""

from __future__ import annotations

from typing import Any

import pytest
from model_kinds import ACTION, NumpyModel, make

from rlmesh.models import model_corners
from rlmesh.models.model import Model


def predict(self: Any, observation: Any) -> Any:
    return ACTION


class Stateful(NumpyModel):
    def load(self) -> None:
        self.events: list[Any] = ["load"]

    def reset(self) -> None:
        self.events.append("reset")

    def close(self) -> None:
        self.events.append("close")

    def predict(self, observation: Any) -> Any:
        return ACTION


class Policy:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def predict(self, observation: Any) -> Any:
        return ACTION

    def reset(self, seed: int | None = None) -> None:
        self.events.append(("reset", seed))

    def close(self) -> None:
        self.events.append("close")


def test_row_defaults_every_seam_is_a_no_op() -> None:
    corners = model_corners(make(predict=predict))
    corners.end_episode("e")
    corners.close()


def test_row_load_reset_and_close_of_a_subclass() -> None:
    model = Stateful()
    corners = model_corners(model)
    corners.end_episode("e1")
    corners.end_episode("e2")
    corners.close()
    assert model.events == ["load", "reset", "reset", "close"]


def test_row_reset_of_a_subclass_is_a_supported_hook() -> None:
    """0.1.0 refuses the class; the seed page asks for it."""
    assert issubclass(type("Sub", (Model,), {"reset": lambda self: None}), Model)


def test_row_reset_and_close_of_a_wrapped_policy() -> None:
    policy = Policy()
    corners = model_corners(NumpyModel(policy))
    corners.end_episode("e1")
    corners.close()
    # The id is not a seed: 0.1.0 passes it as the first argument.
    assert policy.events == [("reset", None), "close"]


def test_row_constructor_callbacks_override_reset_and_close() -> None:
    seen: list[Any] = []
    for model in (
        Stateful(on_episode_end=seen.append, on_close=lambda: seen.append("closed")),
        NumpyModel(
            policy := Policy(), on_episode_end=seen.append, on_close=lambda: seen.append("closed")
        ),
        NumpyModel(
            lambda o: ACTION, on_episode_end=seen.append, on_close=lambda: seen.append("closed")
        ),
    ):
        corners = model_corners(model)
        corners.end_episode("e")
        corners.close()
        assert getattr(model, "events", ["load"]) == ["load"]
    assert policy.events == []
    assert seen == ["e", "closed"] * 3


def test_mod_10_the_id_is_passed_when_the_callable_accepts_an_argument() -> None:
    seen: list[Any] = []
    hooks: list[Any] = [
        lambda: seen.append(None),
        lambda episode_id: seen.append(episode_id),
        lambda episode_id="": seen.append(episode_id),
        lambda *ids: seen.append(ids),
    ]
    for hook in hooks:
        model_corners(NumpyModel(lambda o: ACTION, on_episode_end=hook)).end_episode("e")
    assert seen == [None, "e", "e", ("e",)]


def test_mod_10_a_method_on_episode_end_replaces_reset() -> None:
    seen: list[Any] = []

    class Keyed(NumpyModel):
        def on_episode_end(self, episode_id: str = "") -> None:
            seen.append(episode_id)

        def reset(self) -> None:
            seen.append("reset")

        def predict(self, observation: Any) -> Any:
            return ACTION

    model_corners(Keyed()).end_episode("e")
    assert seen == ["e"]
    model_corners(make(Keyed, on_episode_end=lambda self: seen.append("bare"))).end_episode("e")
    assert seen == ["e", "bare"]


def test_the_inherited_on_episode_end_calls_reset() -> None:
    model = Stateful()
    model.on_episode_end("e")
    assert model.events == ["load", "reset"]


def test_a_reset_that_takes_the_id_by_name_gets_it() -> None:
    seen: list[Any] = []
    model = make(predict=predict, reset=lambda self, *, episode_id: seen.append(episode_id))
    model_corners(model).end_episode("e")
    assert seen == ["e"]


def test_a_reset_that_requires_something_else_is_found_at_construction() -> None:
    with pytest.raises(TypeError, match=r"reset\(\) runs at the end .* requires 'task'"):
        make(predict=predict, reset=lambda self, task: None)
    # Nothing calls it where a callback takes its place.
    kind = type("Sub", (NumpyModel,), {"predict": predict, "reset": lambda self, task: None})
    assert kind(on_episode_end=lambda: None)


def test_a_subclass_reset_wins_over_the_wrapped_policys() -> None:
    policy = Policy()
    seen: list[str] = []
    kind = type("Sub", (NumpyModel,), {"reset": lambda self: seen.append("own")})
    corners = model_corners(kind(policy))
    corners.end_episode("e")
    corners.close()
    assert (seen, policy.events) == (["own"], ["close"])


def test_an_exception_in_a_seam_keeps_its_type() -> None:
    def fail(self: Any) -> None:
        raise KeyError("state")

    corners = model_corners(make(predict=predict, reset=fail, close=fail))
    with pytest.raises(KeyError):
        corners.end_episode("e")
    with pytest.raises(KeyError):
        corners.close()
