"""Model servers in processes of their own, and doors held shut."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ServerProcess

import rlmesh.transport.dial
from rlmesh.transport.native import NotNative

__all__ = ["model_process", "shut_native_door"]


def model_process(
    kind: str,
    address: str | None = None,
    *,
    options: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **server: Any,
) -> ServerProcess:
    """Serve a model of ``served_kinds`` from the main thread of a process."""
    settings = {
        "address": address,
        "options": options or {},
        "config": config or {},
        "server": server,
    }
    program = str(Path(__file__).with_name("served_program.py"))
    return ServerProcess([sys.executable, "-W", "error", program, kind, json.dumps(settings)])


def shut_native_door(patch: pytest.MonkeyPatch) -> None:
    """Make clients of this process find only gRPC."""

    def refused(*_: Any, **__: Any) -> Any:
        raise NotNative("shut for this test")

    patch.setattr(rlmesh.transport.dial.NativeChannel, "open", refused)
