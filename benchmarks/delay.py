"""A relay that passes everything on a fixed time later, where the kernel cannot delay packets."""

from __future__ import annotations

import argparse
import select
import socket
import time
from collections import deque
from contextlib import suppress

from harness import announce, end_with_driver

MOST_BYTES = 8 << 20
"""Held in one direction; then the sender waits."""

PIECE = 256 << 10


class Direction:
    """What came from one socket and is due at another."""

    def __init__(self, source: socket.socket, target: socket.socket, seconds: float) -> None:
        self.source, self.target = source, target
        self._seconds = seconds
        self._held: deque[tuple[float, memoryview]] = deque()
        self._bytes = 0

    @property
    def reads(self) -> bool:
        return self._bytes < MOST_BYTES

    @property
    def due(self) -> float | None:
        return self._held[0][0] if self._held else None

    def take(self) -> bool:
        data = self.source.recv(PIECE)
        self._held.append((time.perf_counter() + self._seconds, memoryview(data)))
        self._bytes += len(data)
        return bool(data)

    def pass_on(self) -> None:
        while self._held and self._held[0][0] <= time.perf_counter():
            _, data = self._held.popleft()
            self._bytes -= len(data)
            self.target.sendall(data)


def relay(near: socket.socket, far: socket.socket, seconds: float) -> None:
    """Until one of them hangs up."""
    ways = (Direction(near, far, seconds), Direction(far, near, seconds))
    while True:
        dues = [way.due for way in ways if way.due is not None]
        wait = max(0.0, min(dues) - time.perf_counter()) if dues else None
        ready, _, _ = select.select([way.source for way in ways if way.reads], [], [], wait)
        for way in ways:
            if way.source in ready and not way.take():
                return
            way.pass_on()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="host:port to pass on to")
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    host, port = args.target.split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    announce(address=f"127.0.0.1:{listener.getsockname()[1]}")
    end_with_driver()
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((host, int(port)))
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with near, far, suppress(OSError):  # of a client that left
            relay(near, far, args.seconds)


if __name__ == "__main__":
    main()
