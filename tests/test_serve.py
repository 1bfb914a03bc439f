"""``python -m rlmesh.serve`` as a real process: what it prints, serves, and exits with."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support import Gate
from support.processes import Child
from support.waiting import eventually

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv

ID = "rlmesh-test/Countdown-v0"
PACKAGE = ["--package", "support.registered"]
START = "RLMesh serving env on "


def serve(*arguments: str, **options: Any) -> Child:
    return Child([sys.executable, "-W", "error", "-m", "rlmesh.serve", *arguments], **options)


def started(*arguments: str, **options: Any) -> tuple[Child, str]:
    """Return a running command and the address it says it serves."""
    child = serve(*arguments, "--address", "127.0.0.1:0", **options)
    try:
        line = child.line()
    except AssertionError:
        child.__exit__()
        raise
    return child, served_address(line)


def served_address(line: str) -> str:
    """Return the address of the start line, which is of the documented form."""
    found = re.fullmatch(START + r"(\S+) \(startup: (\w+ \d+\.\ds(, )?)+\)", line)
    assert found, line
    return found[1]


def gated(folder: Path) -> list[str]:
    kwargs = json.dumps({"folder": str(folder)})
    return [*PACKAGE, "--env", "rlmesh-test/Gated-v0", "--kwargs-json", kwargs]


def test_it_serves_a_registered_env() -> None:
    """CMD-7, CMD-10: one start line, then the env; SIGTERM is an orderly stop with status 0."""
    child, address = started("--env", "CartPole-v1", "--kwargs-json", '{"max_episode_steps": 2}')
    with child:
        assert address.startswith("tcp://127.0.0.1:")
        with RemoteEnv(address) as remote:
            assert remote.env_contract.id == "CartPole-v1"
            remote.reset(seed=0)
            assert remote.step(0)[2:4] == (False, False)
            assert remote.step(1)[2:4] == (False, True)
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
        assert child.errors() == ""
        with pytest.raises(AssertionError, match="ended without a word"):
            child.line()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_finishes_the_running_step_and_closes_the_env(
    tmp_path: Path, number: int, status: int
) -> None:
    """CMD-7, SRV-11: the step in flight is answered, the env closed, the status tells which."""
    child, address = started(*gated(tmp_path))
    with child, RemoteEnv(address) as remote:
        remote.reset()
        gate = Gate(tmp_path)
        answers: list[Any] = []
        stepping = threading.Thread(target=lambda: answers.append(remote.step(4)))
        stepping.start()
        eventually(lambda: gate.entered, "the step has begun")
        child.signal(number)
        gate.open()
        stepping.join(20)
        assert answers[0][0][1] == 1
        assert child.wait() == status
        assert (tmp_path / "closed").exists()
        assert "Traceback" not in child.errors()


def test_a_second_sigterm_kills(tmp_path: Path) -> None:
    """A step that never ends can still be got rid of."""
    child, address = started(*gated(tmp_path))
    with child, RemoteEnv(address) as remote:
        remote.reset()
        gate = Gate(tmp_path)
        failures: list[BaseException] = []

        def step() -> None:
            try:
                remote.step(4)
            except (ConnectionError, EnvironmentException) as exc:
                failures.append(exc)

        stepping = threading.Thread(target=step)
        stepping.start()
        eventually(lambda: gate.entered, "the step has begun")
        child.signal(signal.SIGTERM)
        status = Path(f"/proc/{child.pid}/status")
        caught = 1 << (signal.SIGTERM - 1)

        def default_again() -> bool:
            (line,) = [x for x in status.read_text().splitlines() if x.startswith("SigCgt")]
            return not int(line.split()[1], 16) & caught

        eventually(default_again, "the first SIGTERM was taken")
        child.signal(signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
        stepping.join(20)
        assert isinstance(failures[0], ConnectionError)


@pytest.mark.parametrize("mode", [[], ["--num-envs", "2", "--vectorization-mode", "async"]])
def test_the_ready_fd(mode: list[str]) -> None:
    """CMD-11: the resolved address and a newline, then the end of file, whoever else runs."""
    read, write = os.pipe()
    try:
        child, address = started(
            *PACKAGE, "--env", ID, *mode, "--ready-fd", str(write), pass_fds=(write,)
        )
        os.close(write)
        write = -1
        with child:
            with os.fdopen(read, closefd=False) as ready:
                assert ready.read() == f"{address}\n"
            client = RemoteVectorEnv if mode else RemoteEnv
            with client(address) as remote:
                remote.reset()
            child.signal(signal.SIGTERM)
            assert child.wait() == 0
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


@pytest.mark.parametrize(
    ("mode", "declared"),
    [([], "Disabled"), (["--vectorization-mode", "sync"], None)],
    ids=["lanes", "sync"],
)
def test_several_envs(mode: list[str], declared: str | None) -> None:
    """CMD-10: lanes, or gymnasium's vector env; the keywords reach every env."""
    arguments = [*PACKAGE, "--env", ID, "--kwargs-json", '{"length": 1}', "--num-envs", "3", *mode]
    child, address = started(*arguments)
    with child, RemoteVectorEnv(address) as remote:
        assert remote.num_envs == 3
        if declared:
            assert remote.metadata["autoreset_mode"].value == declared
        remote.reset(seed=1)
        assert remote.step([1, 2, 3])[1].tolist() == [1, 2, 3]


def test_one_env_of_many_is_a_single_one() -> None:
    """VEC-2."""
    child, address = started(*PACKAGE, "--env", ID, "--num-envs", "1")
    with child, RemoteEnv(address) as remote:
        remote.reset()


def test_the_address() -> None:
    """CMD-10, CMD-1: --address, else RLMESH_ADDRESS, else the loopback at 50051.

    The published default is 0.0.0.0; a server of ours binds the loopback unless told otherwise.
    """
    from rlmesh.serve.arguments import DEFAULT_ADDRESS

    assert DEFAULT_ADDRESS == "127.0.0.1:50051"
    help_ = subprocess.run(
        [sys.executable, "-m", "rlmesh.serve", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "RLMESH_ADDRESS": ""},
        check=True,
    ).stdout
    assert "127.0.0.1:50051 here" in " ".join(help_.split())
    with serve(*PACKAGE, "--env", ID, environ={"RLMESH_ADDRESS": "tcp://[::1]:0"}) as child:
        address = served_address(child.line())
        assert address.startswith("tcp://[::1]:")
        with RemoteEnv(address) as remote:
            remote.reset()


def test_a_unix_socket_disappears_with_the_server(tmp_path: Path) -> None:
    """SRV-6, SRV-8."""
    path = tmp_path / "env.sock"
    with serve(*PACKAGE, "--env", ID, "--address", f"unix://{path}") as child:
        assert served_address(child.line()) == f"unix://{path}"
        with RemoteEnv(path=path) as remote:
            remote.reset()
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
        assert not path.exists()


def test_a_port_in_use() -> None:
    """SRV-10: status 1 and one line with the address; the env that was made is closed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with serve(*PACKAGE, "--env", ID, "--address", address) as child:
            assert child.wait() == 1
            (line,) = child.errors().splitlines()
            assert line.startswith("rlmesh.serve: error: ") and address in line


def test_the_env_is_closed_when_the_server_cannot_start(tmp_path: Path) -> None:
    """An env that was made is not left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with serve(*gated(tmp_path), "--address", address) as child:
            assert child.wait() == 1
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "Nope-v1"], "Name it with --package"),
        (["--env", "CartPole-v99"], "v99"),
        (["--env", "CartPole-v1", "--kwargs-json", '{"bogus": 1}'], "bogus"),
        (["--env", "CartPole-v1", "--package", "no_such_package"], "no_such_package"),
        (["--env", "CartPole-v1", "--ready-fd", "99"], "--ready-fd 99 cannot be written to"),
    ],
)
def test_errors(arguments: list[str], words: str) -> None:
    """CMD-10, CMD-11, CMD-13: status 1 and one line; a traceback only with --verbose."""
    with serve(*arguments) as child:
        assert child.wait() == 1
        (line,) = child.errors().splitlines()
        assert line.startswith("rlmesh.serve: error: ") and words in line
    with serve(*arguments, "--verbose") as child:
        assert child.wait() == 1
        assert "Traceback (most recent call last)" in child.errors()
        assert words in child.errors().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--env"),
        (["--env"], "--env"),
        (["CartPole-v1"], "--env"),
        (["--env", "X-v0", "--kwargs-json", "{"], "not JSON"),
        (["--env", "X-v0", "--kwargs-json", "[1]"], "expected a JSON object"),
        (["--env", "X-v0", "--num-envs", "0"], "whole number >= 1"),
        (["--env", "X-v0", "--num-envs", "two"], "whole number >= 1"),
        (["--env", "X-v0", "--vectorization-mode", "threads"], "invalid choice"),
        (["--env", "X-v0", "--ready-fd", "1"], "a descriptor >= 3"),
        (["--env", "X-v0", "--ready-fd", "out"], "a descriptor >= 3"),
        (["--env", "X-v0", "--no-such-flag"], "--no-such-flag"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CMD-1: status 2, usage and reason on standard error."""
    from rlmesh.serve import main

    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("usage: python -m rlmesh.serve") and words in errors


def test_without_gymnasium() -> None:
    """CMD-13: the install line."""
    code = (
        "import sys; sys.modules['gymnasium'] = None; from rlmesh.serve import main; "
        "sys.exit(main(['--env', 'CartPole-v1']))"
    )
    with Child([sys.executable, "-W", "error", "-c", code]) as child:
        assert child.wait() == 1
        assert "pip install 'rlmesh[gymnasium]'" in child.errors()
