"""A client's link to one model server: any number of envs, the requests split in two halves.

:meth:`ModelLink.send_predict` starts a prediction and :meth:`ModelLink.advance` takes in what has
been answered, so that a loop goes on with its envs while the model thinks. The end of an episode is
told without waiting for the answer.
"""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlmesh.envs.link import LinkOptions
from rlmesh.errors import ModelException, ProtocolException
from rlmesh.transport.address import Address
from rlmesh.transport.dial import dial
from rlmesh.transport.service import Channel
from rlmesh.values import (
    Codec,
    Policy,
    ProcessedImage,
    compile_codec,
    leaf_spaces,
    part_of,
)
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract, contract_to_message
from rlmesh.wire.handshake import ADAPTER_PLAN, check_answer, client_hello, enabled
from rlmesh.wire.ids import uuid7
from rlmesh.wire.status import model_error_to_exception
from rlmesh.wire.views import fill_images, read_images

__all__ = ["ModelLink", "RemoteSlot", "Row"]

_CLOSE_SECONDS = 5.0
"""How long a close waits for the answers that are still to come before it just hangs up."""


_WINDOW = 64
"""Requests under way: the ends of episodes, one message an env, and a prediction behind them."""


class RemoteSlot:
    """One env as the server was told of it."""

    def __init__(self, contract: EnvContract, horizon: int) -> None:
        self.env_id = uuid7()
        self.contract = contract
        self.horizon = horizon
        self.remembers = False
        self.history = 0
        self.leaves: tuple[int, ...] | None = None
        """Which leaves of the observation the server reads; None: all of them."""
        self.images: tuple[ProcessedImage, ...] = ()
        """What of the observation comes processed already."""
        self.stale = False
        self.observation: Codec = compile_codec(
            # What an endpoint hands out conforms already.
            contract.observation_space,
            "observation",
            policy=Policy.OFF,
            lenient=True,
            encode_checked=False,
        )
        self.action: Codec = compile_codec(contract.action_space, "action", policy=Policy.OFF)
        self.ended: list[str] = []
        self.cached: tuple[Any, bytes] | None = None

    def adopt(self, plan: Any) -> None:
        """Follow the server's AdapterPlan; an empty one asks for everything."""
        self.cached = None
        self.stale = False
        self.remembers, self.history = plan.remembers, plan.history
        self.leaves = tuple(plan.leaves) if plan.projects else None
        leaves = self.leaves
        if leaves is None:
            leaves = range(sum(1 for _ in leaf_spaces(self.contract.observation_space)))
        whole = self.leaves is None and not self.images
        self.observation = self.observation.of_part(None if whole else part_of(leaves, self.images))


class Row(NamedTuple):
    """One lane that needs a prediction."""

    slot: RemoteSlot
    observation: Any
    episode: str
    seed: int | None
    passed: Sequence[Any] = ()
    """Observations since the last prediction, oldest first; where the slot remembers."""


class ModelLink:
    """One connection, dialled and greeted at construction.

    Raises:
        ConnectionError, TimeoutError: nobody answers, or the server refuses; with the address.
        ProtocolException: the endpoint is of another protocol generation, or no rlmesh endpoint.
    """

    def __init__(self, address: Address, options: LinkOptions) -> None:
        self.address = str(address)
        self.options = options
        self._address = address
        self._slots: list[RemoteSlot] = []
        self._open()

    def _open(self) -> None:
        options = self.options
        hello = client_hello(
            "model", capabilities=[ADAPTER_PLAN], wants=options.edition
        ).SerializeToString()
        channel, answer = dial(
            self._address,
            "model",
            hello,
            token=options.token,
            timeout=options.connect_timeout,
            limit=options.limit,
            request_timeout=options.request_timeout,
        )
        self._channel: Channel = channel
        self._finalizer = weakref.finalize(self, channel.close)  # if a session is just dropped
        try:
            response = self._parse(messages.model.HandshakeResponse, answer)
            self.edition = check_answer("model", response, self.address, wants=options.edition)
            self._plans = ADAPTER_PLAN in enabled(response.base.capabilities)
        except BaseException:
            channel.close()
            raise
        channel.window = _WINDOW
        self.door = channel.door
        self.model_ns = 0
        self._session_id = f"remote-model-{uuid.uuid4()}"
        self._requests = 0
        self._ended = False
        self._last_id = ""
        self._unread: list[tuple[str, str]] = []  # (request id, kind) of what was not answered yet
        self._flying: Sequence[Row] = ()
        self._order: list[tuple[RemoteSlot, list[int]]] = []

    def reopen(self) -> None:
        """Connect anew after the connection was lost, and resolve every env again."""
        self.hang_up()
        self._open()
        for slot in self._slots:
            slot.ended.clear()
            self._resolve(slot)

    # Envs

    def resolve(self, contract: EnvContract, horizon: int) -> RemoteSlot:
        """Tell the server of an env.

        Raises:
            ModelException: the model and the env do not fit, with the resolver's message.
        """
        slot = RemoteSlot(contract, horizon)
        self._resolve(slot)
        self._slots.append(slot)
        return slot

    def offer(self, slot: RemoteSlot) -> tuple[ProcessedImage, ...]:
        """Return what of an env's observation may be processed before the server is sent it."""
        return read_images(self._resolve(slot, wants_images=True).images)

    def process(self, slot: RemoteSlot, images: Sequence[ProcessedImage]) -> None:
        """Send these images of an env processed, from the next prediction on, all others raw."""
        if slot.images != tuple(images):
            slot.images, slot.stale = tuple(images), True

    def _resolve(self, slot: RemoteSlot, *, wants_images: bool = False) -> Any:
        self._settle()
        request = messages.model.JoinRequest()
        body = request.resolve_adapter
        self._address_to(request, body.context, slot, "resolve")
        message = contract_to_message(slot.contract, on_drop=_ignore)
        body.env_spec.CopyFrom(message.spec)
        body.selected_workflow_edition = self.edition
        body.execution_horizon = slot.horizon
        body.wants_plan = self._plans
        body.wants_images = wants_images and self._plans
        fill_images(body.processed, slot.images)
        self._send(request.SerializeToString(), (), "resolve_adapter", request.request_id)
        response, _ = self._recv()
        slot.adopt(response.resolve_adapter.plan)
        return response.resolve_adapter.plan

    def _address_to(self, request: Any, context: Any, slot: RemoteSlot, what: str) -> None:
        context.session_id = self._session_id
        context.env_id = slot.env_id
        if not self._plans:  # one of ours answers in order and needs no name for a request
            self._requests += 1
            self._last_id = f"{slot.env_id}:{what}:{self._requests}"
            request.request_id = context.request_id = self._last_id

    # Predictions

    def send_predict(self, rows: Sequence[Row]) -> None:
        """Start a prediction for ``rows``; :meth:`advance` or :meth:`finish` bring its plans."""
        if self._flying:
            self._settle()
        if self._ended:
            self._flush_ended()
        members: dict[RemoteSlot, list[int]] = {}
        for index, row in enumerate(rows):
            members.setdefault(row.slot, []).append(index)
        for slot in members:
            if slot.stale:
                self._resolve(slot)
        self._order = list(members.items())
        self._flying = rows
        leaves: list[Any] = []
        if len(members) == 1:
            slot = rows[0].slot
            header, leaves = self._header(slot, rows), _encode(slot, rows)
        else:
            request = messages.model.JoinRequest()
            for slot, indices in self._order:
                part = [rows[index] for index in indices]
                self._fill(request, request.grouped_predict.groups.add(), slot, part)
                leaves += _encode(slot, part)
            header = request.SerializeToString()
        self._send(header, leaves, "predict", self._last_id)

    def _settle(self) -> None:
        """Take in what a run that failed left to come: nobody waits for it any more."""
        while self._unread:
            with contextlib.suppress(ModelException):
                self._recv()
        self._flying = ()

    def _header(self, slot: RemoteSlot, rows: Sequence[Row]) -> bytes:
        key = [(row.episode, row.seed, bool(row.passed)) for row in rows]
        cached = slot.cached
        if cached is not None and cached[0] == key:
            return cached[1]
        request = messages.model.JoinRequest()
        self._fill(request, request.predict, slot, rows)
        header: bytes = request.SerializeToString()
        if self._plans and not any(row.passed for row in rows):
            slot.cached = key, header
        return header

    def _fill(self, request: Any, predict: Any, slot: RemoteSlot, rows: Sequence[Row]) -> None:
        self._address_to(request, predict.context, slot, "predict")
        predict.observation.SetInParent()
        predict.projected = slot.leaves is not None
        _describe(predict, rows)

    def advance(self) -> list[list[Any]] | None:
        """Take in what was answered; the plans of the prediction under way if they are there.

        Call it when the descriptor is readable.

        Raises:
            ModelException: the model raised, with the remote traceback in the notes.
            ConnectionError, TimeoutError: the server is gone or does not answer.
        """
        while True:
            response, leaves = self._recv()
            if response.WhichOneof("kind") in ("predict", "grouped_predict"):
                return self._plans_of(response, leaves)
            if not self._channel.buffered:
                return None

    def finish(self) -> list[list[Any]]:
        """Wait for the plans of the prediction under way: one per row, of 1 or more actions."""
        while (plans := self.advance()) is None:
            pass
        return plans

    def _plans_of(self, response: Any, leaves: list[memoryview]) -> list[list[Any]]:
        self.model_ns = response.user_ns
        if response.HasField("predict"):
            results = [response.predict]
        else:
            for result in response.grouped_predict.results:
                if result.HasField("error"):
                    raise model_error_to_exception(result.error, self.address)
            results = [result.response for result in response.grouped_predict.results]
        if len(results) != len(self._order):
            raise self._broken(f"{len(self._order)} groups were asked for, {len(results)} came")
        plans: list[list[Any]] = [[] for _ in self._flying]
        at = 0
        for result, (slot, indices) in zip(results, self._order, strict=True):
            try:
                found = _decode(slot, leaves[at:], result, len(indices))
            except ValueError as exc:
                raise self._broken(str(exc)) from None
            for index, plan in zip(indices, found, strict=True):
                plans[index] = plan
            at += len(result.actions) * slot.action.leaves
        self._flying = ()
        return plans

    def end(self, slot: RemoteSlot, episode: str) -> None:
        """Tell the server that an episode is over, at the latest with the next prediction."""
        slot.ended.append(episode)
        self._ended = True
        if not self._unread:
            with contextlib.suppress(OSError):  # a lost server knows of no episode
                self._flush_ended()

    def _flush_ended(self) -> None:
        self._ended = False
        for slot in self._slots:
            if not slot.ended:
                continue
            while len(self._unread) >= self._channel.window - 1:
                self._recv()
            request = messages.model.JoinRequest()
            self._address_to(request, request.reset_adapter.context, slot, "reset")
            request.reset_adapter.episode_ids.extend(slot.ended)
            slot.ended.clear()
            self._send(request.SerializeToString(), (), "reset_adapter", request.request_id)

    # The channel

    def _send(self, header: bytes, leaves: Sequence[Any], kind: str, request_id: str = "") -> None:
        self._channel.send(header, leaves)
        self._unread.append((request_id, kind))

    def _recv(self) -> tuple[Any, list[memoryview]]:
        """Return the next answer, and its leaves; raise what it reports."""
        header, leaves = self._channel.recv()
        response = self._parse(messages.model.JoinResponse, header)
        for asked in self._unread:  # a published server may answer a later request first
            if asked[0] == response.request_id:
                break
        else:
            raise self._broken(f"an answer to {response.request_id!r} came, which nobody asked")
        self._unread.remove(asked)
        expected, kind = asked[1], response.WhichOneof("kind")
        if kind == "error":
            exc = model_error_to_exception(response.error, self.address)
            if not response.error.is_recoverable:
                self._channel.close(f"the session ended with an error of the model ({exc})")
            raise exc
        if not str(kind).endswith(expected):
            raise self._broken(f"expected a {expected} answer, got {kind}")
        return response, leaves

    def _parse(self, message_class: Any, data: bytes) -> Any:
        try:
            return messages.parse(message_class, data)
        except ProtocolException as exc:
            raise self._broken(str(exc)) from None

    def _broken(self, why: str) -> ProtocolException:
        self._channel.close("its last answer could not be read")
        return ProtocolException(f"model server at {self.address}: {why}")

    def fileno(self) -> int:
        """Readable when an answer has begun to arrive."""
        return self._channel.fileno()

    def shutdown(self, reason: str) -> bool:
        """Ask the endpoint to stop; True if it will."""
        request = messages.model.ShutdownRequest()
        request.base.reason = reason
        answer = self._channel.shutdown(request.SerializeToString())
        return bool(self._parse(messages.model.ShutdownResponse, answer).base.accepted)

    def hang_up(self) -> None:
        """Leave without waiting for anything. Idempotent."""
        self._finalizer.detach()
        self._channel.close()

    def close(self) -> None:
        """Tell of the last ended episodes, and leave; the server drops what it holds. Idempotent.

        Raises:
            ModelException: what the model raised when an episode ended.
        """
        bound = self.options.request_timeout or _CLOSE_SECONDS
        try:
            self._channel.set_timeout(min(bound, _CLOSE_SECONDS))
            self._flush_ended()
            while self._unread:
                self._recv()
        except OSError:
            pass  # it is gone already, which is what close wants
        finally:
            self.hang_up()


def _describe(predict: Any, rows: Sequence[Row]) -> None:
    """Say in a request whose observations follow: those passed meanwhile, then the lane's own."""
    passed = any(row.passed for row in rows)
    for row in rows:
        for gone in [True] * len(row.passed) + [False]:
            info = predict.episode_info.add()
            info.episode_id = row.episode
            if row.seed is not None:
                info.seed = row.seed
            if passed:
                predict.passed.append(gone)


def _encode(slot: RemoteSlot, rows: Sequence[Row]) -> list[Any]:
    observations = [part for row in rows for part in (*row.passed, row.observation)]
    if len(observations) == 1:
        return slot.observation.encode(observations[0])
    return slot.observation.encode_rows(observations)


def _decode(slot: RemoteSlot, leaves: list[memoryview], result: Any, rows: int) -> list[list[Any]]:
    """Return each row's actions, which come first in ``leaves``; ValueError if they do not."""
    share, frames = slot.action.leaves, len(result.actions)
    if not frames or frames * share > len(leaves):
        raise ValueError(f"{frames} actions came, in {len(leaves)} leaves")
    parts = [leaves[frame * share : (frame + 1) * share] for frame in range(frames)]
    if rows == 1:
        plans = [[slot.action.decode(part) for part in parts]]
    else:
        columns = [slot.action.decode_rows(part, rows) for part in parts]
        plans = [[column[row] for column in columns] for row in range(rows)]
    lengths = result.lengths or [frames] * rows
    return [plan[: min(length, slot.horizon)] for plan, length in zip(plans, lengths, strict=True)]


def _ignore(path: str, detail: str) -> None:
    return None
