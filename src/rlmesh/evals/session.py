"""`Session`: one model on one env, driven by hand or by `run`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from rlmesh._typevars import ActT, ObsT, Subscriptable
from rlmesh.envs.link import as_seed
from rlmesh.errors import add_note
from rlmesh.evals.by_hand import ByHand
from rlmesh.evals.endpoints import LocalScalar, RemoteScalar
from rlmesh.evals.engine import Request, check_request, check_trial, execute
from rlmesh.evals.hooks import RunHooks
from rlmesh.evals.policy import Policy
from rlmesh.evals.policy_maker import PolicyMaker
from rlmesh.evals.results import RunResult
from rlmesh.evals.roles import RoleReads, frame_sources_of, reader_of, roles_of
from rlmesh.evals.targets import Targets, list_targets, trial_option, trial_options
from rlmesh.models import check_horizon
from rlmesh.wire.contract import EnvContract
from rlmesh.wire.editions import wanted_edition

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
        horizon = check_horizon(execution_horizon)
        authored = getattr(model, "workflow_edition", None)
        self._edition = wanted_edition(keyword=workflow_edition, attribute=authored)
        self._wanted = list_targets(env)
        self._close_env = close_env
        self._maker = PolicyMaker(
            model, horizon, instruction=instruction, trust_entrypoints=trust_entrypoints
        )
        self._targets: Targets | None = None
        self._policy: Policy | None = None
        self._by_hand: ByHand | None = None
        self._roles = RoleReads()
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
            self._policy = self._maker.make(self._targets)
        return self._targets, self._policy

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

    def _lane(self) -> ByHand:
        self._check_open()
        if self._by_hand is None:
            targets, policy = self._connected()
            endpoint = targets.endpoints[0]
            several = len(targets.endpoints) > 1
            if several or not isinstance(endpoint, (LocalScalar, RemoteScalar)):
                raise ValueError(
                    "reset, predict and step drive a single env, but the env reports num_envs="
                    f"{targets.lanes}; use run(), which drives any number"
                )
            self._by_hand = ByHand(endpoint, policy)
        return self._by_hand

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
        lane = self._lane()
        seeds = () if seed is None else (as_seed(seed),)
        lane.end()
        return lane.reset(seeds, trial_option(self.contract, trial_index))

    def predict(self, obs: ObsT) -> ActT:
        """Return the action for ``obs``, ready for :meth:`step`.

        Applies the model with everything around it, and replays one action of a chunk a call.

        Raises:
            RuntimeError: no episode has begun.
            ValueError: the model returned something that is no action of the env.
        """
        return self._lane().predict(obs)

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, Mapping[str, Any]]:
        """Step the env; returns (observation, reward, terminated, truncated, info).

        Raises:
            RuntimeError: no episode has begun, or it has ended.
            ValueError: ``action`` is none of the env's.
        """
        return self._lane().step(action)

    @property
    def done(self) -> bool:
        """Whether the episode has ended; False before the first reset."""
        return self._by_hand is not None and self._by_hand.done

    def _end_episode(self) -> None:
        if self._by_hand is not None:
            self._by_hand.end()

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
        self._end_episode()
        contract = targets.endpoints[0].contract
        return execute(
            request,
            targets.endpoints,
            policy,
            self,
            config={
                "model": self._maker.name,
                "env": contract.id,
                "observation_space": repr(contract.observation_space),
                "action_space": repr(contract.action_space),
                "execution_horizon": self._maker.horizon,
                "instruction": self._maker.instruction,
                **(config or {}),
            },
            read=self._roles.read,
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
        return reader_of(self._connected()[0].endpoints[0], *items)

    def read(self, obs: ObsT, item: Any) -> Any:
        """Return one value of an observation by role; ``item`` as for :meth:`reader`. Connects."""
        return self._roles.read(self._connected()[0].endpoints[0], obs, item)

    def observation_roles(self) -> ObservationRoles:
        """Return the roles the env offers, by kind; empty groups without tags. Connects."""
        return roles_of(self.contract)

    def frame_sources(self) -> FrameSources:
        """Return where pictures of the env can come from: camera roles, and its render. Connects.

        An env of several lanes renders none.
        """
        return frame_sources_of(self._connected()[0])

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
                self._end_episode()
            finally:
                policy.close()
        else:
            self._maker.close()

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
