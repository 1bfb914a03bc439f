"""The env contract and how it travels."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.errors import ProtocolException
from rlmesh.spaces import Box, Dict, Discrete, Text
from rlmesh.wire import messages
from rlmesh.wire.contract import (
    EXTENSIONS_KEY,
    AutoresetMode,
    EnvContract,
    contract_from_message,
    contract_to_message,
)
from rlmesh.wire.meta import decode_map, fill_map


def contract(**changes: Any) -> EnvContract:
    fields: dict[str, Any] = {
        "id": "Reach-v0",
        "observation_space": Box(-1, 1, (3,)),
        "action_space": Discrete(4),
    }
    return EnvContract(**(fields | changes))


def travel(served: EnvContract) -> EnvContract:
    data = contract_to_message(served).SerializeToString()
    return contract_from_message(messages.parse(messages.core.EnvContract, data))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_round_trip(mode: AutoresetMode) -> None:
    served = contract(
        num_envs=8,
        render_mode="rgb_array",
        autoreset_mode=mode,
        metadata={"render_fps": 30, "tags": {"a": [1, 2.5, None]}},
    )
    assert travel(served) == served
    assert travel(served).to_dict() == served.to_dict()


def test_what_is_empty_comes_back_as_none() -> None:
    back = travel(contract(metadata={}, render_mode=""))
    assert back.metadata is None
    assert back.render_mode is None
    assert back.num_envs == 1


def test_spaces_the_wire_has_no_word_for_come_back_exact() -> None:
    served = contract(
        observation_space=Dict({"speed": Box(0, 9, ()), "task": Text(20, 0)}),
        action_space=Box(-1, 1, ()),
        metadata={"k": 1},
    )
    message = contract_to_message(served)
    assert travel(served) == served
    assert decode_map(message.spec.metadata)[EXTENSIONS_KEY] == {
        "observation": {"/speed": {"shape": []}, "/task": {"min_length": 0}},
        "action": {"": {"shape": []}},
    }


def test_most_contracts_carry_no_extensions() -> None:
    assert not contract_to_message(contract()).spec.HasField("metadata")


def test_the_extensions_of_a_relayed_contract_are_made_anew() -> None:
    served = contract(metadata={EXTENSIONS_KEY: {"action": {"": {"shape": []}}}, "k": 1})
    assert travel(served).metadata == {"k": 1}


@given(
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(max_size=3),
        lambda inner: st.dictionaries(
            st.sampled_from(["observation", "action", "", "shape", "min_length"]), inner
        ),
        max_leaves=8,
    )
)
def test_hostile_extensions_leave_a_usable_contract(extensions: Any) -> None:
    message = contract_to_message(contract(metadata={"k": 1}))
    message.spec.metadata.Clear()
    fill_map(message.spec.metadata, {EXTENSIONS_KEY: extensions})
    assert contract_from_message(message).action_space == Discrete(4)


def test_metadata_that_cannot_travel() -> None:
    served = contract(metadata={"good": 1, "bad": object()})
    with pytest.raises(TypeError, match="env metadata 'bad': expected"):
        contract_to_message(served)
    drops: list[str] = []
    message = contract_to_message(served, on_drop=lambda path, detail: drops.append(path))
    assert contract_from_message(message).metadata == {"good": 1}
    assert drops == ["bad"]


def test_unspecified_autoreset_is_disabled() -> None:
    message = contract_to_message(contract())
    message.autoreset_mode = 0
    assert contract_from_message(message).autoreset_mode is AutoresetMode.DISABLED


def broken(what: str) -> Any:
    message = contract_to_message(contract())
    if what == "autoreset":
        message.autoreset_mode = 9
    elif what == "num_envs":
        message.num_envs = 0
    elif what == "observation":
        message.spec.ClearField("observation_space")
    elif what == "action":
        message.spec.ClearField("action_space")
    elif what == "spec":
        message.ClearField("spec")
    else:
        message.spec.action_space.discrete.n = 0
    return message


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("autoreset", "'Reach-v0': unknown autoreset mode 9; expected NEXT_STEP"),
        ("num_envs", "'Reach-v0': expected num_envs >= 1, got 0"),
        ("observation", "'Reach-v0': the observation space is missing"),
        ("action", "'Reach-v0': the action space is missing"),
        ("spec", "'': the observation space is missing"),
        ("n", "'Reach-v0', action space: Discrete n must be > 0"),
    ],
)
def test_a_broken_contract_is_refused(what: str, text: str) -> None:
    with pytest.raises(ProtocolException, match=text):
        contract_from_message(broken(what))


def test_the_modes_are_spelled_as_gymnasium_spells_them() -> None:
    assert [mode.value for mode in AutoresetMode] == ["NextStep", "SameStep", "Disabled"]


def test_what_the_contract_says_of_itself() -> None:
    served = contract(num_envs=2)
    assert repr(served) == 'EnvContract(id="Reach-v0", num_envs=2)'
    assert served.env is served
    assert served.spec is served
    assert served.to_dict() == {
        "id": "Reach-v0",
        "num_envs": 2,
        "render_mode": None,
        "autoreset_mode": "Disabled",
        "metadata": None,
        "observation_space": {
            "kind": "box",
            "shape": [3],
            "dtype": "float32",
            "details": {"bounds_kind": "uniform", "low": -1.0, "high": 1.0},
        },
        "action_space": {
            "kind": "discrete",
            "shape": [],
            "dtype": "int64",
            "details": {"n": 4, "start": 0},
        },
    }
    assert json.loads(json.dumps(served.to_dict())) == served.to_dict()


def test_the_contract_is_read_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        contract().num_envs = 3  # type: ignore[misc]


def test_contracts_that_differ_are_not_equal() -> None:
    assert contract() != contract(num_envs=2)
    assert contract() != "Reach-v0"


@given(st.binary(max_size=300))
def test_hostile_bytes_are_a_contract_or_refused(data: bytes) -> None:
    try:
        contract_from_message(messages.parse(messages.core.EnvContract, data))
    except ProtocolException as error:
        assert str(error)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_contract_is_a_contract_or_refused(where: int, byte: int) -> None:
    served = contract(metadata={"k": [1, {"x": "y"}]}, observation_space=Dict({"a": Box(0, 1, ())}))
    raw = bytearray(contract_to_message(served).SerializeToString())
    raw[where % len(raw)] = byte
    try:
        back = contract_from_message(messages.parse(messages.core.EnvContract, bytes(raw)))
    except ProtocolException as error:
        assert str(error)
    else:
        assert isinstance(back, EnvContract)
