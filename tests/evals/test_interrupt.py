"""Ctrl-C: the run ends at once, says what it has, and leaves a whole journal behind."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from eval_envs import Walk, feedback
from support import Gate, eventually, python_child, server_process, serving, within
from traces import numbers

import rlmesh
from rlmesh.numpy import RemoteEnv

SEEDS = [0, 1, 3, 2, 4]
HELD = 2

EVALUATE = """
import sys
import rlmesh
from evals.eval_envs import Feedback, Held, feedback

class Told(Feedback):
    def on_episode_end(self, episode_id=""):
        print("end of", episode_id.split(".")[1], flush=True)
    def close(self):
        print("close", flush=True)

folder, journal, *addresses = sys.argv[1:]
env = addresses or Held(folder, 2)
print("begin", flush=True)
rlmesh.run(Told(), env, seeds=[0, 1, 3, 2, 4], journal=journal, retries=len(addresses) // 2)
"""


@pytest.mark.parametrize("endpoints", [0, 1, 3])
def test_ctrl_c_ends_the_run_and_loses_nothing(endpoints: int, tmp_path: Path) -> None:
    """While the env's answer is awaited, which never comes."""
    (tmp_path / "armed").touch()
    gate, journal = Gate(tmp_path), tmp_path / "run.jsonl"
    with ExitStack() as stack:
        target, settings = "evals.eval_envs:Held", {"folder": str(tmp_path), "seed": HELD}
        servers = [
            stack.enter_context(server_process(target, None, **settings)) for _ in range(endpoints)
        ]
        addresses = [server.address for server in servers]
        child = python_child(EVALUATE, str(tmp_path), str(journal), *addresses)
        stack.enter_context(child)
        assert child.line() == "begin"
        finished = len(SEEDS) - 1 if endpoints > 1 else SEEDS.index(HELD)
        eventually(
            lambda: gate.entered and journal.read_bytes().count(b"\n") == 1 + finished,
            "only the held episode is left",
        )
        for server in servers:
            server.pause()  # not even for a goodbye is there time
        with within(5):
            child.signal(signal.SIGINT)
            code = child.wait()
        for server in servers:
            server.resume()
        assert code == -signal.SIGINT
        errors = child.errors()
        assert f"rlmesh: interrupted; so far RunResult(episodes={finished}, " in errors
        assert "KeyboardInterrupt" in errors
        said = [child.line() for _ in range(finished + 2)]
        assert said[-2:] == [f"end of {SEEDS.index(HELD)}", "close"], "the open one, then on_close"

        lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
        expected = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))
        got = sorted((e["episode"]["index"], e["episode"]["reward"].hex()) for e in lines[1:])
        wanted = [row for row in expected if endpoints > 1 or row[0] < finished]
        assert got == [(row[0], row[3]) for row in wanted if row[1] != HELD]

        gate.open()
        for address in addresses:  # whoever was interrupted has left
            with RemoteEnv(address) as env:
                env.reset(seed=0)


def test_a_handle_that_was_waited_for_says_that_it_is_lost(tmp_path: Path) -> None:
    """Its answer may still come: it is not taken for that of another request."""

    (tmp_path / "armed").touch()
    gate = Gate(tmp_path)
    with (
        server_process("evals.eval_envs:Held", folder=str(tmp_path), seed=HELD) as server,
        RemoteEnv(server.address) as handle,
        serving(Walk()) as other,
    ):

        def policy(observation: Any) -> Any:
            if gate.entered:
                raise KeyboardInterrupt
            return feedback(observation)

        with pytest.raises(KeyboardInterrupt), within(5):
            rlmesh.run(policy, [handle, other.address], seeds=[HELD] * 99)
        with pytest.raises(ConnectionError, match="construct a new client"):
            handle.reset()
        gate.open()
