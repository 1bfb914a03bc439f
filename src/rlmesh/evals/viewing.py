"""What of an observation travels while a run goes on: what its policy reads, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

from rlmesh.evals.endpoints import Endpoint, RemoteScalar, RemoteVector
from rlmesh.evals.hooks import HookList
from rlmesh.evals.policy import Policy
from rlmesh.values import ObservationView, ProcessedImage, leaf_spaces

__all__ = ["Viewing"]

_Remote = RemoteScalar | RemoteVector
_Reasons = dict[str, list[str]]
"""Why something is sent as it is, and by which endpoints."""


class Viewing:
    """Has remote envs send only what the policy reads, from :meth:`open` to :meth:`close`.

    Hooks that watch steps are shown whole observations, so with one everything travels.

    Args:
        pushdown: have the envs' servers take the leading image steps, where that changes no pixel;
            one warning says where it would.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], policy: Policy, hooks: HookList, *, pushdown: bool
    ) -> None:
        self._remote = [e for e in endpoints if isinstance(e, (RemoteScalar, RemoteVector))]
        self._policy = policy
        self._hooks = hooks
        self._pushdown = pushdown

    def open(self) -> None:
        """Ask for what is read."""
        steps = self._hooks.steps
        if not steps:
            _narrow(self._remote, self._policy, self._pushdown)
        elif self._pushdown and self._remote:
            watching = type(getattr(steps[0], "__self__", self._hooks)).__name__
            _warn(f"{watching}.on_step is shown raw observations, so they travel whole")

    def close(self, kept: Collection[Endpoint]) -> None:
        """Ask for whole observations again, of the endpoints that are used again.

        Nobody is waited for: they are told with the next request.
        """
        for endpoint in self._remote:
            self._policy.process(endpoint, ())
            if endpoint in kept:
                endpoint.link.look(None)


def _narrow(remote: Sequence[_Remote], policy: Policy, pushdown: bool) -> None:
    reasons: _Reasons = {}
    for endpoint in remote:
        images: Sequence[ProcessedImage] = ()
        if pushdown:
            try:
                images, obstacles = policy.pushable(endpoint)
            except OSError as exc:  # the run meets it again, and may have retries left
                images, obstacles = (), (str(exc),)
            for obstacle in obstacles:
                reasons.setdefault(obstacle, []).append(endpoint.name)
        if endpoint.link.shows_parts:
            _show(endpoint, policy, images, reasons)
        elif images:
            reason = "the server sends whole observations only; it is of another rlmesh release"
            reasons.setdefault(reason, []).append(endpoint.name)
    told = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
        for reason, names in reasons.items()
    ]
    if told:
        _warn("; ".join(told))


def _show(
    endpoint: _Remote, policy: Policy, images: Sequence[ProcessedImage], reasons: _Reasons
) -> None:
    """Ask an endpoint for what is read, with ``images`` processed as far as it can."""
    paths = [path for path, _ in leaf_spaces(endpoint.contract.observation_space)]
    read = policy.reads(endpoint)
    leaves: Sequence[int] = range(len(paths)) if read is None else read
    if len(leaves) == len(paths) and not images:
        return
    endpoint.link.look(ObservationView(tuple(leaves), tuple(images)))
    if not images:
        return  # the server is told with the first reset
    try:
        refused: dict[int, str] = endpoint.link.join()
    except OSError as exc:
        reasons.setdefault(f"images travel whole: {exc}", []).append(endpoint.name)
        endpoint.link.look(ObservationView(tuple(leaves)))
        return
    for leaf, reason in refused.items():
        from rlmesh.adapters.trees import path_name

        why = f"image '{path_name(paths[leaf])}' travels whole: {reason}"
        reasons.setdefault(why, []).append(endpoint.name)
    policy.process(endpoint, [image for image in images if image.leaf not in refused])


def _warn(what: str) -> None:
    warnings.warn(f"pushdown=True: {what}", stacklevel=2)
