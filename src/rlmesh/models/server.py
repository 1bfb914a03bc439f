"""`ModelServer`: serve a policy to other processes."""

from __future__ import annotations

import logging
import math
import os
import time
from typing import TYPE_CHECKING, Any

from rlmesh.models.model import as_model
from rlmesh.models.pacing import Pace
from rlmesh.models.pool import Seat, SessionPool
from rlmesh.models.served import Job, Reply, ServedModel
from rlmesh.transport.address import Address, make_address
from rlmesh.transport.options import ServeOptions, checked_options
from rlmesh.transport.service import ServerSession, ServiceName
from rlmesh.transport.serving import Server, ServerCore, parse_request
from rlmesh.values import NUMPY
from rlmesh.wire import messages
from rlmesh.wire.handshake import (
    ADAPTER_PLAN,
    OBSERVATION_HISTORY,
    answer_hello,
)
from rlmesh.wire.status import StatusError

if TYPE_CHECKING:
    from rlmesh.models.policies import PolicySource

__all__ = ["ModelServer"]

_log = logging.getLogger("rlmesh")


class ModelServer(Server):
    """Serves a model at one address, to any number of clients at a time.

    The address is bound at construction; requests are answered by :meth:`serve` or :meth:`start`.
    Every model method runs on one thread: the one that calls :meth:`serve`, or the server's own
    after :meth:`start`. It takes the requests that are ready, whoever sent them, and fuses those
    that may share a forward pass: rows of equal env specs, where the model allows fusion and a
    single predict already runs its batch corner. Handshakes and health are answered meanwhile.

    Args:
        model: a :class:`~rlmesh.Model`, or anything one can be made of. A class is made on the
            serving thread, before the first client is answered.
        address: ``"host:port"``, ``"port"``, ``"tcp://..."``, ``"http://..."`` or
            ``"unix:///path"``. Default: ``tcp://127.0.0.1:0``, a free port.
        host, port, path, transport: the same, in parts.
        options: lifetime and access; see :class:`ServeOptions`.
        max_batch: most rows of several clients in one forward pass. Default: all that are ready.
        batch_wait_ms: longest wait of a request for company. Default: found by the server, from
            what its batches cost and how soon its clients come back.

    Raises:
        ConnectionError: the address cannot be bound.
        TypeError, ValueError: ``model`` is no model, or an argument is impossible.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> from rlmesh.numpy import Model
        >>> with rlmesh.ModelServer(Model(lambda obs: int(obs[2] > 0))) as server:
        ...     server.start()
        ...     model = rlmesh.RemoteModel(server.address)
        ...     result = rlmesh.run(model, gym.make("CartPole-v1"), seeds=[0, 1])
        >>> [episode.seed for episode in result.episodes]
        [0, 1]
    """

    def __init__(
        self,
        model: PolicySource,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        options: ServeOptions | None = None,
        max_batch: int | None = None,
        batch_wait_ms: float | None = None,
    ) -> None:
        where = make_address(
            address, host=host, port=port, path=path, transport=transport, bind=True
        )
        if max_batch is not None and (
            isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise ValueError(f"max_batch must be an int of 1 or more, or None, got {max_batch!r}")
        wait = None if batch_wait_ms is None else float(batch_wait_ms) / 1000
        if wait is not None and (not math.isfinite(wait) or wait < 0):
            raise ValueError(f"batch_wait_ms must be finite and 0 or more, got {batch_wait_ms}")
        super().__init__(ModelCore(model, where, checked_options(options), max_batch, wait))


class ModelCore(ServerCore):
    """Implements :class:`~rlmesh.transport.service.Service` for one model."""

    name: ServiceName = "model"
    noun = "model"

    def __init__(
        self,
        model: Any,
        address: Address,
        options: ServeOptions,
        max_batch: int | None,
        batch_wait_s: float | None,
    ) -> None:
        self._source = model
        self.authored_edition = getattr(model, "workflow_edition", None)
        self._max_batch = max_batch
        self._pace = Pace(max_batch, batch_wait_s)
        self._served: ServedModel | None = None
        if not isinstance(model, type):
            self.prepare()
        self._jobs: dict[Job, Seat] = {}  # in order of arrival
        self._predicting = False
        super().__init__(address, options)
        self.pool = SessionPool()

    # The model's thread

    def prepare(self) -> None:
        if self._served is None:
            self._served = ServedModel(as_model(self._source, NUMPY), self._max_batch)
            self._pace.fuses = self._served.fuses

    @property
    def served(self) -> ServedModel:
        """The model, once it is made."""
        assert self._served is not None
        return self._served

    def work(self) -> None:
        pool, pace = self.pool, self._pace
        while not self._stopping:
            seats = pool.wait(self._patience())
            if not self._alone:
                pace.looks()
            for seat in seats:
                self._take(seat)
            if self._jobs and self._due():
                self._predict()

    @property
    def _alone(self) -> bool:
        """Whether there is one client, which has nobody to wait for."""
        return len(self.pool.seats) == 1

    def _patience(self) -> float | None:
        if not self._jobs:
            return None
        if self._alone:
            return 0.0
        start = self._pace.start_at([*self._jobs], self.pool.seats)
        return max(0.0, start - time.perf_counter())

    def _due(self) -> bool:
        """Whether the batch is full, or its first request has waited long enough."""
        return not self._patience()

    def _take(self, seat: Seat) -> None:
        """Answer the seat's requests as far as they need no prediction."""
        served = self.served
        try:
            alone = self._alone
            while (message := seat.session.poll(alone=alone)) is not None:
                self._last_request = time.monotonic()
                outcome = served.handle(seat.client, *message)
                if isinstance(outcome, Job):
                    seat.busy = True
                    if not alone:
                        self._pace.arrived(seat, outcome)
                    self._jobs[outcome] = seat
                    return
                if not self._send(seat, outcome):
                    return
        except EOFError:
            self._drop(seat)

    def _predict(self) -> None:
        """Predict for everybody who waits; who is in a batch goes on before the next begins."""
        self._predicting = True
        jobs, self._jobs = self._jobs, {}
        for batch in self.served.batches([*jobs]):
            self.served.predict(batch)
            for job in batch:
                self._answer(jobs[job], job)
            if not self._alone:
                self._pace.answered(batch)
        self._last_request = time.monotonic()
        self._predicting = False

    def _answer(self, seat: Seat, job: Job) -> None:
        assert job.reply is not None
        try:
            sent = self._send(seat, job.reply)
        except ValueError as exc:  # over the message limit: nothing was sent
            sent = self._send(seat, self.served.too_large(job, exc))
        if sent:
            seat.answered = time.perf_counter()
            self.pool.settled(seat)

    def _send(self, seat: Seat, reply: Reply) -> bool:
        """Answer; False if the session ended."""
        header, leaves, last = reply
        try:
            seat.session.send(header, leaves, last=last)
        except OSError as exc:
            _log.info("a client was dropped: %s", exc)
            last = True
        if last:
            self._drop(seat)
        return not last

    def _drop(self, seat: Seat) -> None:
        self.pool.drop(seat)
        self.served.forget(seat.client)

    def turn_away(self) -> None:
        if self._served is not None:
            for seat in list(self.pool.seats):
                self._drop(seat)
        self.pool.close()

    def close_served(self) -> None:
        if self._served is None:
            return
        try:
            self._served.corners.close()
        except Exception:
            _log.exception("closing the model of %s failed", self.listener.address)

    # Any thread

    def interrupt(self) -> None:
        self.pool.wake()

    def hang_up(self) -> None:
        self.pool.hang_up()

    def disown(self) -> None:
        super().disown()
        self.pool.disown()

    @property
    def busy(self) -> bool:
        return bool(self._jobs) or self._predicting

    def handshake(self, request: bytes) -> bytes:
        message = parse_request(messages.model.HandshakeRequest, request)
        response = answer_hello(
            "model",
            message,
            capabilities=[ADAPTER_PLAN, OBSERVATION_HISTORY],
            wants=self.wants,
            extra=self.facts,
        )
        return response.SerializeToString()

    def join(self, session: ServerSession) -> None:
        if self._stopping:
            raise StatusError("UNAVAILABLE", "the model server is shutting down")
        self.pool.add(session)
