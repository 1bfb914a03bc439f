"""The message classes of ``rlmesh-wire-v1``, by package: ``messages.env.StepRequest`` and so on.

The classes are built from ``protos/descriptors.binpb`` in a descriptor pool of their own: generated
code would be tied to one range of protobuf versions, and in protobuf's default pool our file names
would clash with those of any other build of the same protocol in the process.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from rlmesh.errors import ProtocolException

__all__ = ["core", "env", "health", "model", "parse", "spaces"]

DESCRIPTORS = Path(__file__).parent / "protos" / "descriptors.binpb"


def _load(data: bytes) -> dict[str, Any]:
    """Return one namespace per proto package: its message classes and its enum values."""
    pool: Any = descriptor_pool.DescriptorPool()
    factory: Any = message_factory
    build: Any = getattr(factory, "GetMessageClass", None)
    if build is None:  # protobuf < 4.22
        build = factory.MessageFactory(pool).GetPrototype
    namespaces: dict[str, Any] = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
        described = pool.FindFileByName(file.name)
        package = namespaces.setdefault(described.package, SimpleNamespace())
        for name, message in described.message_types_by_name.items():
            setattr(package, name, build(message))
        for enum in described.enum_types_by_name.values():
            for value in enum.values:
                setattr(package, value.name, value.number)
    return namespaces


_packages = _load(DESCRIPTORS.read_bytes())

spaces: Any = _packages["rlmesh.spaces.v1"]
core: Any = _packages["rlmesh.core.v1"]
env: Any = _packages["rlmesh.env.v1"]
model: Any = _packages["rlmesh.model.v1"]
health: Any = _packages["grpc.health.v1"]


def parse(message_class: Any, data: bytes | memoryview) -> Any:
    """Return the ``message_class`` message that ``data`` holds.

    Raises:
        ProtocolException: ``data`` is not such a message.
    """
    message = message_class()
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError, TypeError, IndexError) as error:
        # Only DecodeError from the C parsers; the pure Python one lets the others through.
        name = message_class.DESCRIPTOR.full_name
        raise ProtocolException(
            f"expected a {name}, got {len(data)} bytes that are not one ({error})"
        ) from None
    return message
