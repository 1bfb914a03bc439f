"""Wrong command lines, help, and what the command costs before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli.commands import command, environ, rlmesh

from rlmesh.cli import main
from rlmesh.cli.app import app

COMMANDS = ["check", "completion", "describe", "run", "serve", "version"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "No such command 'nope'"),
        (["run"], "Missing argument 'MODEL'"),
        (["run", "random"], "Missing argument 'ENV...'"),
        (["run", "nope", "X-v0"], "expected MODULE:NAME, an address or random, got 'nope'"),
        (["run", "CartPole-v1", "m:P"], "the order is MODEL ENV..."),
        (["run", "random", "X-v0", "--bogus"], "--bogus"),
        (["run", "random", "X-v0", "--seeds", "a"], "expected START:STOP, such as 0:50"),
        (["run", "random", "X-v0", "--seeds", "0:"], "expected START:STOP"),
        (["run", "random", "X-v0", "--seeds", "5:5"], "holds no seed"),
        (["run", "random", "X-v0", "--seeds", "0:1:0"], "expected START:STOP"),
        (["run", "random", "X-v0", "--seeds", "0:99999999999"], "more than 1000000 episodes"),
        (["run", "random", "X-v0", "--seeds", "9223372036854775808"], "int64"),
        (["run", "random", "X-v0", "--episodes", "-1"], "-1 is not in the range x>=0"),
        (["run", "random", "X-v0", "--horizon", "0"], "execution_horizon must be >= 1, got 0"),
        (["run", "random", "X-v0", "--max-episode-seconds", "0"], "max_episode_seconds must be"),
        (["run", "random", "X-v0", "--max-batch", "0"], "0 is not in the range x>=1"),
        (["run", "random", "X-v0", "--env-kwargs", "{"], "expected a JSON object such as"),
        (["run", "random", "X-v0", "--env-kwargs", "[1]"], "expected a JSON object, got [1]"),
        (["run", "random", "X-v0", "--model-kwargs", "{}"], "--model-kwargs are for a Model"),
        (["run", "host:1", "X-v0", "--model-kwargs", "{}"], "--model-kwargs are for a Model"),
        (["run", "m:P", "X-v0", "--replica", "host:1"], "--replica is for a served model"),
        (["run", "host:1", "X-v0", "--replica", "host"], "a port is missing"),
        (["run", "random", "host:99999"], "is not a port in 0..65535"),
        (["run", "random", "https://host:1"], "use tcp://host:port"),
        (["run", "random", "host:1", "--lanes", "2"], "--lanes: only for an env that is made here"),
        (["run", "random", "host:1", "--env-kwargs", "{}"], "--env-kwargs: only for an env"),
        (["run", "random", "X-v0", "--score", "luck"], "'luck' is not one of"),
        (["check"], "Missing argument 'TARGET'"),
        (["check", "X-v0", "--steps", "0"], "0 is not in the range x>=1"),
        (["check", "X-v0", "--timeout", "0"], "0.0 is not in the range x>0"),
        (["check", "host:99999"], "is not a port"),
        (["check", "host:1", "--env-kwargs", "{}"], "--env-kwargs: only for an env"),
        (["completion", "csh"], "'csh' is not one of"),
        (["version", "twice"], "unexpected extra argument"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and nothing of what was named is imported."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err, said.err


def test_seeds() -> None:
    from rlmesh.cli.parameters import seed_list

    context = click.Context(app)
    parameter = app.commands["run"].params[2]
    for text, seeds in (
        ("0:3", [0, 1, 2]),
        ("3", [3]),
        ("0,1,7", [0, 1, 7]),
        ("0:10:4,7,2:4", [0, 4, 8, 7, 2, 3]),
        ("-3:0", [-3, -2, -1]),
        ("3:0:-1", [3, 2, 1]),
        (None, None),
    ):
        assert seed_list(context, parameter, text) == seeds


def test_help_says_what_it_does_how_and_how_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Of every command, within 80 columns."""
    assert sorted(app.commands) == COMMANDS
    for name in ("", "run", "check", "version", "completion"):
        assert main([*name.split(), "--help"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("Usage: ")
        assert max(map(len, text.splitlines())) <= 80, name
        if name in ("", "run", "check"):
            assert "    rlmesh " in text or "  rlmesh " in text
            assert "Exit status" in text
    for name in ("serve", "describe"):
        said = rlmesh(name, "--help")
        assert said.status == 0
        assert said.out.startswith(f"usage: rlmesh {name} ")


def test_the_package_runs_as_the_command() -> None:
    said = rlmesh("--version")
    assert (said.status, said.err) == (0, "")
    import rlmesh as package

    assert said.out == f"{package.__version__}\n"
    said = rlmesh()  # which of the two, and the status, is click's own affair
    assert (said.out or said.err).startswith("Usage: python -m rlmesh [OPTIONS] COMMAND")


def test_a_script_finds_modules_in_its_folder(tmp_path: Path) -> None:
    """As ``python -m rlmesh`` does; an installed script has another folder on its path."""
    (tmp_path / "my_policy.py").write_text("def act(observation): return 1\n")
    script = tmp_path / "bin" / "rlmesh"
    script.parent.mkdir()
    script.write_text("import sys\nfrom rlmesh.cli import main\nsys.exit(main())\n")
    run = ["run", "my_policy:act", "CartPole-v1", "--score", "reward", "--seeds", "0:2", "-q"]
    said = rlmesh(argv=[sys.executable, str(script), *run], cwd=tmp_path)
    assert said.status == 0, said.err
    check = ["check", "my_policy:act"]
    said = rlmesh(argv=[sys.executable, str(script), *check], cwd=tmp_path)
    assert said.status == 1 and "No module" not in said.out
    safe = {"PYTHONSAFEPATH": "1"}
    if sys.version_info >= (3, 11):
        said = rlmesh(argv=[sys.executable, str(script), *run], cwd=tmp_path, more=safe)
        assert said.status == 1 and "No module named 'my_policy'" in said.err


def test_without_click() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise ModuleNotFoundError('No module named click')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from rlmesh.cli import main\n"
        "sys.exit(main(['version']))\n"
    )
    said = rlmesh(argv=[sys.executable, "-W", "error", "-c", code])
    assert said.status == 1 and said.out == ""
    assert said.err == "rlmesh: error: the command needs click: pip install 'rlmesh[cli]'\n"


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["run", "--help"]])
def test_starting_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"numpy", "gymnasium", "grpc", "google", "torch", "jax", "rich", "cv2", "scipy", "PIL"}
    code = (
        "import sys; from rlmesh.cli import main\n"
        f"status = main({arguments!r})\n"
        f"found = sorted({heavy!r} & {{name.partition('.')[0] for name in sys.modules}})\n"
        "sys.exit(status or ' '.join(found) or 0)\n"
    )
    said = rlmesh(argv=[sys.executable, "-c", code])
    assert (said.status, said.err) == (0, "")


def completions(words: str) -> list[str]:
    """Return what bash is offered for the last word."""
    script = "import sys; sys.argv[0] = 'rlmesh'; from rlmesh.cli import main; main()"
    more = {
        "_RLMESH_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    said = rlmesh(argv=[sys.executable, "-c", script], more=more)
    return [line.partition(",")[2] for line in said.out.splitlines()]


def test_completion() -> None:
    """Of commands and options; the scripts are click's own."""
    assert completions("rlmesh ") == COMMANDS
    assert completions("rlmesh ve") == ["version"]
    assert completions("rlmesh run --max-") == [
        *("--max-episode-steps", "--max-episode-seconds", "--max-batch"),
    ]
    assert completions("rlmesh run --score ") == ["success", "reward"]
    assert "--ready-fd" in completions("rlmesh serve --re")
    assert completions("rlmesh describe --lab") == ["--label"]
    for shell in ("bash", "zsh", "fish"):
        said = rlmesh("completion", shell)
        assert said.status == 0 and "_RLMESH_COMPLETE" in said.out, said.err


def test_the_bash_script_is_a_script(tmp_path: Path) -> None:
    """bash reads it, and completes with it."""
    script = tmp_path / "rlmesh.bash"
    script.write_text(rlmesh("completion", "bash").out)
    shim = tmp_path / "rlmesh"
    python = " ".join(command()[:1])
    shim.write_text(
        f"#!{python}\nimport sys; sys.argv[0] = 'rlmesh'\n"
        "from rlmesh.cli import main\nsys.exit(main())\n"
    )
    shim.chmod(0o755)
    ask = (
        f"source {script}; COMP_WORDS=(rlmesh ver); COMP_CWORD=1; "
        "_rlmesh_completion rlmesh ver; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", ask], env=environ({"PATH": path}), capture_output=True, text=True
    )
    assert done.stdout.split() == ["version"], done.stderr
