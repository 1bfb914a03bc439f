"""The envelope of what is served, in the server's handshake."""

from __future__ import annotations

import sys
from typing import Any

from rlmesh.serve.arguments import Command
from rlmesh.transport.serving import Server

__all__ = ["announce_described"]

_MOST_BYTES = 1024 * 1024
"""Every client that greets the server is sent it."""


def announce_described(server: Server, thing: Any, command: Command) -> None:
    """Tell clients what ``rlmesh.describe`` says of ``thing``; advisory, so a failure is a note."""
    try:
        text = _described(server, thing, command)
        if len(text.encode()) > _MOST_BYTES:
            raise ValueError(f"it takes more than {_MOST_BYTES} bytes")
    except Exception as exc:
        print(
            f"rlmesh.serve: note: clients are not told what {command.name} is: "
            f"{type(exc).__name__}: {exc}",
            file=sys.stderr,
        )
        return
    from rlmesh.describing import DESCRIBE_METADATA_KEY

    server.announce({DESCRIBE_METADATA_KEY: text})


def _described(server: Any, thing: Any, command: Command) -> str:
    from rlmesh.describing.envelope import describe_served
    from rlmesh.describing.targets import Target, qualified_name

    contract = getattr(server, "env_contract", None)
    name = qualified_name(thing)
    entrypoint = command.target if isinstance(command.target, str) else None
    kind = "model" if contract is None else "env"
    target = Target(thing, kind, entrypoint, name)
    return describe_served(target, contract=contract, edition=server.workflow_edition)
