"""``python -m rlmesh.serve pkg:Class`` as a real process: models, env factories, the settings."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import serve_targets
from support import python_child
from support.processes import SOURCE, Child
from support.zoo import Countdown

import rlmesh
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.serve import main, serve_env, serve_model
from rlmesh.serve.targets import kind_of, load_target
from rlmesh.transport.address import make_address
from rlmesh.transport.dial import dial
from rlmesh.wire import messages
from rlmesh.wire.handshake import client_hello

TARGETS = "serve_targets:"
SECONDS = 60.0  # imports on a busy machine
START = re.compile(r"RLMesh serving (env|model) on (\S+) \(startup: ([^)]*)\)")
HINT = "declares no spec"


def command(*arguments: str, environ: dict[str, str] | None = None, **options: Any) -> Child:
    argv = [sys.executable, "-W", "error", "-m", "rlmesh.serve", *arguments]
    return Child(argv, environ=environ, **options)


@contextmanager
def served(*arguments: str, kind: str, **options: Any) -> Iterator[tuple[Child, str]]:
    """Give a running command and the address it says it serves."""
    with command(*arguments, "--address", "127.0.0.1:0", **options) as child:
        found = START.fullmatch(line := child.line(seconds=SECONDS))
        assert found and found[1] == kind, line
        yield child, found[2]


def action_of(address: str, **handle: Any) -> int:
    """Return the action that the served model takes in a Countdown."""
    env = Countdown(1)
    with rlmesh.session(rlmesh.RemoteModel(address, **handle), env) as session:
        observation, _ = session.reset(seed=0)
        return int(session.predict(observation))


def test_a_model_class_with_its_kwargs(tmp_path: Path) -> None:
    """CMD-1, CMD-2, CMD-7: loaded once with the keywords, served, closed at SIGTERM, status 0."""
    kwargs = json.dumps({"action": 3, "folder": str(tmp_path)})
    with served(TARGETS + "Constant", "--kwargs-json", kwargs, kind="model") as (child, address):
        assert address.startswith("tcp://127.0.0.1:")
        assert action_of(address) == 3
        result = rlmesh.run(rlmesh.RemoteModel(address), Countdown(2), seeds=[0, 1])
        assert [episode.reward for episode in result.episodes] == [6.0, 6.0]
        child.signal(signal.SIGTERM)
        assert child.wait(seconds=SECONDS) == 0
        assert child.errors() == ""  # NO_ADAPTER is a declaration: no hint
    assert (tmp_path / "loaded").read_text() == "x"
    assert (tmp_path / "closed").read_text() == "x"


def test_the_environment_says_what_the_command_line_does_not(tmp_path: Path) -> None:
    """The seed's table; variables for envs alone do not disturb a model (CMD-6)."""
    path = tmp_path / "model.sock"
    environ = {
        "RLMESH_ADDRESS": f"unix://{path}",
        "RLMESH_MAKE_KWARGS": '{"action": 2}',
        "RLMESH_FRAMEWORK": " NumPy ",
        "RLMESH_DEVICE": "cuda:0",
        "RLMESH_NUM_ENVS": "3",
        "RLMESH_VECTORIZATION_MODE": "sync",
        "RLMESH_WORKFLOW_EDITION": "2026.06",
    }
    with command(TARGETS + "Constant", environ=environ) as child:
        assert START.fullmatch(child.line(seconds=SECONDS))[2] == f"unix://{path}"  # type: ignore[index]
        assert action_of(f"unix://{path}") == 2
        child.signal(signal.SIGINT)
        assert child.wait(seconds=SECONDS) == 130
        assert not path.exists() and "Traceback" not in child.errors()
    given = [TARGETS + "Constant", "--kwargs-json", '{"action": 4}']
    environ.pop("RLMESH_ADDRESS")
    with served(*given, kind="model", environ=environ) as (_, address):
        assert action_of(address) == 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Constant", "model"),
        ("constant", "model"),
        ("Policy", "model"),
        ("a_policy", "model"),
        ("Called", "model"),
        ("policy", "model"),
        ("Countdown", "env"),
        ("an_env", "env"),
        ("Factory", "env"),
        ("a_factory", "env"),
        ("make_env", "env"),
    ],
)
def test_a_target_is_told_apart_by_what_it_is(name: str, kind: str) -> None:
    """CMD-2, CMD-3."""
    assert kind_of(load_target(TARGETS + name), {}, name) == kind


def test_what_can_be_told_only_with_its_arguments() -> None:
    assert kind_of(serve_targets.make_sized, {"length": 2}, "make_sized") == "env"
    for function, kwargs in ((serve_targets.policy, {"x": 1}), (divmod, {})):
        with pytest.raises(TypeError, match=r"neither a function that makes an env|cannot tell"):
            kind_of(function, kwargs, "it")
    for thing in (serve_targets.Neither, serve_targets.a_number):
        with pytest.raises(TypeError, match=r"expected a Model, a policy with predict\(\)"):
            kind_of(thing, {}, "it")


@pytest.mark.parametrize("name", ["Policy", "policy"])
def test_a_policy_is_wrapped_and_told_to_declare_a_spec(name: str) -> None:
    """CMD-2, CMD-7."""
    with served(TARGETS + name, kind="model") as (child, address):
        assert action_of(address) == {"Policy": 2, "policy": 4}[name]
        (line,) = child.errors().splitlines()
        assert HINT in line


def test_a_model_with_a_spec_gets_no_hint_and_resolves_it() -> None:
    with served(TARGETS + "Mover", kind="model") as (child, address):
        with pytest.raises(Exception, match="tags"):
            action_of(address)
        assert HINT not in child.errors()


@pytest.mark.parametrize(
    "arguments",
    [
        [TARGETS + "Countdown"],
        ["--env", TARGETS + "make_env"],
        ["--env", "support.registered:rlmesh-test/Countdown-v0"],
        [TARGETS + "a_factory"],
    ],
)
def test_an_env(arguments: list[str]) -> None:
    """CMD-1, CMD-3, CMD-4: its class, a function, gymnasium's own module:id, a factory."""
    given = [*arguments, "--kwargs-json", '{"length": 1}']
    with served(*given, kind="env") as (child, address):
        with RemoteEnv(address) as remote:
            remote.reset()
            assert remote.step(2)[1:3] == (2.0, True)
        child.signal(signal.SIGTERM)
        assert child.wait(seconds=SECONDS) == 0
        assert child.errors() == ""


@pytest.mark.parametrize("mode", [None, "sync"])
def test_several_envs_by_the_environment(mode: str | None) -> None:
    """CMD-5."""
    environ = {"RLMESH_NUM_ENVS": "3", "RLMESH_MAKE_KWARGS": '{"length": 1}'}
    if mode:
        environ["RLMESH_VECTORIZATION_MODE"] = mode
    with (
        served(TARGETS + "make_env", kind="env", environ=environ) as (_, address),
        RemoteVectorEnv(address) as remote,
    ):
        assert remote.num_envs == 3
        remote.reset(seed=1)
        assert remote.step([1, 2, 3])[1].tolist() == [1, 2, 3]


def test_the_command_of_the_container() -> None:
    """What the image of examples/serve_in_container runs."""
    folder = Path(__file__).parents[1] / "examples" / "serve_in_container"
    (line,) = re.findall(r"^CMD (.*)$", (folder / "Containerfile").read_text(), re.MULTILINE)
    python, *arguments = json.loads(line)
    assert python == "python"
    environ = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)]),
        "RLMESH_ADDRESS": "127.0.0.1:0",
        "RLMESH_MAKE_KWARGS": '{"max_episode_steps": 1}',
    }
    with Child([sys.executable, "-W", "error", *arguments], environ=environ) as child:
        found = START.fullmatch(child.line(seconds=SECONDS))
        assert found and found[1] == "env"
        with RemoteEnv(found[2]) as remote:
            remote.reset()
            assert remote.step(0)[3] is True


def test_a_token_is_asked_for() -> None:
    """A token is taken from the environment, as command lines are public."""
    environ = {"RLMESH_TOKEN": "s3cret"}
    with served(TARGETS + "Constant", kind="model", environ=environ) as (child, address):
        assert action_of(address, token="s3cret") == 1
        with pytest.raises(Exception, match="token"):
            action_of(address)
        assert "s3cret" not in Path(f"/proc/{child.pid}/cmdline").read_text()


def test_an_idle_server_stops() -> None:
    with served(TARGETS + "Constant", "--idle-timeout", "0.3", kind="model") as (child, _):
        assert child.wait(seconds=SECONDS) == 0


def test_clients_are_told_how_long_starting_took() -> None:
    """CMD-8."""
    with served(TARGETS + "Constant", kind="model") as (_, address):
        hello = client_hello("model").SerializeToString()
        channel, answer = dial(
            make_address(address, bind=False),
            "model",
            hello,
            token="",
            timeout=20,
            limit=1 << 20,
            request_timeout=20,
        )
        channel.close()
        extra = messages.model.HandshakeResponse.FromString(answer).base.peer_info.extra
    phases = ["imports", "listen", "model", "process"]
    marks = {key: value for key, value in extra.items() if key.startswith("rlmesh.startup.")}
    assert sorted(marks) == [f"rlmesh.startup.{phase}_ms" for phase in phases]
    assert all(value.isdecimal() for value in marks.values())


def test_the_ready_fd_of_a_model() -> None:
    """CMD-11."""
    read, write = os.pipe()
    try:
        given = [TARGETS + "Constant", "--ready-fd", str(write)]
        with served(*given, kind="model", pass_fds=(write,)) as (_, address):
            os.close(write)
            write = -1
            with os.fdopen(read, closefd=False) as ready:
                assert ready.read() == f"{address}\n"
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def test_a_loaded_model_is_closed_when_the_address_is_taken(tmp_path: Path) -> None:
    kwargs = json.dumps({"folder": str(tmp_path)})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = [TARGETS + "Constant", "--kwargs-json", kwargs, "--address", address]
        with command(*arguments) as child:
            assert child.wait(seconds=SECONDS) == 1
            (line,) = child.errors().splitlines()
            assert line.startswith("rlmesh.serve: error: ") and address in line
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module:X"], "no_such_module"),
        ([TARGETS + "Constnat"], "did you mean 'Constant'?"),
        ([TARGETS + "a_number"], "expected a Model"),
        ([TARGETS + "Constant", "--kwargs-json", '{"actoin": 1}'], "did you mean 'action'?"),
        ([TARGETS + "Needy"], "requires 'weights'"),
        ([TARGETS + "Needy", "--kwargs-json", '{"weights": "w"}'], "no weights at w"),
        ([TARGETS + "constant", "--kwargs-json", '{"action": 1}'], "takes no action"),
        ([TARGETS + "Policy", "--kwargs-json", '{"x": 1}'], "takes no x"),
        (["--env", TARGETS + "make_sized"], "'length'"),
        (["--env", TARGETS + "make_env", "--kwargs-json", '{"size": 1}'], "'size'"),
        (["--env", TARGETS + "make_nothing"], "returned NoneType: expected an env"),
        (["--env", TARGETS + "an_env", "--num-envs", "2"], "cannot be several lanes"),
        (["--env", TARGETS + "a_number"], "expected a function or class"),
        (["--model", TARGETS + "a_number"], "got int"),
        (["--env", TARGETS + "Needy"], "Needy is a model"),
        ([TARGETS + "Factory.make"], "is a method; name its class"),
        (["--env", TARGETS + "make_exit"], "make_exit ended the process with sys.exit(3)"),
        ([".relative:X"], "expected MODULE:NAME"),
        (
            [TARGETS + "make_bare", "--num-envs", "2", "--vectorization-mode", "sync"],
            "gymnasium cannot join these envs",
        ),
        ([TARGETS + "Constant", "--kwargs-json", '{"cls": 1}'], "takes no 'cls'"),
    ],
)
def test_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CMD-2 to CMD-4: status 1 and one line that names what is wrong."""
    assert main([*arguments, *([] if "--address" in arguments else ["--address", "0"])]) == 1
    printed = capsys.readouterr()
    line = printed.err.splitlines()[-1]
    assert line.startswith("rlmesh.serve: error: ") and words in line
    assert printed.out == ""


USAGE: list[tuple[list[str], dict[str, str], str]] = [
    ([], {}, "exactly one of"),
    ([TARGETS + "Constant", "--env", "X-v0"], {}, "exactly one of"),
    (["CartPole-v1"], {}, "serve a registered env with --env"),
    ([TARGETS + "Constant", "--num-envs", "2"], {}, "--num-envs: only for an env"),
    ([TARGETS + "Constant", "--framework", "numpy"], {}, "--framework: only for an env"),
    (["--env", TARGETS + "make_env", "--max-batch", "2"], {}, "--max-batch: only for a model"),
    (["--env", "X-v0", "--framework", "mxnet"], {}, "unknown framework 'mxnet'"),
    (["--env", "X-v0", "--device", "cuda:0"], {}, "for torch/jax envs"),
    (["--env", "X-v0", "--idle-timeout", "0"], {}, "more than 0 seconds"),
    ([TARGETS + "Constant", "--batch-wait-ms", "-1"], {}, "expected milliseconds"),
    ([TARGETS + "Constant", "--workflow-edition", "1999.01"], {}, "this build runs 2026.06"),
    ([TARGETS + "Constant", "--kwargs-json", '{"device": 1}'], {}, "which is set with --device"),
    ([TARGETS + "Constant"], {"RLMESH_MAKE_KWARGS": "{"}, "RLMESH_MAKE_KWARGS: not JSON"),
    ([TARGETS + "Constant"], {"RLMESH_MAKE_KWARGS": "[1]"}, "expected a JSON object"),
    ([TARGETS + "Constant"], {"RLMESH_MAKE_KWARGS": '{"num_envs": 2}'}, "--num-envs"),
    ([TARGETS + "Constant"], {"RLMESH_FRAMEWORK": "mx"}, "RLMESH_FRAMEWORK: unknown framework"),
    (["--env", "X-v0"], {"RLMESH_NUM_ENVS": "many"}, "RLMESH_NUM_ENVS: expected a whole number"),
    (["--env", "X-v0"], {"RLMESH_VECTORIZATION_MODE": "x"}, "expected sync or async"),
    (["--env", "X-v0", "--address", "host:port"], {}, "invalid address: 'host:port'"),
    (["--env", "X-v0", "--address", ""], {}, "address cannot be empty"),
    (["--env", "X-v0"], {"RLMESH_ADDRESS": "https://host:1"}, "invalid address: 'https://host:1'"),
    (["--env", "X-v0"], {"RLMESH_TOKEN": "\u00e9"}, "token must be at most 8192 printable ASCII"),
    (["--env", "X-v0"], {"RLMESH_MAKE_KWARGS": "[" * 100_000}, "RLMESH_MAKE_KWARGS: not JSON"),
    (["--env", "X-v0"], {"RLMESH_MAKE_KWARGS": "NaN"}, "expected a JSON object, got NaN"),
    (["--env", "X-v0"], {"RLMESH_NUM_ENVS": "0"}, "expected a whole number >= 1, got '0'"),
]


@pytest.mark.parametrize(("arguments", "environ", "words"), USAGE)
def test_usage_errors(
    arguments: list[str],
    environ: dict[str, str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CMD-1, CMD-2, CMD-4: status 2, usage and reason on standard error."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("usage: python -m rlmesh.serve") and words in " ".join(errors.split())


def test_settings_are_checked_before_anything_loads(tmp_path: Path) -> None:
    """RLMESH_MAKE_KWARGS that is no JSON object stops the command before the module is imported."""
    marker = tmp_path / "imported"
    environ = {"RLMESH_MAKE_KWARGS": "[1]", "RLMESH_TEST_MARKER": str(marker)}
    with command(TARGETS + "Constant", environ=environ) as child:
        assert child.wait(seconds=SECONDS) == 2
        assert "RLMESH_MAKE_KWARGS" in child.errors()
    assert not marker.exists()


def test_the_functions_behind_the_command() -> None:
    """CMD-9."""
    code = (
        "import sys; from rlmesh.serve import serve_model, startup_marks\n"
        "try: serve_model('serve_targets:Constant', '127.0.0.1:0', binding={'action': 3})\n"
        "except KeyboardInterrupt: print(sorted(startup_marks()))"
    )
    with python_child(code) as child:
        address = START.fullmatch(child.line(seconds=SECONDS))[2]  # type: ignore[index]
        assert action_of(address) == 3
        child.signal(signal.SIGINT)
        assert "rlmesh.startup.model_ms" in child.line(seconds=SECONDS)
        assert child.wait(seconds=SECONDS) == 0
    code = (
        "from rlmesh.serve import serve_env; from support.zoo import Countdown\n"
        "serve_env(Countdown, '127.0.0.1:0', num_envs=2, length=1)"
    )
    with python_child(code) as child:
        address = START.fullmatch(child.line(seconds=SECONDS))[2]  # type: ignore[index]
        with RemoteVectorEnv(address) as remote:
            remote.reset()
            assert remote.step([1, 2])[2].all()


def test_the_functions_refuse_what_they_cannot_serve() -> None:
    """CMD-9: the same checks, as exceptions."""
    with pytest.raises(ValueError, match="unknown framework 'mxnet'"):
        serve_env(Countdown, "127.0.0.1:0", framework="mxnet")
    with pytest.raises(ValueError, match="for torch/jax envs"):
        serve_env(Countdown, "127.0.0.1:0", device="cuda:0")
    with pytest.raises(ValueError, match="expected sync or async"):
        serve_env(Countdown, "127.0.0.1:0", vectorization_mode="threads")
    with pytest.raises(ValueError, match="num_envs must be an int of 1 or more"):
        serve_env(Countdown, "127.0.0.1:0", num_envs=0)
    with pytest.raises(ValueError, match=r"this build runs 2026\.06"):
        serve_model(serve_targets.Constant, "127.0.0.1:0", workflow_edition="1999.01")
    with pytest.raises(TypeError, match="got None"):
        serve_model(None, "127.0.0.1:0")
