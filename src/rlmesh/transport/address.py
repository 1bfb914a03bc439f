"""Addresses: ``tcp://host:port``, ``host:port``, ``port``, ``http://host:port``, ``unix:///path``."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Address",
    "TcpAddress",
    "UnixAddress",
    "configure",
    "connect",
    "make_address",
    "parse_address",
]

_UNIX_PATH_LIMIT = 107  # bytes of sockaddr_un.sun_path, less its NUL


@dataclass(frozen=True)
class TcpAddress:
    """A TCP endpoint; ``port`` 0 asks for an ephemeral one when binding."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    @property
    def grpc_target(self) -> str:
        """The address as grpcio spells it."""
        return str(self).removeprefix("tcp://")


@dataclass(frozen=True)
class UnixAddress:
    """A unix-domain stream socket at an absolute path."""

    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"

    @property
    def grpc_target(self) -> str:
        """The address as grpcio spells it."""
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str, *, bind: bool = False) -> Address:
    """Return the address that ``text`` names.

    Args:
        text: one of the forms at the top of this module. A bare port is for binding only.
        bind: whether the address is bound rather than dialled.

    Raises:
        ValueError: ``text`` is empty or none of the forms; the message lists them.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected an address string, got {type(text).__name__}")
    stripped = text.strip()
    if not stripped:
        raise ValueError("address cannot be empty; give host:port or unix:///path")
    if stripped.startswith("unix:"):
        return _unix(stripped.removeprefix("unix:").removeprefix("//"), text)
    scheme, separator, rest = stripped.partition("://")
    if not separator:
        rest = stripped
    elif scheme == "https":
        raise _invalid(text, "https:// is reserved for control-plane URLs; use tcp://host:port")
    elif scheme not in ("tcp", "http"):
        raise _invalid(text, f"unknown scheme {scheme!r}")
    return _tcp(rest.rstrip("/"), text, bind)


def make_address(
    address: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    path: str | os.PathLike[str] | None = None,
    transport: str | None = None,
    bind: bool,
) -> Address:
    """Return the address that a constructor's arguments name.

    When binding, no arguments mean ``tcp://127.0.0.1:0``, ``host`` alone port 0 and ``port`` alone
    host 127.0.0.1. When dialling, an address, a port or a path is needed.

    Raises:
        ValueError: arguments that contradict each other, or too few to dial.
        TypeError: a port that is no integer.
    """
    if transport not in (None, "tcp", "unix"):
        raise ValueError(f"transport must be 'tcp', 'unix' or None, got {transport!r}")
    given = {"host": host, "port": port, "path": path, "transport": transport}
    named = [name for name, value in given.items() if value is not None]
    if address is not None:
        if named:
            raise ValueError(
                f"address cannot be combined with {', '.join(named)}; give one or the other"
            )
        return parse_address(address, bind=bind)
    if path is not None or transport == "unix":
        if host is not None or port is not None:
            raise ValueError("path cannot be combined with host or port; a socket is unix or tcp")
        if transport == "tcp":
            raise ValueError("transport='tcp' cannot be combined with path; give host and port")
        if path is None:
            raise ValueError("transport='unix' needs path=, the file of the socket")
        return _unix(os.path.abspath(os.fspath(path)), os.fspath(path))
    if port is not None:
        if isinstance(port, bool) or not isinstance(port, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"port must be an int, got {type(port).__name__}")
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be in 0..65535, got {port}")
    if not bind and port is None:
        raise ValueError(
            "no endpoint given: pass an address ('host:port' or 'unix:///path'), "
            "host= and port=, or path="
        )
    return TcpAddress(host or "127.0.0.1", port or 0)


def _tcp(rest: str, text: str, bind: bool) -> TcpAddress:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or not tail.startswith(":"):
            raise _invalid(text, "an IPv6 address is written [host]:port")
        port = tail[1:]
    elif ":" in rest:
        host, _, port = rest.rpartition(":")
        if ":" in host:
            raise _invalid(text, "an IPv6 address is written [host]:port")
    elif bind:
        host, port = "127.0.0.1", rest
    else:
        raise _invalid(text, "a port is missing")
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535:
        raise _invalid(text, f"{port!r} is not a port in 0..65535")
    if not host:
        raise _invalid(text, "a host is missing")
    if not bind and int(port) == 0:
        raise _invalid(text, "port 0 can be bound but not dialled")
    return TcpAddress(host, int(port))


def _unix(path: str, text: str) -> UnixAddress:
    if sys.platform == "win32":
        raise ValueError("unix sockets are not available on Windows; use tcp://host:port")
    if not path.startswith("/") or "\0" in path:
        raise _invalid(text, "a unix socket is written unix:///absolute/path")
    size = len(os.fsencode(path))
    if size > _UNIX_PATH_LIMIT:
        raise _invalid(
            text,
            f"the path has {size} bytes and a unix socket allows {_UNIX_PATH_LIMIT}; shorten it",
        )
    return UnixAddress(path)


def _invalid(text: str, why: str) -> ValueError:
    return ValueError(
        f"invalid address: {text!r}: {why}; expected host:port, tcp://host:port, http://host:port "
        "or unix:///path"
    )


def connect(address: Address, timeout: float | None) -> socket.socket:
    """Return a connected stream socket; OSError if nobody answers, TimeoutError if not in time."""
    deadline = None if timeout is None else time.monotonic() + timeout
    if isinstance(address, UnixAddress):
        return _connect(socket.AF_UNIX, address.path, deadline)
    failure: OSError = ConnectionError(f"{address.host} has no address")
    for family, _, _, _, where in _resolve(address, timeout):
        try:
            sock = _connect(family, where, deadline)
        except OSError as exc:
            failure = exc
        else:
            configure(sock)
            return sock
    raise failure


def _connect(family: int, where: Any, deadline: float | None) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("timed out")
            sock.settimeout(left)
            try:
                sock.connect(where)
                return sock
            except BlockingIOError:
                # A unix listener whose backlog is full gives nothing to wait for.
                time.sleep(0.01)
    except BaseException:
        sock.close()
        raise


def _resolve(address: TcpAddress, timeout: float | None) -> list[tuple[Any, ...]]:
    """Return getaddrinfo's answer, or TimeoutError if it takes longer than ``timeout``."""

    def look_up(flags: int = 0) -> list[tuple[Any, ...]]:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
        return list(found)

    try:
        return look_up(socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name
    except UnicodeError as exc:
        raise OSError(f"{address.host!r} is no host name: {exc}") from None
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(look_up())
        except Exception as exc:
            answer.append(exc)

    # The resolver takes no timeout of its own, hence a thread that can be left behind.
    thread = threading.Thread(target=run, name="rlmesh-resolver", daemon=True)
    thread.start()
    thread.join(timeout)
    if not answer:
        raise TimeoutError(f"the name {address.host!r} was not resolved")
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def configure(sock: socket.socket) -> None:
    """Send small frames at once, and notice within 30 s a host that vanished without a word."""
    if sock.family == getattr(socket, "AF_UNIX", None):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
