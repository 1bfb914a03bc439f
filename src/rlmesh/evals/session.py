"""`Session`: one model on one env, driven by hand or by `run`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Hashable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, cast

from rlmesh._typevars import ActT, ObsT, Subscriptable
from rlmesh.envs.link import as_seed
from rlmesh.envs.trials import TRIAL_INDEX, takes_trials
from rlmesh.errors import add_note
from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.engine import Request, check_request, check_trial, execute
from rlmesh.evals.hooks import RunHooks
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import (
    CornersPolicy,
    Policy,
    RandomPolicy,
    RandomSample,
    fitted,
    planned,
    replayed,
)
from rlmesh.evals.remote_policy import RemotePolicy, remote_handles
from rlmesh.evals.results import RunResult
from rlmesh.evals.schedule import Assignment
from rlmesh.evals.targets import Targets, list_targets, trial_options
from rlmesh.models import Corners, as_model, check_horizon, model_corners
from rlmesh.wire.contract import EnvContract
from rlmesh.wire.editions import wanted_edition
from rlmesh.wire.ids import uuid7

if TYPE_CHECKING:
    from typing_extensions import Self

    from rlmesh.adapters.readers import FrameSources, Reader
    from rlmesh.adapters.tags import ObservationRoles
    from rlmesh.types import EnvTarget, ModelTarget

__all__ = ["Session"]


class Session(Subscriptable, Generic[ObsT, ActT]):
    """A model on an env. Made by ``rlmesh.session`` or ``Model.session``.

    Nothing is connected before the first use. :meth:`reset`, :meth:`predict` and :meth:`step` drive
    a single env by hand; :meth:`run` runs episodes and keeps the session open. A context manager,
    whose exit closes. To a type checker it is a ``Session[Observation, Action]``, as the env says.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> with rlmesh.session(lambda obs: int(obs[2] > 0), gym.make("CartPole-v1")) as sess:
        ...     obs, info = sess.reset(seed=0)
        ...     while not sess.done:
        ...         obs, reward, terminated, truncated, info = sess.step(sess.predict(obs))
        >>> terminated
        True
    """

    def __init__(
        self,
        model: ModelTarget,
        env: EnvTarget[ObsT, ActT],
        *,
        instruction: str | None = None,
        close_env: bool = False,
        trust_entrypoints: bool | None = None,
        execution_horizon: int = 1,
        workflow_edition: str | None = None,
    ) -> None:
        self._horizon = check_horizon(execution_horizon)
        authored = getattr(model, "workflow_edition", None)
        self._edition = wanted_edition(keyword=workflow_edition, attribute=authored)
        self._wanted = list_targets(env)
        self._instruction = instruction
        self._close_env = close_env
        self._trust = trust_entrypoints
        self._served = remote_handles(model)
        if self._served:
            model = self._served[0]
            _refuse_served("instruction", instruction)
            _refuse_served("trust_entrypoints", trust_entrypoints)
        if model is None:
            raise TypeError(
                "model must be a Model, a policy object or class, a callable, a RemoteModel or "
                "RANDOM_SAMPLE; got None"
            )
        self._model: Any = None if isinstance(model, RandomSample) else model
        self._name = "RANDOM_SAMPLE" if self._model is None else _name_of(model)
        self._corners: Corners | None = None
        if self._model is not None and not isinstance(model, type) and not self._served:
            # A class is made, and its weights are read, once its spec is known to fit the env.
            self._make_model()
        self._targets: Targets | None = None
        self._policy: Policy | None = None
        self._lane: Lane | None = None
        self._readers: dict[Any, Reader] = {}
        self._closed = False

    # Connecting

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("session is closed; make a new one")

    def _connected(self) -> tuple[Targets, Policy]:
        self._check_open()
        if self._targets is None or self._policy is None:
            if self._targets is None:
                self._targets = Targets(self._wanted, self._edition)
            self._policy = self._make_policy(self._targets)
        return self._targets, self._policy

    def _make_model(self) -> None:
        self._model = as_model(self._model)
        self._corners = model_corners(self._model)
        self._horizon = self._corners.check_horizon(self._horizon)

    def _make_policy(self, targets: Targets) -> Policy:
        endpoints = targets.endpoints
        if self._model is None:
            return RandomPolicy(endpoints[0].contract.action_space)
        if self._served:
            return RemotePolicy(self._served, endpoints, self._horizon)
        from rlmesh.evals.adapted import AdaptedPolicy, check_history, resolve_adapters

        trust = self._trust
        if trust is None:
            trust = bool(getattr(self._model, "trust_entrypoints", False))
        spec = getattr(self._model, "spec", None)
        adapters = resolve_adapters(spec, endpoints, trust_entrypoints=trust)
        if self._corners is None:
            self._make_model()
            if self._model.spec is not spec:  # load() or __init__ chose another
                adapters = resolve_adapters(self._model.spec, endpoints, trust_entrypoints=trust)
        assert self._corners is not None
        if adapters is None:
            return CornersPolicy(self._corners, self._horizon)
        check_history(adapters.values(), targets.lanes)
        return AdaptedPolicy(self._corners, self._horizon, adapters, self._instruction)

    @property
    def contract(self) -> EnvContract:
        """What the env says of itself. Connects."""
        return self._connected()[0].endpoints[0].contract

    @property
    def num_envs(self) -> int:
        """How many lanes the env has. Connects."""
        return self._connected()[0].lanes

    @property
    def selected_workflow_edition(self) -> str:
        """The workflow edition agreed on with a remote env. Connects.

        Raises:
            RuntimeError: the env is local: nothing was negotiated.
        """
        endpoint = self._connected()[0].endpoints[0]
        link = getattr(endpoint, "link", None)
        if link is None:
            raise RuntimeError("a local env has no negotiated workflow edition")
        return link.edition

    # By hand

    def _single(self) -> tuple[LocalScalar | RemoteScalar, Policy]:
        targets, policy = self._connected()
        endpoint = targets.endpoints[0]
        if len(targets.endpoints) > 1 or not isinstance(endpoint, (LocalScalar, RemoteScalar)):
            raise ValueError(
                "reset, predict and step drive a single env, but the env reports num_envs="
                f"{targets.lanes}; use run(), which drives any number"
            )
        return endpoint, policy

    def reset(
        self, *, seed: int | None = None, trial_index: int | None = None
    ) -> tuple[ObsT, Mapping[str, Any]]:
        """End the last episode and begin another.

        Args:
            seed: passed to the env's reset, and to the model as context; int64.
            trial_index: which of its initial conditions the env begins with, 0 or more; passed as
                a reset option to an env that declares it (``EnvFactory.reset_options``). To any
                other it is not, with a warning.

        Returns:
            (observation, info)
        """
        if trial_index is not None:
            check_trial(trial_index)
        endpoint, policy = self._single()
        seeds = () if seed is None else (as_seed(seed),)
        self._end_episode(policy)
        started = time.perf_counter()
        endpoint.send_reset(None, seeds, self._options(trial_index))
        (observation,), (info,) = endpoint.recv_reset()
        assignment = Assignment(0, seeds[0] if seeds else None)
        self._lane = Lane(assignment, Limits(), observation, started, uuid7(), endpoint)
        return observation, info

    def _options(self, trial_index: int | None) -> Mapping[str, Any] | None:
        if trial_index is None:
            return None
        if takes_trials(self.contract.metadata):
            return {TRIAL_INDEX: trial_index}
        warnings.warn(
            f"trial_index={trial_index} was given, but the env declares no such reset option; it "
            "is not sent. List it in the factory's reset_options",
            stacklevel=3,
        )
        return None

    def predict(self, obs: ObsT) -> ActT:
        """Return the action for ``obs``, ready for :meth:`step`.

        Applies the model with everything around it, and replays one action of a chunk a call.

        Raises:
            RuntimeError: no episode has begun.
            ValueError: the model returned something that is no action of the env.
        """
        endpoint, policy = self._single()
        lane = self._open_lane("predict")
        lane.observation = obs
        queue = lane.queue
        if queue:
            action = replayed(policy, lane)
        else:
            began = time.perf_counter()
            action = queue.start(planned(policy, (lane,))[0])
            lane.spent_s += time.perf_counter() - began
        return fitted(policy, lane, action, endpoint.conform)

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, Mapping[str, Any]]:
        """Step the env; returns (observation, reward, terminated, truncated, info).

        Raises:
            RuntimeError: no episode has begun, or it has ended.
            ValueError: ``action`` is none of the env's.
        """
        endpoint, _ = self._single()
        lane = self._open_lane("step")
        if lane.over:
            raise RuntimeError("step() after the episode ended; call reset() first")
        before = time.perf_counter()
        observation, reward, terminated, truncated, info = endpoint.step(endpoint.conform(action))
        step_s = time.perf_counter() - before
        lane.note(info)
        lane.over = lane.advance(observation, reward, terminated, truncated, step_s)
        return observation, reward, terminated, lane.truncated or truncated, info

    @property
    def done(self) -> bool:
        """Whether the episode has ended; False before the first reset."""
        return self._lane is not None and self._lane.over

    def _open_lane(self, what: str) -> Lane:
        if self._lane is None:
            raise RuntimeError(f"{what}() before reset(): no episode has begun")
        return self._lane

    def _end_episode(self, policy: Policy) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            policy.end(lane)

    # By the loop

    def run(
        self,
        *,
        seeds: Iterable[int] | None = None,
        max_episodes: int | None = None,
        episodes: int | None = None,
        max_episode_steps: int | None = None,
        max_episode_seconds: float | None = None,
        hooks: RunHooks | Iterable[RunHooks] | None = None,
        prefetch_lead: int = 0,
        progress: bool | None = None,
        journal: str | os.PathLike[str] | None = None,
        retries: int = 0,
        max_batch: int | None = None,
        batch_wait_ms: float | None = None,
        pushdown: bool = False,
        trial_index_base: int = 0,
    ) -> RunResult:
        """Run episodes and keep the session open; arguments as for ``rlmesh.run``."""
        request = check_request(
            seeds=seeds,
            max_episodes=max_episodes,
            episodes=episodes,
            max_episode_steps=max_episode_steps,
            max_episode_seconds=max_episode_seconds,
            hooks=hooks,
            prefetch_lead=prefetch_lead,
            retries=retries,
            max_batch=max_batch,
            batch_wait_ms=batch_wait_ms,
            progress=progress,
            journal=journal,
            pushdown=pushdown,
            trial_index_base=trial_index_base,
        )
        return self.execute(request)

    def execute(
        self, request: Request, *, last: bool = False, config: Mapping[str, Any] | None = None
    ) -> RunResult:
        """Run a checked request; nothing is used after the ``last``.

        ``config`` is what else a journal must agree on: JSON data.
        """
        self._check_open()
        if not request.seeds:
            request.hooks.on_run_start(self)
            request.hooks.on_run_end(nothing := RunResult(()))
            return nothing
        targets, policy = self._connected()
        if request.prefetch_lead and policy.remembers:
            raise ValueError(
                "prefetch_lead predicts from an observation that the model's frame stack or "
                "previous actions have not reached; use prefetch_lead=0 with such a spec"
            )
        self._end_episode(policy)
        contract = targets.endpoints[0].contract
        return execute(
            request,
            targets.endpoints,
            policy,
            self,
            config={
                "model": self._name,
                "env": contract.id,
                "observation_space": repr(contract.observation_space),
                "action_space": repr(contract.action_space),
                "execution_horizon": self._horizon,
                "instruction": self._instruction,
                **(config or {}),
            },
            read=self._read,
            options=trial_options(targets.endpoints, request.trial_index_base),
            kept=targets.borrowed if last else targets.endpoints,
        )

    # By role

    def reader(self, *items: Any) -> Reader:
        """Return a function from an observation to ``{role: value}``. Connects.

        Args:
            items: roles, whose value comes as the env gives it, or ``Image``, ``State`` and
                ``Text`` leaves (``rlmesh.adapters``), which convert as for a model.

        Raises:
            AdapterResolutionError: the env carries no tags or has no such role, or a role is asked
                for twice.
            TypeError: no item, or one that is neither a role nor such a leaf.
        """
        return self._reader(self._connected()[0].endpoints[0], *items)

    def _reader(self, endpoint: Endpoint, *items: Any) -> Reader:
        from rlmesh.adapters.readers import reader
        from rlmesh.adapters.resolution import published_tags

        contract = endpoint.contract
        link = getattr(endpoint, "link", None)
        return reader(
            published_tags(contract.metadata),
            contract.observation_space,
            *items,
            framework=None if link is None else link.options.framework,
        )

    def read(self, obs: ObsT, item: Any) -> Any:
        """Return one value of an observation by role; ``item`` as for :meth:`reader`. Connects."""
        return self._read(self._connected()[0].endpoints[0], obs, item)

    def _read(self, endpoint: Endpoint, obs: Any, item: Any) -> Any:
        if not isinstance(item, Hashable):
            self._reader(endpoint, item)  # says what an item may be
        reader = self._readers.get((endpoint, item))
        if reader is None:
            reader = self._readers[endpoint, item] = self._reader(endpoint, item)
        return reader(obs)[reader.roles[0]]

    def observation_roles(self) -> ObservationRoles:
        """Return the roles the env offers, by kind; empty groups without tags. Connects."""
        from rlmesh.adapters.readers import observation_roles
        from rlmesh.adapters.resolution import published_tags

        return observation_roles(published_tags(self.contract.metadata))

    def frame_sources(self) -> FrameSources:
        """Return where pictures of the env can come from: camera roles, and its render. Connects.

        An env of several lanes renders none.
        """
        from rlmesh.adapters.readers import frame_sources
        from rlmesh.adapters.resolution import published_tags

        targets, _ = self._connected()
        endpoint, contract = targets.endpoints[0], self.contract
        render = endpoint.render if isinstance(endpoint, (LocalScalar, RemoteScalar)) else None
        if targets.lanes > 1 or render is None:
            return frame_sources(published_tags(contract.metadata), None, lambda: None)
        return frame_sources(published_tags(contract.metadata), contract.render_mode, render)

    # The end

    def close(self) -> None:
        """End the open episode, tell the model, and leave the env. Idempotent.

        The env itself is closed only with ``close_env``. Every step is taken; the first error of
        them is raised.
        """
        if self._closed:
            return
        self._closed = True
        first: BaseException | None = None
        for act in (self._finish_model, self._leave):
            try:
                act()
            except BaseException as exc:
                first = first or exc
        if first is not None:
            raise first

    def _finish_model(self) -> None:
        policy = self._policy
        if policy is not None:
            try:
                self._end_episode(policy)
            finally:
                policy.close()
        elif self._corners is not None:
            self._corners.close()

    def _leave(self) -> None:
        targets = self._targets
        if targets is not None:
            try:
                if self._close_env:
                    targets.close_envs()
            finally:
                targets.release()

    def abort(self, exc: BaseException) -> None:
        """Close after ``exc`` ended a run; what the closing meets does not replace it."""
        if isinstance(exc, (KeyboardInterrupt, SystemExit)):
            for side in (self._targets, self._policy):
                if side is not None:
                    side.hang_up()
        try:
            self.close()
        except Exception as second:
            add_note(exc, f"while closing the session: {type(second).__name__}: {second}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.close()
        else:
            self.abort(exc)


def _refuse_served(name: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            f"{name}={value!r} is of no use with a RemoteModel: its adapters live on the server; "
            "set it there"
        )


def _name_of(model: Any) -> str:
    named = cast("Any", model if hasattr(model, "__qualname__") else type(model))
    return f"{named.__module__}:{named.__qualname__}"
