"""What an env server and a model server share: one working thread, and the life around it.

Whatever is served runs on **one** thread, the caller's in :meth:`Server.serve` or the server's own
after :meth:`Server.start`. The listener's thread does everything else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address
from rlmesh.transport.listener import Listener
from rlmesh.transport.options import ServeOptions
from rlmesh.transport.service import ServerSession, ServiceName
from rlmesh.wire import messages
from rlmesh.wire.editions import EDITION, declared_edition, warn_floating
from rlmesh.wire.status import StatusError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Server", "ServerCore", "parse_request"]

_log = logging.getLogger("rlmesh")

_FINALIZER_SECONDS = 15.0


class ServerCore:
    """The running part of a server: a :class:`~rlmesh.transport.service.Service` with a thread.

    A subclass says what is served, answers handshakes, takes sessions and works on them.
    """

    name: ServiceName
    noun: ClassVar[str]
    """How messages to clients call the endpoint: environment, model."""
    authored_edition: str | None = None
    """The workflow edition that the class of what is served declares."""

    def __init__(self, address: Address, options: ServeOptions) -> None:
        self.options = options
        self.token = options.token or ""
        self.declare_edition(None, self.authored_edition)
        self.facts: dict[str, str] = {}
        self.claimed = False
        self.disowned = False
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        self._stopping = False
        self._last_request = time.monotonic()
        self.listening = threading.Event()
        self.drained = threading.Event()
        self.finished = threading.Event()
        self.listener = Listener(address, self, limit=options.max_message_bytes)

    # What a subclass does

    def prepare(self) -> None:
        """Make what is served, on the working thread, before the first client is answered."""

    def work(self) -> None:
        """Serve sessions until :attr:`_stopping`."""
        raise NotImplementedError

    def turn_away(self) -> None:
        """Hang up on every session that is left."""
        raise NotImplementedError

    def close_served(self) -> None:
        """Close what is served; what it raises is only logged."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Wake the working thread up; any thread, any signal handler."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """Close the connections under a call that outlived the drain timeout."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on."""
        raise NotImplementedError

    def handshake(self, request: bytes) -> bytes:
        raise NotImplementedError

    def join(self, session: ServerSession) -> None:
        raise NotImplementedError

    # The workflow edition

    def declare_edition(self, keyword: str | None, authored: str | None) -> None:
        """Settle which edition clients are told; see :mod:`rlmesh.wire.editions`."""
        option = self.options.workflow_edition
        self._edition = declared_edition(keyword=keyword, option=option, attribute=authored)

    @property
    def wants(self) -> str:
        """The edition clients are told: the declared one, else the newest."""
        return self._edition or EDITION

    # The working thread

    def run(self) -> None:
        """Serve until told to stop, then close what is served. Once, on the working thread."""
        self.thread = threading.current_thread()
        try:
            warn_floating(f"the {self.noun} served at {self.listener.address}", self._edition)
            self.prepare()
            self._last_request = time.monotonic()
            self.listener.start()
            self.listening.set()
            self.work()
        finally:
            self._stopping = True
            self.drained.set()
            try:
                self.listener.stop()
                self.turn_away()
                self.close_served()
            finally:
                self.finished.set()

    def run_detached(self) -> None:
        """The same on a thread of its own, keeping what :meth:`prepare` raises for its starter."""
        try:
            self.run()
        except BaseException as exc:
            if self.listening.is_set():
                raise
            self.failure = exc
        finally:
            self.listening.set()

    # Any thread

    def request_stop(self) -> None:
        """Ask the working thread to stop after the running request. Safe in a signal handler."""
        self._stopping = True
        self.interrupt()
        self.listener.wake()

    def abandon(self) -> None:
        """Give up on a request that outlived the drain timeout: free the port and the clients."""
        with contextlib.suppress(OSError):
            self.hang_up()
        self.listener.stop()

    def disown(self) -> None:
        """Let go of everything in a forked child, where the working thread did not come along."""
        self.disowned = True
        self.listener.disown()
        self.drained, self.finished = threading.Event(), threading.Event()  # unlocked for sure
        self.drained.set()
        self.finished.set()

    def shutdown(self, request: bytes) -> bytes:
        kind = getattr(messages, self.name)
        reason = parse_request(kind.ShutdownRequest, request).base.reason
        response = kind.ShutdownResponse()
        if self.options.remote_shutdown_allowed:
            response.base.accepted = True
            response.base.message = f"shutdown accepted: {reason}"
            self.request_stop()
        else:
            response.base.message = f"remote shutdown is disabled for this {self.noun} endpoint"
        return response.SerializeToString()

    def touch(self) -> None:
        self._last_request = time.monotonic()

    def tick(self) -> float | None:
        """Stop when idle for too long."""
        idle = self.options.idle_timeout_seconds
        if idle is None or self._stopping:
            return None
        if self.busy:
            return idle
        left = self._last_request + idle - time.monotonic()
        if left <= 0:
            _log.info("no request for %s s: stopping", idle)
            self.request_stop()
            return None
        return left


def parse_request(kind: Any, data: bytes) -> Any:
    """Return the message; StatusError refuses what is none."""
    try:
        return messages.parse(kind, data)
    except ProtocolException as exc:
        raise StatusError("INVALID_ARGUMENT", str(exc)) from None


class Server:
    """The handle of a server, for whoever owns it. A context manager, whose exit shuts down."""

    def __init__(self, core: ServerCore) -> None:
        self._core: Any = core
        self._options = core.options
        self._thread: threading.Thread | None = None
        self._used = False
        self._finalizer = weakref.finalize(self, _finalize, core)
        _cores.add(core)

    @property
    def address(self) -> str:
        """The bound address with its scheme and port, e.g. ``tcp://127.0.0.1:37871``."""
        return str(self._core.listener.address)

    def announce(self, facts: Mapping[str, str]) -> None:
        """Tell clients something more of this process in the handshake; advisory."""
        self._core.facts.update(facts)

    @property
    def workflow_edition(self) -> str:
        """The workflow edition that clients are told: the declared one, else the newest."""
        return self._core.wants

    def declare_edition(self, edition: str | None, *, authored: str | None = None) -> None:
        """Say which workflow edition what is served was authored against, before it is served.

        Args:
            edition: what the call says, above all other declarations; None if it says nothing.
            authored: what the class of what is served declares.

        Raises:
            ValueError: this build cannot run it.
        """
        self._core.declare_edition(edition, authored)

    def serve(self) -> None:
        """Serve until stopped, on the calling thread.

        On the main thread the first SIGINT stops the server after the running request, closes what
        it serves and then raises KeyboardInterrupt; a second one interrupts the running call.

        Raises:
            RuntimeError: the server was started or shut down before.
            KeyboardInterrupt: after SIGINT.
        """
        self._claim("serve")
        with _stop_on_sigint(self._core) as interrupted:
            self._core.run()
        self._finalizer.detach()
        if interrupted():
            raise KeyboardInterrupt

    def start(self) -> None:
        """Serve on a thread of the server's own, which what is served then belongs to.

        Raises:
            RuntimeError: the server was started or shut down before.
        """
        self._claim("start")
        core = self._core
        name = f"rlmesh-{core.name}"
        self._thread = threading.Thread(target=core.run_detached, name=name, daemon=True)
        self._thread.start()
        core.listening.wait()
        if core.failure is not None:
            self._finalizer.detach()
            raise core.failure

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; False when ``timeout`` seconds passed first.

        Raises:
            RuntimeError: the server was not started.
        """
        if not self._used:
            raise RuntimeError("wait() before start(): the server is not running")
        return self._core.finished.wait(timeout)

    def request_stop(self) -> None:
        """Ask for the stop that :meth:`shutdown` waits for; safe in a signal handler."""
        self._core.request_stop()

    def shutdown(self) -> None:
        """Stop: finish the running request, close what is served, free the address. Idempotent.

        ``drain_timeout_seconds`` bounds the wait for the request, ``close_timeout_seconds`` that
        for the ``close`` of what is served.

        Raises:
            TimeoutError: one of them passed. The address is free; the working thread goes on until
                its call returns.
        """
        self._finalizer.detach()
        core = self._core
        if not self._used:
            self._used = True
            core.listener.stop()
            core.turn_away()
            core.close_served()
            core.drained.set()
            core.finished.set()
            return
        core.request_stop()
        if core.thread is threading.current_thread():
            return  # called from within what is served: run() stops after this request
        if not core.drained.wait(self._options.drain_timeout_seconds):
            core.abandon()
            raise TimeoutError(
                f"a request was still running {self._options.drain_timeout_seconds} s after "
                f"shutdown of {self.address}; its {core.name} call was left to itself"
            )
        if not core.finished.wait(self._options.close_timeout_seconds):
            raise TimeoutError(
                f"{core.name}.close() of {self.address} took more than "
                f"{self._options.close_timeout_seconds} s; it was left to itself"
            )
        if self._thread is not None:
            self._thread.join()

    def _claim(self, what: str) -> None:
        if self._used:
            raise RuntimeError(
                f"{what}() on a server that was already started or shut down; construct a new one"
            )
        self._used = True
        self._core.claimed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(address={self.address!r})"


class _stop_on_sigint:
    """Context manager: on the main thread, turn the first SIGINT into an orderly stop."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._count = 0
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Callable[[], bool]:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
            self._installed = True
        return lambda: self._count > 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt
        self._core.request_stop()

    def __exit__(self, *exc: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous or signal.SIG_DFL)


def _finalize(core: ServerCore) -> None:
    """Stop a server that was dropped, or that outlived the interpreter."""
    if core.disowned:
        return
    core.request_stop()
    if not core.claimed:
        core.listener.stop()
        core.turn_away()
    elif not threading.current_thread().name.startswith("rlmesh-"):
        # The garbage collector may run on a thread that the server needs in order to stop.
        core.finished.wait(_FINALIZER_SECONDS)


_cores: weakref.WeakSet[ServerCore] = weakref.WeakSet()


def _disown_all() -> None:
    """Let go of every address in a forked child (an AsyncVectorEnv worker, say)."""
    for core in list(_cores):
        with contextlib.suppress(Exception):
            core.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
