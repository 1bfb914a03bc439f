"""`Model`: what an author writes around a policy, and what an evaluation makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypedDict, TypeVar, overload

from rlmesh._typevars import ActT_co, ObsT_contra, Subscriptable
from rlmesh.models.corners import CHUNKED, CORNERS, Corners, check_derivable, resolve_corners
from rlmesh.models.signatures import (
    Corner,
    Signature,
    passing_episode_id,
    read_signature,
    reset_edge,
)
from rlmesh.values import NATIVE, NUMPY, Framework
from rlmesh.values.frameworks import check_place

__all__ = ["NO_ADAPTER", "Model", "as_model", "is_model", "model_corners"]

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlmesh.adapters.specs import ModelSpec
    from rlmesh.envs.params import ParamSpec
    from rlmesh.models.policies import PolicyClass, PolicyObject, PredictCallable, SupportsCall

_ModelT = TypeVar("_ModelT", bound="Model")


class _NoAdapter:
    def __repr__(self) -> str:
        return "NO_ADAPTER"

    def __reduce__(self) -> str:
        return "NO_ADAPTER"


NO_ADAPTER: Final = _NoAdapter()
"""As a model's ``spec``: no adapter is resolved, predict gets the raw observation."""


class _Options(TypedDict, total=False):
    """What ``Model`` takes beside its source."""

    spec: ModelSpec | _NoAdapter | None
    on_episode_end: Callable[..., Any] | None
    on_close: Callable[[], Any] | None
    trust_entrypoints: bool


class Model(Subscriptable, Generic[ObsT_contra, ActT_co]):
    """A policy as an evaluation runs it.

    Wrap a predict callable, a policy object or a policy class, or subclass and override ``load``
    and at least one of the four corners ``predict``, ``predict_chunk``, ``predict_batch`` and
    ``predict_chunk_batch``; the others are derived from the more general ones. A chunk corner may
    take ``execution_horizon`` as its second parameter, every corner a trailing ``context``
    (:class:`~rlmesh.PredictContext`).

    Array leaves of an observation are read-only :class:`~rlmesh.Tensor` here, and batch corners get
    a list with one observation per lane. In the Model of ``rlmesh.numpy``, ``rlmesh.torch`` and
    ``rlmesh.jax`` they are that library's arrays, fused along a leading batch axis.

    To a type checker it is a ``Model[Observation, Action]``: as an annotated source says, or as the
    base of a subclass does.

    Args:
        source: a predict callable; or a policy object, or class to be instantiated, with any of the
            corners and, optionally, ``reset``, ``close``, ``spec`` and ``native_chunk``.
        spec: what the policy eats and emits (``rlmesh.adapters.ModelSpec``), or
            ``rlmesh.NO_ADAPTER``; overrides the class attribute.
        on_episode_end: called at every episode end in place of ``reset``; gets the episode id if it
            takes an argument.
        on_close: called at the end of a run in place of ``close``.
        trust_entrypoints: allow the spec to name code to import.

    Raises:
        TypeError: no corner, an impossible source, or a corner with a parameter nobody fills.
        ValueError: ``device`` is set on a model whose framework has none, or ``native_chunk`` < 1.
        ImportError: the framework's library is not installed, or too old.

    Example:
        >>> import numpy as np
        >>> from rlmesh.numpy import Model
        >>> class Upright(Model):
        ...     def load(self):
        ...         self.gain = np.array([0.0, 0.0, 1.0, 0.5])
        ...
        ...     def predict_batch(self, observations):  # [N, 4]
        ...         return (observations @ self.gain > 0).astype(int)  # [N]
        >>> policy = Upright()
        >>> policy.predict_batch(np.eye(4)).tolist()
        [0, 0, 1, 1]
    """

    _framework: ClassVar[Framework] = NATIVE

    spec: Any = None
    """A ``ModelSpec``, ``rlmesh.NO_ADAPTER`` or None."""
    params: ParamSpec | None = None
    """What :meth:`load` takes (``rlmesh.ParamSpec``), as :meth:`from_config` checks it. None: what
    its signature takes."""
    workflow_edition: str | None = None
    device: Any = None
    """Where the framework's observation leaves are put before every predict; None leaves them. Set
    it in :meth:`load`, with the weights. Only for frameworks with devices."""
    allow_fusion: bool = True
    """Whether lanes of different envs may share a forward pass."""
    native_chunk: int | None = None
    """The exact number of actions every chunk has, where the weights fix it."""

    @overload
    def __init__(
        self, source: PolicyClass[ObsT_contra, ActT_co], **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self,
        source: PolicyObject[ObsT_contra, ActT_co] | type[SupportsCall[ObsT_contra, ActT_co]],
        **options: Unpack[_Options],
    ) -> None: ...

    @overload
    def __init__(
        self,
        source: PredictCallable[ObsT_contra, ActT_co] | None = None,
        **options: Unpack[_Options],
    ) -> None: ...

    def __init__(
        self,
        source: Any = None,
        *,
        spec: Any = None,
        on_episode_end: Callable[..., Any] | None = None,
        on_close: Callable[[], Any] | None = None,
        trust_entrypoints: bool = False,
    ) -> None:
        self._framework.ensure_available()
        _check_hook("on_episode_end", on_episode_end)
        _check_hook("on_close", on_close)
        self.trust_entrypoints = trust_entrypoints
        if source is not None:
            self._wrap(source)
        if spec is not None:
            self.spec = spec
        self._hooks = (on_episode_end, on_close)
        # What can be wrong with the class is found before the weights are read.
        self._signatures = self._read_signatures()
        if "_load_later" not in self.__dict__:
            self._start({})

    # What an author overrides; *args and **kwargs, as an override may take more, or name it anew

    def load(self, *args: Any, **binding: Any) -> None:
        """Read the weights. Called once, at construction. Put heavy imports here."""

    def reset(self) -> None:
        """Forget the episode. Called at every episode end; there is no hook at its beginning."""

    def close(self) -> None:
        """Release what :meth:`load` took. Called at the end of a run."""

    def on_episode_end(self, *episode_id: Any, **_: Any) -> None:
        """End one episode by its id, for a policy with state per episode; calls :meth:`reset`."""
        self.reset()

    def predict(self, observation: ObsT_contra, /, *args: Any, **kwargs: Any) -> ActT_co:
        """Return one action for one observation."""
        raise NotImplementedError(_undefined(self, "predict"))

    def predict_chunk(self, observation: ObsT_contra, /, *args: Any, **kwargs: Any) -> Any:
        """Return a chunk of actions ``[H, ...]`` for one observation."""
        raise NotImplementedError(_undefined(self, "predict_chunk"))

    def predict_batch(self, observations: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return actions ``[N, ...]`` for one observation whose leaves are ``[N, ...]``."""
        raise NotImplementedError(_undefined(self, "predict_batch"))

    def predict_chunk_batch(self, observations: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return chunks ``[N, H, ...]`` for one observation whose leaves are ``[N, ...]``."""
        raise NotImplementedError(_undefined(self, "predict_chunk_batch"))

    # What a caller uses

    @classmethod
    def from_config(cls: type[_ModelT], /, **config: Any) -> _ModelT:
        """Return an instance whose ``load`` is given ``config``, once it is known to fit.

        Raises:
            TypeError: the class defines no corner, or takes a ``config`` but no ``load``.
            ParamError: ``config`` does not fit :attr:`params` and the signature of ``load``.
        """
        if not _own_corners(cls):
            raise TypeError(
                f"from_config() needs an authored Model subclass: {cls.__name__} has no corner"
            )
        if config and cls.load is Model.load:
            raise TypeError(
                f"{cls.__name__} does not override load(), so nothing takes {', '.join(config)}"
            )
        model = cls.__new__(cls)
        from rlmesh.envs.binding import resolve

        binding = resolve(cls.params, model.load, config, cls.__name__)
        model.__dict__["_load_later"] = True
        model.__init__()
        _check_initialised(model)
        del model.__dict__["_load_later"]
        model._start(binding)
        return model

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Return the class's metadata envelope; the same as ``rlmesh.describe(MyModel)``.

        Nothing is made and nothing is loaded. ``corners`` lists the corners the class defines,
        ``signatures`` how each takes the horizon and the context, ``sources`` which of them answers
        each of the four.
        """
        from rlmesh.describing import describe

        return describe(cls, kind="model")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # Construction

    def _wrap(self, source: Any) -> None:
        """Take the corners, hooks and attributes of ``source`` as this instance's own."""
        kind = type(self)
        if is_model(source):
            raise TypeError(
                "Model received a Model as its source. Instantiate your Model subclass directly: "
                "it needs no wrapping"
            )
        if _own_corners(kind):
            raise TypeError(
                f"{kind.__name__} defines {', '.join(_own_corners(kind))} itself and wraps "
                "nothing; drop the source argument"
            )
        if isinstance(source, type):
            source = _instantiate(source)
        taken = {
            name: function for name in CORNERS if callable(function := getattr(source, name, None))
        }
        if not taken:
            if not callable(source):
                raise TypeError(
                    "Model source must be a predict callable or a policy object with predict(); "
                    f"got {type(source).__name__}"
                )
            self.__dict__["predict"] = source
            return
        for name in ("reset", "close"):
            function = getattr(source, name, None)
            if callable(function) and getattr(kind, name) is getattr(Model, name):
                taken[name] = function
        self.__dict__.update(taken)
        for name in ("spec", "native_chunk"):
            value = getattr(source, name, None)
            if value is not None:
                self.__dict__[name] = value

    def _read_signatures(self) -> dict[str, Signature]:
        """Return how each corner that is defined, by class or instance, wants to be called."""
        names = [n for n in CORNERS if n in self.__dict__ or n in _own_corners(type(self))]
        if not names:
            raise TypeError(
                "Model() needs a predict callable, e.g. Model(lambda obs: ...), or a subclass that "
                f"overrides one of {', '.join(CORNERS)}"
            )
        check_derivable(names, self._framework)
        _check_native_chunk(self.native_chunk, names)
        return {n: read_signature(n, getattr(self, n), chunked=n in CHUNKED) for n in names}

    def _start(self, binding: Mapping[str, Any]) -> None:
        """Load, and look again at what ``load`` may have set."""
        self.load(**binding)
        self._signatures = self._read_signatures()
        _check_device(self)
        self._episode_edge()

    def _episode_edge(self) -> Callable[[str], None]:
        """Return what ends an episode: the argument, the author's method, or ``reset``."""
        argument = self._hooks[0]
        if argument is not None:
            return passing_episode_id(argument)
        if type(self).on_episode_end is not Model.on_episode_end:
            return passing_episode_id(self.on_episode_end)
        return reset_edge(self.reset)

    def _resolve(self) -> Corners:
        # Made for each run and not kept: it holds bound methods, and a cycle through the model
        # would keep its weights alive after the last reference is dropped.
        _check_device(self)
        if self.device is not None:
            check_place(self._framework, self.device, "observations")
        return resolve_corners(
            [Corner(name, getattr(self, name), how) for name, how in self._signatures.items()],
            framework=self._framework,
            native_chunk=self.native_chunk,
            allow_fusion=self.allow_fusion,
            device=lambda: self.device,
            end_episode=self._episode_edge(),
            close=self.close if self._hooks[1] is None else self._hooks[1],
        )


def as_model(thing: Any, framework: Framework = NUMPY) -> Model:
    """Return the Model that ``thing`` is or makes.

    Args:
        thing: a Model, a Model subclass, a predict callable, a policy object or a policy class. A
            class is instantiated, and what is made here is the caller's to close.
        framework: what a thing that is no Model is given as array leaves. Default: NumPy.

    Raises:
        TypeError: ``thing`` is none of these.
    """
    if thing is None:
        raise TypeError("model must be a Model, a policy object or class, or a callable; got None")
    if not is_model(thing):
        return _bound_class(framework)(thing)
    return thing() if isinstance(thing, type) else thing


def model_corners(model: Model) -> Corners:
    """Return the corners of ``model``, resolved for one run or session.

    Raises:
        ValueError: its ``device`` was set, and its framework has none, or none such.
        TypeError: its class overrides ``__init__`` and does not call ``super().__init__()``.
    """
    _check_initialised(model)
    return model._resolve()  # pyright: ignore[reportPrivateUsage]


def is_model(thing: Any) -> bool:
    """Whether ``thing`` is a Model or a Model subclass."""
    return isinstance(thing, Model) or (isinstance(thing, type) and issubclass(thing, Model))


@cache
def _bound_class(framework: Framework) -> type[Model]:
    if framework is NATIVE:
        return Model
    return type("Model", (Model,), {"__module__": __name__, "_framework": framework})


def _own_corners(cls: type[Model]) -> list[str]:
    """Return the corners that a subclass of Model defines."""
    return [name for name in CORNERS if getattr(cls, name) is not getattr(Model, name)]


def _undefined(model: Model, name: str) -> str:
    return (
        f"{type(model).__name__} does not define {name}(). Model subclasses must override a corner "
        "to call it; an evaluation derives the ones left out"
    )


def _instantiate(source: type) -> Any:
    try:
        return source()
    except TypeError as exc:
        raise TypeError(
            f"{source.__name__} cannot be made without arguments ({exc}); pass an instance of it"
        ) from exc


def _check_initialised(model: Model) -> None:
    if "_hooks" not in model.__dict__:
        raise TypeError(
            f"{type(model).__name__}.__init__() does not call super().__init__(), so the model was "
            "never loaded; call it last, or do the work in load()"
        )


def _check_hook(name: str, hook: Any) -> None:
    if hook is not None and not callable(hook):
        raise TypeError(f"{name} must be a callable or None, got {type(hook).__name__}")


def _check_device(model: Model) -> None:
    framework = model._framework  # pyright: ignore[reportPrivateUsage]
    if model.device is not None and not framework.has_device:
        raise ValueError(
            f"device={model.device!r} requires a torch/jax model: {framework.name} values, which "
            f"{type(model).__name__} is given, have no device. Use rlmesh.torch.Model or "
            "rlmesh.jax.Model, or drop device"
        )


def _check_native_chunk(native: Any, corners: list[str]) -> None:
    if native is None:
        return
    if isinstance(native, bool) or not isinstance(native, int):
        raise TypeError(f"native_chunk must be an int or None, got {native!r}")
    if native < 1:
        raise ValueError(f"native_chunk must be >= 1, got {native}")
    if not CHUNKED.intersection(corners):
        raise TypeError(
            f"native_chunk={native} says how long a chunk is, but the model defines no "
            "predict_chunk() or predict_chunk_batch(); add one, or drop native_chunk"
        )
