"""A relay in front of a server that counts what passes through it."""

from __future__ import annotations

import contextlib
import socket
import threading

from rlmesh.transport.address import connect, parse_address

__all__ = ["Relay"]


class Relay:
    """Listens at ``address`` and passes bytes on to ``target``, and back; a context manager.

    Attributes:
        sent: bytes from clients to the server so far.
        received: bytes from the server to clients so far.
    """

    def __init__(self, target: str) -> None:
        self.sent = self.received = 0
        self._target = target
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = connect(parse_address(self._target), 10.0)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._sockets += [client, server]
                self._start(self._pump, client, server, "sent")
                self._start(self._pump, server, client, "received")

    def _pump(self, source: socket.socket, target: socket.socket, counter: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    setattr(self, counter, getattr(self, counter) + len(data))
                target.sendall(data)
        for side, way in ((source, socket.SHUT_RD), (target, socket.SHUT_WR)):
            with contextlib.suppress(OSError):
                side.shutdown(way)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10.0)
        for sock in self._sockets:
            sock.close()
