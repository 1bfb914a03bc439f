"""Serving factories: features.md CMD-3 to CMD-5, CMD-8, CMD-9, FAC-4, SRV-22, and bound models."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import serve_factories
from serve_factories import Arms, Countdowns
from support import python_child
from support.processes import Child
from support.waiting import eventually
from support.zoo import Countdown

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.params import PARAM_METADATA_KEY, ParamError, UnknownParamError
from rlmesh.serve import main, serve_env, serve_model
from rlmesh.transport.address import make_address
from rlmesh.transport.dial import dial
from rlmesh.wire import messages
from rlmesh.wire.handshake import client_hello

FACTORIES = "serve_factories:"
SECONDS = 60.0  # imports on a busy machine
START = re.compile(r"RLMesh serving (?:env|model) on (\S+) \(startup: [^)]*\)")


@contextmanager
def served(*arguments: str, **environ: str) -> Iterator[tuple[Child, str]]:
    """Give a running command and the address it says it serves."""
    argv = [sys.executable, "-W", "error", "-m", "rlmesh.serve", *arguments]
    with Child([*argv, "--address", "127.0.0.1:0"], environ=environ) as child:
        found = START.fullmatch(line := child.line(seconds=SECONDS))
        assert found, line
        yield child, found[1]


def stopped(child: Child) -> str:
    """Stop the command in good order; return what it wrote to standard error."""
    child.signal(signal.SIGTERM)
    assert child.wait(seconds=SECONDS) == 0
    return child.errors()


def described(address: str, service: Any = "env") -> Any:
    """Return the envelope in the handshake."""
    where = make_address(address, bind=False)
    hello = client_hello(service).SerializeToString()
    channel, answer = dial(
        where, service, hello, token="", timeout=SECONDS, limit=2**20, request_timeout=SECONDS
    )
    channel.close()
    package = {"env": messages.env, "model": messages.model}[service]
    peer = messages.parse(package.HandshakeResponse, answer).base.peer_info
    return json.loads(peer.extra["rlmesh.describe.v1"])


def notes(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["Countdowns", "countdowns"])
@pytest.mark.parametrize("flag", [[], ["--env"]], ids=["", "--env"])
def test_cmd_3_a_factory_is_served(name: str, flag: list[str], tmp_path: Path) -> None:
    """Prepared, made with its parameters, published, closed in order."""
    kwargs = json.dumps({"length": 3.0, "folder": str(tmp_path)})
    with served(*flag, FACTORIES + name, "--kwargs-json", kwargs) as (child, address):
        with RemoteEnv(address) as remote:
            assert remote.metadata[rlmesh.ENV_RESET_OPTIONS_KEY] == ["trial_index"]
            published = remote.metadata[PARAM_METADATA_KEY]
            assert published["binding"] == {"length": 3, "folder": str(tmp_path)}
            assert published["validated"] == {"length": True, "folder": True}
            assert remote.reset(options={"trial_index": 4})[1]["trial"] == 4
        assert rlmesh.run(lambda obs: 1, address).total_steps == 3
        assert stopped(child) == ""
    assert notes(tmp_path) == {"made": "x", "env-closed": "x", "closed": "x"}


def test_cmd_4_the_environment_binds_too(tmp_path: Path) -> None:
    kwargs = json.dumps({"size": "large", "folder": str(tmp_path)})
    with served(FACTORIES + "Countdowns", RLMESH_MAKE_KWARGS=kwargs) as (_, address):
        assert rlmesh.run(lambda obs: 1, address).total_steps == 3


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"lenght": 3}, "no 'lenght' (did you mean 'length'?)"),
        ({"size": "Large"}, "size='Large', which is not in choices"),
        ({"length": "3"}, "length='3', which is a str, expected an int"),
        ({"length": True}, "length=True, which is a bool"),
    ],
)
def test_cmd_3_parameters_are_refused_before_anything_is_built(
    kwargs: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    binding = {**kwargs, "folder": str(tmp_path)}
    arguments = ["--kwargs-json", json.dumps(binding), "--address", "127.0.0.1:0"]
    assert main([FACTORIES + "Countdowns", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlmesh.serve: error: Countdowns.make() ") and words in line
    with pytest.raises(ParamError):
        serve_env(Countdowns, "127.0.0.1:0", **binding)
    with pytest.raises(ParamError):
        Countdowns().serve("127.0.0.1:0", **binding)
    assert notes(tmp_path) == {}


def test_cmd_5_lanes_are_made_alone_and_take_their_own_trials(tmp_path: Path) -> None:
    kwargs = json.dumps({"folder": str(tmp_path)})
    arguments = [FACTORIES + "Countdowns", "--kwargs-json", kwargs]
    with served(*arguments, RLMESH_NUM_ENVS="3") as (child, address):
        with RemoteVectorEnv(address) as remote:
            assert remote.num_envs == 3
        result = rlmesh.run(lambda obs: 1, address, episodes=7, trial_index_base=2)
        assert [e.trial for e in result.episodes] == list(range(2, 9))
        stopped(child)
    assert notes(tmp_path) == {"made": "xxx", "env-closed": "xxx", "closed": "x"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_cmd_5_a_vectorization_mode_serves_gymnasiums_vector_env(mode: str, tmp_path: Path) -> None:
    kwargs = json.dumps({"folder": str(tmp_path)})
    arguments = [FACTORIES + "Countdowns", "--kwargs-json", kwargs, "--num-envs", "2"]
    with served(*arguments, RLMESH_VECTORIZATION_MODE=mode) as (child, address):
        result = rlmesh.run(lambda obs: 1, address, seeds=range(5))
        assert [e.steps for e in result.episodes] == [2] * 5
        stopped(child)
    assert notes(tmp_path)["closed"] == "x"
    assert len(notes(tmp_path)["env-closed"]) == len(notes(tmp_path)["made"])


def test_what_was_made_is_closed_where_making_fails_half_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--kwargs-json", json.dumps({"folder": str(tmp_path)}), "--num-envs", "2"]
    assert main([FACTORIES + "Failing", *arguments, "--address", "127.0.0.1:0"]) == 1
    assert "no second one" in capsys.readouterr().err
    assert notes(tmp_path) == {"made": "x", "env-closed": "x", "closed": "x"}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_made_is_closed_where_a_signal_ends_the_making(
    number: int, status: int, tmp_path: Path
) -> None:
    kwargs = json.dumps({"folder": str(tmp_path)})
    argv = [sys.executable, "-m", "rlmesh.serve", FACTORIES + "Slow", "--num-envs", "2"]
    with Child([*argv, "--address", "127.0.0.1:0", "--kwargs-json", kwargs]) as child:
        eventually((tmp_path / "waiting").exists, "the second env is being made")
        child.signal(number)
        assert child.wait(seconds=SECONDS) == status
        assert child.errors() == ""
    assert notes(tmp_path) == {"made": "x", "waiting": "x", "env-closed": "x", "closed": "x"}


def test_what_was_made_is_closed_where_the_address_is_taken(tmp_path: Path) -> None:
    with rlmesh.EnvServer(serve_factories.Arm()) as other:
        other.start()
        with pytest.raises(ConnectionError):
            serve_env(Countdowns, other.address, folder=str(tmp_path))
    assert notes(tmp_path) == {"made": "x", "env-closed": "x", "closed": "x"}


@pytest.mark.parametrize(
    ("expected", "starts"), [("velocity", True), ("position", False)], ids=["match", "mismatch"]
)
def test_srv_22_the_deployment_may_expect_a_branch(
    expected: str, starts: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = [FACTORIES + "Arms", "--kwargs-json", '{"mode": "velocity"}']
    if starts:
        environ = {"RLMESH_EXPECTED_ENV_BRANCH": json.dumps({"mode": expected})}
        with served(*arguments, **environ) as (_, address), RemoteEnv(address) as remote:
            assert remote.metadata[adapt.ENV_BRANCH_METADATA_KEY] == {"mode": "velocity"}
            published = remote.metadata[adapt.ENV_METADATA_KEY]
            assert published == Arms.tags_for(mode="velocity").to_dict()
    else:
        monkeypatch.setenv("RLMESH_EXPECTED_ENV_BRANCH", json.dumps({"mode": expected}))
        assert main([*arguments, "--address", "127.0.0.1:0"]) == 1
        assert 'got {"mode": "velocity"}' in capsys.readouterr().err


def test_cmd_8_clients_are_told_what_is_served(tmp_path: Path) -> None:
    """The envelope of rlmesh.describe, with the spaces of the env that is served."""
    kwargs = json.dumps({"folder": str(tmp_path)})
    with served(FACTORIES + "Countdowns", "--kwargs-json", kwargs) as (child, address):
        envelope = described(address)
        assert stopped(child) == ""
    assert envelope["kind"] == "env" and envelope["schema_version"] == 1
    assert envelope["target"]["entrypoint"] == FACTORIES + "Countdowns"
    assert envelope["env_spec"]["action_space"]["kind"] == "discrete"
    params = envelope["params"]["param_spec"]["params"]
    assert [param["name"] for param in params] == ["length", "size", "folder"]
    assert envelope["variants"]["catalog"][0]["id"] == "long"
    assert notes(tmp_path)["made"] == "x", "nothing is built beside what is served"


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        ((FACTORIES + "Sized", "--kwargs-json", '{"size": "small"}'), "model", "Sized"),
        (("serve_targets:policy",), "model", "policy"),
        (("serve_targets:make_env",), "env", "make_env"),
        (("serve_targets:an_env",), "env", "Countdown"),
        (("serve_targets:a_factory",), "env", "Factory"),
        (("--env", "CartPole-v1"), "env", ""),
    ],
)
def test_cmd_8_whatever_it_is(arguments: tuple[str, ...], kind: str, name: str) -> None:
    with served(*arguments) as (child, address):
        envelope = described(address, kind)
        errors = stopped(child)
    assert envelope["kind"] == kind and envelope["target"]["qualname"].endswith(name)
    assert "are not told" not in errors


def test_cmd_8_what_cannot_be_described_is_served_all_the_same(tmp_path: Path) -> None:
    code = (
        "import rlmesh.serve.describing as d; from rlmesh.serve import serve_env\n"
        "d._MOST_BYTES = 10\n"
        "serve_env('serve_factories:Countdowns', '127.0.0.1:0')"
    )
    with python_child(code) as child:
        found = START.fullmatch(child.line(seconds=SECONDS))
        assert found
        assert rlmesh.run(lambda obs: 1, found[1]).total_steps == 2
        assert "note: clients are not told what serve_factories:Countdowns is" in child.errors()


def test_fac_4_a_factory_serves_itself(tmp_path: Path) -> None:
    code = (
        "import sys; from serve_factories import Countdowns\n"
        "try: Countdowns().serve('127.0.0.1:0', num_envs=2, length=4, folder=sys.argv[1])\n"
        "except KeyboardInterrupt: print('stopped')"
    )
    with python_child(code, str(tmp_path)) as child:
        found = START.fullmatch(child.line(seconds=SECONDS))
        assert found
        with RemoteVectorEnv(found[1]) as remote:
            assert remote.num_envs == 2
            assert remote.metadata[PARAM_METADATA_KEY]["binding"]["length"] == 4
        child.signal(signal.SIGINT)
        assert child.line(seconds=SECONDS) == "stopped"
    assert notes(tmp_path) == {"made": "xx", "env-closed": "xx", "closed": "x"}


def test_the_edition_of_the_class_is_checked_before_anything_is_built() -> None:
    with pytest.raises(ValueError, match=r"unknown workflow edition '1999\.01'"):
        serve_env(serve_factories.Old, "127.0.0.1:0")


# Models


def test_a_model_is_bound_to_the_parameters_it_declares(tmp_path: Path) -> None:
    kwargs = json.dumps({"size": "large", "action": 2.0, "folder": str(tmp_path)})
    with served(FACTORIES + "Sized", RLMESH_MAKE_KWARGS=kwargs) as (_, address):
        result = rlmesh.run(rlmesh.RemoteModel(address), Countdown(1))
        assert result.episodes[0].reward == 2.0
    eventually(lambda: notes(tmp_path) == {"loaded": "x"}, "it was loaded once")


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        ({"size": "Large"}, "did you mean 'large'"),
        ({"size": "large", "act": 1}, "takes no 'act'"),
        ({"action": 1}, "requires 'size'"),
        ({"size": "large", "folder": 3}, "folder=3, which is an int, expected a str"),
    ],
)
def test_a_model_whose_parameters_do_not_fit_is_not_loaded(
    binding: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ParamError, match=words):
        serve_model(
            serve_factories.Sized, "127.0.0.1:0", binding={"folder": str(tmp_path), **binding}
        )
    assert notes(tmp_path) == {}
    with pytest.raises(UnknownParamError, match=r"Sized\.load\(\) takes no 'sise'"):
        serve_factories.Sized.from_config(size="small", sise=1)
