"""The client's end of the gRPC door: servers that know no other, such as rlmesh 0.1.0."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any

import grpc

from rlmesh.transport.address import Address, UnixAddress
from rlmesh.transport.framing import LeafBuffer, check_size
from rlmesh.transport.service import HELLO_KEY, Message, ServiceName
from rlmesh.wire.leaves import detach_response, merge_request
from rlmesh.wire.status import Status, status_to_exception

__all__ = ["GrpcChannel", "NotGrpc"]

_LONGEST = 1e6  # seconds; grpcio and queues count no further than some weeks

_PATHS = {"env": "/rlmesh.env.v1.EnvService/", "model": "/rlmesh.model.v1.ModelService/"}


class NotGrpc(Exception):
    """The peer answered, but not as gRPC does."""


class GrpcChannel:
    """Dials ``address`` and shakes hands; see :class:`~rlmesh.transport.service.Channel`.

    Raises:
        NotGrpc: somebody answered, but not in this protocol.
        TimeoutError: nobody answered in time.
        ConnectionError: the server refused, e.g. the token.
    """

    door = "grpc"
    buffered = False  # the descriptor counts the answers

    def __init__(
        self,
        address: Address,
        service: ServiceName,
        hello: bytes,
        *,
        token: str,
        timeout: float | None,
        limit: int,
    ) -> None:
        self.address = str(address)
        self._service: ServiceName = service
        self._metadata = (("authorization", token),) if token else ()
        self._hello = hello
        self._limit = limit = min(limit, 2**31 - 1)  # as large as grpcio can be told
        self._broken: str | None = None
        self._pid = os.getpid()
        self.window = 1
        self._awaiting = 0
        self._stream = _Stream()
        self.set_timeout(timeout)
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            # A grpcio server hangs up on a client that pings more often than every 5 minutes
            # while a call is silent, as one is during a long step.
            ("grpc.keepalive_time_ms", 330_000),
        ]
        if isinstance(address, UnixAddress):
            # grpcio would send the escaped path, which 0.1.0's server refuses as no authority.
            options.append(("grpc.default_authority", "localhost"))
        self._channel: Any = grpc.insecure_channel(address.grpc_target, options=options)
        try:
            self._answer: bytes | None = self._open(hello, timeout)
        except BaseException:
            self.close()
            raise

    def _open(self, hello: bytes, timeout: float | None) -> bytes:
        call: Any = self._channel.unary_unary(_PATHS[self._service] + "Handshake")
        try:
            return call(hello, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as exc:
            error: Any = exc
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise NotGrpc(error.details() or "no reason given") from None
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError("no gRPC answer") from None
            raise self._to_exception(error) from None

    def handshake(self, request: bytes) -> bytes:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        return self._unary("Handshake", request)

    def shutdown(self, request: bytes) -> bytes:
        return self._unary("Shutdown", request)

    def _unary(self, method: str, request: bytes) -> bytes:
        self._check()
        call: Any = self._channel.unary_unary(_PATHS[self._service] + method)
        try:
            return call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as exc:
            failure = self._to_exception(exc)
            self._break(str(failure))
            raise failure from None

    def send(self, header: bytes, leaves: Sequence[LeafBuffer]) -> None:
        self._check()
        if self._awaiting >= self.window:
            where = f"{self._service} server at {self.address}"
            self._break(f"lost the {where} (the answer to the last request was never read)")
            self._check()
        data = merge_request(self._service, header, leaves)
        check_size(len(data), self._limit)
        if self._stream.call is None:
            join: Any = self._channel.stream_stream(_PATHS[self._service] + "Join")
            self._stream.open(join, (*self._metadata, (HELLO_KEY, self._hello)))
        self._awaiting += 1
        self._stream.requests.put(data)

    def recv(self) -> Message:
        self._check()
        stream = self._stream
        where = f"{self._service} server at {self.address}"
        try:
            answer = stream.responses.get(timeout=self._timeout)
            os.read(stream.ready, 1)
        except queue.Empty:
            self._break(f"lost the {where} (no answer)")
            raise TimeoutError(
                f"{where} did not answer: recv took more than {self._timeout:.3g} s; the session "
                "is closed, since its answer may still come. Raise request_timeout_seconds, or "
                "construct a new client"
            ) from None
        except BaseException as exc:
            self._break(f"lost the {where} ({type(exc).__name__})")
            raise
        self._awaiting -= 1
        if isinstance(answer, bytes):
            stream.answered = True
            return detach_response(self._service, answer)
        raise self._ended(stream, answer)

    def _ended(self, stream: _Stream, end: BaseException | None) -> BaseException:
        """Return what the end of the stream is to the caller."""
        if isinstance(end, grpc.RpcError):
            failure: BaseException = self._to_exception(end)
            if not stream.answered and end.code() is grpc.StatusCode.FAILED_PRECONDITION:  # pyright: ignore
                # Somebody else drives: not this channel's fault, so it may ask again.
                self._stream = _Stream()
                stream.close()
                return failure
        elif end is not None:
            failure = end
        else:
            where = f"{self._service} server at {self.address}"
            failure = ConnectionError(
                f"the {where} ended the session; construct a new client to connect again"
            )
        self._break(str(failure))
        return failure

    def fileno(self) -> int:
        return self._stream.ready

    def set_timeout(self, seconds: float | None) -> None:
        self._timeout = None if seconds is None else min(seconds, _LONGEST)

    def close(self, why: str = "the client was closed") -> None:
        if self._broken is None:
            self._broken = f"not connected to {self.address}: {why}; construct a new client"
        if os.getpid() != self._pid:
            return  # grpc's threads did not come along through fork: nothing here would ever end
        self._stream.close()
        self._channel.close()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionError(
                f"this client of {self.address} was inherited through fork; a connection belongs "
                "to the process that opened it: construct the client in the child"
            )
        if self._broken is not None:
            raise ConnectionError(self._broken)

    def _to_exception(self, error: Any) -> Exception:
        status = Status(error.code().name, error.details() or "")
        return status_to_exception(status, self.address, service=self._service)

    def _break(self, why: str) -> None:
        self._broken = f"{why}; construct a new client to connect again"
        self._stream.close()


class _Stream:
    """One Join call: a queue each way, and a descriptor that says when there is an answer."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.responses: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        self.answered = False
        self.call: Any = None
        self.ready, self._writer = os.pipe()

    def open(self, join: Any, metadata: Any) -> None:
        """Start the call."""
        self.call = join(iter(self.requests.get, None), metadata=metadata)
        reader = threading.Thread(target=self._read, name="rlmesh-grpc-reader", daemon=True)
        reader.start()

    def _read(self) -> None:
        """Move responses to the queue, and end it with what ended the call."""
        end: BaseException | None = None
        try:
            for response in self.call:
                self._publish(response)
        except BaseException as exc:
            end = exc
        self._publish(end)
        # Closed by its only writer, lest its number be another file's when it is written to.
        os.close(self._writer)

    def _publish(self, item: bytes | BaseException | None) -> None:
        self.responses.put(item)
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")

    def close(self) -> None:
        """End the call. Idempotent."""
        ready, self.ready = self.ready, -1
        if ready < 0:
            return
        os.close(ready)
        self.requests.put(None)
        if self.call is not None:
            self.call.cancel()
        else:
            os.close(self._writer)
