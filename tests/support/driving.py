"""An env served and driven in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from support.peers import serving

__all__ = ["driving", "driving_lanes"]


@contextmanager
def driving(env: Any) -> Iterator[RemoteEnv]:
    """Serve a single env on a thread of this process and connect to it."""
    with serving(env) as server, RemoteEnv(server.address) as remote:
        yield remote


@contextmanager
def driving_lanes(env: Any) -> Iterator[RemoteVectorEnv]:
    """Serve a vector env or a list of envs and connect to it."""
    with serving(env) as server, RemoteVectorEnv(server.address) as remote:
        yield remote
