"""Checks in a process of their own: what hangs or dies there is a finding."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import eventually

from rlmesh.checks.apart import check_apart
from rlmesh.checks.worker import Worker


def test_it_says_the_same() -> None:
    begun: list[str] = []
    report = check_apart(
        "check_envs:Good", {}, (), steps=20, seed=0, timeout=60, on_begin=begun.append
    )
    assert report.passed and {f.level for f in report.findings} == {"ok"}
    assert begun[0] == "make" and begun[-1] == "time"


@pytest.mark.parametrize(
    ("target", "check", "words"),
    [
        ("check_envs:Dies", "steps", "the process died of SIGSEGV"),
        ("check_envs:Hangs", "steps", "no answer in 2 s: it hangs"),
        ("check_envs:policy", "make", "policy"),
        ("check_envs:no_such", "make", "has no 'no_such'"),
    ],
)
def test_what_breaks_it_is_a_finding(target: str, check: str, words: str) -> None:
    report = check_apart(target, {}, (), steps=20, seed=0, timeout=2)
    last = report.findings[-1]
    assert (last.check, last.level) == (check, "fail")
    assert words in last.message
    if check == "steps":
        assert report.findings[0].level == "ok"  # what was found before is kept


def test_it_does_not_outlive_whoever_started_it() -> None:
    """Also where that one was killed."""
    code = (
        "import sys, time\n"
        "from rlmesh.checks.worker import Worker\n"
        "job = {'job': 'check', 'target': 'check_envs:Hangs', 'kwargs': {}, 'packages': [],\n"
        "       'steps': 9, 'seed': 0}\n"
        "worker = Worker(job)\n"
        "while worker.line(60).get('begin') != 'steps': pass\n"
        "print(worker._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()

    def gone() -> bool:
        try:
            with open(f"/proc/{child}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    eventually(gone, "the child has ended")


def test_a_child_that_ends_early_says_how() -> None:
    from rlmesh.checks.worker import Died

    with Worker({"job": "play"}) as worker, pytest.raises(Died, match="ended with status 1"):
        worker.line(60)
