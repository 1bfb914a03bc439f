"""Workflow editions: where one is declared, which declaration wins, and what a peer is told.

The rows EDT-1 to EDT-6 of the feature table; EDT-1 and the choice among peers are in
``test_handshake.py``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import FunctionEnv, python_child

import rlmesh
from rlmesh.wire import editions
from rlmesh.wire.editions import check_edition, declared_edition, wanted_edition

NOW = "2026.06"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a project, and no variable: nothing is declared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(editions.VARIABLE, raising=False)


@pytest.fixture
def two_editions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A build that runs a second, older edition."""
    monkeypatch.setattr(editions, "SUPPORTED_EDITIONS", (NOW, "2025.01"))
    monkeypatch.setattr(editions, "_warned", False)
    yield


def project(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_row_EDT_2_and_5_there_is_one_edition_and_it_can_be_pasted() -> None:
    assert rlmesh.current_workflow_edition() == NOW
    assert rlmesh.build_info().supported_workflow_editions == [NOW]
    assert declared_edition() is None
    assert wanted_edition() == NOW


@pytest.mark.usefixtures("two_editions")
def test_row_EDT_3_the_first_that_says_anything_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Call, variable, server's option, class, project: each outranks those behind it."""
    below: dict[str, Any] = {}
    project(tmp_path, f'[tool.rlmesh]\nworkflow_edition = "{NOW}"\n')
    assert declared_edition() == NOW
    below["attribute"] = "2025.01"
    assert declared_edition(**below) == "2025.01"
    below["option"] = NOW
    assert declared_edition(**below) == NOW
    monkeypatch.setenv(editions.VARIABLE, "2025.01")
    assert declared_edition(**below) == "2025.01"
    assert declared_edition(keyword=NOW, **below) == NOW


def test_row_EDT_3_set_but_empty_floats_and_stops_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, '[tool.rlmesh]\nworkflow_edition = "1999.01"\n')
    monkeypatch.setenv(editions.VARIABLE, "")
    assert declared_edition(option=NOW, attribute="1999.01") == ""
    assert wanted_edition(attribute="1999.01") == NOW
    assert declared_edition(keyword=NOW) == NOW


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"keyword": "1999.01"}, "workflow_edition: unknown workflow edition '1999.01'"),
        ({"option": "1999.01"}, "workflow_edition of the server's options: unknown"),
        ({"attribute": "1999.01"}, "workflow_edition of the class: unknown"),
    ],
)
def test_row_EDT_3_an_unknown_edition_is_a_value_error(
    arguments: dict[str, str], where: str
) -> None:
    with pytest.raises(ValueError, match=f"{where}.*this build runs 2026.06"):
        declared_edition(**arguments)


def test_row_EDT_3_an_unknown_edition_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(editions.VARIABLE, "2026.07")
    with pytest.raises(ValueError, match="RLMESH_WORKFLOW_EDITION: unknown"):
        wanted_edition(attribute=NOW)


def test_an_edition_is_text() -> None:
    with pytest.raises(TypeError, match=r'expected a str such as "2026.06", got float 2026.06'):
        check_edition(2026.06)
    assert check_edition(" 2026.06 ") == NOW


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[tool.rlmesh]\nworkflow_edition = "2026.06"', NOW),
        ("[tool.rlmesh]\nworkflow_edition='2026.06'  # pinned", NOW),
        ('  [ tool . rlmesh ]  # ours\n"workflow_edition" = "2026.06"', NOW),
        ('[tool.rlmesh]\nother = 1\n\nworkflow_edition = ""', ""),
        ('[tool.other]\nworkflow_edition = "1999.01"', None),
        ('[tool.rlmesh.deeper]\nworkflow_edition = "1999.01"', None),
        ('[tool.rlmesh]\n# workflow_edition = "1999.01"', None),
        ('[tool.rlmesh]\n[project]\nworkflow_edition = "1999.01"', None),
        ('[tool.rlmesh]\nworkflow_editions = "1999.01"', None),
        ("", None),
    ],
)
def test_row_EDT_3_the_line_of_the_project(tmp_path: Path, text: str, expected: str | None) -> None:
    project(tmp_path, text)
    assert declared_edition() == expected


def test_row_EDT_3_the_nearest_project_alone_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, f'[tool.rlmesh]\nworkflow_edition = "{NOW}"\n')
    inner, deep = tmp_path / "inner", tmp_path / "inner" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert declared_edition() == NOW
    project(inner, "[project]\nname = 'x'\n")
    other = inner / "c"
    other.mkdir()
    monkeypatch.chdir(other)
    assert declared_edition() is None


def test_a_number_where_text_belongs_is_refused_by_name(tmp_path: Path) -> None:
    project(tmp_path, "[tool.rlmesh]\nworkflow_edition = 2026.06\n")
    with pytest.raises(ValueError, match=r"pyproject.toml, \[tool.rlmesh\]: .*in quotes"):
        declared_edition()


def test_a_deleted_working_directory_declares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert declared_edition() is None
    os.chdir(tmp_path)


# What a server and a client say


def greeted(server: Any) -> str:
    """Serve, connect, and return the edition that the server said it was authored against."""
    from rlmesh.wire import messages
    from rlmesh.wire.handshake import client_hello

    core: Any = server._core
    response = messages.env.HandshakeResponse()
    response.ParseFromString(core.handshake(client_hello("env").SerializeToString()))
    return response.base.preferred_workflow_edition


def test_a_server_says_what_it_was_authored_against(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editions, "SUPPORTED_EDITIONS", (NOW, "2025.01"))
    options = rlmesh.ServeOptions(workflow_edition="2025.01")
    with rlmesh.EnvServer(FunctionEnv(), options=options) as server:
        assert greeted(server) == server.workflow_edition == "2025.01"
        server.declare_edition(NOW)
        assert greeted(server) == NOW
    with rlmesh.EnvServer(FunctionEnv()) as server:
        assert greeted(server) == NOW
        server.declare_edition(None, authored="2025.01")
        assert greeted(server) == "2025.01"
        with pytest.raises(ValueError, match="unknown workflow edition '1'"):
            server.declare_edition("1")


def test_a_model_server_says_what_its_class_declares() -> None:
    from rlmesh.numpy import Model

    class Old(Model):
        workflow_edition = "1999.01"

        def predict(self, observation: Any) -> Any:
            return 0

    with pytest.raises(ValueError, match="workflow_edition of the class: unknown"):
        rlmesh.ModelServer(Old())


def test_serve_options_check_the_edition() -> None:
    assert rlmesh.ServeOptions(workflow_edition=NOW).workflow_edition == NOW
    assert f"workflow_edition={NOW!r}" in repr(rlmesh.ServeOptions(workflow_edition=NOW))
    with pytest.raises(ValueError, match=r"unknown workflow edition '1999.01'"):
        rlmesh.ServeOptions(workflow_edition="1999.01")
    with pytest.raises(TypeError, match="expected a str"):
        rlmesh.ServeOptions(workflow_edition=2026.06)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rlmesh.RemoteEnv", "rlmesh.gymnasium.RemoteEnv"])
def test_a_client_asks_for_an_edition(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = {
        "rlmesh.RemoteEnv": rlmesh.RemoteEnv,
        "rlmesh.gymnasium.RemoteEnv": rlmesh.gymnasium.RemoteEnv,
    }[kind]
    with rlmesh.EnvServer(FunctionEnv()) as server:
        server.start()
        env = client(server.address, workflow_edition=NOW)
        assert getattr(env, "remote", env).selected_workflow_edition == NOW
        env.close()
        with pytest.raises(ValueError, match=r"unknown workflow edition '1999.01'"):
            client(server.address, workflow_edition="1999.01")
        monkeypatch.setenv(editions.VARIABLE, "1999.01")
        with pytest.raises(ValueError, match="RLMESH_WORKFLOW_EDITION"):
            client(server.address)
        with pytest.raises(ValueError, match="RLMESH_WORKFLOW_EDITION"):
            rlmesh.RemoteModel(server.address)


def test_a_client_of_an_older_edition_is_not_served_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wants no newer edition than its own, and this server runs only that: refused by name."""
    with rlmesh.EnvServer(FunctionEnv()) as server:
        server.start()
        monkeypatch.setattr(editions, "SUPPORTED_EDITIONS", (NOW, "2025.01"))
        with pytest.raises(
            rlmesh.ProtocolException, match=r'no mutual workflow edition.*runtime wants "2025.01"'
        ):
            rlmesh.RemoteEnv(server.address, workflow_edition="2025.01")


# EDT-4


def test_row_EDT_4_one_edition_leaves_nothing_to_warn_of() -> None:
    """A user whose warnings are errors can serve without declaring anything."""
    with python_child(
        "import rlmesh, support\n"
        "with rlmesh.EnvServer(support.FunctionEnv()) as server:\n"
        "    server.start()\n"
        "    rlmesh.RemoteEnv(server.address).close()\n"
        "print('quiet')\n"
    ) as child:
        assert child.line() == "quiet"


@pytest.mark.usefixtures("two_editions")
def test_row_EDT_4_the_first_that_floats_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(**options: Any) -> list[str]:
        with (
            warnings.catch_warnings(record=True) as caught,
            rlmesh.EnvServer(FunctionEnv(), options=rlmesh.ServeOptions(**options)) as server,
        ):
            warnings.simplefilter("always")
            server.start()
        return [str(w.message) for w in caught if w.category is rlmesh.WorkflowEditionWarning]

    assert serve(workflow_edition=NOW) == []
    monkeypatch.setenv(editions.VARIABLE, "")
    assert serve() == []
    monkeypatch.delenv(editions.VARIABLE)
    (text,) = serve()
    assert "the environment served at tcp://127.0.0.1:" in text
    assert 'pin it with workflow_edition = "2026.06"' in text
    assert serve() == []


# PKG-5, PKG-6


def test_row_PKG_6_build_info() -> None:
    build = rlmesh.build_info()
    assert isinstance(build, rlmesh.BuildInfo)
    assert build.version == rlmesh.__version__
    assert build.protocol_generation == "rlmesh-wire-v1"
    assert (build.workflow_edition, build.workflow_edition_base) == (NOW, NOW)
    assert build.build_source in ("release", "package", "git")
    assert (build.build_source == "git") == (build.git is not None)
    for field in ("version=", "build_cohort=", "git=", "supported_workflow_editions="):
        assert field in repr(build)
    with pytest.raises(AttributeError):
        build.version = "1"  # type: ignore[misc]
    build.supported_workflow_editions.clear()
    assert rlmesh.build_info().supported_workflow_editions == [NOW]


def test_row_PKG_5_the_old_name_of_the_edition_warns_when_it_is_read() -> None:
    with pytest.warns(DeprecationWarning, match=r"use rlmesh.build_info\(\).workflow_edition"):
        assert rlmesh.__build__ == NOW
    with pytest.warns(DeprecationWarning):
        from rlmesh import __build__
    assert __build__ == NOW


# What an evaluation asks for


@pytest.mark.parametrize("loop", ["run", "session"])
def test_an_evaluation_asks_for_an_edition(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlmesh.numpy import Model

    class Mine(Model):
        workflow_edition = NOW

        def predict(self, observation: Any) -> Any:
            return [0.0, 0.0]

    def evaluate(model: Any, **keywords: Any) -> None:
        if loop == "run":
            assert model.run(server.address, max_episode_steps=1, **keywords).num_episodes == 1
            return
        with model.session(server.address, **keywords) as session:
            assert session.selected_workflow_edition == NOW

    with rlmesh.EnvServer(FunctionEnv()) as server:
        server.start()
        evaluate(Mine())
        evaluate(Mine(), workflow_edition=NOW)
        with pytest.raises(ValueError, match="workflow_edition: unknown workflow edition '1'"):
            evaluate(Mine(), workflow_edition="1")
        monkeypatch.setattr(Mine, "workflow_edition", "1999.01")
        with pytest.raises(ValueError, match="workflow_edition of the class: unknown"):
            evaluate(Mine())
        evaluate(Mine(), workflow_edition=NOW)
        monkeypatch.setattr(editions, "SUPPORTED_EDITIONS", (NOW, "1999.01"))
        with pytest.raises(rlmesh.ProtocolException, match=r'runtime wants "1999.01"'):
            evaluate(Mine())


def test_row_SES_8_a_local_env_has_no_edition() -> None:
    with (
        rlmesh.session(lambda obs: 0, FunctionEnv()) as session,
        pytest.raises(RuntimeError, match="a local env has no negotiated workflow edition"),
    ):
        session.selected_workflow_edition  # noqa: B018
