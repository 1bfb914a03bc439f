"""Environment factories: features.md section 20 (FAC), and SRV-22."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv

import rlmesh
from rlmesh import ENV_RESET_OPTIONS_KEY, EnvFactory, Param, ParamSpec, Vector
from rlmesh import adapters as adapt
from rlmesh.envs.branches import branches
from rlmesh.envs.factory import bind_make, factory_framework, is_factory, made_framework
from rlmesh.envs.supply import EnvSupply
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.params import (
    PARAM_METADATA_KEY,
    MissingParamError,
    ParamError,
    UnknownParamError,
)
from rlmesh.values import NUMPY

BRANCH = adapt.ENV_BRANCH_METADATA_KEY
TAGS = adapt.ENV_METADATA_KEY


class Arm(gym.Env):  # type: ignore[type-arg]
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 7}

    def __init__(self, **made_with: Any) -> None:
        self.observation_space = Box(-1.0, 1.0, (3,))
        self.action_space = Box(-1.0, 1.0, (3,))
        self.made_with = made_with
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self.closed += 1


def tags(role: str = adapt.EEF_POS, action: str = adapt.ACTION_DELTA_POS) -> adapt.EnvTags:
    return adapt.EnvTags(adapt.StateTag(role), adapt.Action(adapt.Actuator(action, 3)))


SPEC = ParamSpec(
    Param("suite", choices=("spatial", "object")), Param("task", int), Param("at", Vector(3))
)


class Arms(EnvFactory):
    params = SPEC

    def make(self, suite: str = "spatial", task: int = 0, at: Any = (0, 0, 0)) -> Any:
        return Arm(suite=suite, task=task, at=at)


def factory(make: Callable[..., Any] | None = None, **attributes: Any) -> type[EnvFactory]:
    """Return a factory class; by default it makes an Arm of any keywords."""

    def default(self: Any, **made_with: Any) -> Any:
        return Arm(**made_with)

    return type("Some", (EnvFactory,), {"make": make or default, **attributes})


def published(env: Any) -> dict[str, Any]:
    return {key: value for key, value in env.metadata.items() if key.startswith("rlmesh.")}


def test_the_example_runs() -> None:
    tests = doctest.testmod(importlib.import_module("rlmesh.envs.factory"))
    assert tests.attempted and not tests.failed


# FAC-1: the class


def test_fac_1_what_a_factory_is_by_default() -> None:
    class Bare(EnvFactory):
        def make(self) -> Any:
            return Arm()

    assert (Bare.tags, Bare.params, Bare.tag_params, Bare.reset_options) == (None, None, (), ())
    assert Bare.workflow_edition is None and Bare.tags_for() is None
    bare = Bare()
    assert bare.prepare() is None and bare.close() is None  # type: ignore[func-returns-value]
    assert list(bare.enumerate_variants()) == [] and bare.enumerate_params() == {}
    assert repr(bare) == "Bare()"
    assert published(bare.make()) == {}


def test_fac_1_make_has_to_be_overridden() -> None:
    with pytest.raises(TypeError, match="abstract"):
        EnvFactory()  # type: ignore[abstract]

    class Still(EnvFactory):
        reset_options = ("trial_index",)

    with pytest.raises(TypeError, match="abstract"):
        Still()  # type: ignore[abstract]


def test_fac_1_make_keeps_its_signature_and_its_docstring() -> None:
    class Documented(Arms):
        def make(self, suite: str = "spatial", *, seed: int) -> Any:
            """Return an arm."""

    assert (
        str(inspect.signature(Documented().make))
        == "(suite: 'str' = 'spatial', *, seed: 'int') -> 'Any'"
    )
    assert Documented.make.__doc__ == "Return an arm."


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"tags": 3}, "tags must be EnvTags or None, got 3"),
        ({"params": [Param("a")]}, "params must be a ParamSpec or None"),
        ({"reset_options": "trial_index"}, "reset_options must be a tuple of names"),
        ({"reset_options": (1,)}, "reset_options must be a tuple of names"),
        ({"tag_params": "mode"}, "tag_params must be a tuple of names"),
        ({"make": staticmethod(Arm)}, "make must be a plain method, got staticmethod"),
    ],
)
def test_fac_1_impossible_attributes_are_type_errors_at_class_creation(
    attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        factory(**attributes)


def test_a_typo_or_an_impossible_value_is_refused_before_anything_is_built() -> None:
    made: list[Any] = []

    def make(self: Any, suite: str = "spatial", task: int = 0) -> Any:
        made.append(suite)
        return Arm()

    some = factory(make, params=ParamSpec(Param("suite", choices=("spatial", "object"))))()
    for config, error, words in (
        (
            {"suit": "object"},
            UnknownParamError,
            "Some.make.. takes no 'suit' .did you mean 'suite'",
        ),
        ({"suite": "Object"}, ParamError, "did you mean 'object'"),
        ({"task": "3"}, ParamError, "task='3', which is a str, expected an int"),
    ):
        with pytest.raises(error, match=words):
            some.make(**config)
        with pytest.raises(error, match=words):
            bind_make(some, config)
    assert not made
    some.make(suite="object")
    assert made == ["object"]


def test_par_4_make_gets_what_the_params_make_of_it() -> None:
    env = Arms().make(task=3.0, at=[1, 2, 3])
    assert env.made_with == {"suite": "spatial", "task": 3, "at": (1.0, 2.0, 3.0)}
    assert type(env.made_with["task"]) is int


def test_positional_arguments_are_parameters_too() -> None:
    env = Arms().make("object", 2.0)
    assert env.made_with["suite"] == "object" and env.made_with["task"] == 2
    assert env.metadata[PARAM_METADATA_KEY]["binding"] == {"suite": "object", "task": 2}
    with pytest.raises(ParamError, match="did you mean 'object'"):
        Arms().make("Object")
    with pytest.raises(TypeError, match="multiple values"):
        Arms().make("object", suite="object")
    with pytest.raises(TypeError, match="positional"):
        Arms().make("object", 1, (0, 0, 0), 4)


def test_par_8_without_params_nothing_is_checked() -> None:
    some = factory(reset_options=("trial_index",))()
    assert bind_make(some, {"x": "y"}) == {"x": "y"}
    env = some.make(x="y")
    assert env.made_with == {"x": "y"} and PARAM_METADATA_KEY not in env.metadata

    def make(self: Any, task: int = 0) -> Any:
        return Arm(task=task)

    assert factory(make)().make(task="3").made_with == {"task": "3"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'tsk'"):
        factory(make)().make(tsk=3)


def test_par_7_a_required_parameter_is_named() -> None:
    def make(self: Any, suite: str) -> Any:
        return Arm(suite=suite)

    with pytest.raises(MissingParamError, match=r"Some.make\(\) requires 'suite'"):
        factory(make, params=SPEC)().make()


# FAC-2, FAC-6: what the made env says


def test_fac_2_the_env_publishes_what_its_factory_declares() -> None:
    some = factory(
        tags=tags(),
        params=ParamSpec(Param("task", int)),
        reset_options=("trial_index",),
    )
    env = some().make(task=2)
    assert type(env) is Arm
    assert env.metadata == {
        "render_fps": 7,
        **tags().to_metadata(),
        ENV_RESET_OPTIONS_KEY: ["trial_index"],
        PARAM_METADATA_KEY: {
            "binding": {"task": 2},
            "param_spec": {
                "extra": "forbid",
                "params": [{"name": "task", "type": "int", "required": True}],
            },
            "validated": {"task": True},
        },
    }
    assert Arm.metadata == {"render_fps": 7}
    assert set(vars(env)) == {*vars(Arm(task=2)), "metadata"}


def test_fac_2_tags_are_not_validated_when_they_are_published_but_when_they_are_served() -> None:
    short = adapt.EnvTags(
        adapt.StateTag(adapt.EEF_ROT, encoding="quat_xyzw"),
        adapt.Action(adapt.Actuator(adapt.ACTION_DELTA_POS, 3)),
    )
    env = factory(tags=short)().make()
    with pytest.raises(adapt.AdapterResolutionError):
        rlmesh.EnvServer(env)


def test_fac_2_the_tags_of_the_env_itself_stay_where_the_factory_has_none() -> None:
    def make(self: Any) -> Any:
        return adapt.tag(Arm(), tags())

    assert published(factory(make)().make()) == tags().to_metadata()
    other = tags(adapt.COMMAND_BASE_VEL)
    assert published(factory(make, tags=other)().make()) == other.to_metadata()


def test_fac_2_wrappers_and_vector_envs_are_stamped_on_the_outside() -> None:
    inner = Arm()

    def wrapped(self: Any) -> Any:
        return gym.wrappers.TimeLimit(inner, 5)

    env = factory(wrapped, reset_options=("trial_index",))().make()
    assert env.metadata[ENV_RESET_OPTIONS_KEY] == ["trial_index"]
    assert inner.metadata == {"render_fps": 7} and Arm.metadata == {"render_fps": 7}

    def several(self: Any) -> Any:
        return SyncVectorEnv([Arm, Arm])

    envs = factory(several, tags=tags(), reset_options=("trial_index",))().make()
    with rlmesh.EnvServer(envs) as server:
        server.start()
        with RemoteVectorEnv(server.address) as remote:
            assert remote.metadata[ENV_RESET_OPTIONS_KEY] == ["trial_index"]
            assert remote.metadata[TAGS] == tags().to_dict()
    assert Arm.metadata == {"render_fps": 7}


def test_fac_2_each_env_has_metadata_of_its_own() -> None:
    arms = Arms()
    one, other = arms.make(task=1), arms.make(task=2)
    assert one.metadata[PARAM_METADATA_KEY]["binding"] == {"task": 1}
    assert other.metadata[PARAM_METADATA_KEY]["binding"] == {"task": 2}


def test_fac_2_an_env_whose_metadata_cannot_be_set_is_refused_and_closed() -> None:
    class Fixed(Arm):
        @property
        def metadata(self) -> Any:  # type: ignore[override]
            return {}

    made: list[Any] = []

    def make(self: Any) -> Any:
        made.append(Fixed())
        return made[-1]

    with pytest.raises(TypeError, match=r"Some.make\(\) returned Fixed, whose metadata cannot be"):
        factory(make, reset_options=("trial_index",))().make()
    assert made[0].closed == 1
    assert factory(make)().make() is made[1]  # there is nothing to publish


@pytest.mark.parametrize("thing", [None, 3, Arm, [], {"env": 1}])
def test_fac_2_what_is_no_env_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"Some.make\(\) returned \w+: expected an env with reset"):
        factory(lambda self: thing)().make()


def test_what_make_returned_is_closed_where_it_cannot_be_published() -> None:
    closed: list[str] = []

    class Evasive(Arm):
        @property
        def metadata(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no metadata")

        def close(self) -> None:
            closed.append(type(self).__name__)

    class Stepless:
        reset = close = Evasive.close

    for kind, words in ((Evasive, "no metadata"), (Stepless, "expected an env with reset")):
        made = factory(lambda self, kind=kind: kind(), reset_options=("trial_index",))()
        with pytest.raises((RuntimeError, TypeError), match=words):
            made.make()
    assert closed == ["Evasive", "Stepless"]


def test_an_overriding_make_may_call_the_one_it_overrides() -> None:
    calls: list[Any] = []

    class Base(EnvFactory):
        params = ParamSpec(Param("task", int))
        reset_options = ("trial_index",)

        def make(self, task: int = 0) -> Any:
            calls.append(task)
            return Arm(task=task)

    class Wider(Base):
        params = ParamSpec(*Base.params.params, Param("size", choices=("s", "l")))

        def make(self, task: int = 0, size: str = "s") -> Any:
            env = super().make(task=task + 10)
            assert published(env) == {}
            return env

    class Same(Wider):
        tags = tags()

    env = Wider().make(size="l")
    assert calls == [10]
    assert env.metadata[PARAM_METADATA_KEY]["binding"] == {"size": "l"}
    assert set(published(Same().make(task=1))) == {TAGS, ENV_RESET_OPTIONS_KEY, PARAM_METADATA_KEY}
    with pytest.raises(UnknownParamError):
        Base().make(size="l")


def test_make_may_come_from_a_mixin() -> None:
    class Mixin:
        def make(self, task: int = 0) -> Any:
            return Arm(task=task)

    class Mixed(Mixin, EnvFactory):
        params = ParamSpec(Param("task", int))

    assert Mixed().make(task=2.0).metadata[PARAM_METADATA_KEY]["binding"] == {"task": 2}
    assert published(Mixin().make(task=1)) == {}


def test_what_an_instance_declares_counts() -> None:
    class Own(EnvFactory):
        def __init__(self, names: tuple[str, ...]) -> None:
            self.params = ParamSpec(Param("task", choices=names))

        def make(self, task: str = "a") -> Any:
            return Arm(task=task)

    assert Own(("a", "b")).make(task="b").made_with == {"task": "b"}
    with pytest.raises(ParamError):
        Own(("a", "c")).make(task="b")


def test_a_factory_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(Arms()))
    assert again.make(task=3).made_with["task"] == 3


# FAC-3: backends


def test_fac_3_a_made_env_remembers_the_framework_of_its_factory() -> None:
    class Bound(rlmesh.numpy.EnvFactory):
        def make(self) -> Any:
            return gym.wrappers.TimeLimit(Arm(), 5)

    env = Bound().make()
    assert factory_framework(Bound) is factory_framework(Bound()) is NUMPY
    assert made_framework(env) is NUMPY
    assert factory_framework(Arms()) is None and made_framework(Arms().make()) is None
    assert factory_framework(object()) is None
    with rlmesh.EnvServer(env) as server:
        assert server.env_contract.metadata == {"render_fps": 7}


# FAC-5: contract branches

MODES = ParamSpec(Param("mode", choices=("delta", "joint")), Param("depth", bool, (False, True)))


def tags_by_mode(cls: Any, mode: str, depth: bool = False) -> adapt.EnvTags:
    return tags() if mode == "delta" else tags(action=adapt.ACTION_JOINT_POS)


def branched(**changed: Any) -> type[EnvFactory]:
    """Return a factory with two branches; ``changed`` attributes may be callables or values."""

    def make(self: Any, mode: str = "delta", depth: bool = False) -> Any:
        return Arm(mode=mode, depth=depth)

    attributes: dict[str, Any] = {
        "params": MODES,
        "tags": tags(),
        "tag_params": ("mode",),
        "tags_for": classmethod(tags_by_mode),
        **changed,
    }
    return factory(attributes.pop("make", make), **attributes)


def test_fac_5_the_branch_decides_the_tags() -> None:
    some = branched()
    assert branches(some) == [{"mode": "delta"}, {"mode": "joint"}]
    env = some().make()
    assert env.metadata[BRANCH] == {"mode": "delta"} and env.metadata[TAGS] == tags().to_dict()
    env = some().make(mode="joint", depth=True)
    assert env.metadata[BRANCH] == {"mode": "joint"}
    assert env.metadata[TAGS] == tags(action=adapt.ACTION_JOINT_POS).to_dict()
    assert some().make("joint").metadata[BRANCH] == {"mode": "joint"}
    with pytest.raises(ParamError, match="not in choices"):
        some().make(mode="torque")
    both = branched(tag_params=["mode", "depth"])
    assert len(branches(both)) == 4
    assert both().make(depth=True).metadata[BRANCH] == {"mode": "delta", "depth": True}
    assert branches(Arms) == [] and BRANCH not in Arms().make().metadata


def test_fac_5_tags_for_is_the_same_for_every_branch_unless_overridden() -> None:
    def make(self: Any, mode: str = "delta", depth: bool = False) -> Any:
        return Arm()

    some = factory(make, params=MODES, tags=tags(), tag_params=("mode",))
    env = some().make(mode="joint")
    assert env.metadata[BRANCH] == {"mode": "joint"} and env.metadata[TAGS] == tags().to_dict()


def test_fac_5_generic_factories_have_branches_without_tags() -> None:
    some = branched(tags=None, tags_for=classmethod(lambda cls, **branch: None))
    env = some().make(mode="joint")
    assert env.metadata[BRANCH] == {"mode": "joint"} and TAGS not in env.metadata


def no_default(self: Any, mode: str) -> Any: ...


def other_default(self: Any, mode: str = "torque") -> Any: ...


def joint_default(self: Any, mode: str = "joint") -> Any: ...


def not_named(self: Any, **params: Any) -> Any: ...


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tag_params": ("mod",)}, "names 'mod', which params does not declare"),
        ({"params": None}, "names 'mode', which params does not declare"),
        ({"params": ParamSpec(Param("mode"))}, "'mode', whose Param has no choices"),
        ({"tag_params": ("mode", "mode")}, "names a param twice"),
        ({"make": no_default}, "expected make.. to have a default for it among its choices"),
        ({"make": other_default}, "expected make.. to have a default for it among its choices"),
        ({"make": not_named}, "expected make.. to have a default for it among its choices"),
        ({"make": joint_default}, "tags differs from tags_for.mode='joint'."),
        ({"tags": None}, "tags differs from tags_for.mode='delta'."),
        ({"tag_params": ()}, "overrides tags_for.., which nothing calls without tag_params"),
        ({"tags_for": classmethod(lambda cls, mode: 3)}, "returned int, expected EnvTags or None"),
        (
            {"tags_for": classmethod(lambda cls, mode: tags() if mode == "delta" else None)},
            "EnvTags for some branches and None for others",
        ),
        (
            {
                "params": ParamSpec(Param("mode", int, tuple(range(9)))),
                "make": lambda self, mode=0: None,
                "tags_for": classmethod(lambda cls, mode: tags()),
            },
            "spans 9 contract branches, the limit is 8",
        ),
    ],
)
def test_fac_5_contradictions_are_type_errors_at_class_creation(
    changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        branched(**changed)


def test_fac_5_eight_branches_are_allowed() -> None:
    some = branched(
        params=ParamSpec(Param("mode", int, tuple(range(8)))),
        make=lambda self, mode=0: Arm(),
        tags_for=classmethod(lambda cls, mode: tags()),
    )
    assert len(branches(some)) == 8


def test_fac_5_an_abstract_base_may_leave_the_rest_to_its_subclasses() -> None:
    class Base(EnvFactory):
        tag_params = ("mode",)

    with pytest.raises(TypeError, match="names 'mode', which params does not declare"):
        type("Sub", (Base,), {"make": joint_default})


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ('{"mode": "joint"}', None),
        ("", None),
        ('{"mode": "delta"}', 'expected an env of the contract branch {"mode": "delta"}'),
        ("{}", 'got {"mode": "joint"}'),
        ("{", "RLMESH_EXPECTED_ENV_BRANCH is not JSON"),
        ("[1]", "must be a JSON object"),
    ],
)
def test_srv_22_the_expected_branch_is_guarded(
    expected: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLMESH_EXPECTED_ENV_BRANCH", expected)
    env = branched()().make(mode="joint")
    if words is None:
        rlmesh.EnvServer(env).shutdown()
    else:
        with pytest.raises(ValueError) as caught:
            rlmesh.EnvServer(env)
        assert words in str(caught.value)


def test_srv_22_an_env_without_branches_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLMESH_EXPECTED_ENV_BRANCH", '{"mode": "delta"}')
    with pytest.raises(ValueError, match=r"got \{\}"):
        rlmesh.EnvServer(Arm())


def test_fac_5_the_branch_reaches_the_client() -> None:
    with rlmesh.EnvServer(branched()().make(mode="joint")) as server:
        server.start()
        with RemoteEnv(server.address) as remote:
            assert remote.metadata[BRANCH] == {"mode": "joint"}


# The life of a factory


class Lived(EnvFactory):
    """Notes what happens to it, and fails where it is told to."""

    def __init__(self, fails: str = "", after: int = 0) -> None:
        self.events: list[str] = []
        self.fails, self.after = fails, after

    def _happens(self, what: str) -> None:
        self.events.append(what)
        if what == self.fails and self.events.count(what) > self.after:
            raise RuntimeError(f"{what} failed")

    def prepare(self) -> None:
        self._happens("prepare")

    def make(self, name: str = "env") -> Any:
        self._happens("make")
        env = Arm()
        env.close = lambda: self._happens(f"close {name}")  # type: ignore[method-assign]
        return env

    def close(self) -> None:
        self._happens("close")


def test_it_is_prepared_once_and_closed_once_after_its_envs() -> None:
    lived = Lived()
    supply = EnvSupply(lived)
    assert lived.events == []
    supply.make(name="a")
    supply.make(name="b")
    supply.close()
    supply.close()
    assert lived.events == ["prepare", "make", "make", "close b", "close a", "close"]


def test_after_its_close_a_factory_may_be_prepared_again() -> None:
    lived = Lived()
    supply = EnvSupply(lived)
    for _ in range(2):
        supply.make()
        supply.close()
    assert lived.events == 2 * ["prepare", "make", "close env", "close"]


@pytest.mark.parametrize(
    ("fails", "after", "events"),
    [
        ("prepare", 0, ["prepare", "close"]),
        ("make", 0, ["prepare", "make", "close"]),
        ("make", 1, ["prepare", "make", "make", "close env", "close"]),
    ],
)
def test_what_was_begun_is_closed_where_it_fails_half_way(
    fails: str, after: int, events: list[str]
) -> None:
    lived = Lived(fails, after)
    supply = EnvSupply(lived)
    with pytest.raises(RuntimeError, match=f"{fails} failed"):
        for _ in range(2):
            supply.make()
    supply.close()
    assert lived.events == events


def test_an_env_that_fails_to_close_does_not_keep_the_rest_open() -> None:
    lived = Lived("close b")
    supply = EnvSupply(lived)
    supply.make(name="a")
    supply.make(name="b")
    with pytest.raises(RuntimeError, match="close b failed"):
        supply.close()
    assert lived.events[-3:] == ["close b", "close a", "close"]


def test_a_factory_that_was_never_used_is_not_closed() -> None:
    lived = Lived()
    EnvSupply(lived).close()
    assert lived.events == []


def test_envs_handed_over_are_somebody_elses_to_close() -> None:
    lived = Lived()
    supply = EnvSupply(lived)
    supply.make()
    supply.hand_over()
    supply.close()
    assert lived.events == ["prepare", "make", "close"]


def test_anything_with_make_is_a_factory() -> None:
    class Duck:
        def make(self, **made_with: Any) -> Any:
            return Arm(**made_with)

    assert is_factory(Duck) and is_factory(Duck()) and is_factory(Arms) and is_factory(Arms())
    assert not is_factory(Arm()) and not is_factory("Duck") and not is_factory(Duck().make)
    supply = EnvSupply(Duck)
    assert supply.make(task=1).made_with == {"task": 1}
    supply.close()
    assert bind_make(Duck(), {"x": 1}) == {"x": 1}
