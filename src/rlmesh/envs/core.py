"""The running part of an env server: one env, one thread, one driving client at a time.

Simulators are bound to the thread that made them (OpenGL, EGL, some physics), so every env method
runs on one thread, which also reads and answers the driving session: no queue, no lock and no
thread switch on the hot path. The listener's thread does everything else.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from rlmesh.envs.handler import Conformance, EnvHandler
from rlmesh.envs.hosts import Host
from rlmesh.envs.options import ServeOptions
from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address
from rlmesh.transport.listener import Listener
from rlmesh.transport.service import ServerSession, ServiceName
from rlmesh.values import Report
from rlmesh.wire import messages
from rlmesh.wire.contract import contract_to_message
from rlmesh.wire.handshake import EDITION, PARTIAL_RESET, SUBSET_STEP, answer_hello
from rlmesh.wire.meta import ARRAY_CAPABILITY
from rlmesh.wire.status import StatusError

__all__ = ["EnvCore"]

_log = logging.getLogger("rlmesh")

_UNREAD_SECONDS = 2.0
"""While stopping, how long a client may leave an answer unread that its socket has no room for."""

_IDLE, _IN_ENV, _SENDING = range(3)


class EnvCore:
    """Implements :class:`~rlmesh.transport.service.Service` for one host."""

    name: ServiceName = "env"

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
        self._options = options
        self.token = options.token or ""
        self.close_env_on_stop = close_env
        self.claimed = False
        self.disowned = False
        self.thread: threading.Thread | None = None
        self._sessions: queue.SimpleQueue[ServerSession | None] = queue.SimpleQueue()
        self._claim = threading.Lock()
        self._driving: ServerSession | None = None
        self._stopping = False
        self._phase = _IDLE
        self._unread_since: float | None = None
        self._last_request = time.monotonic()
        self.drained = threading.Event()
        self.finished = threading.Event()
        self.listener = Listener(address, self, limit=options.max_message_bytes)

    # The env's thread

    def run(self) -> None:
        """Serve sessions until told to stop, then close the env. Once, on the env's thread."""
        self.thread = threading.current_thread()
        self._last_request = time.monotonic()
        try:
            self.listener.start()
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
        finally:
            self._stopping = True
            self.drained.set()
            try:
                self.listener.stop()
                self._turn_away()
                self.close_host()
            finally:
                self.finished.set()

    def close_host(self) -> None:
        """Close the env if that is this server's to do; what it raises is only logged."""
        if not self.close_env_on_stop:
            return
        try:
            self.host.close()
        except Exception:
            _log.exception("closing the env of %s failed", self.listener.address)

    def _turn_away(self) -> None:
        """Hang up on the sessions that were not begun."""
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

    def request_stop(self) -> None:
        """Ask the env's thread to stop after the running request. Safe in a signal handler."""
        self._stopping = True
        driving = self._driving
        if driving is not None:
            driving.interrupt()
        self._sessions.put(None)
        self.listener.wake()

    def abandon(self) -> None:
        """Give up on a request that outlived the drain timeout: free the port and the client."""
        driving = self._driving
        if driving is not None:
            with contextlib.suppress(OSError):
                driving.close()
        self.listener.stop()

    def disown(self) -> None:
        """Let go of everything in a forked child, where the env's thread did not come along."""
        self.disowned = True
        self.listener.disown()
        self.drained, self.finished = threading.Event(), threading.Event()  # unlocked for sure
        self.drained.set()
        self.finished.set()

    def handshake(self, request: bytes) -> bytes:
        message = _parse(messages.env.HandshakeRequest, request)
        capabilities = [ARRAY_CAPABILITY]
        if self.host.partial_step:
            capabilities.append(SUBSET_STEP)
        if self.host.partial_reset:
            capabilities.append(PARTIAL_RESET)
        response = answer_hello(
            "env", message, capabilities=capabilities, contract=self._contract, wants=EDITION
        )
        return response.SerializeToString()

    def shutdown(self, request: bytes) -> bytes:
        reason = _parse(messages.env.ShutdownRequest, request).base.reason
        response = messages.env.ShutdownResponse()
        if self._options.remote_shutdown_allowed:
            response.base.accepted = True
            response.base.message = f"shutdown accepted: {reason}"
            self.request_stop()
        else:
            response.base.message = "remote shutdown is disabled for this environment endpoint"
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

    def touch(self) -> None:
        self._last_request = time.monotonic()

    def tick(self) -> float | None:
        """Stop when idle for too long; while stopping, let no client hold that up."""
        if self._stopping:
            return self._unread()
        idle = self._options.idle_timeout_seconds
        if idle is None:
            return None
        if self._phase != _IDLE:
            return idle
        left = self._last_request + idle - time.monotonic()
        if left <= 0:
            _log.info("no request for %s s: stopping", idle)
            self.request_stop()
            return None
        return left

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


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return messages.parse(kind, data)
    except ProtocolException as exc:
        raise StatusError("INVALID_ARGUMENT", str(exc)) from None


def _log_dropped(path: str, detail: str) -> None:
    _log.warning("env metadata %s is not sent to clients: %s", path, detail)
