"""Whatever the author's code does, there is an envelope (DSC-5)."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

import pytest
from describe_targets import Env

import rlmesh
from rlmesh import spaces
from rlmesh.numpy import Model


class Abort(BaseException):
    """Nobody catches Exception for this."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(exc: BaseException) -> Any:
    def make() -> Any:
        raise exc

    return make


@pytest.mark.parametrize(
    ("exc", "badge"),
    [
        (KeyError("boom"), {"error": "'boom'", "error_type": "KeyError"}),
        (
            SystemExit(3),
            {
                "error": "the code ended the process with sys.exit(3)",
                "error_type": "SystemExit",
            },
        ),
        (Abort("now"), {"error": "now", "error_type": "Abort"}),
        (AssertionError(), {"error": "AssertionError", "error_type": "AssertionError"}),
        (Unprintable(), {"error": "<Unprintable>", "error_type": "Unprintable"}),
        (ModuleNotFoundError("No module named 'x'"), None),
        (RuntimeError("x" * 100_000), None),
        (RuntimeError("\udc80 not UTF-8"), None),
    ],
)
def test_what_make_raises_is_a_badge(exc: BaseException, badge: dict[str, Any] | None) -> None:
    spec = rlmesh.describe(raising(exc), kind="env")["env_spec"]
    assert spec["error_type"] == type(exc).__name__
    assert len(spec["error"]) < 2000
    if badge is not None:
        assert spec == badge


def test_ctrl_c_is_no_badge() -> None:
    with pytest.raises(KeyboardInterrupt):
        rlmesh.describe(raising(KeyboardInterrupt()), kind="env")


def test_a_badge_has_no_address_in_it() -> None:
    spec = rlmesh.describe(raising(ValueError(object())), kind="env")["env_spec"]
    assert spec["error"] == "<object object>"


@pytest.mark.parametrize(
    "result", [None, 3, object(), [], types.SimpleNamespace(observation_space=3)]
)
def test_what_is_no_env_is_a_badge(result: Any) -> None:
    spec = rlmesh.describe(lambda: result, kind="env")["env_spec"]
    assert set(spec) == {"error", "error_type"}


def test_a_close_that_fails_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(Env):
        def close(self) -> None:
            sys.exit("will not close")

    with caplog.at_level(logging.WARNING, logger="rlmesh"):
        envelope = rlmesh.describe(Sticky)
    assert "observation_space" in envelope["env_spec"]
    assert "closing what was described failed" in caplog.text


def test_a_factory_whose_close_fails() -> None:
    class Sticky(rlmesh.EnvFactory):
        def make(self) -> Any:
            return Env()

        def close(self) -> None:
            raise OSError("busy")

    assert "observation_space" in rlmesh.describe(Sticky)["env_spec"]


def test_spaces_that_cannot_be_read_are_a_badge_that_names_them() -> None:
    env = Env()
    env.observation_space = "a camera"
    spec = rlmesh.describe(env)["env_spec"]
    assert spec["error"].startswith("observation_space of Env")


def test_metadata_that_is_nothing() -> None:
    env = Env()
    env.metadata = 3
    envelope = rlmesh.describe(env)
    assert "observation_space" in envelope["env_spec"]
    assert envelope["env_tags"]["error_type"] == "TypeError"


def test_attributes_that_raise() -> None:
    class Trap:
        def __get__(self, instance: Any, owner: Any) -> Any:
            raise RuntimeError("trapped")

    class Trapped(Model):
        spec = Trap()
        params = Trap()  # type: ignore[assignment]
        native_chunk = Trap()  # type: ignore[assignment]
        workflow_edition = Trap()  # type: ignore[assignment]
        device = Trap()
        allow_fusion = Trap()  # type: ignore[assignment]
        predict_batch = Trap()  # type: ignore[assignment]

        def predict(self, observation: Any) -> Any: ...

        @classmethod
        def enumerate_variants(cls) -> Any:
            return [rlmesh.Variant("a", {})]

    envelope = rlmesh.describe(Trapped)
    for part in ("model_spec", "native_chunk", "params", "device", "allow_fusion"):
        assert envelope[part] == {"error": "trapped", "error_type": "RuntimeError"}, part
    assert envelope["corners"] == ["predict"]
    assert "error" in envelope["variants"]["catalog"][0]
    assert "workflow_edition_error" in envelope["runtime"]


class Evasive:
    """Whatever it is asked for that it lacks, it raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("methods", "kind"), [(("predict",), "model"), (("reset", "step"), "env"), (("make",), "env")]
)
def test_an_instance_that_raises_when_it_is_asked(methods: tuple[str, ...], kind: str) -> None:
    thing = type("Thing", (Evasive,), dict.fromkeys(methods, lambda self, *given: 0))()
    envelope = rlmesh.describe(thing)
    assert envelope["kind"] == kind and envelope["target"]["qualname"].endswith(":Thing")
    part = {"model": "model_spec", "env": "env_spec"}[kind]
    assert envelope[part]["error_type"] in ("RuntimeError", "TypeError")
    assert rlmesh.describe_json(thing) == rlmesh.describe_json(thing)


def test_what_cannot_be_told_apart_nor_shown_is_refused_by_its_class() -> None:
    with pytest.raises(TypeError, match=r"cannot describe an object of \S+:Evasive"):
        rlmesh.describe(Evasive())


class Cyclic:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_defaults_and_metadata_that_are_no_json() -> None:
    loop: list[Any] = [1]
    loop.append(loop)

    class Odd(rlmesh.EnvFactory):
        def make(
            self,
            loop: Any = loop,
            silent: Any = Cyclic(),  # noqa: B008
            nan: float = float("nan"),
            function: Any = len,
            text: str = "\udc80",
        ) -> Any:
            return Env()

        @classmethod
        def enumerate_variants(cls) -> Any:
            return [rlmesh.Variant("a", {"loop": loop}, deep=_nested(500), silent=Cyclic())]

    envelope = rlmesh.describe(Odd)
    defaults = {p["name"]: p["default"] for p in envelope["params"]["signature_tier"]}
    assert defaults["loop"] == [1, "..."]
    assert defaults["silent"] == "<Cyclic>"
    assert defaults["nan"] is None
    assert defaults["text"] == "\\udc80"
    (entry,) = envelope["variants"]["catalog"]
    assert entry["params"] == {"loop": [1, "..."]}
    assert entry["metadata"]["silent"] == "<Cyclic>"


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_a_module_that_ends_the_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "describe_script.py").write_text("import sys\nsys.exit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"ended the process with sys.exit\(7\)"):
        rlmesh.describe("describe_script:Thing")


def test_a_factory_that_is_not_finished() -> None:
    """An abstract class cannot be made; what is on it can be read."""

    class Abstract(rlmesh.EnvFactory):
        pass

    envelope = rlmesh.describe(Abstract)
    assert envelope["env_spec"]["error_type"] == "TypeError"


def test_a_zero_sized_space_is_a_badge() -> None:
    env = Env()
    env.observation_space = spaces.Dict({})
    assert rlmesh.describe(env)["env_spec"]["observation_space"]["details"] == {"spaces": {}}
