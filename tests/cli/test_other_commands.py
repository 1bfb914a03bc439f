"""``rlmesh check``, ``serve``, ``describe`` and ``version`` as processes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from cli.commands import environ, rlmesh, started
from support import eventually, server_process

import rlmesh as package
from rlmesh.numpy import RemoteEnv


def test_check() -> None:
    """The report, and a status that says whether it passed."""
    said = rlmesh("check", "check_envs:Good", "--steps", "20")
    assert said.status == 0, said.err
    assert (
        said.out.splitlines()[-1] == "check_envs:Good: 0 failed, 0 warnings, 0 not checked, 16 ok"
    )
    said = rlmesh("check", "check_envs:RaisesInStep", "--steps", "20")
    assert said.status == 1
    assert said.out.startswith("FAIL: steps: step 5 raised KeyError: 'gripper' (check_envs.py:")
    assert "Traceback" not in said.err


def test_check_as_json() -> None:
    kwargs = json.dumps({"render_mode": "rgb_array"})
    said = rlmesh(
        "check", "check_envs:make_good", "--env-kwargs", kwargs, "--steps", "20", "--json"
    )
    assert said.status == 0
    assert said.json["target"] == "check_envs:make_good" and said.json["passed"] is True
    assert {finding["level"] for finding in said.json["findings"]} == {"ok"}
    (time,) = [f for f in said.json["findings"] if f["check"] == "time"]
    assert time["values"]["step_p50"] > 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("check_envs:Dies", "FAIL: steps: the process died of SIGSEGV"),
        ("check_envs:Hangs", "FAIL: steps: no answer in 2 s"),
        ("no_such_module:Env", "FAIL: make: there is no env: ModuleNotFoundError"),
        ("Nope-v0", "FAIL: make: the env cannot be made or taken: ImportError"),
        ("127.0.0.1:9", "FAIL: make: the env cannot be made or taken: ConnectionError"),
    ],
)
def test_whatever_the_env_does_is_a_finding(target: str, words: str) -> None:
    said = rlmesh("check", target, "--timeout", "2")
    assert said.status == 1
    assert said.out.startswith(words) and "Traceback" not in said.err


def test_what_the_env_prints_is_kept_apart() -> None:
    said = rlmesh("check", "check_envs:Chatty", "--steps", "5", "--json")
    assert said.status == 0 and said.json["passed"]
    assert "python says step" in said.err and "C says step" in said.err


def test_check_an_address() -> None:
    with server_process("checks.check_envs:Good") as server:
        said = rlmesh("check", server.address, "--steps", "20")
        assert said.status == 0, said.out
        assert "not checked: metadata, instances, processes, threads, wire, close: " in said.out
        with RemoteEnv(server.address) as env:
            env.reset()


def test_ctrl_c_ends_a_check(tmp_path: Path) -> None:
    """At once, and so does its process."""
    pid_file = tmp_path / "pid"
    kwargs = json.dumps({"pid_file": str(pid_file)})
    with started("check", "check_envs:Hangs", "--env-kwargs", kwargs) as child:

        def hanging() -> int:
            text = pid_file.read_text() if pid_file.exists() else ""
            return int(text) if text.endswith("\n") else 0

        pid = eventually(hanging, "the env hangs in its step")
        os.kill(pid, signal.SIGINT)  # a terminal tells both of them
        child.signal(signal.SIGINT)
        assert child.wait() == 130
        assert "Traceback" not in child.errors()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_is_python_m_rlmesh_serve(number: int, status: int) -> None:
    with started("serve", "--env", "CartPole-v1", "--address", "127.0.0.1:0") as child:
        line = child.line()
        assert line.startswith("RLMesh serving env on tcp://127.0.0.1:")
        with RemoteEnv(line.split()[4]) as env:
            env.reset(seed=0)
        child.signal(number)
        assert child.wait() == status


def test_serve_refuses_what_it_refuses() -> None:
    said = rlmesh("serve", "CartPole-v1")
    assert said.status == 2
    assert said.err.startswith("usage: rlmesh serve (MODULE:NAME")
    assert rlmesh("serve", "--env", "Nope-v0").status == 1


def test_describe_is_python_m_rlmesh_describe() -> None:
    for arguments in (["check_envs:Good"], ["--env", "check_envs:make_good", "--label"]):
        said = rlmesh("describe", *arguments)
        assert said.status == 0, said.err
        other = subprocess.run(
            [sys.executable, "-m", "rlmesh.describe", *arguments],
            capture_output=True,
            text=True,
            env=environ(),
        )
        assert said.out == other.stdout
    assert rlmesh("describe").status == 2
    assert rlmesh("describe", "no_such_module:Env").status == 1


def test_version() -> None:
    said = rlmesh("version", "--json")
    assert (said.status, said.err) == (0, "")
    found = said.json
    assert found["rlmesh"] == package.__version__
    assert found["build"]["protocol_generation"] == "rlmesh-wire-v1"
    assert found["python"] == platform.python_version()
    assert found["packages"]["numpy"] == numpy.__version__
    assert set(found["packages"]) == {"numpy", "protobuf", "grpcio"}
    assert found["extras"]["gymnasium"] == {"gymnasium": importlib.metadata.version("gymnasium")}
    text = rlmesh("version").out.splitlines()
    assert text[0] == f"rlmesh {package.__version__}"
    assert f"numpy {numpy.__version__}" in text
