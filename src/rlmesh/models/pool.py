"""Many sessions on one thread: which of them have a request, and waking up for a new one."""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from rlmesh.models.served import Client
from rlmesh.transport.service import ServerSession

__all__ = ["Seat", "SessionPool"]


_READABLE = 1  # EPOLLIN and POLLIN


class _Poller:
    """Which descriptors are readable: epoll where there is one, without what selectors adds."""

    def __init__(self) -> None:
        make: Any = getattr(select, "epoll", None)
        self._unit = 1 if make else 1000  # seconds, or poll's milliseconds
        self._poll: Any = make() if make else select.poll()

    def register(self, descriptor: int) -> None:
        self._poll.register(descriptor, _READABLE)

    def unregister(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError, OSError, ValueError):  # it was closed already
            self._poll.unregister(descriptor)

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Return (descriptor, event mask) of the readable ones."""
        return self._poll.poll(None if seconds is None else self._unit * seconds)

    def close(self) -> None:
        close = getattr(self._poll, "close", None)
        if close is not None:
            close()


class Seat:
    """One session in the pool.

    Attributes:
        busy: a request of it waits for its answer; until then it is not asked for another.
        rows: how many rows its last prediction had.
        answered: when that was answered, on ``perf_counter``'s clock; 0.0 before the first.
    """

    __slots__ = ("answered", "busy", "client", "descriptor", "parked", "rows", "session")

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.client = Client()
        self.descriptor: int | None = None
        self.busy = False
        self.rows = 0
        self.answered = 0.0
        self.parked = False  # its descriptor is out of the selector while it is busy


class SessionPool:
    """The sessions of a model server. :meth:`add` and :meth:`wake` are for any thread."""

    def __init__(self) -> None:
        self.seats: dict[Seat, None] = {}
        self._arrived: deque[ServerSession] = deque()
        self._told: deque[Seat] = deque()  # by sessions without a descriptor
        self._again: dict[Seat, None] = {}
        self._by_descriptor: dict[int, Seat] = {}
        self._poller = _Poller()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._poller.register(self._reader.fileno())

    def add(self, session: ServerSession) -> None:
        """Take a session in with the next :meth:`wait`."""
        self._arrived.append(session)
        self.wake()

    def wake(self) -> None:
        """Make :meth:`wait` return."""
        with contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def wait(self, timeout: float | None) -> Sequence[Seat]:
        """Return the seats that may have a request, waiting up to ``timeout`` s for the first."""
        if self._again or self._told:
            timeout = 0.0
        ready: dict[Seat, None] = {}
        for descriptor, _ in self._poller.wait(timeout):
            seat = self._by_descriptor.get(descriptor)
            if seat is None:
                with contextlib.suppress(OSError):
                    self._reader.recv(4096)
            elif seat.busy:
                seat.parked = True
                self._unwatch(seat)
            else:
                ready[seat] = None
        while self._arrived:
            ready[self._admit(self._arrived.popleft())] = None
        ready.update(self._again)
        self._again.clear()
        while self._told:
            ready[self._told.popleft()] = None
        return [seat for seat in ready if seat in self.seats and not seat.busy]

    def _admit(self, session: ServerSession) -> Seat:
        seat = Seat(session)
        self.seats[seat] = None
        seat.descriptor = session.watch(partial(self._tell, seat))
        self._watch(seat)
        return seat

    def _tell(self, seat: Seat) -> None:
        self._told.append(seat)
        self.wake()

    def _watch(self, seat: Seat) -> None:
        if seat.descriptor is not None and seat.descriptor >= 0:
            self._by_descriptor[seat.descriptor] = seat
            self._poller.register(seat.descriptor)

    def _unwatch(self, seat: Seat) -> None:
        if seat.descriptor is not None and self._by_descriptor.get(seat.descriptor) is seat:
            del self._by_descriptor[seat.descriptor]
            self._poller.unregister(seat.descriptor)

    def settled(self, seat: Seat) -> None:
        """Ask the seat for its next request: the last one is answered."""
        seat.busy = False
        if seat.parked:
            seat.parked = False
            self._watch(seat)
        if seat.session.buffered:
            self._again[seat] = None

    def drop(self, seat: Seat) -> None:
        """Hang up on a session."""
        if seat in self.seats:
            del self.seats[seat]
            self._again.pop(seat, None)
            self._unwatch(seat)
        seat.session.close()

    def hang_up(self) -> None:
        """Close the connections, from a thread that may not touch anything else."""
        for seat in list(self.seats):
            seat.session.close()

    def close(self) -> None:
        """Hang up on everybody, for good. Idempotent."""
        for seat in list(self.seats):
            self.drop(seat)
        while self._arrived:
            self._arrived.popleft().close()
        self._poller.close()
        self._close_sockets()

    def disown(self) -> None:
        """Let go of the descriptors in a forked child."""
        self._poller.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in (self._reader, self._writer):
            sock.close()

    def __repr__(self) -> str:
        return f"SessionPool({len(self.seats)} sessions)"
