"""``--check``: what shows before anything is run (DSC-8, DSC-9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from describe_program import command
from describe_targets import SPEC, Branches, Env, Tagged, tags

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.checks import CheckReport
from rlmesh.describing.checked import check_entrypoint
from rlmesh.numpy import Model


def found(report: CheckReport, level: Any) -> list[str]:
    return [finding.check for finding in report.of(level)]


def factory(make: Any, **attributes: Any) -> Any:
    return type("Made", (rlmesh.EnvFactory,), {"make": make, **attributes})


def raising(exc: Exception) -> Any:
    def make(self: Any) -> Any:
        raise exc

    return make


def test_a_good_env_and_a_good_model_pass() -> None:
    report = check_entrypoint(Tagged)
    assert (report.passed, report.of("warn"), report.of("skipped")) == (True, (), ())
    assert found(report, "ok") == ["env_tags", "env_spec", "runtime"]
    report = check_entrypoint("describe_targets:Chunker")
    assert report.passed
    assert found(report, "ok") == ["model_spec", "corners", "variants", "runtime"]
    assert report.target == "describe_targets:Chunker"


def test_row_DSC_9_an_env_without_tags_fails() -> None:
    report = check_entrypoint("describe_targets:Bare")
    assert found(report, "fail") == ["env_tags"]
    assert "declares no tags" in report.of("fail")[0].message


def test_tags_that_do_not_fit_the_spaces_fail() -> None:
    narrow = adapt.EnvTags(
        {"state": adapt.StateTag("x/left")}, adapt.Action(adapt.Actuator("x/wheels", 3))
    )
    report = check_entrypoint(factory(lambda self: Env(), tags=narrow))
    assert found(report, "fail") == ["env_tags"]
    assert "sum to 3" in report.of("fail")[0].message


def test_row_DSC_9_ad_hoc_roles_warn() -> None:
    report = check_entrypoint(factory(lambda self: Env(), tags=tags("left")))
    assert report.passed
    assert ["role 'left' is not in the role registry" in w.message for w in report.of("warn")] == [
        True
    ]

    class Mine(Model):
        spec = adapt.ModelSpec(
            {"state": adapt.State("left", dim=2)}, adapt.Action(adapt.Actuator("x/wheels", 2))
        )

        def predict(self, observation: Any) -> Any: ...

    assert found(check_entrypoint(Mine), "warn") == ["model_spec"]


@pytest.mark.parametrize(
    ("exc", "level"),
    [
        (RuntimeError("Found no NVIDIA driver on your system"), "skipped"),
        (RuntimeError("CUDA error: out of memory"), "skipped"),
        (RuntimeError("Cannot initialize a EGL device display"), "skipped"),
        (ModuleNotFoundError("No module named 'isaacsim'"), "skipped"),
        (ImportError("libGL.so.1: cannot open shared object file"), "skipped"),
        (KeyError("boom"), "fail"),
        (RuntimeError("the egle has landed"), "fail"),
        (ValueError("wrong suite"), "fail"),
    ],
)
def test_row_DSC_9_what_is_missing_on_this_machine_is_not_checked(
    exc: Exception, level: str
) -> None:
    report = check_entrypoint(factory(raising(exc), tags=tags("x/left")))
    (finding,) = (f for f in report.findings if f.check == "env_spec")
    assert finding.level == level
    assert type(exc).__name__ in finding.message


def test_a_branch_that_cannot_be_built_warns() -> None:
    report = check_entrypoint(Branches)
    assert report.passed
    assert found(report, "warn") == ["env_contracts[side=right]"]


def test_variants_that_do_not_fit_warn() -> None:
    report = check_entrypoint("describe_targets:Misfits")
    assert report.passed
    assert found(report, "warn") == ["model_spec", "variants", "variants"]
    assert found(check_entrypoint("describe_targets:CatalogueFails"), "warn") == ["variants"] * 2


def test_row_DSC_9_a_model_without_a_class_spec_warns() -> None:
    report = check_entrypoint("describe_targets:Plain")
    assert report.passed
    assert found(report, "warn") == ["model_spec"]


def test_row_DSC_9_a_spec_that_cannot_be_resolved_fails() -> None:
    class Wrong(Model):
        spec = "openpi"

        def predict(self, observation: Any) -> Any: ...

    assert found(check_entrypoint(Wrong), "fail") == ["model_spec"]

    class InProcess(Model):
        spec = adapt.ModelSpec({"x": adapt.Custom(len)}, SPEC.output)

        def predict(self, observation: Any) -> Any: ...

    assert found(check_entrypoint(InProcess), "fail") == ["model_spec"]


def test_a_model_that_nobody_can_ask_fails() -> None:
    class Nothing(Model):
        spec = SPEC

    class Chunks(rlmesh.Model):
        spec = SPEC

        def predict_chunk(self, observation: Any) -> Any: ...

    class Blind(Model):
        spec = SPEC

        def predict(self) -> Any: ...

    class Long(Model):
        spec = SPEC
        native_chunk = 3

        def predict(self, observation: Any) -> Any: ...

    class Short(Model):
        spec = SPEC
        native_chunk = 0

        def predict_chunk(self, observation: Any) -> Any: ...

    for cls in (Nothing, Chunks, Blind):
        assert found(check_entrypoint(cls), "fail") == ["corners"], cls
    for cls in (Long, Short):
        assert found(check_entrypoint(cls), "fail") == ["native_chunk"], cls


def test_an_edition_that_nothing_runs_fails() -> None:
    assert "runtime" in found(check_entrypoint("describe_targets:OfAnotherEdition"), "fail")


def test_what_cannot_be_described_fails() -> None:
    report = check_entrypoint("describe_targets:Nothing")
    assert found(report, "fail") == ["describe"]
    assert "has no 'Nothing'" in report.of("fail")[0].message


# The command


def test_row_DSC_8_the_report_and_its_status() -> None:
    done = command("describe_targets:Tagged", "--check")
    assert done.status == 0, done.err
    *lines, summary = done.out.decode().splitlines()
    assert "ok: env_spec: spaces read" in lines
    assert summary == "describe_targets:Tagged: 0 failed, 0 warnings, 0 not checked, 3 ok"
    done = command("describe_noisy:Noisy", "--check", "--json")
    assert done.status == 1, done.err
    report = json.loads(done.out)
    assert list(report) == ["failed", "warnings", "not_checked", "passed"]
    assert report["failed"] == [
        "env_tags: the env declares no tags, so no model can be adapted to it"
    ]
    assert "printed at exit" in done.err


@pytest.mark.parametrize(
    "arguments", [("--check", "--label"), ("--check", "--out", "x"), ("--json",)]
)
def test_flags_that_do_not_go_together(arguments: tuple[str, ...]) -> None:
    done = command("describe_targets:Tagged", *arguments)
    assert (done.status, done.out) == (2, b"")
