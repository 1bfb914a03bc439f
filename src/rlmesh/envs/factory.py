"""`EnvFactory`: how an author's envs are made, what they take, and what they say of themselves."""

from __future__ import annotations

import contextlib
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

from rlmesh.envs.binding import resolve, to_metadata
from rlmesh.envs.branches import BRANCH_KEY, branch_of, check_branches
from rlmesh.envs.hosts import peek
from rlmesh.envs.params import ParamSpec
from rlmesh.envs.trials import ENV_RESET_OPTIONS_KEY
from rlmesh.envs.variants import Variant
from rlmesh.values import Framework

if TYPE_CHECKING:
    from rlmesh.adapters.tags import EnvTags

__all__ = [
    "EnvFactory",
    "bind_make",
    "factory_framework",
    "is_factory",
    "made_framework",
]

_FRAMEWORK = "rlmesh_framework"
_WRAPPED = "__rlmesh_wrapped__"


class EnvFactory(ABC):
    """Makes envs from declared parameters. Subclass it and override :meth:`make`.

    What it declares is published with every env it makes (in ``env.metadata``), checked before
    anything is built, and listed by :func:`rlmesh.describe`. Serve it with :meth:`serve` or
    ``python -m rlmesh.serve module:Class``; ``rlmesh.run(model, MyEnvs())`` makes one env with the
    defaults and closes it, and the factory, afterwards.

    Whoever serves or runs a factory calls :meth:`prepare` once before the first :meth:`make`, and
    :meth:`close` once after the envs are closed, also where either failed.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> class CartPoles(rlmesh.EnvFactory):
        ...     params = rlmesh.ParamSpec(rlmesh.Param("steps", int, description="Episode length"))
        ...
        ...     def make(self, steps=500):
        ...         return gym.make("CartPole-v1", max_episode_steps=steps)
        >>> env = CartPoles().make(steps=200)
        >>> env.metadata["rlmesh.params.v1.binding"]["binding"]
        {'steps': 200}
        >>> rlmesh.run(lambda obs: 0, CartPoles()).num_episodes
        1
    """

    _framework: ClassVar[Framework | None] = None

    tags: EnvTags | None = None
    """What the env's leaves mean (``rlmesh.adapters.EnvTags``), or None."""
    params: ParamSpec | None = None
    """What :meth:`make` takes. None: whatever its signature takes, unchecked."""
    tag_params: tuple[str, ...] = ()
    """The params whose value decides the tags: each declared with choices, and with a default in
    the signature; 8 combinations at most. :meth:`tags_for` gives the tags of each."""
    reset_options: tuple[str, ...] = ()
    """The reset options the envs understand, such as ``"trial_index"``; only those are sent."""
    workflow_edition: str | None = None
    """The workflow edition this class was authored against."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_attributes(cls)
        made = inspect.getattr_static(cls, "make")
        if getattr(made, "__isabstractmethod__", False):
            return
        if not hasattr(made, _WRAPPED):
            cls.make = _stamping(cls, made)
        own = cls.tags_for.__func__ is not EnvFactory.tags_for.__func__
        check_branches(cls, tags_for_is_own=own)

    # What an author overrides

    def prepare(self) -> None:  # noqa: B027 - most need none
        """Get ready to make envs: download assets, start a simulator. Called once, before."""

    @abstractmethod
    def make(self, *args: Any, **params: Any) -> Any:
        """Return a new env with the gymnasium surface, single or vector.

        Its parameters are the factory's, with the defaults of its signature. Whatever the author
        returns gains the factory's tags, reset options and parameters in its ``metadata``, a new
        dict on that env alone.

        Raises:
            ParamError: parameters that do not fit :attr:`params`; nothing was built.
            TypeError: the author returned no env, or one whose metadata cannot be set.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Release what :meth:`prepare` and :meth:`make` took, the envs aside. Called once, after.

        Also called where one of them failed.
        """

    @classmethod
    def tags_for(cls, *args: Any, **params: Any) -> EnvTags | None:
        """Return the tags of one contract branch: of these values of :attr:`tag_params`."""
        return cls.tags

    @classmethod
    def enumerate_variants(cls) -> Iterable[Variant | Mapping[str, Any]]:
        """Return or yield the :class:`Variant` of each env worth naming. Default: none."""
        return ()

    @classmethod
    def enumerate_params(cls) -> Mapping[str, Iterable[Any]]:
        """Return the values worth sweeping, by param. Default: none."""
        return {}

    # What a caller uses

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Return the factory's metadata envelope; the same as ``rlmesh.describe(MyEnvs)``."""
        from rlmesh.describing import describe

        return describe(cls)

    @final
    def serve(
        self,
        address: str,
        *,
        num_envs: int = 1,
        vectorization_mode: str | None = None,
        framework: str | Framework | None = None,
        device: str | None = None,
        workflow_edition: str | None = None,
        **make_kwargs: Any,
    ) -> None:
        """Make an env and serve it until it is stopped, on the calling thread.

        Args:
            address: where to listen.
            num_envs: how many to make; several are lanes of one server.
            vectorization_mode: ``"sync"`` or ``"async"``: as gymnasium's vector env instead.
            framework: of the env's values, ``"numpy"``, ``"torch"`` or ``"jax"``. Default: that of
                the class (``rlmesh.torch.EnvFactory``).
            device: where the env's actions are put, e.g. ``"cuda:0"``; for torch and jax.
            workflow_edition: the edition the env was authored against.
            **make_kwargs: the parameters of :meth:`make`.

        Raises:
            ParamError: parameters that do not fit; nothing was built.
            ConnectionError: the address cannot be bound.
            KeyboardInterrupt: after SIGINT.
        """
        from rlmesh.serve import serve_env

        serve_env(
            self,
            address,
            num_envs=num_envs,
            vectorization_mode=vectorization_mode,
            framework=framework,
            device=device,
            workflow_edition=workflow_edition,
            **make_kwargs,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def is_factory(thing: Any) -> bool:
    """Whether ``thing`` makes envs, as a factory or a factory's class, rather than being one."""
    return not callable(peek(thing, "step")) and callable(peek(thing, "make"))


def bind_make(factory: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for ``factory.make``; unchecked if it declares no params.

    Raises:
        ParamError: they do not fit; nothing was called.
    """
    spec = getattr(factory, "params", None)
    if not isinstance(spec, ParamSpec):
        return dict(config)
    return resolve(spec, factory.make, config, type(factory).__name__)


def factory_framework(factory: Any) -> Framework | None:
    """Return the framework whose values the factory's envs take and give; None if any will do."""
    return getattr(factory, "_framework", None)


def made_framework(env: Any) -> Framework | None:
    """Return the framework of the factory that made ``env``; None without one."""
    return peek(env, _FRAMEWORK)


# At class creation


def _check_attributes(cls: type[EnvFactory]) -> None:
    """Raise TypeError for a class attribute that is none of what it may be."""
    name = cls.__name__
    if cls.params is not None and not isinstance(cls.params, ParamSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}.params must be a ParamSpec or None, got {cls.params!r}")
    if cls.tags is not None:
        from rlmesh.adapters.tags import EnvTags

        if not isinstance(cls.tags, EnvTags):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name}.tags must be EnvTags or None, got {cls.tags!r}")
    for attribute in ("tag_params", "reset_options"):
        names: Any = getattr(cls, attribute)
        if not isinstance(names, (tuple, list)) or not all(
            isinstance(entry, str) and entry for entry in cast("tuple[Any, ...]", names)
        ):
            raise TypeError(f"{name}.{attribute} must be a tuple of names, got {names!r}")


def _stamping(cls: type[EnvFactory], make: Any) -> Callable[..., Any]:
    """Return ``make`` with checked parameters, whose envs publish what the factory declares."""
    if not inspect.isfunction(make):
        raise TypeError(
            f"{cls.__name__}.make must be a plain method, got {type(make).__name__}; define it "
            "with def make(self, ...)"
        )
    parameters = list(inspect.signature(make).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_name = not any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) for p in parameters)

    @functools.wraps(make)
    def made(self: EnvFactory, *args: Any, **params: Any) -> Any:
        if inspect.getattr_static(type(self), "make") is not made:
            return make(self, *args, **params)  # an overriding make() is calling super().make()
        if self.params is not None:
            if by_name and len(args) <= len(names) and not set(names[: len(args)]) & set(params):
                params.update(zip(names, args, strict=False))
                args = ()
            params = resolve(self.params, self.make, params, type(self).__name__)
        facts = _published(self, params)
        env = make(self, *args, **params)
        return _stamped(self, env, facts)

    setattr(made, _WRAPPED, True)
    return made


# With every env


def _published(factory: EnvFactory, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an env made with ``params``."""
    facts = to_metadata(factory.params, factory.make, params)
    branch = branch_of(factory, params)
    tags = type(factory).tags_for(**branch) if branch else factory.tags
    if tags is not None:
        facts.update(tags.to_metadata())
    if branch:
        facts[BRANCH_KEY] = branch
    if factory.reset_options:
        facts[ENV_RESET_OPTIONS_KEY] = list(factory.reset_options)
    return facts


def _stamped(factory: EnvFactory, env: Any, facts: Mapping[str, Any]) -> Any:
    """Return ``env`` with ``facts`` in its metadata, its class's own untouched."""
    name = type(factory).__name__
    made = f"{name}.make() returned {type(env).__name__}"
    try:
        if isinstance(env, type) or not all(
            callable(peek(env, method)) for method in ("reset", "step", "close")
        ):
            raise TypeError(f"{made}: expected an env with reset(), step() and close()")
        if facts:
            try:
                env.metadata = {**(peek(env, "metadata") or {}), **facts}
            except (AttributeError, TypeError) as exc:
                raise TypeError(
                    f"{made}, whose metadata cannot be set ({exc}); what {name} declares is "
                    "published there: make it a dict that can be replaced, or wrap the env"
                ) from None
    except BaseException:
        with contextlib.suppress(Exception):  # nobody else knows of it, whatever it is
            cast("Any", env).close()
        raise
    framework = factory_framework(factory)
    if framework is not None:
        with contextlib.suppress(AttributeError, TypeError):
            setattr(env, _FRAMEWORK, framework)
    return env
