"""Errors on the wire and the exceptions they are."""

from __future__ import annotations

from typing import Any

import pytest

from rlmesh.errors import EnvironmentException, ModelException
from rlmesh.wire import messages
from rlmesh.wire.status import (
    MAX_DEBUG_CHARS,
    EnvErrorCode,
    EnvFault,
    ModelErrorCode,
    ModelFault,
    Status,
    StatusError,
    describe_exception,
    env_error_to_exception,
    exception_to_env_error,
    exception_to_model_error,
    model_error_to_exception,
    remote_fault,
    status_to_exception,
)

ADDRESS = "tcp://127.0.0.1:5555"


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def over_the_wire(error: Any) -> Any:
    return messages.parse(type(error), error.SerializeToString())


@pytest.mark.parametrize("code", EnvErrorCode)
def test_env_codes_are_those_of_the_wire(code: EnvErrorCode) -> None:
    assert getattr(messages.env, f"ENV_ERROR_CODE_{code.name}") == code


@pytest.mark.parametrize("code", ModelErrorCode)
def test_model_codes_are_those_of_the_wire(code: ModelErrorCode) -> None:
    assert getattr(messages.model, f"MODEL_ERROR_CODE_{code.name}") == code


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNSPECIFIED", EnvironmentException),
        ("TIMEOUT", TimeoutError),
        ("INVALID_ACTION", ValueError),
        ("NOT_READY", EnvironmentException),
        ("BUSY", EnvironmentException),
        ("UNSUPPORTED", EnvironmentException),
        ("INTERNAL", EnvironmentException),
        ("CRASHED", EnvironmentException),
        ("CANCELLED", RuntimeError),
        ("CLOSED", EnvironmentException),
    ],
)
@pytest.mark.parametrize("recoverable", [True, False])
def test_env_faults_arrive_as_their_exception(
    code: str, kind: type[Exception], recoverable: bool
) -> None:
    fault = EnvFault(EnvErrorCode[code], "what happened", recoverable=recoverable)
    exc = env_error_to_exception(over_the_wire(exception_to_env_error(fault)), ADDRESS)
    assert type(exc) is kind
    assert str(exc) == f"[{code}] what happened"
    facts = remote_fault(exc)
    assert facts is not None
    assert (facts.code, facts.message, facts.recoverable) == (code, "what happened", recoverable)
    assert facts.address == ADDRESS
    assert exc.__notes__ == [f"Raised by the env server at {ADDRESS}"]


def test_an_unknown_env_code_is_named_by_number() -> None:
    exc = env_error_to_exception(messages.env.EnvError(code=77, message="new"), ADDRESS)
    assert type(exc) is EnvironmentException
    assert str(exc) == "[UNKNOWN 77] new"


def test_an_exception_of_the_env_arrives_with_type_message_and_traceback() -> None:
    error = over_the_wire(exception_to_env_error(raised(KeyError("boom")), during="step"))
    assert error.message == "step failed: KeyError: 'boom'"
    assert error.code == EnvErrorCode.INTERNAL
    assert not error.is_recoverable
    exc = env_error_to_exception(error, ADDRESS)
    assert type(exc) is EnvironmentException
    assert str(exc) == "[INTERNAL] step failed: KeyError: 'boom'"
    (note,) = exc.__notes__
    assert note.startswith(f"Remote traceback (env server at {ADDRESS}):\nTraceback (most recent")
    assert "raise exc" in note
    assert note.endswith("KeyError: 'boom'")


def test_causes_and_notes_are_in_the_remote_traceback() -> None:
    try:
        try:
            raise OSError("disk")
        except OSError as cause:
            raise ValueError("scene") from cause
    except ValueError as exc:
        error = exception_to_env_error(exc, during="reset")
    assert error.message == "reset failed: ValueError: scene"
    assert "OSError: disk" in error.debug_info


@pytest.mark.parametrize("code", ModelErrorCode)
def test_model_faults_arrive_as_model_exceptions(code: ModelErrorCode) -> None:
    fault = ModelFault(code, "no", recoverable=False)
    exc = model_error_to_exception(over_the_wire(exception_to_model_error(fault)), ADDRESS)
    assert type(exc) is ModelException
    assert str(exc) == f"model error: [{code.name}] no"


def test_an_exception_of_the_model_arrives_with_its_traceback() -> None:
    error = over_the_wire(exception_to_model_error(raised(RuntimeError("CUDA"))))
    exc = model_error_to_exception(error, ADDRESS)
    assert str(exc) == "model error: [INTERNAL] predict failed: RuntimeError: CUDA"
    assert exc.__notes__[0].startswith(f"Remote traceback (model server at {ADDRESS}):")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("exc", "text"),
    [
        (KeyError("boom"), "KeyError: 'boom'"),
        (ValueError(), "ValueError"),
        (Mute(), "Mute: <its str() failed>"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_describe_exception(exc: BaseException, text: str) -> None:
    assert describe_exception(exc) == text
    assert exception_to_env_error(raised(exc)).message == f"step failed: {text}"


def test_text_that_is_not_unicode_still_travels() -> None:
    error = over_the_wire(exception_to_env_error(raised(ValueError("bad \ud800 name"))))
    assert error.message == "step failed: ValueError: bad \\ud800 name"
    fault = EnvFault(EnvErrorCode.BUSY, "\udcff")
    assert over_the_wire(exception_to_env_error(fault)).message == "\\udcff"


def test_a_long_traceback_keeps_its_end() -> None:
    error = exception_to_env_error(raised(ValueError("x" * 200_000 + "the end")))
    assert len(error.debug_info) < MAX_DEBUG_CHARS + 100
    assert error.debug_info.rstrip().endswith("the end")
    assert "characters cut]" in error.debug_info


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", ConnectionError),
        ("UNAUTHENTICATED", ConnectionError),
        ("FAILED_PRECONDITION", ConnectionError),
        ("INVALID_ARGUMENT", ConnectionError),
        ("RESOURCE_EXHAUSTED", ConnectionError),
        ("UNIMPLEMENTED", ConnectionError),
        ("DEADLINE_EXCEEDED", TimeoutError),
    ],
)
def test_a_status_is_an_exception_with_the_address(code: str, kind: type[Exception]) -> None:
    exc = status_to_exception(Status(code, "because"), ADDRESS)
    assert type(exc) is kind
    assert str(exc).startswith(f"env server at {ADDRESS}: because [{code}]")
    facts = remote_fault(exc)
    assert facts is not None
    assert facts.code == code


def test_a_wrong_token_says_what_to_do() -> None:
    status = StatusError("UNAUTHENTICATED", "invalid env token").status
    assert str(status_to_exception(status, ADDRESS)) == (
        f"env server at {ADDRESS}: invalid env token [UNAUTHENTICATED]; pass the server's token"
    )


def test_a_status_without_a_reason() -> None:
    text = str(status_to_exception(Status("UNAVAILABLE", ""), ADDRESS, service="model"))
    assert text == f"model server at {ADDRESS}: no reason given [UNAVAILABLE]"


def test_other_exceptions_hold_no_facts() -> None:
    assert remote_fault(ValueError("x")) is None
