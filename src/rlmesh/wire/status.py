"""Errors on the wire and the Python exceptions they are: one table, read in both directions.

An env or model error is a message inside the stream (``EnvError``, ``ModelError``); a status
refuses or ends the stream itself and is the same at the gRPC and the native door.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rlmesh.errors import EnvironmentException, ModelException, add_note
from rlmesh.wire import messages

__all__ = [
    "EnvErrorCode",
    "EnvFault",
    "ModelErrorCode",
    "ModelFault",
    "RemoteFault",
    "Status",
    "StatusError",
    "describe_exception",
    "env_error_to_exception",
    "exception_to_env_error",
    "exception_to_model_error",
    "model_error_to_exception",
    "remote_fault",
    "status_to_exception",
]

MAX_DEBUG_CHARS = 65_536
"""Longest remote traceback that travels; of a longer one the end is kept."""


class EnvErrorCode(IntEnum):
    """Codes of ``EnvError``."""

    UNSPECIFIED = 0
    TIMEOUT = 1
    INVALID_ACTION = 2
    NOT_READY = 3
    BUSY = 4
    UNSUPPORTED = 5
    INTERNAL = 10
    CRASHED = 11
    CANCELLED = 12
    CLOSED = 13


class ModelErrorCode(IntEnum):
    """Codes of ``ModelError``."""

    UNSPECIFIED = 0
    INVALID_REQUEST = 2
    NOT_CONFIGURED = 3
    BUSY = 4
    UNSUPPORTED = 5
    INTERNAL = 10
    CANCELLED = 12
    CLOSED = 13


_ENV_EXCEPTIONS: dict[int, type[Exception]] = {
    EnvErrorCode.TIMEOUT: TimeoutError,
    EnvErrorCode.INVALID_ACTION: ValueError,
    EnvErrorCode.CANCELLED: RuntimeError,
}  # every other code: EnvironmentException

_MODEL_EXCEPTIONS: dict[int, type[Exception]] = {}  # every code: ModelException

_STATUS_EXCEPTIONS: dict[str, type[Exception]] = {
    "DEADLINE_EXCEEDED": TimeoutError,
}  # every other status: ConnectionError

_STATUS_REMEDIES = {
    "UNAUTHENTICATED": "pass the server's token",
    "RESOURCE_EXHAUSTED": "raise the message limit on both ends",
    "UNIMPLEMENTED": "check that the address is that of the service you mean",
}


class EnvFault(Exception):
    """Raised inside an env server to answer with this ``EnvError``, instead of ``INTERNAL``.

    A recoverable fault leaves the stream open: the request was refused and the env untouched.
    """

    def __init__(self, code: EnvErrorCode, message: str, *, recoverable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recoverable = recoverable


class ModelFault(Exception):
    """Raised inside a model server to answer with this ``ModelError``, instead of ``INTERNAL``."""

    def __init__(self, code: ModelErrorCode, message: str, *, recoverable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recoverable = recoverable


@dataclass(frozen=True)
class RemoteFault:
    """The facts of an error that came over the wire; see :func:`remote_fault`."""

    code: str
    message: str
    recoverable: bool
    address: str
    traceback: str


def remote_fault(exc: BaseException) -> RemoteFault | None:
    """Return the facts behind an exception made by this module; None for any other exception."""
    return getattr(exc, "__rlmesh_fault__", None)


def describe_exception(exc: BaseException) -> str:
    """Return ``KeyError: 'boom'``, or the type's name alone when there is no text."""
    try:
        text = str(exc)
    except Exception:
        text = "<its str() failed>"
    name = type(exc).__name__
    return f"{name}: {text}" if text else name


def exception_to_env_error(exc: BaseException, *, during: str = "step") -> Any:
    """Return the ``EnvError`` for ``exc``.

    An ``EnvFault`` gives its own code. Anything else came out of the env's code: ``INTERNAL``, not
    recoverable, message ``"<during> failed: KeyError: 'boom'"``, the traceback in ``debug_info``.
    """
    if isinstance(exc, EnvFault):
        return messages.env.EnvError(
            code=int(exc.code), message=_clean(exc.message), is_recoverable=exc.recoverable
        )
    return messages.env.EnvError(
        code=int(EnvErrorCode.INTERNAL),
        message=_clean(f"{during} failed: {describe_exception(exc)}"),
        debug_info=_traceback_text(exc),
    )


def exception_to_model_error(exc: BaseException, *, during: str = "predict") -> Any:
    """Return the ``ModelError`` for ``exc``; as :func:`exception_to_env_error`."""
    if isinstance(exc, ModelFault):
        return messages.model.ModelError(
            code=int(exc.code), message=_clean(exc.message), is_recoverable=exc.recoverable
        )
    return messages.model.ModelError(
        code=int(ModelErrorCode.INTERNAL),
        message=_clean(f"{during} failed: {describe_exception(exc)}"),
        debug_info=_traceback_text(exc),
    )


def env_error_to_exception(error: Any, address: str) -> Exception:
    """Return the exception an ``EnvError`` from the server at ``address`` is.

    ``[TIMEOUT]`` is a TimeoutError, ``[INVALID_ACTION]`` a ValueError, ``[CANCELLED]`` a
    RuntimeError and everything else an EnvironmentException. The remote traceback becomes a note.
    """
    code = _code_name(EnvErrorCode, error.code)
    kind = _ENV_EXCEPTIONS.get(error.code, EnvironmentException)
    return _to_exception(kind, f"[{code}] {error.message}", error, code, f"env server at {address}")


def model_error_to_exception(error: Any, address: str) -> Exception:
    """Return the ModelException a ``ModelError`` from the server at ``address`` is."""
    code = _code_name(ModelErrorCode, error.code)
    kind = _MODEL_EXCEPTIONS.get(error.code, ModelException)
    text = f"model error: [{code}] {error.message}"
    return _to_exception(kind, text, error, code, f"model server at {address}")


def _to_exception(
    kind: type[Exception], text: str, error: Any, code: str, source: str
) -> Exception:
    exc = kind(text)
    address = source.rpartition(" at ")[2]
    fault = RemoteFault(code, error.message, error.is_recoverable, address, error.debug_info)
    vars(exc)["__rlmesh_fault__"] = fault
    if error.debug_info:
        add_note(exc, f"Remote traceback ({source}):\n{error.debug_info.rstrip()}")
    else:
        add_note(exc, f"Raised by the {source}")
    return exc


def _code_name(codes: type[IntEnum], number: int) -> str:
    try:
        return codes(number).name
    except ValueError:
        return f"UNKNOWN {number}"


def _traceback_text(exc: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
    except Exception:
        text = "".join(traceback.format_tb(exc.__traceback__)) + describe_exception(exc)
    if len(text) > MAX_DEBUG_CHARS:
        text = f"[{len(text) - MAX_DEBUG_CHARS} characters cut]\n{text[-MAX_DEBUG_CHARS:]}"
    return _clean(text)


def _clean(text: str) -> str:
    """Return ``text`` without lone surrogates, which no protobuf string can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Status:
    """Why a call or stream was refused or ended: a gRPC status, at whichever door.

    ``code`` is the name of the gRPC code: ``UNAUTHENTICATED``, ``FAILED_PRECONDITION``, ...
    """

    code: str
    message: str


class StatusError(Exception):
    """Raised inside a server to refuse the call or end the stream with ``status``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = Status(code, message)


def status_to_exception(status: Status, address: str, *, service: str = "env") -> Exception:
    """Return the exception a refused or broken call to ``address`` is.

    TimeoutError for ``DEADLINE_EXCEEDED``, else ConnectionError; the message names the address.
    """
    kind = _STATUS_EXCEPTIONS.get(status.code, ConnectionError)
    text = f"{service} server at {address}: {status.message or 'no reason given'} [{status.code}]"
    remedy = _STATUS_REMEDIES.get(status.code)
    exc = kind(f"{text}; {remedy}" if remedy else text)
    vars(exc)["__rlmesh_fault__"] = RemoteFault(status.code, status.message, False, address, "")
    return exc
