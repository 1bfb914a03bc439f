from __future__ import annotations

import os
import string
import subprocess
import sys
import types
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym
from hypothesis import given
from hypothesis import strategies as st
from space_strategies import gym_spaces, spaces

from rlmesh.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Text,
    Tuple,
    from_gymnasium_space,
    space_from_spec,
    to_gymnasium_space,
)

# Gymnasium's Discrete takes a dtype since 1.2.
DISCRETE_HAS_DTYPE = "dtype" in gym.Discrete.__init__.__code__.co_varnames


def identical(a: Any, b: Any) -> bool:
    """Exact equality: Gymnasium's own compares bounds with a tolerance."""
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if isinstance(a, gym.Box):
        return (
            np.array_equal(a.low, b.low)
            and np.array_equal(a.high, b.high)
            and (a.dtype.kind != "f" or np.array_equal(a.bounded_below, b.bounded_below))
            and (a.dtype.kind != "f" or np.array_equal(a.bounded_above, b.bounded_above))
        )
    if isinstance(a, gym.Dict):
        return list(a.spaces) == list(b.spaces) and all(
            identical(a[key], b[key]) for key in a.spaces
        )
    if isinstance(a, gym.Tuple):
        return len(a.spaces) == len(b.spaces) and all(map(identical, a.spaces, b.spaces))
    return a == b


@given(gym_spaces)
def test_gymnasium_round_trip_is_exact(space: Any) -> None:
    back = to_gymnasium_space(from_gymnasium_space(space))
    assert identical(back, space)


@given(gym_spaces, st.integers(0, 1000))
def test_both_ends_agree_on_members(space: Any, seed: int) -> None:
    ours = from_gymnasium_space(space)
    ours.seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert space.contains(ours.sample())


@given(spaces)
def test_our_round_trip_is_exact_where_gymnasium_can_hold_it(space: Space) -> None:
    assert from_gymnasium_space(space) is space
    try:
        back = from_gymnasium_space(to_gymnasium_space(space))
    except ValueError as exc:
        # Discrete(128, dtype="int8") holds 0 to 127, but Gymnasium stores the 128 as int8.
        assert "declare a wider dtype" in str(exc)
        return
    assert _held(back) == _held(space)


def _held(space: Space) -> Any:
    """What Gymnasium keeps of a space: MultiBinary is int8, Text has a charset."""
    if isinstance(space, Dict):
        return [(key, _held(child)) for key, child in space.items()]
    if isinstance(space, Tuple):
        return [_held(child) for child in space]
    if isinstance(space, MultiBinary):
        return ("multi_binary", space.shape)
    if isinstance(space, Text):
        return (space.min_length, space.max_length, frozenset(space.charset or string.printable))
    if isinstance(space, Discrete) and not DISCRETE_HAS_DTYPE:
        return (space.n, space.start)
    if isinstance(space, Box) and space.np_dtype.kind in "bui":
        # Gymnasium has no infinity for unsigned dtypes, and for int64 cannot sample without.
        return (space.dtype, space.low_array.tolist(), space.high_array.tolist())
    return space


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (gym.Box(-1, 1, (3,)), Box(-1, 1, (3,))),
        (gym.Box(-np.inf, np.inf, (2,)), Box("-inf", "inf", (2,))),
        (gym.Box(0, np.inf, (2,)), Box(0, "inf", (2,))),
        (gym.Box(0, 255, (4, 4, 3), np.uint8), Box(0, 255, (4, 4, 3), "uint8")),
        (
            gym.Box(np.array([0.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64),
            Box([0, -1], [1, 1], dtype="float64"),
        ),
        (gym.Box(0, 1, ()), Box(0, 1, ())),
        (gym.Discrete(3, start=-1), Discrete(3, -1)),
        (gym.MultiBinary(4), MultiBinary(4, "int8")),
        (gym.MultiBinary([2, 2]), MultiBinary((2, 2), "int8")),
        (gym.MultiDiscrete([[2, 3]], np.int32), MultiDiscrete([[2, 3]], "int32")),
        (gym.Text(5), Text(5, charset=string.digits + string.ascii_letters)),
        (gym.Text(5, min_length=0, charset="ba"), Text(5, 0, "ba")),
        (gym.Dict(b=gym.Discrete(2), a=gym.Discrete(3)), None),
        (gym.Tuple([gym.Discrete(2)]), Tuple([Discrete(2)])),
        (
            gym.Dict([("b", gym.Discrete(2)), ("a", gym.Discrete(3))]),
            Dict.ordered([("b", Discrete(2)), ("a", Discrete(3))]),
        ),
        (
            gym.Dict({"b": gym.Discrete(2), "a": gym.Discrete(3)}),
            Dict({"b": Discrete(2), "a": Discrete(3)}),
        ),
    ],
)
def test_from_gymnasium(space: Any, expected: Space | None) -> None:
    ours = from_gymnasium_space(space)
    assert expected is None or ours == expected
    assert space_from_spec(space) == ours
    assert to_gymnasium_space(space) is space
    assert ours.to_gymnasium_space() == ours.to_gym_space() == space
    if isinstance(space, gym.Dict):
        assert list(ours) == list(space.spaces)


def test_integer_dtypes_of_discrete_travel() -> None:
    if not DISCRETE_HAS_DTYPE:
        assert to_gymnasium_space(Discrete(3, 1, "uint8")) == gym.Discrete(3, start=1)
        return
    space = gym.Discrete(3, start=1, dtype=np.uint8)
    assert from_gymnasium_space(space) == Discrete(3, 1, "uint8")
    assert identical(to_gymnasium_space(Discrete(3, 1, "uint8")), space)


def test_charset_order_is_kept_and_defaults_are_the_same_in_every_process() -> None:
    assert from_gymnasium_space(gym.Text(3, charset="zab")).charset == "zab"
    script = (
        "from gymnasium.spaces import Text; from rlmesh.spaces import from_gymnasium_space;"
        "print(from_gymnasium_space(Text(3)).charset)"
    )
    charsets = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert charsets == {string.digits + string.ascii_uppercase + string.ascii_lowercase}


def test_a_text_without_charset_becomes_printable() -> None:
    assert to_gymnasium_space(Text(5)) == gym.Text(5, charset=string.printable)


def test_unbounded_integers_stay_unbounded() -> None:
    for dtype in (np.int8, np.int32, np.int64):
        space = gym.Box(-np.inf, np.inf, (2,), dtype)
        back = to_gymnasium_space(from_gymnasium_space(space))
        assert identical(back, space)
    for dtype in ("int8", "int64"):
        back = to_gymnasium_space(Box("-inf", "inf", (2,), dtype))
        assert not back.is_bounded("below")
        assert not back.is_bounded("above")
        assert back.contains(back.sample())
    # Gymnasium's sampler overflows on an int64 bound it believes to be finite.
    half = to_gymnasium_space(Box(0, 2**63 - 1, (50,), "int64"))
    assert half.is_bounded("below")
    assert half.contains(half.sample())


class MyBox(gym.Box):
    pass


class Mission(gym.Space):
    pass


class NotASpace:
    pass


# Gymnasium before 1.0 has no OneOf: a class of its name stands in.
OneOf: Any = getattr(gym, "OneOf", None)
if OneOf is None:
    OneOf = type("OneOf", (gym.Tuple,), {"__module__": "gymnasium.spaces.oneof"})
ONE_OF = OneOf([gym.Discrete(2), gym.Discrete(3)])


def test_subclasses_of_known_spaces_are_read_as_those() -> None:
    assert from_gymnasium_space(MyBox(0, 1, (2,))) == Box(0, 1, (2,))


@pytest.mark.parametrize(
    ("space", "facts"),
    [
        (gym.Sequence(gym.Discrete(2)), ["Unsupported space type: Sequence", "padded"]),
        (gym.Graph(gym.Discrete(2), None), ["Unsupported space type: Graph", "padded Boxes"]),
        (ONE_OF, ["Unsupported space type: OneOf", "Tuple of the choices"]),
        (Mission(), ["Unsupported space type: Mission", "wrap the env"]),
        (NotASpace(), ["Unsupported space type: NotASpace"]),
        (gym.Box(0, 1, (0,)), ["gymnasium Box", "no elements"]),
        (gym.Box(0, 1, (2, 0)), ["gymnasium Box", "no elements"]),
        (gym.MultiDiscrete([2, 3], start=[0, 1]), ["gymnasium MultiDiscrete", "[0, 1]", "Box(low"]),
        (gym.MultiDiscrete(np.array(3)), ["no axis", "MultiDiscrete([n])"]),
        (gym.MultiDiscrete(np.zeros(0, np.int64)), ["no elements"]),
        (gym.MultiBinary([]), ["no axis", "MultiBinary(1)"]),
        (gym.Text(1, min_length=0, charset=""), ["empty charset"]),
        (gym.Text(0, min_length=0), ["allows no character", "max_length >= 1"]),
        (gym.Box(0, 1, (1,), np.longdouble), ["unsupported dtype"]),
        (gym.Dict({1: gym.Discrete(2)}), ["has the key 1", "strings"]),
    ],
)
def test_what_cannot_travel_is_refused_by_name_at_every_depth(space: Any, facts: list[str]) -> None:
    nested: Any = space
    if isinstance(space, gym.Space):
        nested = gym.Dict({"cam": gym.Tuple([gym.Discrete(2), space])})
    for root, path in ((space, "space"), (nested, "space['cam'][1]")):
        with pytest.raises(TypeError) as caught:
            from_gymnasium_space(root)
        message = str(caught.value)
        assert all(fact in message for fact in facts), message
        assert root is not nested or nested is space or path in message


def test_counts_that_gymnasium_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 255.*got 256; declare a wider dtype"):
        to_gymnasium_space(MultiDiscrete([256], "uint8"))
    with pytest.raises(ValueError, match=r"at most 127.*got 128"):
        to_gymnasium_space(Discrete(128, dtype="int8"))


def test_only_spaces_are_converted() -> None:
    with pytest.raises(TypeError, match=r"expected an rlmesh space, got 3 \(int\)"):
        to_gymnasium_space(3)


def _hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the packages ``names`` look as if they were not installed."""
    for module in [m for m in sys.modules if m.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, module)

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] in names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])


def test_without_gymnasium_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "gymnasium", "gym")
    with pytest.raises(ImportError, match=r'pip install "rlmesh\[gymnasium\]"'):
        to_gymnasium_space(Discrete(2))


def test_legacy_gym_is_read_and_used_when_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "gymnasium")
    legacy = types.ModuleType("gym.spaces")
    classes = {
        name: type(name, (getattr(gym, name),), {"__module__": "gym.spaces"})
        for name in ("Box", "Discrete", "MultiBinary", "MultiDiscrete", "Text", "Dict", "Tuple")
    }
    vars(legacy).update(classes)
    package = types.ModuleType("gym")
    vars(package)["spaces"] = legacy
    monkeypatch.setitem(sys.modules, "gym", package)
    monkeypatch.setitem(sys.modules, "gym.spaces", legacy)
    space = Dict({"a": Box(0, 1, (2,)), "b": Text(3, charset="x")})
    written = to_gymnasium_space(space)
    assert type(written) is classes["Dict"]
    assert from_gymnasium_space(written) == space


def test_a_broken_gymnasium_is_not_taken_for_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "gymnasium")
    broken = types.ModuleType("gymnasium")
    monkeypatch.setitem(sys.modules, "gymnasium", broken)
    with pytest.raises(ImportError, match=r"gymnasium\.spaces"):
        to_gymnasium_space(Discrete(2))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_spaces_of_real_envs(env_id: str) -> None:
    env = gymnasium.make(env_id)
    for space in (env.observation_space, env.action_space):
        ours = from_gymnasium_space(space)
        assert identical(to_gymnasium_space(ours), space)
        assert ours.contains(space.sample())
    env.close()
