"""The text of an envelope: the same bytes for the same thing, in every process (DSC-1, DSC-4)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from describe_targets import Bare, Catalogue, Chunker, Parameters, Tagged

import rlmesh

SCRIPT = """
import sys, rlmesh
from describe_targets import *
class Sets(rlmesh.EnvFactory):
    def make(self, names={"b", "a", "c"}, thing=object(), function=print, method=Env().close):
        raise ValueError(object())
    @classmethod
    def enumerate_variants(cls):
        return [rlmesh.Variant("a", {}, names=frozenset({"x", "y", "z"}), at=object())]
for thing in (Bare, Tagged, Parameters, Catalogue, Numbers, Chunker, Sets):
    sys.stdout.buffer.write(rlmesh.describe_json(thing).encode() + b"\\n")
"""


def run(seed: str) -> bytes:
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_row_DSC_1_the_bytes_are_the_same_in_every_process() -> None:
    one, *others = [run(seed) for seed in ("0", "1", "77")]
    assert one.count(b"\n") == 7
    assert all(other == one for other in others)


@pytest.mark.parametrize("thing", [Bare, Tagged, Parameters, Catalogue, Chunker])
def test_the_text_is_one_line_of_sorted_keys_but_at_the_top(thing: Any) -> None:
    text = rlmesh.describe_json(thing)
    assert "\n" not in text
    envelope = json.loads(text, parse_constant=pytest.fail)
    assert envelope == rlmesh.describe(thing)
    parts = [
        f"{json.dumps(name)}:{json.dumps(part, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"  # noqa: E501
        for name, part in envelope.items()
    ]
    assert text == "{" + ",".join(parts) + "}"


def test_the_order_of_the_parts() -> None:
    env = rlmesh.describe(Catalogue, generated_at="2026-06-01T12:00:00Z")
    assert list(env) == [
        *("schema_version", "kind", "generated_at", "target"),
        *("env_spec", "env_tags", "params", "variants", "runtime"),
    ]
    assert list(rlmesh.describe(Chunker)) == [
        *("schema_version", "kind", "target", "model_spec", "corners", "native_chunk", "params"),
        *("variants", "framework", "device", "allow_fusion", "signatures", "sources", "runtime"),
    ]


def test_row_DSC_6_constants() -> None:
    assert rlmesh.DESCRIBE_METADATA_KEY == "rlmesh.describe.v1"
    assert rlmesh.describe(Bare)["schema_version"] == rlmesh.DESCRIBE_SCHEMA_VERSION == 1


def test_row_DSC_4_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = rlmesh.describe(Bare)["runtime"]
    assert runtime["component"] == "rlmesh-python"
    assert (runtime["language"], runtime["language_version"]) == (
        "python",
        platform.python_version(),
    )
    assert runtime["package_version"] == rlmesh.__version__
    assert runtime["framework_versions"]["numpy"] == np.__version__
    assert runtime["os"] == platform.system().lower()
    assert runtime["protocol_generation"] == "rlmesh-wire-v1"
    assert runtime["supported_workflow_editions"] == ["2026.06"]
    assert runtime["preferred_workflow_edition"] == "2026.06"
    assert "workflow_edition_error" not in runtime
    monkeypatch.setenv("RLMESH_WORKFLOW_EDITION", "1999.01")
    runtime = rlmesh.describe(Bare)["runtime"]
    assert "unknown workflow edition '1999.01'" in runtime["workflow_edition_error"]
    assert runtime["preferred_workflow_edition"] == "2026.06"


@pytest.mark.parametrize(
    "text",
    [
        "2026-06-01T12:00:00Z",
        "2026-06-01T12:00:00.123456789Z",
        "2026-06-01T12:00:00+02:00",
        "2024-02-29T23:59:60-00:30",
    ],
)
def test_row_DSC_1_generated_at(text: str) -> None:
    assert rlmesh.describe(Bare, generated_at=text)["generated_at"] == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-06-01", "2026-06-01 12:00:00Z", "2026-06-01T12:00:00"),
        *("2026-13-01T12:00:00Z", "2026-02-30T12:00:00Z", "2026-06-01T24:00:00Z"),
        *("2026-06-01T12:00:61Z", "2026-06-01T12:00:00+25:00", "2026-06-01t12:00:00z"),
        "2026-06-01T12:00:00Z\n",
    ],
)
def test_row_DSC_1_generated_at_is_rfc_3339(text: str) -> None:
    with pytest.raises(ValueError, match="RFC-3339"):
        rlmesh.describe(Bare, generated_at=text)


def test_generated_at_is_text() -> None:
    with pytest.raises(TypeError, match="generated_at must be a str"):
        rlmesh.describe(Bare, generated_at=3)  # type: ignore[arg-type]
