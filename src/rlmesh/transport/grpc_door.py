"""The gRPC door: published rlmesh clients, health probes, anything that speaks HTTP/2.

grpcio cannot take over an accepted connection, so its server listens on a private unix socket and a
small relay carries the bytes. Both start with the first HTTP/2 connection; until then grpc is not
imported.
"""

from __future__ import annotations

import contextlib
import glob
import hmac
import logging
import os
import queue
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from google.protobuf.message import DecodeError

from rlmesh.transport.framing import LeafBuffer, check_size
from rlmesh.transport.service import HELLO_KEY, Message, Service, ServiceName
from rlmesh.wire.leaves import detach_request, merge_response
from rlmesh.wire.status import StatusError

__all__ = ["PREFACE", "GrpcDoor"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What an HTTP/2 client sends first (RFC 9113, section 3.4)."""

_SERVICE_NAMES = {"env": "rlmesh.env.v1.EnvService", "model": "rlmesh.model.v1.ModelService"}
_CHUNK = 256 * 1024
_CALLS = 256
"""Calls at a time; the next one is refused (RESOURCE_EXHAUSTED) rather than left waiting."""
_UNIX_PATH_LIMIT = 100
_FOLDER_PREFIX = "rlmesh-grpc-"
_ABANDONED_SECONDS = 60.0
"""Age from which a socket that refuses is that of a killed server, not of one about to listen."""

_log = logging.getLogger("rlmesh")


class GrpcDoor:
    """Adopts HTTP/2 connections; starts its server with the first.

    Args:
        service: who answers.
        limit: largest message, in bytes.
        greeting_seconds: how long a peer may take from the preface to its HTTP/2 settings.
    """

    def __init__(self, service: Service, *, limit: int, greeting_seconds: float) -> None:
        self.greeting_seconds = greeting_seconds
        self._service = service
        self._limit = limit
        self._lock = threading.Lock()
        self._server: Any = None
        self._folder: str | None = None
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def adopt(self, sock: socket.socket, greeting: bytes) -> None:
        """Take over a connection that opened with :data:`PREFACE`; returns at once."""
        sock.setblocking(True)
        self._spawn(self._relay, sock, greeting)

    def close(self) -> None:
        """End every connection and stop the server."""
        with self._lock:
            self._closed = True
            server, folder = self._server, self._folder
        if server is not None:
            server.stop(grace=0.2).wait(5.0)
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(5.0)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def disown(self) -> None:
        """Close this process's copies of the connections, in a forked child."""
        for sock in list(self._sockets):
            sock.close()

    def _spawn(self, target: Any, *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                target(*args)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name="rlmesh-grpc-relay", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()
        return thread

    def _relay(self, outer: socket.socket, greeting: bytes) -> None:
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._lock:
            self._sockets |= {outer, inner}
        try:
            inner.connect(self._ensure_server())
            inner.sendall(greeting)
            back = self._spawn(_pump, inner, outer)
            _pump(outer, inner)
            back.join()
        except OSError:
            pass
        except Exception:
            _log.exception("the gRPC door could not be opened")
        finally:
            with self._lock:
                self._sockets -= {outer, inner}
            outer.close()
            inner.close()

    def _ensure_server(self) -> str:
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError("the server is shutting down")
            if self._server is None:
                self._folder = self._folder or _private_folder()
                self._server = self._start_server(self._path())
            return self._path()

    def _path(self) -> str:
        return os.path.join(str(self._folder), "grpc.sock")

    def _start_server(self, path: str) -> Any:
        import grpc

        limit, seconds = min(self._limit, 2**31 - 1), self.greeting_seconds
        server = grpc.server(
            _DaemonThreads(),  # pyright: ignore[reportArgumentType]
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.server_handshake_timeout_ms", int(seconds * 1000)),
                # A client may ping through a step of minutes; by default the third ping ends it.
                ("grpc.http2.max_ping_strikes", 0),
            ],
            maximum_concurrent_rpcs=_CALLS,
        )
        server.add_generic_rpc_handlers(
            _handlers(_Handlers(self._service, limit), self._service.name)
        )
        server.add_insecure_port(f"unix:{path}")
        server.start()
        return server


def _private_folder() -> str:
    """Make a folder that only this user can enter, with a path short enough for a socket in it."""
    folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
    if len(os.fsencode(folder)) > _UNIX_PATH_LIMIT - len("/grpc.sock"):
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir="/tmp")
    _remove_abandoned(os.path.dirname(folder))
    return folder


def _remove_abandoned(parent: str) -> None:
    """Remove the folders of servers that were killed: nobody listens at the socket in them."""
    for folder in glob.glob(os.path.join(glob.escape(parent), _FOLDER_PREFIX + "*")):
        path = os.path.join(folder, "grpc.sock")
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.setblocking(False)
        try:
            if time.time() - os.stat(folder).st_mtime > _ABANDONED_SECONDS:
                probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(OSError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        except OSError:
            pass
        finally:
            probe.close()


class _DaemonThreads(futures.Executor):
    """A thread for each call, as a call may wait as long as an env steps.

    concurrent.futures joins the threads of its own pools before the interpreter may exit, even
    those that wait for a client.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="rlmesh-grpc", daemon=True).start()
        return future


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until either end closes, then close the other way too."""
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    try:
        while True:
            got = source.recv_into(buffer)
            if not got:
                break
            sink.sendall(view[:got])
    except OSError:
        pass
    for sock in (source, sink):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _handlers(handlers: _Handlers, name: str) -> tuple[Any, ...]:
    import grpc

    return (
        grpc.method_handlers_generic_handler(
            _SERVICE_NAMES[name],
            {
                "Handshake": grpc.unary_unary_rpc_method_handler(handlers.handshake),
                "Join": grpc.stream_stream_rpc_method_handler(handlers.join),
                "Shutdown": grpc.unary_unary_rpc_method_handler(handlers.shutdown),
            },
        ),
        grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health",
            {
                "Check": grpc.unary_unary_rpc_method_handler(handlers.health_check),
                "Watch": grpc.unary_stream_rpc_method_handler(handlers.health_watch),
            },
        ),
    )


class _Handlers:
    """The rpc methods; requests and responses are raw bytes."""

    def __init__(self, service: Service, limit: int) -> None:
        self._service = service
        self._limit = limit

    def handshake(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        return self._guarded(self._service.handshake, request, context)

    def shutdown(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        return self._guarded(self._service.shutdown, request, context)

    def join(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._admit(context)
        session = GrpcSession(context, self._service.name, self._limit)
        context.add_callback(session.interrupt)
        self._guarded(self._service.join, session, context)
        try:
            # A published client sends nothing before it has the response headers (wire.md 8.2). A
            # refusal must come before them: after them it may read "connection closed" instead.
            context.send_initial_metadata(())
            for request in requests:
                response = session.exchange(request)
                if response is None:
                    break
                yield response
                if session.ended:
                    break
        finally:
            session.interrupt()
        if session.dropped:
            _abort(context, "UNAVAILABLE", f"the {self._service.name} server ended the session")

    def health_check(self, request: bytes, context: Any) -> bytes:
        self._service.touch()
        return _health(request, context)

    def health_watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield _health(request, context)
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()

    def _admit(self, context: Any) -> None:
        """Check the bearer token, in constant time, before anything else is read."""
        token = self._service.token
        if token:
            shown = dict(context.invocation_metadata()).get("authorization", "")
            shown = shown if isinstance(shown, bytes) else str(shown).encode()
            if not hmac.compare_digest(shown, token.encode()):
                _abort(context, "UNAUTHENTICATED", f"invalid {self._service.name} token")
        self._service.touch()

    @staticmethod
    def _guarded(call: Any, argument: Any, context: Any) -> Any:
        try:
            return call(argument)
        except StatusError as exc:
            _abort(context, exc.status.code, exc.status.message)


def _abort(context: Any, code: str, message: str) -> None:
    import grpc

    context.abort(grpc.StatusCode[code], message)


def _health(request: bytes, context: Any) -> bytes:
    from rlmesh.wire import messages

    health = messages.health
    name = health.HealthCheckRequest.FromString(request).service
    if name:
        _abort(context, "NOT_FOUND", f"unknown service {name!r}; the endpoint's health is at ''")
    return health.HealthCheckResponse(status=1).SerializeToString()  # SERVING


class GrpcSession:
    """The server's end of a gRPC Join; see :class:`~rlmesh.transport.service.ServerSession`.

    The handler thread of grpcio and the thread that drives the env meet over two queues.
    """

    def __init__(self, context: Any, service: ServiceName, limit: int) -> None:
        self._context = context
        # A Join is a call of its own: our clients repeat in it what their Handshake said.
        self.hello: bytes = dict(context.invocation_metadata()).get(HELLO_KEY, b"")
        self._service: ServiceName = service
        self._limit = limit
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._notify: Callable[[], None] | None = None
        self.ended = False
        self.dropped = False

    def exchange(self, request: bytes) -> bytes | None:
        """Hand a request to the driving thread and wait for its answer; None when it hung up."""
        self._offer(request)
        return self._responses.get()

    def _offer(self, request: bytes | None) -> None:
        self._requests.put(request)
        notify = self._notify
        if notify is not None:
            notify()

    def recv(self) -> Message | None:
        return self._take(self._requests.get())

    def watch(self, notify: Callable[[], None]) -> int | None:
        self._notify = notify
        notify()  # for what came before

    def poll(self, *, alone: bool = False) -> Message | None:
        try:
            data = self._requests.get_nowait()
        except queue.Empty:
            return None
        message = self._take(data)
        if message is None:
            raise EOFError
        return message

    @property
    def buffered(self) -> bool:
        return not self._requests.empty()

    def _take(self, data: bytes | None) -> Message | None:
        if data is None or self.ended:
            return None
        try:
            return detach_request(self._service, data)
        except DecodeError:
            return data, []  # no message at all: the service says so to its sender

    def send(self, header: bytes, leaves: Sequence[LeafBuffer], *, last: bool = False) -> None:
        if not self._context.is_active():
            raise ConnectionError("the client is gone")
        response = merge_response(self._service, header, leaves)
        check_size(len(response), self._limit)
        self.ended = self.ended or last
        self._responses.put(response)

    def interrupt(self) -> None:
        self._offer(None)

    def alive(self) -> bool:
        return not self.ended and bool(self._context.is_active())

    def close(self) -> None:
        self.dropped = self.dropped or not self.ended
        self.ended = True
        self._responses.put(None)
