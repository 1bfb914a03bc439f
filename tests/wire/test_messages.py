"""The message classes: complete, private, made from the ``.proto`` files beside them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.errors import ProtocolException
from rlmesh.wire import messages

ROOT = Path(__file__).resolve().parents[2]

# Every field of reference/wire.md, written down a second time: message -> {field: number}.
FIELDS = {
    "spaces": {
        "SpaceSpec": "shape 1 dtype 2 box 10 discrete 11 multi_binary 12 multi_discrete 13 text 14 "
        "dict 20 tuple 21",
        "BoxSpec": "unbounded 1 uniform 2 elementwise 3",
        "UniformBounds": "low 1 high 2",
        "ElementwiseBounds": "low 1 high 2",
        "DiscreteSpec": "n 1 start 2",
        "MultiBinarySpec": "",
        "MultiDiscreteSpec": "nvec 1",
        "TextSpec": "min_length 1 max_length 2 charset 3",
        "DictSpec": "keys 1 spaces 2",
        "TupleSpec": "spaces 1",
        "SpaceValue": "leaves 1",
        "MetaValue": "integer 1 number 2 text 3 bool 4 bytes 5 list 6 map 7",
        "MetaList": "items 1",
        "MetaMap": "entries 1",
    },
    "core": {
        "PeerInfo": "component 1 package_version 2 language 3 language_version 4 os 5 os_version 6 "
        "arch 7 framework_versions 8 extra 15",
        "HandshakeRequest": "protocol_generation 1 peer_info 2 capabilities 3 "
        "supported_workflow_editions 4 preferred_workflow_edition 5",
        "HandshakeResponse": "compatible 1 peer_info 2 capabilities 3 "
        "supported_workflow_editions 4 error_message 5 preferred_workflow_edition 6",
        "ShutdownRequest": "reason 1",
        "ShutdownResponse": "accepted 1 message 2",
        "EnvSpec": "id 1 action_space 2 observation_space 3 metadata 4",
        "EnvContract": "spec 1 num_envs 2 render_mode 3 autoreset_mode 4",
        "ProcessedImage": "leaf 1 shape 2 steps 3 libraries 4 digest 5",
    },
    "env": {
        "HandshakeRequest": "base 1",
        "HandshakeResponse": "base 1 env_contract 2",
        "ShutdownRequest": "base 1",
        "ShutdownResponse": "base 1",
        "JoinRequest": "reset 1 step 2 render 3 close 4 request_id 5 configure 6",
        "JoinResponse": "reset 1 step 2 render 3 close 4 request_id 5 endpoint_total_ns 6 "
        "configure 7 error 10 decode_ns 11 user_ns 12 encode_ns 13 lane_skew_ns 14 queue_ns 15",
        "ConfigureEnvRequest": "selected_workflow_edition 1 view 1001",
        "ConfigureEnvResponse": "refused 1001",
        "ObservationView": "leaves 1 images 2",
        "RefusedImage": "leaf 1 reason 2",
        "ResetRequest": "seeds 1 options 2 timeout_ms 3 env_indices 4 episode_ids 5",
        "ResetResponse": "observation 1 infos 2",
        "StepRequest": "action 1 timeout_ms 2 env_indices 3 episode_ids 4",
        "StepResponse": "observation 1 rewards 2 terminated_mask 3 truncated_mask 4 infos 5 "
        "completed_episodes 6 env_indices 7",
        "EpisodeMetadata": "episode_id 1 seed 2 env_index 3 step_count 4 cumulative_reward 5 "
        "terminated 6 truncated 7 start_timestamp_ns 8 end_timestamp_ns 9 final_info 10",
        "RenderRequest": "env_indices 1 timeout_ms 2",
        "RenderResponse": "frame 1 format 2",
        "CloseEnvsRequest": "reason 1",
        "CloseEnvsResponse": "final_episodes 1",
        "EnvError": "code 1 message 2 is_recoverable 3 debug_info 4 interrupted_episodes 5",
    },
    "model": {
        "HandshakeRequest": "base 1",
        "HandshakeResponse": "base 1",
        "ShutdownRequest": "base 1",
        "ShutdownResponse": "base 1",
        "AdapterContext": "session_id 1 env_id 2 request_id 3",
        "ResolveAdapterRequest": "context 1 env_spec 2 selected_workflow_edition 3 "
        "execution_horizon 4 wants_plan 1001 wants_images 1002 processed 1003",
        "AdapterPlan": "projects 1 leaves 2 remembers 3 history 4 images 5",
        "ResolveAdapterResponse": "plan 1001",
        "EpisodeInfo": "episode_id 1 seed 2",
        "PredictRequest": "context 1 observation 2 episode_info 3 projected 1001 passed 1002",
        "PredictResponse": "context 1 actions 2 lengths 1001",
        "GroupedPredictRequest": "groups 1",
        "GroupedPredictResult": "response 1 error 2",
        "GroupedPredictResponse": "results 1",
        "ReleaseAdapterRequest": "context 1 reason 2",
        "ReleaseAdapterResponse": "",
        "ResetAdapterRequest": "context 1 episode_ids 2",
        "ResetAdapterResponse": "",
        "CloseParticipantRequest": "reason 1",
        "CloseParticipantResponse": "",
        "JoinRequest": "resolve_adapter 1 predict 2 release_adapter 3 close 4 request_id 5 "
        "grouped_predict 6 reset_adapter 7",
        "JoinResponse": "resolve_adapter 1 predict 2 release_adapter 3 close 4 request_id 5 "
        "endpoint_total_ns 6 grouped_predict 7 reset_adapter 8 error 10 decode_ns 11 user_ns 12 "
        "encode_ns 13 queue_ns 14 in_flight 15 adapter_ns 16 held_episodes 17 held_state_bytes 18",
        "ModelError": "code 1 message 2 is_recoverable 3 debug_info 4",
    },
    "health": {"HealthCheckRequest": "service 1", "HealthCheckResponse": "status 1"},
}
MESSAGES = [(package, name) for package, names in FIELDS.items() for name in names]


@pytest.mark.parametrize(("package", "name"), MESSAGES)
def test_fields_have_the_numbers_of_the_wire(package: str, name: str) -> None:
    descriptor = getattr(getattr(messages, package), name).DESCRIPTOR
    words = FIELDS[package][name].split()
    expected = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert {field.name: field.number for field in descriptor.fields} == expected


@pytest.mark.parametrize("package", FIELDS)
def test_the_list_above_is_complete(package: str) -> None:
    namespace = vars(getattr(messages, package))
    classes = {name for name, value in namespace.items() if isinstance(value, type)}
    assert classes == set(FIELDS[package])


def test_enum_values_are_in_the_namespaces() -> None:
    assert messages.spaces.DATA_TYPE_FLOAT64 == 12
    assert messages.core.AUTORESET_MODE_SAME_STEP == 2
    assert messages.env.ENV_ERROR_CODE_CLOSED == 13
    assert messages.env.RENDER_FORMAT_PNG == 1
    assert messages.model.MODEL_ERROR_CODE_NOT_CONFIGURED == 3
    assert messages.health.HealthCheckResponse.SERVING == 1


def test_optional_fields_know_whether_they_were_set() -> None:
    response = messages.env.JoinResponse(endpoint_total_ns=0)
    parsed = messages.parse(messages.env.JoinResponse, response.SerializeToString())
    assert parsed.HasField("endpoint_total_ns")
    assert not parsed.HasField("decode_ns")


def test_an_unknown_enum_number_survives_parsing() -> None:
    data = messages.core.EnvContract(autoreset_mode=9).SerializeToString()
    assert messages.parse(messages.core.EnvContract, data).autoreset_mode == 9


if importlib.util.find_spec("grpc_tools"):

    def test_the_descriptor_set_is_that_of_the_proto_files() -> None:
        tool = ROOT / "tools" / "generate_descriptors.py"
        result = subprocess.run(
            [sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_every_proto_file_is_in_the_descriptor_set_and_none_needs_editions() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(messages.DESCRIPTORS.read_bytes()).file
    protos = messages.DESCRIPTORS.parent
    on_disk = {path.relative_to(protos).as_posix() for path in protos.rglob("*.proto")}
    assert {file.name for file in files} == on_disk
    assert {file.syntax for file in files} == {"proto3"}


def test_another_build_of_the_protocol_in_the_default_pool_does_not_clash() -> None:
    """A user's generated code may register files and messages of the very same names."""
    script = """
from google.protobuf import descriptor_pb2, descriptor_pool
pool = descriptor_pool.Default()
for name in ("rlmesh/core/v1/core.proto", "rlmesh/env/v1/env.proto", "other.proto"):
    file = descriptor_pb2.FileDescriptorProto(name=name, package="rlmesh.env.v1", syntax="proto3")
    file.message_type.add(name="StepRequest" if "env" in name else "X" + name[-8:-6])
    pool.AddSerializedFile(file.SerializeToString())
from rlmesh.wire import messages
assert len(messages.env.StepRequest.DESCRIPTOR.fields) == 4
theirs = pool.FindMessageTypeByName("rlmesh.env.v1.StepRequest")
assert len(theirs.fields) == 0
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_the_default_pool_is_left_alone() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("rlmesh.env.v1.StepRequest")


def test_parse_names_the_message_it_expected() -> None:
    with pytest.raises(ProtocolException, match=r"expected a rlmesh.env.v1.JoinRequest, got 3 byt"):
        messages.parse(messages.env.JoinRequest, b"\xff\xff\xff")


def test_parse_takes_a_memoryview() -> None:
    data = messages.env.JoinRequest(request_id="grpc-req-1").SerializeToString()
    assert messages.parse(messages.env.JoinRequest, memoryview(data)).request_id == "grpc-req-1"


def test_parse_refuses_text_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolException):
        messages.parse(messages.env.JoinRequest, b"\x2a\x02\xff\xfe")


def test_parse_refuses_endless_nesting() -> None:
    nested = b""
    for _ in range(2_000):
        nested = _field(1, _field(21, nested))
    with pytest.raises(ProtocolException):
        messages.parse(messages.spaces.TupleSpec, nested)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(("package", "name"), [m for m in MESSAGES if m[0] != "health"])
@given(data=st.binary(max_size=200))
def test_random_bytes_are_a_message_or_a_protocol_exception(
    package: str, name: str, data: bytes
) -> None:
    try:
        messages.parse(getattr(getattr(messages, package), name), data)
    except ProtocolException as error:
        assert name in str(error)
