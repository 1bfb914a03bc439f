"""Nothing is lost: an evaluation killed at random points, resumed, is the undisturbed one."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from eval_envs import Walk, feedback
from kill_program import SEEDS
from support import Child, server_process
from traces import numbers

import rlmesh


@pytest.mark.parametrize("world", ["one", "list", "served"])
def test_killed_and_resumed_until_done(world: str, tmp_path: Path) -> None:
    """In a step, between steps, while the journal is opened or written: wherever it hits."""
    expected = [list(row) for row in numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))]
    journal = tmp_path / "run.jsonl"
    with ExitStack() as stack:
        addresses = []
        if world == "served":
            servers = [server_process("evals.eval_envs:Walk") for _ in range(2)]
            addresses = [stack.enter_context(server).address for server in servers]
        argv = [str(journal), world, *addresses]
        program = Child([sys.executable, "-W", "error", "-m", "evals.kill_program", *argv])
        outcome = json.loads(stack.enter_context(program).line(seconds=60))
        assert program.wait() == 0, program.errors()
    assert outcome["numbers"] == expected
    assert outcome["killed"] >= 2
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    indices = [line["episode"]["index"] for line in lines[1:]]
    assert sorted(indices) == list(range(len(SEEDS))), "nothing was run twice to its end"
    assert {line["episode"]["attempts"] for line in lines[1:]} == {1}
