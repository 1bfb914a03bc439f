"""The published package, found once; and our servers in this process, each gone after its test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop_envs import ENVS
from reference_process import Reference, find_reference

import rlmesh


@pytest.fixture(scope="session")
def reference() -> Reference:
    """rlmesh 0.1.0 in its own interpreter. Without it the suite fails; it never skips."""
    try:
        return find_reference()
    except RuntimeError as exc:
        pytest.fail(str(exc), pytrace=False)


@pytest.fixture
def own_tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process a folder of its own for temporary files, so that they can be counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve an env of ``interop_envs`` with our server; returns its address."""
    servers: list[rlmesh.EnvServer] = []

    def start(name: str, address: str | None = None, **options: Any) -> str:
        server = rlmesh.EnvServer(ENVS[name](), address, options=rlmesh.ServeOptions(**options))
        servers.append(server)
        server.start()
        return server.address

    yield start
    for server in servers:
        server.shutdown()
