"""What an env's envelope is made of, and what is built and closed for it (DSC-1, DSC-2, DSC-5)."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import pytest
from describe_targets import Branches, Catalogue, Env, Tagged, Vector2, make_env, tags

import rlmesh
from rlmesh.envs.variants import MOST_ENTRIES

DISCRETE = {"kind": "discrete", "shape": [], "dtype": "int64", "details": {"n": 2, "start": 0}}


class Noted(Env):
    """Notes that it was closed."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def close(self) -> None:
        self.notes.append("env closed")


class Life(rlmesh.EnvFactory):
    """Notes what is done to it."""

    notes: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.notes.append("made")

    def prepare(self) -> None:
        self.notes.append("prepared")

    def make(self, size: int = 3) -> Any:
        self.notes.append(("make", size))
        return Noted(self.notes)

    def close(self) -> None:
        self.notes.append("closed")


@pytest.fixture(autouse=True)
def notes() -> list[Any]:
    Life.notes.clear()
    return Life.notes


def test_row_DSC_1_a_factory_is_built_once_and_let_go_of(notes: list[Any]) -> None:
    envelope = rlmesh.describe(Life)
    assert notes == ["made", "prepared", ("make", 3), "env closed", "closed"]
    assert envelope["env_spec"]["action_space"]["kind"] == "box"
    assert Life.describe() == envelope


def test_a_factory_that_is_there_is_lived_through_in_the_same_way(notes: list[Any]) -> None:
    factory = Life()
    notes.clear()
    rlmesh.describe(factory)
    assert notes == ["prepared", ("make", 3), "env closed", "closed"]


def test_every_branch_is_built_once(notes: list[Any]) -> None:
    class Sides(rlmesh.EnvFactory):
        tags = tags("x/left")
        params = rlmesh.ParamSpec(rlmesh.Param("side", choices=("right", "left")))
        tag_params = ("side",)

        def make(self, side: str = "left") -> Any:
            notes.append(side)
            return Noted(notes)

        def close(self) -> None:
            notes.append("closed")

        @classmethod
        def tags_for(cls, *, side: str) -> Any:
            return tags(f"x/{side}")

    contracts = rlmesh.describe(Sides)["env_contracts"]
    assert notes == ["left", "env closed", "right", "env closed", "closed"]
    assert contracts["discriminants"] == ["side"]
    first, second = contracts["branches"]
    assert (first["params"], first["default"]) == ({"side": "left"}, True)
    assert (second["params"], second["default"]) == ({"side": "right"}, False)
    assert second["env_tags"]["observation"]["state"]["role"] == "x/right"
    assert second["env_spec"] == first["env_spec"]


def test_a_branch_that_cannot_be_built_costs_no_other() -> None:
    first, second = rlmesh.describe(Branches)["env_contracts"]["branches"]
    assert set(first["env_spec"]) == {"action_space", "observation_space"}
    assert second["env_spec"] == {"error": "'no right side'", "error_type": "KeyError"}
    assert second["env_tags"]["observation"]["state"]["role"] == "x/right"


def test_an_env_that_is_there_is_read_and_left_alone(notes: list[Any]) -> None:
    envelope = rlmesh.describe(Noted(notes))
    assert notes == []
    assert envelope["target"] == {"entrypoint": None, "qualname": f"{__name__}:Noted"}
    assert envelope["params"] == {"param_spec": None, "signature_tier": []}


def test_an_env_class_and_a_function_are_built(notes: list[Any]) -> None:
    class Made(Env):
        def __init__(self, size: int = 3) -> None:
            notes.append(size)

        def close(self) -> None:
            notes.append("closed")

    envelope = rlmesh.describe(Made)
    assert notes == [3, "closed"]
    assert envelope["params"]["signature_tier"] == [
        {"name": "size", "type": "int", "required": False, "default": 3}
    ]
    assert rlmesh.describe(lambda: Made(5), kind="env")["env_spec"] == envelope["env_spec"]
    assert notes == [3, "closed", 5, "closed"]


def test_gymnasium_envs_single_and_vector() -> None:
    with gym.make("CartPole-v1") as env:
        spec = rlmesh.describe(env)["env_spec"]
    assert spec["action_space"] == DISCRETE
    assert spec["observation_space"]["details"]["high"][1] is None, "infinity"
    vector = gym.make_vec("CartPole-v1", num_envs=3)
    assert rlmesh.describe(vector)["env_spec"] == {**spec, "num_envs": 3}
    vector.close()
    assert rlmesh.describe(lambda: gym.make("CartPole-v1"), kind="env")["env_spec"] == spec


def test_a_vector_env_says_how_many_it_is() -> None:
    spec = rlmesh.describe(Vector2())["env_spec"]
    assert spec["num_envs"] == 2
    assert (spec["action_space"], spec["observation_space"]["shape"]) == (DISCRETE, [2])


def test_tags_are_those_of_the_class_or_of_the_env() -> None:
    declared = tags("x/left").to_dict()
    assert rlmesh.describe(Tagged)["env_tags"] == declared
    tagged = rlmesh.adapters.tag(Env(), tags("x/left"))
    assert rlmesh.describe(tagged)["env_tags"] == declared
    assert rlmesh.describe(Env())["env_tags"] is None


def test_tags_of_a_factory_that_cannot_be_built_are_known_all_the_same() -> None:
    class Broken(rlmesh.EnvFactory):
        tags = tags("x/left")

        def make(self) -> Any:
            raise ImportError("no simulator")

    envelope = rlmesh.describe(Broken)
    assert envelope["env_spec"] == {"error": "no simulator", "error_type": "ImportError"}
    assert envelope["env_tags"] == tags("x/left").to_dict()


# Variants


def test_row_DSC_2_variants_and_variations() -> None:
    variants = rlmesh.describe(Catalogue)["variants"]
    assert variants["catalog"][0] == {
        "id": "one",
        "params": {"count": 1},
        "metadata": {"name": "One", "weight": None, "at": [1, 2]},
    }
    assert variants["variations"]["suite"] == ["spatial"]


def test_what_a_factory_does_not_list_is_not_there() -> None:
    assert "variants" not in rlmesh.describe(Tagged)


def test_row_DSC_5_an_endless_catalogue_has_an_end() -> None:
    class Endless(rlmesh.EnvFactory):
        def make(self) -> Any:
            return Env()

        @classmethod
        def enumerate_variants(cls) -> Any:
            number = 0
            while True:
                yield rlmesh.Variant(str(number), {})
                number += 1

        @classmethod
        def enumerate_params(cls) -> Any:
            return {"seed": iter(int, 1)}

    variants = rlmesh.describe(Endless)["variants"]
    assert f"more than {MOST_ENTRIES} variants" in variants["catalog_error"]
    assert f"'seed' has more than {MOST_ENTRIES} values" in variants["variations_error"]


def test_a_param_called_error_is_no_error() -> None:
    class Odd(rlmesh.EnvFactory):
        params = rlmesh.ParamSpec(rlmesh.Param("error", int))

        def make(self, error: int = 0) -> Any:
            return Env()

        @classmethod
        def enumerate_variants(cls) -> Any:
            return [rlmesh.Variant("a", {"error": 1})]

        @classmethod
        def enumerate_params(cls) -> Any:
            return {"error": [1, 2]}

    assert rlmesh.describe(Odd)["variants"] == {
        "catalog": [{"id": "a", "params": {"error": 1}, "metadata": {}}],
        "variations": {"error": [1, 2]},
    }


# What is described


def test_row_DSC_1_a_function_has_to_be_told() -> None:
    with pytest.raises(TypeError, match="say it with kind='env' or kind='model'"):
        rlmesh.describe(make_env)
    with pytest.raises(TypeError, match="kind="):
        rlmesh.describe("describe_targets:make_env")
    assert rlmesh.describe(make_env, kind="env")["kind"] == "env"
    assert rlmesh.describe(make_env, kind="model")["kind"] == "model"


@pytest.mark.parametrize("thing", [3, None, object(), [Env()]])
def test_what_is_neither_is_a_type_error(thing: Any) -> None:
    with pytest.raises(TypeError, match="expected an env, an EnvFactory, a Model or a policy"):
        rlmesh.describe(thing)


def test_kind_is_checked() -> None:
    with pytest.raises(ValueError, match="kind must be 'env' or 'model', got 'environment'"):
        rlmesh.describe(Tagged, kind="environment")
    with pytest.raises(TypeError, match="Tagged is no model: it has the methods of an env"):
        rlmesh.describe(Tagged, kind="model")
    with pytest.raises(TypeError, match="nor can it be called"):
        rlmesh.describe(3, kind="env")


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ("describe_targets", ValueError, "expected MODULE:NAME"),
        ("describe_targets:", ValueError, "expected MODULE:NAME"),
        (":Tagged", ValueError, "expected MODULE:NAME"),
        ("describe_targets:Taged", ImportError, "did you mean 'Tagged'"),
        ("describe_targets:Outer.Iner", ImportError, "did you mean 'Inner'"),
        ("no_such_module:Thing", ImportError, "no_such_module"),
    ],
)
def test_a_name_that_names_nothing(target: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        rlmesh.describe(target)
