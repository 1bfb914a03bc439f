"""Write ``src/rlmesh/wire/protos/descriptors.binpb`` from the ``.proto`` files beside it.

Run it after changing a ``.proto`` file; ``tests/wire/test_messages.py`` fails until it was. Needs
``grpcio-tools``. ``--check`` only compares and exits 1 when the committed file is out of date.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parents[1] / "src" / "rlmesh" / "wire" / "protos"
OUTPUT = PROTOS / "descriptors.binpb"


def generate(protos: Path = PROTOS) -> bytes:
    """Return the serialized ``FileDescriptorSet`` of every ``.proto`` file under ``protos``.

    Files come in dependency order, without source locations or JSON names, so the bytes depend on
    the ``.proto`` files alone and not on the version of protoc.
    """
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    names = sorted(path.relative_to(protos).as_posix() for path in protos.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch, "set.binpb")
        arguments = ["protoc", f"-I{protos}", f"--descriptor_set_out={raw}", *names]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc refused the .proto files; its messages are above")
        files = descriptor_pb2.FileDescriptorSet.FromString(raw.read_bytes())
    for file in files.file:
        for message in file.message_type:
            _drop_json_names(message)
    return files.SerializeToString(deterministic=True)


def _drop_json_names(message: object) -> None:
    for field in message.field:  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]
        _drop_json_names(nested)


def main() -> int:
    """Write or check the descriptor set; return the exit status."""
    data = generate()
    if "--check" in sys.argv[1:]:
        if OUTPUT.read_bytes() != data:
            print(f"{OUTPUT} is out of date: run python tools/generate_descriptors.py")
            return 1
        return 0
    OUTPUT.write_bytes(data)
    print(f"{OUTPUT}: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
