"""Making a Model: model_reference.txt "Construction and lifecycle", features.md MOD-1 to MOD-7."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from model_kinds import ACTION, CHUNK, NumpyModel, bits, make
from support.zoo import Countdown

import rlmesh
from rlmesh.models import as_model, model_corners
from rlmesh.models.corners import CORNERS
from rlmesh.models.model import NO_ADAPTER, Model
from rlmesh.params import MissingParamError, Param, ParamError, ParamSpec, UnknownParamError
from rlmesh.values import NATIVE, NUMPY, Tensor

SPEC = object()


class Policy:
    """A policy object with all that is taken from one."""

    spec = SPEC
    native_chunk = 5

    def __init__(self) -> None:
        self.events: list[Any] = []

    def predict(self, observation: Any) -> Any:
        return ACTION

    def predict_chunk(self, observation: Any) -> Any:
        return CHUNK

    def predict_batch(self, observations: Any) -> Any:
        return np.stack([ACTION] * len(observations))

    def predict_chunk_batch(self, observations: Any) -> Any:
        return np.stack([CHUNK] * len(observations))

    def reset(self) -> None:
        self.events.append("reset")

    def close(self) -> None:
        self.events.append("close")


# MOD-1: wrapping


@pytest.mark.parametrize("base", [Model, NumpyModel])
def test_mod_1_a_callable_is_a_model(base: type[Model]) -> None:
    model = base(lambda observation: ACTION)
    assert model_corners(model).predict(ACTION) is ACTION
    assert model.predict(ACTION) is ACTION  # MOD-7: a direct call is the author's


@pytest.mark.parametrize("source", [Policy, Policy()], ids=["class", "object"])
def test_mod_1_a_policy_object_or_class_is_a_model(source: Any) -> None:
    model = NumpyModel(source)
    corners = model_corners(model)
    assert corners.defined == CORNERS
    assert (model.spec, corners.native_chunk) == (SPEC, 5)
    assert bits(model.predict_chunk(ACTION)) == bits(CHUNK)
    assert bits(corners.predict_rows([ACTION] * 2, None, 3)) == bits([list(CHUNK[:3])] * 2)


def test_mod_1_a_policy_object_may_have_any_corner() -> None:
    source = type("Chunker", (), {"predict_chunk": lambda self, o: CHUNK})()
    assert bits(model_corners(NumpyModel(source)).predict(ACTION)) == bits(CHUNK[0])


def test_mod_1_a_class_with_call_alone_is_instantiated() -> None:
    source = type("Callable", (), {"__call__": lambda self, o: 7})
    assert model_corners(NumpyModel(source)).predict(ACTION) == 7


def test_mod_1_no_source_and_no_corner() -> None:
    with pytest.raises(TypeError, match=r"Model\(\) needs a predict callable"):
        Model()
    with pytest.raises(TypeError, match=r"Model\(\) needs a predict callable"):
        make(load=lambda self: None)


@pytest.mark.parametrize("source", [3, "policy", object(), [1]])
def test_mod_1_a_source_that_is_no_policy(source: Any) -> None:
    with pytest.raises(TypeError, match="Model source must be a predict callable"):
        NumpyModel(source)


def test_mod_1_a_model_is_no_source() -> None:
    for source in (NumpyModel, Model, NumpyModel(lambda o: ACTION)):
        with pytest.raises(TypeError, match="Instantiate your Model subclass directly"):
            NumpyModel(source)


def test_mod_1_a_class_that_needs_arguments_says_to_pass_an_instance() -> None:
    class Needy:
        def __init__(self, checkpoint: str) -> None: ...

        def predict(self, observation: Any) -> Any: ...

    with pytest.raises(TypeError, match=r"Needy cannot be made without arguments.*an instance"):
        NumpyModel(Needy)


def test_a_subclass_with_corners_wraps_nothing() -> None:
    kind = type("Own", (NumpyModel,), {"predict": lambda self, o: ACTION})
    with pytest.raises(TypeError, match="Own defines predict itself"):
        kind(lambda observation: ACTION)


@pytest.mark.parametrize("name", ["on_episode_end", "on_close"])
def test_a_hook_must_be_callable(name: str) -> None:
    hooks: dict[str, Any] = {name: 3}
    with pytest.raises(TypeError, match=f"{name} must be a callable"):
        NumpyModel(lambda o: ACTION, **hooks)


# MOD-2, MOD-3: subclassing and load


def test_mod_2_a_subclass_loads_once_and_is_ready() -> None:
    loads: list[int] = []

    class Sub(NumpyModel):
        def load(self) -> None:
            loads.append(1)
            self.gain = 2.0

        def predict(self, observation: Any) -> Any:
            return observation * self.gain

    model = Sub()
    for _ in range(2):
        assert model_corners(model).predict(np.ones(1)).tolist() == [2.0]
    assert loads == [1]


def test_mod_3_load_may_set_what_an_evaluation_reads() -> None:
    class Sub(NumpyModel):
        def load(self) -> None:
            self.spec, self.native_chunk, self.allow_fusion = SPEC, 5, False
            self.predict_chunk = lambda observation, steps: CHUNK  # as torch.compile would give

        def predict_chunk(self, observation: Any) -> Any:
            raise AssertionError("replaced by load()")

    corners = model_corners(model := Sub())
    assert (model.spec, corners.native_chunk, corners.allow_fusion) == (SPEC, 5, False)
    assert bits(corners.plan(ACTION, None, 2)) == bits(list(CHUNK[:2]))


def test_mod_2_class_attributes_have_their_defaults() -> None:
    model = make(predict=lambda self, o: ACTION)
    assert (model.spec, model.params, model.device, model.workflow_edition) == (None,) * 4
    assert (model.native_chunk, model.allow_fusion, model.trust_entrypoints) == (None, True, False)


def test_an_init_that_forgets_super_says_so() -> None:
    class Forgetful(NumpyModel):
        def __init__(self) -> None:
            self.x = 1

        def predict(self, observation: Any) -> Any: ...

    with pytest.raises(TypeError, match=r"Forgetful.__init__\(\) does not call super"):
        model_corners(Forgetful())


def test_an_init_with_arguments_of_its_own_runs_before_load() -> None:
    class Sub(NumpyModel):
        def __init__(self, checkpoint: str) -> None:
            self.checkpoint = checkpoint
            super().__init__()

        def load(self) -> None:
            self.weights = self.checkpoint.upper()

        def predict(self, observation: Any) -> Any:
            return self.weights

    assert model_corners(Sub("pt")).predict(ACTION) == "PT"


# spec, trust_entrypoints, repr


def test_row_spec_the_keyword_overrides_the_class_attribute() -> None:
    kind = type("Sub", (NumpyModel,), {"predict": lambda self, o: ACTION, "spec": SPEC})
    assert kind().spec is SPEC
    assert kind(spec=NO_ADAPTER).spec is NO_ADAPTER
    assert NumpyModel(Policy(), spec=NO_ADAPTER).spec is NO_ADAPTER
    assert repr(NO_ADAPTER) == "NO_ADAPTER"


def test_row_params_what_load_takes_is_declared_checked_and_described() -> None:
    """The page calls it advisory; here the binding is checked against it, too."""

    class Swept(NumpyModel):
        params = ParamSpec(Param("size", choices=("small", "large"), description="Which weights"))

        def load(self, size: str = "small") -> None:
            self.size = size

        def predict(self, observation: Any) -> Any:
            return self.size

    assert Swept().size == "small" and Swept.from_config(size="large").size == "large"
    with pytest.raises(ParamError, match="not in choices"):
        Swept.from_config(size="tiny")
    (param,) = rlmesh.describe(Swept)["params"]["param_spec"]["params"]
    assert (param["name"], param["choices"], param["default"]) == (
        "size",
        ["small", "large"],
        "small",
    )


def test_row_describe_is_the_envelope_of_the_class() -> None:
    def load(self: Any) -> None:
        raise AssertionError("nothing is loaded")

    kind = type("Sub", (NumpyModel,), {"predict": lambda self, o: ACTION, "load": load})
    assert kind.describe() == rlmesh.describe(kind)
    assert kind.describe()["corners"] == ["predict"]


def test_row_load_runs_once_on_the_served_path_with_the_resolved_params() -> None:
    """``from_config`` is what ``python -m rlmesh.serve`` makes a model with."""
    model = Configured.from_config(checkpoint="a")
    with rlmesh.ModelServer(model) as server:
        server.start()
        with rlmesh.session(rlmesh.RemoteModel(server.address), Countdown(9)) as session:
            assert session.predict(session.reset(seed=0)[0]) == 4
    assert model.loads == [{"checkpoint": "a", "steps": 4}]


def test_row_trust_entrypoints_is_kept() -> None:
    assert NumpyModel(lambda o: ACTION, trust_entrypoints=True).trust_entrypoints is True


def test_mod_22_repr() -> None:
    assert repr(Model(lambda o: ACTION)) == "Model()"
    assert repr(make(predict=lambda self, o: ACTION)) == "Policy()"


# as_model


@pytest.mark.parametrize("thing", [lambda o: o, Policy, Policy()], ids=["fn", "class", "object"])
def test_as_model_makes_a_model_of_a_callable_an_object_or_a_class(thing: Any) -> None:
    model = as_model(thing)
    assert isinstance(model, Model)
    assert repr(model) == "Model()"
    assert model_corners(model).framework is NUMPY
    assert model_corners(as_model(thing, NATIVE)).framework is NATIVE


def test_as_model_gives_a_bare_callable_numpy_leaves() -> None:
    tensor = Tensor(np.zeros(2), [2], "float64")
    kinds: list[type] = []
    corners = model_corners(as_model(lambda o: kinds.append(type(o)) or ACTION))
    corners.predict(tensor)
    model_corners(as_model(lambda o: kinds.append(type(o)) or ACTION, NATIVE)).predict(ACTION)
    assert kinds == [np.ndarray, Tensor]


def test_as_model_keeps_a_model_and_instantiates_a_subclass() -> None:
    kind = type("Sub", (Model,), {"predict": lambda self, o: ACTION})
    model = kind()
    assert as_model(model) is model
    assert type(as_model(kind)) is kind


@pytest.mark.parametrize("thing", [None, 3, "tcp://x:1"])
def test_as_model_refuses_the_rest(thing: Any) -> None:
    with pytest.raises(TypeError, match="callable"):
        as_model(thing)


# MOD-4: from_config


class Configured(NumpyModel):
    loads: list[dict[str, Any]]

    def __init__(self) -> None:
        self.loads = []
        super().__init__()

    def load(self, checkpoint: str, *, steps: int = 4) -> None:
        self.loads.append({"checkpoint": checkpoint, "steps": steps})

    def predict(self, observation: Any) -> Any:
        return self.loads[-1]["steps"]


def test_mod_4_from_config_loads_once_with_the_binding() -> None:
    model = Configured.from_config(checkpoint="a", steps=9)
    assert model.loads == [{"checkpoint": "a", "steps": 9}]
    assert model_corners(model).predict(ACTION) == 9


def test_mod_4_an_unknown_name_is_refused_before_anything_is_made() -> None:
    with pytest.raises(UnknownParamError, match=r"no 'chekpoint' .did you mean 'checkpoint'") as e:
        Configured.from_config(chekpoint="a", zzz=1)
    assert e.value.names == ["chekpoint", "zzz"]
    assert isinstance(e.value, ParamError)
    assert isinstance(e.value, ValueError)


def test_mod_4_a_missing_name_is_refused() -> None:
    with pytest.raises(MissingParamError, match="requires 'checkpoint'") as caught:
        Configured.from_config(steps=1)
    assert caught.value.name == "checkpoint"


def test_mod_4_unknown_names_pass_through_keyword_arguments() -> None:
    seen: list[Any] = []
    kind = type(
        "Open",
        (NumpyModel,),
        {"load": lambda self, **kw: seen.append(kw), "predict": lambda self, o: ACTION},
    )
    kind.from_config(a=1)
    assert seen == [{"a": 1}]


def test_mod_4_needs_an_authored_subclass_and_a_load() -> None:
    with pytest.raises(TypeError, match="needs an authored Model subclass"):
        NumpyModel.from_config()
    kind = type("Bare", (NumpyModel,), {"predict": lambda self, o: ACTION})
    assert kind.from_config()
    with pytest.raises(TypeError, match=r"Bare does not override load\(\).*checkpoint"):
        kind.from_config(checkpoint="a")


def test_mod_4_no_name_is_taken_by_from_config_itself() -> None:
    with pytest.raises(UnknownParamError, match="takes no 'cls'"):
        Configured.from_config(cls=1)


def test_mod_4_a_model_made_inside_another_still_loads() -> None:
    class Outer(NumpyModel):
        def __init__(self) -> None:
            self.inner = Configured.from_config(checkpoint="inner")
            super().__init__()

        def predict(self, observation: Any) -> Any:
            return self.inner.loads

    assert Outer.from_config().inner.loads == [{"checkpoint": "inner", "steps": 4}]


# Memory


def test_dropping_the_last_reference_frees_the_weights_at_once() -> None:
    class Weights: ...

    class Sub(NumpyModel):
        def load(self) -> None:
            self.weights = Weights()

        def predict(self, observation: Any) -> Any:
            return ACTION

    gc.disable()
    try:
        model = Sub()
        weights = weakref.ref(model.weights)
        model_corners(model).predict(ACTION)
        del model
        assert weights() is None
    finally:
        gc.enable()
