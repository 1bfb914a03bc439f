"""What a run of the benchmarks was asked for, and where its servers listen."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Settings:
    """How long and how much to measure.

    Attributes:
        rounds: turns of every contender of a comparison.
        seconds: length of a turn, where it is counted in seconds.
        reference_python: an interpreter that has rlmesh 0.1.0, or None.
        client_core, server_core: where the two ends of a pair run; None: anywhere.
        cores: how many cores there are.
        full_grid: all cases of many endpoints, not only the corners.
        most_cells: at most so many of them; None: all.
        cell_seconds: the longest that one of them takes.
        most_clients: at most so many clients of a served model.
        clients_seconds: how long their predictions are counted.
        link_steps: steps on the slow link.
        metaworld_episodes, metaworld_tasks: how much of MT10.
    """

    rounds: int
    seconds: float
    reference_python: str | None
    client_core: int | None
    server_core: int | None
    cores: int
    full_grid: bool
    most_cells: int | None
    cell_seconds: float
    most_clients: int
    clients_seconds: float
    link_steps: int
    metaworld_episodes: int
    metaworld_tasks: int


class Places:
    """Fresh addresses of one transport."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._numbers = count()

    def address(self, transport: str) -> str:
        if transport == "tcp":
            return "127.0.0.1:0"
        return f"unix://{self._directory}/{next(self._numbers)}.sock"


def free_address() -> str:
    """A TCP address for a server that does not tell which port it took."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
