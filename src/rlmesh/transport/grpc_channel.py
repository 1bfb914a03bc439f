"""The client's end of the gRPC door: servers that know no other, such as rlmesh 0.1.0."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any

import grpc

from rlmesh.transport.address import Address
from rlmesh.transport.framing import LeafBuffer
from rlmesh.transport.service import Message, ServiceName
from rlmesh.wire.leaves import detach_response, merge_request
from rlmesh.wire.status import Status, status_to_exception

__all__ = ["GrpcChannel"]

_PATHS = {"env": "/rlmesh.env.v1.EnvService/", "model": "/rlmesh.model.v1.ModelService/"}


class GrpcChannel:
    """See :class:`~rlmesh.transport.service.Channel`."""

    door = "grpc"

    def __init__(
        self,
        address: Address,
        service: ServiceName,
        *,
        token: str,
        timeout: float | None,
        limit: int,
    ) -> None:
        self.address = str(address)
        self._service: ServiceName = service
        self._metadata = (("authorization", token),) if token else ()
        self._timeout = timeout
        self._broken: str | None = None
        self._pid = os.getpid()
        self._call: Any = None
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        self._ready_reader, self._ready_writer = os.pipe()
        self._channel: Any = grpc.insecure_channel(
            address.grpc_target,
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.enable_http_proxy", 0),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.keepalive_time_ms", 30_000),
            ],
        )
        try:
            grpc.channel_ready_future(self._channel).result(timeout)
        except grpc.FutureTimeoutError:
            self.close()
            raise TimeoutError(f"no gRPC answer within {timeout} s") from None
        except BaseException:
            self.close()
            raise

    def handshake(self, request: bytes) -> bytes:
        return self._unary("Handshake", request)

    def shutdown(self, request: bytes) -> bytes:
        return self._unary("Shutdown", request)

    def _unary(self, method: str, request: bytes) -> bytes:
        self._check()
        call: Any = self._channel.unary_unary(_PATHS[self._service] + method)
        try:
            return call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as exc:
            raise self._failed(exc) from None

    def send(self, header: bytes, leaves: Sequence[LeafBuffer]) -> None:
        self._check()
        if self._call is None:
            self._open_stream()
        self._requests.put(merge_request(self._service, header, leaves))

    def recv(self) -> Message:
        self._check()
        try:
            answer = self._responses.get(timeout=self._timeout)
        except queue.Empty:
            where = f"{self._service} server at {self.address}"
            self._break(f"lost the {where} (no answer)")
            raise TimeoutError(
                f"{where} did not answer: recv took more than {self._timeout:.3g} s; the session is "
                "closed. Raise request_timeout_seconds, or construct a new client"
            ) from None
        except BaseException as exc:
            self._break(f"interrupted while waiting for {self.address} ({type(exc).__name__})")
            raise
        os.read(self._ready_reader, 1)
        if isinstance(answer, bytes):
            return detach_response(self._service, answer)
        if answer is None:
            self._break(f"the {self._service} server at {self.address} ended the stream")
            raise ConnectionError(self._broken)
        raise self._failed(answer)

    def fileno(self) -> int:
        return self._ready_reader

    def set_timeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def close(self) -> None:
        if self._broken is None:
            self._broken = f"not connected: the client of {self.address} was closed"
        self._requests.put(None)
        if self._call is not None:
            self._call.cancel()
        self._channel.close()
        for descriptor in (self._ready_reader, self._ready_writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._ready_reader = self._ready_writer = -1

    def _open_stream(self) -> None:
        join: Any = self._channel.stream_stream(_PATHS[self._service] + "Join")
        self._call = join(iter(self._requests.get, None), metadata=self._metadata)
        reader = threading.Thread(target=self._read, name="rlmesh-grpc-reader", daemon=True)
        reader.start()

    def _read(self) -> None:
        """Move responses to the queue, and end it with what ended the stream."""
        end: BaseException | None = None
        try:
            for response in self._call:
                self._publish(response)
        except BaseException as exc:
            end = exc
        self._publish(end)

    def _publish(self, item: bytes | BaseException | None) -> None:
        self._responses.put(item)
        with contextlib.suppress(OSError):
            os.write(self._ready_writer, b"\0")

    def _check(self) -> None:
        if self._broken is not None:
            raise ConnectionError(self._broken)
        if os.getpid() != self._pid:
            raise ConnectionError(
                f"this client of {self.address} was inherited through fork; a connection belongs "
                "to the process that opened it: construct the client in the child"
            )

    def _failed(self, exc: BaseException) -> BaseException:
        if not isinstance(exc, grpc.RpcError):
            return exc
        error: Any = exc
        status = Status(error.code().name, error.details() or "")
        failure = status_to_exception(status, self.address, service=self._service)
        self._break(str(failure))
        return failure

    def _break(self, why: str) -> None:
        self._broken = f"{why}; construct a new client to connect again"
        if self._call is not None:
            self._call.cancel()
