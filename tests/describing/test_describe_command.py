"""``python -m rlmesh.describe``: the envelope on standard output and nothing else (DSC-7)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from describe_program import NOISE, command

import rlmesh
import rlmesh.describe


def test_row_DSC_7_what_the_author_prints_is_kept_apart() -> None:
    done = command("describe_noisy:Noisy")
    assert done.status == 0, done.err
    expected = rlmesh.describe_json("describe_targets:Bare").replace(
        "describe_targets:Bare", "describe_noisy:Noisy"
    )
    assert done.out == expected.encode() + b"\n"
    assert all(line in done.err for line in NOISE)


def test_row_DSC_7_label_out_and_time(tmp_path: Path) -> None:
    file = tmp_path / "envelope"
    time = "2026-06-01T12:00:00Z"
    done = command(
        "describe_targets:Chunker", "--label", "--out", str(file), "--generated-at", time
    )
    assert (done.status, done.out) == (0, b""), done.err
    name, _, text = file.read_text().partition("=")
    assert name == "dev.rlmesh.describe"
    assert json.loads(text) == rlmesh.describe("describe_targets:Chunker", generated_at=time)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--env", "describe_noisy:make_env"),
        ("describe_noisy:make_env", "--env"),
    ],
)
def test_row_DSC_7_a_function_is_said_to_be_an_env(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.status == 0, done.err
    assert json.loads(done.out)["kind"] == "env"


def test_every_badge_is_told_on_standard_error() -> None:
    done = command("describe_noisy:Fails")
    assert done.status == 0
    assert "note: env_spec: no display" in done.err
    assert "note: variants.catalog_error: no list" in done.err
    assert json.loads(done.out)["env_spec"]["error"] == "no display"
    done = command("describe_noisy:Ends")
    assert done.status == 0
    assert done.said.endswith("note: env_spec: the code ended the process with sys.exit(9)")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("describe_noisy:Noisi",), "did you mean 'Noisy'"),
        (("no_such_module:Thing",), "No module named 'no_such_module'"),
        (("describe_noisy:make_env",), "say it with"),
        (("describe_noisy",), "expected MODULE:NAME"),
        (("describe_targets:Bare", "--out", "/no/such/folder/x"), "No such file or directory"),
    ],
)
def test_what_cannot_be_described_is_status_1(arguments: tuple[str, ...], text: str) -> None:
    done = command(*arguments)
    assert (done.status, done.out) == (1, b"")
    assert text in done.said
    assert done.said.startswith("rlmesh.describe: error:")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a:b", "c:d"),
        ("a:b", "--env", "c:d"),
        ("--env", "a:b", "--model", "c:d"),
        ("a:b", "--env", "--model"),
        ("a:b", "--generated-at", "now"),
        ("a:b", "--labels"),
    ],
)
def test_a_wrong_command_line_is_status_2(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert (done.status, done.out) == (2, b"")
    assert "usage: python -m rlmesh.describe" in done.err


def test_the_bytes_do_not_depend_on_the_terminal() -> None:
    plain = command("describe_targets:Parameters", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert plain.status == 0
    assert "ünit".encode() in plain.out
    assert plain.out == command("describe_targets:Parameters", PYTHONIOENCODING="utf-8").out


def test_imported_it_is_the_function() -> None:
    from rlmesh import describe

    assert rlmesh.describe is describe
    assert sys.modules["rlmesh.describe"] is describe
    assert describe.__doc__
