"""Peers that are no rlmesh client, and servers that live in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlmesh import EnvServer, ServeOptions
from rlmesh.transport.address import connect, parse_address
from rlmesh.transport.framing import Frame, FrameKind, FrameSocket, encode_frame
from rlmesh.transport.native import encode_hello
from rlmesh.wire import messages
from rlmesh.wire.handshake import client_hello

__all__ = ["RawPeer", "serving"]


@contextmanager
def serving(
    env: Any,
    address: str | None = None,
    *,
    greeting_seconds: float = 10.0,
    framework: Any = None,
    device: Any = None,
    **options: Any,
) -> Iterator[EnvServer]:
    """Serve ``env`` on a thread of this process; ``options`` are those of ServeOptions."""
    server = EnvServer(
        env, address, options=ServeOptions(**options), framework=framework, device=device
    )
    server._core.listener.greeting_seconds = greeting_seconds
    server.start()
    try:
        yield server
    finally:
        server.shutdown()


class RawPeer:
    """A socket connected to a server, and the words of the native door one by one."""

    def __init__(self, address: str, *, seconds: float = 20.0) -> None:
        self.sock = connect(parse_address(address), seconds)
        self.frames: FrameSocket | None = None

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    @staticmethod
    def hello(token: str = "", service: Any = "env") -> bytes:
        """Return a client's opening words."""
        return encode_hello(service, token)

    @staticmethod
    def handshake() -> bytes:
        """Return a whole handshake frame."""
        return RawPeer.frame(FrameKind.HANDSHAKE, client_hello("env").SerializeToString())

    @staticmethod
    def frame(kind: int, header: bytes, leaves: Any = ()) -> bytes:
        """Return a frame as one piece."""
        return b"".join(encode_frame(kind, header, leaves)[0])

    @staticmethod
    def join(leaves: Any = (), **kind: Any) -> bytes:
        """Return a Join frame, e.g. ``join(configure={})`` or ``join([action], step={...})``."""
        request = messages.env.JoinRequest()
        for name, fields in kind.items():
            body = getattr(request, name)
            body.SetInParent()
            if name == "step":
                body.action.SetInParent()
            for field, value in fields.items():
                setattr(body, field, value)
        return RawPeer.frame(FrameKind.JOIN, request.SerializeToString(), leaves)

    def send(self, *data: bytes) -> None:
        self.sock.sendall(b"".join(data))

    def receive(self) -> Frame:
        """Return the next frame; the first call takes the server's greeting off first."""
        if self.frames is None:
            from rlmesh.transport.native import MAGIC

            self.frames = FrameSocket(self.sock)
            self.frames.set_timeout(20.0)
            self.frames.expect(MAGIC)
        return Frame(*self.frames.recv())

    def receive_response(self) -> Any:
        """Return the next frame's JoinResponse; AssertionError if it is something else."""
        frame = self.receive()
        assert frame.kind == FrameKind.JOIN, frame
        return messages.env.JoinResponse.FromString(frame.header)

    def rest(self, *, seconds: float = 20.0) -> bytes:
        """Return all that comes until the server hangs up; AssertionError if it never does."""
        deadline = time.monotonic() + seconds
        got = b""
        while True:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return got
            except TimeoutError:
                raise AssertionError(f"the server did not hang up in {seconds} s") from None
            if not data:
                return got
            got += data
