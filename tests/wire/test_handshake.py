"""The handshake: generation, editions, capabilities, identity."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rlmesh
from rlmesh.errors import ProtocolException
from rlmesh.spaces import Discrete
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract, contract_to_message
from rlmesh.wire.editions import EDITION, PROTOCOL_GENERATION
from rlmesh.wire.handshake import (
    Participant,
    answer_hello,
    check_answer,
    client_hello,
    enabled,
    peer_info,
    select_edition,
)
from rlmesh.wire.status import StatusError

ADDRESS = "tcp://127.0.0.1:5555"
CONTRACT = contract_to_message(EnvContract("X-v0", Discrete(2), Discrete(2)))


def answer(**changes: Any) -> Any:
    response = answer_hello("env", client_hello("env"), contract=CONTRACT)
    for name, value in changes.items():
        if isinstance(value, list):
            response.base.ClearField(name)
            getattr(response.base, name).extend(value)
        else:
            setattr(response.base, name, value)
    return response


@pytest.mark.parametrize("service", ["env", "model"])
def test_hello_and_answer(service: Any) -> None:
    request = client_hello(service, capabilities=["a"])
    assert request.base.protocol_generation == "rlmesh-wire-v1" == PROTOCOL_GENERATION
    assert list(request.base.supported_workflow_editions) == ["2026.06"]
    assert request.base.preferred_workflow_edition == "2026.06"
    assert request.base.peer_info.component == f"rlmesh-{service}"
    assert enabled(request.base.capabilities) == {"a"}
    contract = CONTRACT if service == "env" else None
    response = answer_hello(service, request, capabilities=["subset_step"], contract=contract)
    assert response.base.compatible
    assert not response.base.HasField("error_message")
    assert enabled(response.base.capabilities) == {"subset_step"}
    assert check_answer(service, response, ADDRESS) == EDITION


def test_another_generation_gets_no_contract() -> None:
    request = client_hello("env")
    request.base.protocol_generation = "rlmesh-wire-v0"
    response = answer_hello("env", request, contract=CONTRACT)
    assert not response.base.compatible
    assert response.base.error_message == (
        "protocol generation rlmesh-wire-v0 not compatible with server rlmesh-wire-v1"
    )
    assert not response.HasField("env_contract")
    with pytest.raises(ProtocolException) as caught:
        check_answer("env", response, ADDRESS)
    text = str(caught.value)
    assert text.startswith(
        f"handshake with the env server at {ADDRESS} failed: protocol generation"
    )
    assert "install matching releases" in text


def test_the_generation_is_compared_exactly() -> None:
    for generation in ("", "rlmesh-wire-v1 ", "RLMESH-WIRE-V1", "rlmesh-wire-v1.1"):
        request = client_hello("env")
        request.base.protocol_generation = generation
        assert not answer_hello("env", request).base.compatible


def test_a_request_without_base_is_an_invalid_argument() -> None:
    with pytest.raises(StatusError, match="handshake request missing base") as caught:
        answer_hello("env", messages.env.HandshakeRequest())
    assert caught.value.status.code == "INVALID_ARGUMENT"


def test_editions_are_not_judged_by_the_server() -> None:
    request = client_hello("env", wants="1999.01")
    request.base.ClearField("supported_workflow_editions")
    assert answer_hello("env", request, contract=CONTRACT).base.compatible


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"supported_workflow_editions": []},
            "no mutual workflow edition with the env: env declares no edition and can []; "
            'runtime wants "2026.06" and can ["2026.06"]',
        ),
        (
            {"supported_workflow_editions": ["2027.01"]},
            'env declares no edition and can ["2027.01"]',
        ),
        (
            {"preferred_workflow_edition": "2026.01"},
            'env wants "2026.01" and can ["2026.06"]',
        ),
        ({"compatible": False}, "the server gave no reason"),
    ],
)
def test_an_answer_the_client_refuses(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolException) as caught:
        check_answer("env", answer(**changes), ADDRESS)
    assert text in str(caught.value)
    assert ADDRESS in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


def test_an_answer_without_its_parts_is_refused() -> None:
    with pytest.raises(ProtocolException, match="missing base"):
        check_answer("env", messages.env.HandshakeResponse(), ADDRESS)
    response = answer()
    response.ClearField("env_contract")
    with pytest.raises(ProtocolException, match="holds no env contract"):
        check_answer("env", response, ADDRESS)


def test_a_newer_server_that_still_runs_our_edition_is_fine() -> None:
    response = answer(
        supported_workflow_editions=["2027.01", "2026.06"], preferred_workflow_edition="2027.01"
    )
    assert check_answer("env", response, ADDRESS) == "2026.06"


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([(["1", "2"], ""), (["1", "2", "3"], "")], "2"),
        ([(["1", "2"], "1"), (["1", "2"], "")], "1"),
        ([(["1", "2"], "3"), (["1", "2"], "2")], "2"),
        ([(["2"], ""), (["1"], "")], None),
        ([(["2"], "1"), (["2"], "")], None),
        ([(["2", ""], ""), ([""], "")], None),
        ([(["1", "2"], ""), (["2", "3"], ""), (["2"], "")], "2"),
        ([(["2026.06", "2026.06-dev.1"], ""), (["2026.06-dev.1"], "")], "2026.06-dev.1"),
        ([(["2026.06", "2026.06-rc.5"], "2026.06-rc.5"), (["2026.06"], "")], None),
        ([(["2026.06", "2026.06-rc.5"], ""), (["2026.06", "2026.06-rc.5"], "")], "2026.06"),
    ],
)
def test_select_edition(sides: list[tuple[list[str], str]], expected: str | None) -> None:
    participants = [
        Participant(name, tuple(can), wants)
        for name, (can, wants) in zip(("env", "model", "runtime"), sides, strict=False)
    ]
    if expected is None:
        with pytest.raises(ProtocolException, match="no mutual workflow edition with the env"):
            select_edition(participants)
    else:
        assert select_edition(participants) == expected


def test_only_true_is_on() -> None:
    assert enabled({"a": "true", "b": "True", "c": "1", "d": "", "e": "false"}) == {"a"}


def test_peer_info_says_who_we_are() -> None:
    info = peer_info("model", {"rlmesh.startup.load_ms": "12"})
    assert info.component == "rlmesh-model"
    assert info.language == "python"
    assert info.language_version == ".".join(map(str, sys.version_info[:3]))
    assert info.framework_versions["numpy"] == np.__version__
    build = rlmesh.build_info()
    assert dict(info.extra) == {
        "rlmesh.workflow.edition": EDITION,
        "rlmesh.workflow.base": "2026.06",
        "rlmesh.build.source": build.build_source,
        "rlmesh.build.cohort": build.build_cohort,
        "rlmesh.startup.load_ms": "12",
    }
    assert "rlmesh.startup.load_ms" not in peer_info("model").extra


def test_peer_info_imports_no_framework() -> None:
    script = """
import sys
from rlmesh.wire.handshake import client_hello
client_hello("env")
loaded = {"torch", "jax", "jaxlib", "gymnasium", "grpc"} & set(sys.modules)
assert not loaded, loaded
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
