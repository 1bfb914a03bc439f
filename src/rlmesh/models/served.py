"""From JoinRequests to JoinResponses: what the clients of a model server ask of its model.

Every method runs on the model's thread. A predict is first taken in (:meth:`ServedModel.handle`)
and answered later, together with others (:meth:`ServedModel.predict`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from rlmesh.adapters.pushdown import pushable
from rlmesh.errors import ProtocolException
from rlmesh.models.adapting import adapter_for, processed_before
from rlmesh.models.asked import Asked, fill_answer, read_rows
from rlmesh.models.chunks import check_horizon
from rlmesh.models.model import Model, model_corners
from rlmesh.models.slots import Part, Slot
from rlmesh.values import ProcessedImage
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract, contract_from_message
from rlmesh.wire.editions import SUPPORTED_EDITIONS
from rlmesh.wire.status import (
    ModelErrorCode,
    ModelFault,
    describe_exception,
    exception_to_model_error,
)
from rlmesh.wire.views import fill_images, read_images

__all__ = ["Client", "Job", "Reply", "ServedModel"]

_log = logging.getLogger("rlmesh")

Reply = tuple[bytes, Sequence[Any], bool]
"""A serialised JoinResponse without its leaves, the leaves, and whether the stream ends with it."""


class Client:
    """What the server knows of one session: the envs it resolved."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.last: Asked | None = None


class Job:
    """One predict request, from its arrival to its answer.

    Attributes:
        parts: per group of the request its rows, or why it was refused.
        reply: the answer, once there is one.
    """

    def __init__(self, asked: Asked, parts: list[Part | Exception]) -> None:
        self.asked = asked
        self.parts = parts
        self.good = [part for part in parts if isinstance(part, Part)]
        self.rows = sum(len(part.rows) for part in self.good)
        self.arrived = time.perf_counter_ns()
        self.began = self.ended = 0
        self.reply: Reply | None = None


class ServedModel:
    """A model behind a server, with the state of every client's envs."""

    def __init__(self, model: Model, max_batch: int | None = None) -> None:
        self.model = model
        self.corners = model_corners(model)
        self._max_batch = max_batch

    @property
    def fuses(self) -> bool:
        """Whether requests of several clients may share a forward pass."""
        corners = self.corners
        chunks = corners.chunks and corners.batches_directly(2)
        return corners.allow_fusion and (corners.batches_directly(1) or chunks)

    def handle(self, client: Client, header: bytes, leaves: Sequence[memoryview]) -> Reply | Job:
        """Answer a request, or take in one that needs a prediction."""
        asked = client.last
        if asked is None or asked.header != header:
            try:
                asked = client.last = Asked(header)
            except ProtocolException as exc:
                fault = ModelFault(ModelErrorCode.INVALID_REQUEST, str(exc), recoverable=False)
                return _refusal(messages.model.JoinRequest(), fault, "join")
        kind = asked.kind
        try:
            if kind == "predict":
                return Job(asked, [_slot(client, asked.env_id).accept(asked.rows, leaves)])
            if kind == "grouped_predict":
                return self._accept_groups(client, asked, leaves)
            return self._handle_rare(client, asked.request, kind)
        except ModelFault as fault:
            return _refusal(asked.request, fault, kind)
        except Exception as exc:
            _log.warning("%s raised %s", kind, describe_exception(exc))
            return _refusal(asked.request, exc, kind)

    def _accept_groups(
        self, client: Client, asked: Asked, leaves: Sequence[memoryview]
    ) -> Reply | Job:
        groups = asked.request.grouped_predict.groups
        if not groups:
            raise ModelFault(ModelErrorCode.INVALID_REQUEST, "the grouped predict has no groups")
        horizons = {
            client.slots[group.context.env_id].horizon
            for group in groups
            if group.context.env_id in client.slots
        }
        if len(horizons) > 1:
            raise ModelFault(
                ModelErrorCode.INVALID_REQUEST,
                f"the groups of one request share their execution_horizon, got {sorted(horizons)}",
            )
        parts: list[Part | Exception] = []
        at = 0
        for group in groups:
            slot = client.slots.get(group.context.env_id)
            share = len(leaves) // len(groups)
            if slot is not None:
                share = slot.leaves(projected=group.projected)
            try:
                slot = _slot(client, group.context.env_id)
                parts.append(slot.accept(read_rows(group), leaves[at : at + share]))
            except Exception as exc:
                parts.append(exc)
            at += share
        job = Job(asked, parts)
        return job if job.good else _answer(job, [])

    def _handle_rare(self, client: Client, request: Any, kind: str) -> Reply:
        response = messages.model.JoinResponse(request_id=request.request_id)
        if kind == "resolve_adapter":
            self._resolve(client, request.resolve_adapter, response.resolve_adapter)
        elif kind == "reset_adapter":
            reset = request.reset_adapter
            slot = client.slots.get(reset.context.env_id)
            response.reset_adapter.SetInParent()
            if slot is not None:
                for episode in reset.episode_ids:
                    slot.end(episode)
                if not reset.episode_ids:
                    slot.end_all()
        elif kind == "release_adapter":
            response.release_adapter.SetInParent()
            slot = client.slots.pop(request.release_adapter.context.env_id, None)
            if slot is not None:
                slot.end_all()
        elif kind == "close":
            response.close.SetInParent()
            self.forget(client)
        else:
            raise ModelFault(ModelErrorCode.UNSUPPORTED, "the request asks for nothing known here")
        return response.SerializeToString(), (), kind == "close"

    def _resolve(self, client: Client, request: Any, response: Any) -> None:
        env_id = request.context.env_id
        edition = request.selected_workflow_edition
        if edition and edition not in SUPPORTED_EDITIONS:
            raise ModelFault(
                ModelErrorCode.INVALID_REQUEST,
                f"unknown workflow edition {edition!r}; this server runs "
                f"{list(SUPPORTED_EDITIONS)}",
            )
        try:
            contract = _read_contract(request.env_spec)
            adapter = adapter_for(
                self.model.spec,
                contract,
                name=f"env {contract.id!r}",
                trust_entrypoints=self.model.trust_entrypoints,
            )
            offered: Sequence[ProcessedImage] = ()
            if request.wants_images and adapter is not None:
                offered = pushable(adapter.plan, contract.observation_space)
            images = read_images(request.processed)
            if images:
                adapter = processed_before(adapter, contract, images)
            horizon = self._horizon(request.execution_horizon)
        except (ProtocolException, ValueError, TypeError, ImportError) as exc:
            raise ModelFault(ModelErrorCode.INVALID_REQUEST, str(exc)) from exc
        slot = Slot(
            contract,
            self.corners,
            adapter,
            horizon,
            request.env_spec.SerializeToString(deterministic=True),
            plans=request.wants_plan,
            images=images,
        )
        response.SetInParent()
        if request.wants_plan:
            slot.describe_plan(response.plan)
            fill_images(response.plan.images, offered)
        elif horizon > 1 and adapter is not None and adapter.history_windows():
            _log.warning(
                "the client of env %r sends no observations between its predicts, so at "
                "execution_horizon=%d the model's frame stacks lack them",
                contract.id,
                horizon,
            )
        before = client.slots.pop(env_id, None)
        if before is not None:
            before.end_all()
        client.slots[env_id] = slot

    def _horizon(self, requested: int) -> int:
        requested = check_horizon(max(1, requested))  # the wire's 0 is none
        if requested > 1 and not self.corners.chunks:
            _log.warning(
                "execution_horizon=%d was requested but the model defines no predict_chunk(); "
                "running un-chunked",
                requested,
            )
            return 1
        return self.corners.check_horizon(requested)

    # Predictions

    def batches(self, jobs: Sequence[Job]) -> Sequence[Sequence[Job]]:
        """Divide jobs into forward passes: as few as there can be without changing a number."""
        if len(jobs) == 1:
            return (jobs,)
        batches: list[list[Job]] = []
        open_batches: dict[Any, list[Job]] = {}
        for job in jobs:
            key = self._fusion_key(job)
            batch = open_batches.get(key) if key is not None else None
            limit = self._max_batch
            if batch is None or (limit and sum(j.rows for j in batch) + job.rows > limit):
                batch = list[Job]()
                batches.append(batch)
                if key is not None:
                    open_batches[key] = batch
            batch.append(job)
        return batches

    def _fusion_key(self, job: Job) -> Any:
        """Return what jobs that may share a forward pass agree on; None for one that may not.

        Rows of unrelated clients are fused only where a single prediction already runs the batch
        corner, so that company does not change what is computed.
        """
        horizon = job.good[0].slot.horizon
        if not self.corners.allow_fusion or not self.corners.batches_directly(horizon):
            return None
        keys = {part.slot.key for part in job.good}
        return (horizon, keys.pop()) if len(keys) == 1 else None

    def predict(self, batch: Sequence[Job]) -> None:
        """Give each job of one of the :meth:`batches` its reply."""
        began = time.perf_counter_ns()
        parts = [part for job in batch for part in job.good]
        try:
            plans = self._predict_rows(parts)
        except Exception as exc:
            if len(batch) > 1:  # only who asked for the fault shall have it
                for job in batch:
                    self.predict((job,))
                return
            _log.warning("predict raised %s", describe_exception(exc))
            plans = [exc] * len(parts)
        ended = time.perf_counter_ns()
        at = 0
        for job in batch:
            job.began, job.ended = began, ended
            job.reply = _answer(job, plans[at : at + len(job.good)])
            at += len(job.good)

    def _predict_rows(self, parts: Sequence[Part]) -> list[Any]:
        """Return the plans of each part's rows, from one call for all of them."""
        if len(parts) == 1 and len(parts[0].rows) == 1:
            (part,) = parts
            context = part.contexts[0] if part.contexts else None
            return [[self.corners.plan(part.rows[0], context, part.slot.horizon)]]
        rows = [row for part in parts for row in part.rows]
        contexts = None
        if self.corners.takes_context:
            contexts = [context for part in parts for context in part.contexts or ()]
        found = self.corners.predict_rows(
            rows,
            contexts,
            parts[0].slot.horizon,
            lanes=[f"episode {episode!r}" for part in parts for episode in part.episodes],
            groups=[id(part.slot) for part in parts for _ in part.rows],
        )
        plans: list[Any] = []
        at = 0
        for part in parts:
            plans.append(found[at : at + len(part.rows)])
            at += len(part.rows)
        return plans

    def too_large(self, job: Job, exc: ValueError) -> Reply:
        """Return the reply in place of one that is over the message limit."""
        return _refusal(job.asked.request, ModelFault(ModelErrorCode.INTERNAL, str(exc)), "predict")

    def forget(self, client: Client) -> None:
        """End what a client left running: it is gone."""
        slots, client.slots = list(client.slots.values()), {}
        for slot in slots:
            try:
                slot.end_all()
            except Exception:
                _log.exception("ending the episodes of a client failed")


def _read_contract(env_spec: Any) -> EnvContract:
    message = messages.core.EnvContract(num_envs=1)
    message.spec.CopyFrom(env_spec)
    return contract_from_message(message)


def _slot(client: Client, env_id: str) -> Slot:
    slot = client.slots.get(env_id)
    if slot is None:
        raise ModelFault(
            ModelErrorCode.NOT_CONFIGURED,
            f"no adapter is resolved for env {env_id!r}; resolve one first",
        )
    return slot


def _answer(job: Job, plans: Sequence[Any]) -> Reply:
    """Return the reply of a job whose good parts have these plans, or this exception each."""
    asked = job.asked
    if asked.kind == "predict":
        part = job.good[0]
        try:
            leaves, frames, lengths = _actions(part, plans[0])
        except Exception as exc:
            return _refusal(asked.request, exc, "predict", part.describe())
        head = asked.head(frames, lengths)
    else:
        head, leaves = _answer_groups(job, plans)
    times = messages.model.JoinResponse(
        endpoint_total_ns=time.perf_counter_ns() - job.arrived,
        user_ns=job.ended - job.began,
        queue_ns=max(0, job.began - job.arrived),
    )
    return head + times.SerializeToString(), leaves, False  # the two parse as one message


def _answer_groups(job: Job, plans: Sequence[Any]) -> tuple[bytes, list[Any]]:
    request = job.asked.request
    response = messages.model.JoinResponse(request_id=request.request_id)
    leaves: list[Any] = []
    pending = iter(plans)
    for part, group in zip(job.parts, request.grouped_predict.groups, strict=True):
        result = response.grouped_predict.results.add()
        try:
            if isinstance(part, Exception):
                raise part
            found, frames, lengths = _actions(part, next(pending))
        except Exception as exc:
            told = part.describe() if isinstance(part, Part) else ""
            result.error.CopyFrom(_model_error(exc, "predict", told))
        else:
            leaves += found
            fill_answer(result.response, group, frames, lengths)
    return response.SerializeToString(), leaves


def _actions(part: Part, plans: Any) -> tuple[list[Any], int, Sequence[int]]:
    if isinstance(plans, Exception):
        raise plans
    return part.slot.answer(part, plans)


def _refusal(request: Any, exc: Exception, during: str, told: str = "") -> Reply:
    response = messages.model.JoinResponse(request_id=request.request_id)
    response.error.CopyFrom(_model_error(exc, during, told))
    return response.SerializeToString(), (), not response.error.is_recoverable


def _model_error(exc: Exception, during: str, told: str) -> Any:
    """Return the ModelError; what the model raised costs its sender the request, not the stream."""
    error = exception_to_model_error(exc, during=during)
    if not isinstance(exc, ModelFault):
        error.is_recoverable = True
        error.message += told
    return error
