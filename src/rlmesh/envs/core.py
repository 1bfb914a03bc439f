"""The running part of an env server: one env, one thread, one driving client at a time.

Simulators are bound to the thread that made them (OpenGL, EGL, some physics), so every env method
runs on one thread, which also reads and answers the driving session: no queue, no lock and no
thread switch on the hot path.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from rlmesh.envs.handler import Conformance, EnvHandler
from rlmesh.envs.hosts import Host
from rlmesh.transport.address import Address
from rlmesh.transport.options import ServeOptions
from rlmesh.transport.service import ServerSession, ServiceName
from rlmesh.transport.serving import ServerCore, parse_request
from rlmesh.values import Report
from rlmesh.wire import messages
from rlmesh.wire.contract import contract_to_message
from rlmesh.wire.handshake import OBSERVATION_VIEW, PARTIAL_RESET, SUBSET_STEP, answer_hello
from rlmesh.wire.meta import ARRAY_CAPABILITY
from rlmesh.wire.status import StatusError

__all__ = ["EnvCore"]

_log = logging.getLogger("rlmesh")

_UNREAD_SECONDS = 2.0
"""While stopping, how long a client may leave an answer unread that its socket has no room for."""

_IDLE, _IN_ENV, _SENDING = range(3)


class EnvCore(ServerCore):
    """Implements :class:`~rlmesh.transport.service.Service` for one host."""

    name: ServiceName = "env"
    noun = "environment"

    def __init__(
        self,
        make_host: Callable[[Report], Host],
        address: Address,
        options: ServeOptions,
        *,
        close_env: bool,
    ) -> None:
        conformance = Conformance()
        self.host = make_host(conformance.report)
        self._handler = EnvHandler(self.host, conformance)
        self._contract = contract_to_message(self.host.contract, on_drop=_log_dropped)
        self._close_env = close_env
        self._sessions: queue.SimpleQueue[ServerSession | None] = queue.SimpleQueue()
        self._claim = threading.Lock()
        self._driving: ServerSession | None = None
        self._phase = _IDLE
        self._unread_since: float | None = None
        super().__init__(address, options)

    # The env's thread

    def work(self) -> None:
        while not self._stopping:
            session = self._sessions.get()
            if session is None:
                break
            try:
                self._drive(session)
            finally:
                session.close()
                with self._claim:
                    if self._driving is session:
                        self._driving = None

    def close_served(self) -> None:
        """Close the env if that is this server's to do."""
        if not self._close_env:
            return
        try:
            self.host.close()
        except Exception:
            _log.exception("closing the env of %s failed", self.listener.address)

    def turn_away(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                session = self._sessions.get_nowait()
                if session is not None:
                    session.close()

    def _drive(self, session: ServerSession) -> None:
        """Answer one client until it leaves; the hot path."""
        handler = self._handler
        handler.begin_session(session.hello)
        handle, recv, send = handler.handle, session.recv, session.send
        while not self._stopping:
            request = recv()
            if request is None:
                return
            self._phase = _IN_ENV
            header, leaves, last = handle(*request)
            self._phase = _SENDING
            try:
                send(header, leaves, last=last)
            except (OSError, ValueError) as exc:
                _log.warning("the driving client was dropped: %s", exc)
                if isinstance(exc, ValueError):  # over the message limit: nothing was sent
                    with contextlib.suppress(OSError):
                        send(handler.too_large(exc), (), last=True)
                return
            finally:
                self._phase = _IDLE
                self._last_request = time.monotonic()
            if last:
                return

    # Any thread

    def interrupt(self) -> None:
        driving = self._driving
        if driving is not None:
            driving.interrupt()
        self._sessions.put(None)

    def hang_up(self) -> None:
        driving = self._driving
        if driving is not None:
            driving.close()

    @property
    def busy(self) -> bool:
        return self._phase != _IDLE

    def handshake(self, request: bytes) -> bytes:
        message = parse_request(messages.env.HandshakeRequest, request)
        capabilities = [ARRAY_CAPABILITY, OBSERVATION_VIEW]
        if self.host.partial_step:
            capabilities.append(SUBSET_STEP)
        if self.host.partial_reset:
            capabilities.append(PARTIAL_RESET)
        response = answer_hello(
            "env",
            message,
            capabilities=capabilities,
            contract=self._contract,
            wants=self.wants,
            extra=self.facts,
        )
        return response.SerializeToString()

    def join(self, session: ServerSession) -> None:
        if self._stopping:
            raise StatusError("UNAVAILABLE", "the environment server is shutting down")
        with self._claim:
            driving = self._driving
            if driving is not None and driving.alive():
                raise StatusError(
                    "FAILED_PRECONDITION",
                    "environment already has an active Join session; only one client may be "
                    "connected at a time. Close the other client first, or serve another env",
                )
            self._driving = session
        self._sessions.put(session)

    def tick(self) -> float | None:
        """Stop when idle for too long; while stopping, let no client hold that up."""
        return self._unread() if self._stopping else super().tick()

    def _unread(self) -> float:
        """Hang up on a client that does not read the answer that the env's thread is sending."""
        now = time.monotonic()
        if self._phase != _SENDING:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since >= _UNREAD_SECONDS and self._driving is not None:
            self._driving.close()
        return 0.2


def _log_dropped(path: str, detail: str) -> None:
    _log.warning("env metadata %s is not sent to clients: %s", path, detail)
