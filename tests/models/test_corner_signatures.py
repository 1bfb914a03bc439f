"""How corners take the execution horizon and the context: model_reference.txt, MOD-5, CTX-3."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from model_kinds import ACTION, CHUNK, make, resolve

from rlmesh.models import as_model, model_corners
from rlmesh.models.signatures import read_signature

CONTEXT: Any = {"episode_id": "e"}


class Calls(list[Any]):
    """Corners of many signatures, each noting the arguments behind the observation."""

    def chunk(self, *extra: Any, **named: Any) -> Any:
        self.append((*extra, *(f"{key}={value}" for key, value in named.items())))
        return CHUNK

    def corners(self) -> dict[str, Any]:
        note = self.chunk

        def second(s: Any, obs: Any, steps: Any) -> Any:
            return note(steps)

        def second_default(s: Any, obs: Any, execution_horizon: Any = 1) -> Any:
            return note(execution_horizon)

        def keyword(s: Any, obs: Any, *, execution_horizon: Any) -> Any:
            return note(h=execution_horizon)

        def both(s: Any, obs: Any, steps: Any, context: Any) -> Any:
            return note(steps, context["episode_id"])

        def context(s: Any, obs: Any, context: Any = None) -> Any:
            return note(context["episode_id"])

        def swapped(s: Any, obs: Any, context: Any, execution_horizon: Any) -> Any:
            return note(context["episode_id"], execution_horizon)

        def keywords(s: Any, obs: Any, *, context: Any, execution_horizon: Any) -> Any:
            return note(c=context["episode_id"], h=execution_horizon)

        def star(s: Any, obs: Any, *rest: Any) -> Any:
            return note(rest[0], rest[1]["episode_id"])

        def own_default(s: Any, obs: Any, noise: Any = 0.1, execution_horizon: Any = 1) -> Any:
            return note(noise, execution_horizon)

        return {name: function for name, function in locals().items() if callable(function)}


@pytest.mark.parametrize(
    ("form", "received"),
    [
        ("second", (3,)),
        ("second_default", (3,)),
        ("keyword", ("h=3",)),
        ("both", (3, "e")),
        ("context", ("e",)),
        ("swapped", ("e", 3)),
        ("keywords", ("c=e", "h=3")),
        ("star", (3, "e")),
        ("own_default", (0.1, 3)),
    ],
)
def test_chunk_corners_take_the_horizon_by_arity_and_the_context_by_name(
    form: str, received: tuple[Any, ...]
) -> None:
    calls = Calls()
    corners = resolve(predict_chunk=calls.corners()[form])
    corners.plan(ACTION, CONTEXT, 3)
    assert calls == [received]
    assert corners.takes_context == ("e" in received or "c=e" in received)


def test_a_single_parameter_is_called_with_the_observation_alone() -> None:
    for name in ("predict", "predict_chunk", "predict_batch", "predict_chunk_batch"):
        signature = read_signature(name, lambda obs: obs, chunked="chunk" in name)
        assert signature.plain
    assert not resolve(predict=lambda self, o: ACTION).takes_context


@pytest.mark.parametrize("name", ["predict", "predict_batch"])
def test_every_corner_may_take_a_trailing_context(name: str) -> None:
    seen: list[Any] = []

    def by_place(self: Any, observation: Any, context: Any) -> Any:
        seen.append(context)
        return [ACTION] if name == "predict_batch" else ACTION

    def by_keyword(self: Any, observation: Any, *, context: Any = None) -> Any:
        return by_place(self, observation, context)

    def by_star(self: Any, observation: Any, *rest: Any) -> Any:
        return by_place(self, observation, *rest)

    def behind_its_own(self: Any, observation: Any, state: Any = None, context: Any = None) -> Any:
        assert state is None
        return by_place(self, observation, context)

    forms = (by_place, by_keyword, by_star, behind_its_own)
    for form in forms:
        resolve(**{name: form}).predict(ACTION, CONTEXT)
    assert seen == [[CONTEXT] if name == "predict_batch" else CONTEXT] * len(forms)


def test_batch_chunk_corners_get_the_horizon_and_a_list_of_contexts() -> None:
    seen: list[Any] = []

    def predict_chunk_batch(self: Any, obs: Any, execution_horizon: int, context: Any) -> Any:
        seen.append((execution_horizon, context))
        return np.stack([CHUNK] * len(obs))

    corners = resolve(predict_chunk_batch=predict_chunk_batch)
    corners.predict_rows([ACTION] * 2, [CONTEXT, CONTEXT], 4)
    corners.plan(ACTION, CONTEXT, 4)
    corners.predict(ACTION, CONTEXT)
    assert seen == [(4, [CONTEXT] * 2), (4, [CONTEXT]), (1, [CONTEXT])]


def test_a_second_parameter_of_an_un_chunked_corner_is_its_own() -> None:
    def predict(self: Any, observation: Any, deterministic: bool = True) -> Any:
        assert deterministic is True
        return ACTION

    resolve(predict=predict).predict(ACTION)


def test_a_wrapper_that_hands_everything_on_gets_the_observation_alone() -> None:
    """A decorator without functools.wraps, and torch.nn.Module.__call__, look like this."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        assert (len(args), kwargs) == (1, {})
        return ACTION

    model_corners(as_model(wrapper)).predict(ACTION, CONTEXT)


def test_a_wrapper_that_says_what_it_wraps_is_looked_through() -> None:
    seen: list[Any] = []

    def timed(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @timed
    def predict_chunk(self: Any, observation: Any, execution_horizon: int = 1) -> Any:
        seen.append(execution_horizon)
        return CHUNK

    resolve(predict_chunk=predict_chunk).plan(ACTION, None, 3)
    assert seen == [3]


def test_partials_callable_objects_and_builtins_can_be_read() -> None:
    class Callable_:
        def __call__(self, observation: Any, context: Any) -> Any:
            return context

    def goal(scale: float, observation: Any) -> Any:
        return observation * scale

    assert model_corners(as_model(Callable_())).predict(ACTION, 3) == 3
    assert model_corners(as_model(functools.partial(goal, 2.0))).predict(ACTION).tolist() == [0, 0]
    assert model_corners(as_model(max)).predict(np.array([1, 5])) == 5


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda self: ACTION, "must take an observation"),
        (lambda self, *, context: ACTION, "must take an observation"),
        (lambda self, observation, goal: ACTION, "requires 'goal', which nobody passes"),
        (lambda self, observation, *, goal: ACTION, "requires 'goal'"),
        (lambda self, observation, context, goal: ACTION, "requires 'goal'"),
    ],
)
def test_a_parameter_that_nobody_fills_is_found_at_construction(function: Any, text: str) -> None:
    loaded: list[int] = []
    with pytest.raises(TypeError, match=rf"predict\(\).*{text}"):
        make(predict=function, load=lambda self: loaded.append(1))
    assert loaded == []


def test_a_signature_is_read_at_construction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(predict_chunk=lambda self, o, h: CHUNK)
    monkeypatch.setattr("inspect.signature", None)
    signatures = model._signatures  # the private attribute, as nothing public shows it
    assert signatures["predict_chunk"].horizon == "positional"
