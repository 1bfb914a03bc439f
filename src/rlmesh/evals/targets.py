"""What an evaluation may be pointed at, and the endpoints it becomes."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rlmesh.envs.factory import is_factory, made_framework
from rlmesh.envs.framework_env import env_binder
from rlmesh.envs.hosts import checked_env, is_vector_env
from rlmesh.envs.link import EnvLink, LinkOptions, ScalarLink
from rlmesh.envs.remote import (
    CONNECT_TIMEOUT_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    RemoteEnv,
    RemoteVectorEnv,
)
from rlmesh.envs.supply import EnvSupply
from rlmesh.envs.trials import TRIAL_INDEX, takes_trials
from rlmesh.envs.vector_host import SqueezedVectorEnv
from rlmesh.envs.vector_link import VectorLink
from rlmesh.errors import add_note
from rlmesh.evals.endpoints import (
    Endpoint,
    LocalScalar,
    LocalVector,
    RemoteScalar,
    RemoteVector,
)
from rlmesh.evals.schedule import Assignment
from rlmesh.transport.address import parse_address
from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT
from rlmesh.values import NUMPY
from rlmesh.wire.contract import AutoresetMode, EnvContract
from rlmesh.wire.editions import EDITION

__all__ = ["Targets", "check_vector_limits", "list_targets", "trial_option", "trial_options"]

_ACCEPTED = (
    "an env with the gymnasium surface (single or vector), a RemoteEnv or RemoteVectorEnv, an "
    "EnvFactory, an address such as '127.0.0.1:5555', or a list of these"
)


class Targets:
    """The endpoints of an evaluation; what was dialled or made here goes with :meth:`release`.

    Args:
        targets: envs and addresses, as :func:`list_targets` returns them.
        edition: the workflow edition to ask servers for.

    Raises:
        ConnectionError, TimeoutError: an address does not answer.
        ValueError: the endpoints differ in their spaces.
    """

    def __init__(self, targets: Sequence[Any], edition: str = EDITION) -> None:
        self._edition = edition
        self.endpoints: list[Endpoint] = []
        self._targets = targets
        self._dialled: list[EnvLink] = []
        self._supplies: dict[int, EnvSupply] = {}  # by the factory's id
        try:
            for target in self._targets:
                self.endpoints.append(self._open(target))
            self._check_spaces()
        except BaseException as exc:
            try:
                self.release()
            except Exception as second:
                add_note(exc, f"while closing what was made: {type(second).__name__}: {second}")
            raise

    @property
    def lanes(self) -> int:
        """How many episodes can be in flight."""
        return sum(endpoint.lanes for endpoint in self.endpoints)

    def _open(self, target: Any) -> Endpoint:
        if isinstance(target, str):
            link = _dial(target, self._edition)
            self._dialled.append(link)
            return _remote(link)
        handle = _handle_of(target)
        if handle is not None:
            return _remote(handle.link)
        if is_factory(target):
            return self._open(self._make(target))
        bind = env_binder(made_framework(target))
        if is_vector_env(target):
            if int(target.num_envs) > 1:
                return LocalVector(target, bind)
            return LocalScalar(SqueezedVectorEnv(checked_env(target), bind))
        return LocalScalar(target, bind)

    def _make(self, factory: Any) -> Any:
        """Return a new env of a factory, made with its defaults."""
        supply = self._supplies.get(id(factory))
        if supply is None:
            supply = self._supplies[id(factory)] = EnvSupply(factory)
        return supply.make()

    def _check_spaces(self) -> None:
        first = self.endpoints[0]
        for endpoint in self.endpoints[1:]:
            for name in ("observation_space", "action_space"):
                ours, theirs = getattr(first.contract, name), getattr(endpoint.contract, name)
                if ours != theirs:
                    raise ValueError(
                        f"endpoints of one run share their spaces: {name} of {first.name} is "
                        f"{ours!r}, that of {endpoint.name} is {theirs!r}; run them apart"
                    )

    def release(self) -> None:
        """Leave the servers that were dialled here, and close what was made here. Idempotent."""
        with contextlib.ExitStack() as stack:
            for supply in reversed(list(self._supplies.values())):
                stack.callback(supply.close)
            for link in reversed(self._dialled):
                stack.callback(link.close)

    def hang_up(self) -> None:
        """The same, without waiting for an answer: the run was interrupted."""
        for link in self._dialled:
            link.hang_up()

    def close_envs(self) -> None:
        """Close what the run was pointed at, all of it: local envs, and servers that allow it."""
        with contextlib.ExitStack() as stack:
            for target, endpoint in zip(self._targets, self.endpoints, strict=True):
                if is_factory(target):
                    continue  # what it made is closed with it
                if isinstance(endpoint, (RemoteScalar, RemoteVector)):
                    stack.callback(endpoint.link.shutdown, "the evaluation is over")
                else:
                    stack.callback(target.close)

    @property
    def borrowed(self) -> list[Endpoint]:
        """The endpoints that were there before and are there after."""
        dialled = [id(link) for link in self._dialled]
        return [e for e in self.endpoints if id(getattr(e, "link", None)) not in dialled]


_CLIENTS: tuple[type[Any], ...] = (RemoteEnv, RemoteVectorEnv)


class _PlainScalarLink(ScalarLink):
    annotates = False  # nobody drives these by hand: infos hold what the env put there


class _PlainVectorLink(VectorLink):
    annotates = False


def _handle_of(target: Any) -> RemoteEnv | RemoteVectorEnv | None:
    """Return the client that ``target`` is, or that is inside a gymnasium one.

    A class that steps in its own way is no such client: it is driven as an env of this process.
    """
    own = cast("Any", type(target))
    bound = sys.modules.get("rlmesh.gymnasium")
    if bound is not None and own in (bound.RemoteEnv, bound.RemoteVectorEnv):
        return target.remote
    for kind in _CLIENTS:
        if isinstance(target, kind):
            return target if (own.reset, own.step) == (kind.reset, kind.step) else None
    return None


def list_targets(env: Any) -> list[Any]:
    """Return what ``env`` of a run stands for, each an env or an address; connects nothing.

    Raises:
        TypeError, ValueError: something cannot be evaluated on, or there is nothing at all.
    """
    several = isinstance(env, (list, tuple))
    targets = list(cast("Sequence[Any]", env)) if several else [env]
    if not targets:
        raise ValueError(f"env is an empty list; expected {_ACCEPTED}")
    for target in targets:
        _check_target(target)
    envs = [id(t) for t in targets if not isinstance(t, str) and not is_factory(t)]
    if len(set(envs)) < len(envs):
        raise ValueError("env lists the same env twice; every lane needs an env of its own")
    return [_address_of(target) for target in targets]


def _check_target(target: Any) -> None:
    """Raise TypeError or ValueError unless ``target`` can be evaluated on."""
    target = _address_of(target)
    if isinstance(target, str):
        parse_address(target)
        return
    if isinstance(target, _CLIENTS):
        return
    if is_factory(target):
        if inspect.isabstract(target):
            raise TypeError(f"{target.__name__} is abstract: override its make()")
        return
    try:
        if isinstance(target, type):
            raise TypeError(f"got the class {target.__name__}; pass an instance")
        checked_env(target)
        if not callable(getattr(target, "step", None)):
            raise TypeError(f"{type(target).__name__} has no 'step' method")
    except TypeError as exc:
        raise TypeError(f"env must be {_ACCEPTED}: {exc}") from None


def _address_of(target: Any) -> Any:
    """Return the address of an object that is known by it, such as a running EnvServer."""
    address = getattr(target, "address", None)
    if isinstance(address, str) and not callable(getattr(target, "step", None)):
        return address
    return target


def _dial(address: str, edition: str) -> EnvLink:
    where = parse_address(address)
    options = LinkOptions(
        NUMPY, CONNECT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS, "", DEFAULT_MESSAGE_LIMIT, edition
    )
    link = _PlainScalarLink(where, options)
    if link.contract.num_envs == 1:
        return link
    link.close()
    return _PlainVectorLink(where, options)


def _remote(link: EnvLink) -> Endpoint:
    return RemoteVector(link) if isinstance(link, VectorLink) else RemoteScalar(cast("Any", link))


def check_vector_limits(endpoints: Sequence[Endpoint], *, seeded: bool) -> None:
    """Refuse what lanes that cannot be reset alone cannot do.

    Raises:
        ValueError: seeds, or lanes that never reset by themselves.
    """
    for endpoint in endpoints:
        if endpoint.resets_lanes or endpoint.lanes == 1:
            continue
        what = "seeds" if seeded else ""
        if not what and takes_trials(endpoint.contract.metadata):
            what = f"trials (its reset option {TRIAL_INDEX!r})"
        if not what and endpoint.contract.autoreset_mode is AutoresetMode.DISABLED:
            what = "more episodes than lanes"
        if what:
            raise ValueError(
                f"{endpoint.name} cannot reset some of its {endpoint.lanes} lanes while others go "
                f"on, which {what} need; serve a list of single envs, or use gymnasium >= 1.1 (its "
                "AsyncVectorEnv with shared_memory=True)"
            )


def trial_option(contract: EnvContract, trial_index: int | None) -> Mapping[str, Any] | None:
    """Return the reset options of one trial; of an env that takes none, none, with a warning."""
    if trial_index is None:
        return None
    if takes_trials(contract.metadata):
        return {TRIAL_INDEX: trial_index}
    warnings.warn(
        f"trial_index={trial_index} was given, but the env declares no such reset option; it is "
        "not sent. List it in the factory's reset_options",
        stacklevel=3,
    )
    return None


def trial_options(
    endpoints: Sequence[Endpoint], base: int
) -> Callable[[Endpoint, Assignment], Mapping[str, Any] | None]:
    """Return what gives an episode's reset options at its endpoint: its trial, where it takes one.

    A ``base`` that an endpoint has no use for is warned of.
    """
    takes = {endpoint for endpoint in endpoints if takes_trials(endpoint.contract.metadata)}
    deaf = [endpoint.name for endpoint in endpoints if endpoint not in takes]
    if base and deaf:
        warnings.warn(
            f"trial_index_base={base} was given, but {', '.join(sorted(set(deaf)))} declares no "
            f"reset option {TRIAL_INDEX!r}: its episodes are recorded under their trials, and "
            "begin as they would without. List it in the factory's reset_options",
            stacklevel=4,
        )

    def options(endpoint: Endpoint, assignment: Assignment) -> Mapping[str, Any] | None:
        return {TRIAL_INDEX: assignment.trial} if endpoint in takes else None

    return options
