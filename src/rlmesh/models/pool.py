"""Many sessions on one thread: which of them have a request, and waking up for a new one."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from functools import partial

from rlmesh.models.served import Client
from rlmesh.transport.service import Message, ServerSession

__all__ = ["Seat", "SessionPool"]


class Seat:
    """One session in the pool.

    Attributes:
        busy: a request of it waits for its answer; until then it is not asked for another.
    """

    __slots__ = ("busy", "client", "descriptor", "parked", "session")

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.client = Client()
        self.descriptor: int | None = None
        self.busy = False
        self.parked = False  # its descriptor is out of the selector while it is busy


class SessionPool:
    """The sessions of a model server. :meth:`add` and :meth:`wake` are for any thread."""

    def __init__(self) -> None:
        self.seats: dict[Seat, None] = {}
        self._arrived: deque[ServerSession] = deque()
        self._told: deque[Seat] = deque()  # by sessions without a descriptor
        self._again: dict[Seat, None] = {}
        self._selector = selectors.DefaultSelector()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector.register(self._reader, selectors.EVENT_READ, None)

    def add(self, session: ServerSession) -> None:
        """Take a session in with the next :meth:`wait`."""
        self._arrived.append(session)
        self.wake()

    def wake(self) -> None:
        """Make :meth:`wait` return."""
        with contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def wait(self, timeout: float | None) -> list[Seat]:
        """Return the seats that may have a request, waiting up to ``timeout`` s for the first."""
        if self._again or self._told:
            timeout = 0.0
        ready: dict[Seat, None] = {}
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(OSError):
                    self._reader.recv(4096)
            elif key.data.busy:
                key.data.parked = True
                self._selector.unregister(key.fd)
            else:
                ready[key.data] = None
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
            self._selector.register(seat.descriptor, selectors.EVENT_READ, seat)

    def poll(self, seat: Seat) -> Message | None:
        """Return the seat's next request, or None; EOFError when its client is gone."""
        return seat.session.poll()

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
            if seat.descriptor is not None and not seat.parked:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(seat.descriptor)
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
        self._selector.close()
        self._close_sockets()

    def disown(self) -> None:
        """Let go of the descriptors in a forked child."""
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in (self._reader, self._writer):
            sock.close()

    def __repr__(self) -> str:
        return f"SessionPool({len(self.seats)} sessions)"
