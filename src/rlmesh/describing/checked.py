"""What an author should know before an env or model is packed: a check of its envelope.

Nothing is run. Whether an env that runs keeps its own contract is another question
(``rlmesh check``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rlmesh.checks.findings import CheckReport, Finding, Level
from rlmesh.describing.badges import badge
from rlmesh.describing.envelope import describe
from rlmesh.describing.space_forms import space_from_form

__all__ = ["check_entrypoint", "check_envelope", "report_lists"]

_ABSENT_HERE = re.compile(
    r"cuda|gpu|nvidia|driver|\begl\b|opengl|\bgl\b|osmesa|vulkan|glfw|glx|display|\bx11\b", re.I
)
"""What an env says that cannot be built without hardware that this machine lacks."""

_Envelope = Mapping[str, Any]


def check_entrypoint(obj: Any, *, kind: str | None = None) -> CheckReport:
    """Return what is wrong with an env or model, as far as it shows without running it.

    An env that cannot be built for want of a GPU, a display or a package is not checked, since it
    may be built elsewhere.

    Args:
        obj: what :func:`rlmesh.describe` describes; it is described here.
        kind: ``"env"`` or ``"model"``, for a callable.

    Example:
        >>> import rlmesh
        >>> from rlmesh.describing.checked import check_entrypoint
        >>> class Upright(rlmesh.numpy.Model):
        ...     spec = rlmesh.NO_ADAPTER
        ...
        ...     def predict(self, observation):
        ...         return int(observation[2] > 0)
        >>> report = check_entrypoint(Upright)
        >>> report.passed, [finding.check for finding in report.of("warn")]
        (True, ['model_spec'])
    """
    try:
        envelope = describe(obj, kind=kind)
    except Exception as exc:
        name = obj if isinstance(obj, str) else repr(obj)
        return CheckReport(name, (Finding("describe", "fail", badge(exc)["error"]),))
    return check_envelope(envelope)


def check_envelope(envelope: _Envelope) -> CheckReport:
    """Return what is wrong with the env or model of an envelope."""
    target = envelope["target"]
    checks = (_tags, _env_spec, _branches) if envelope["kind"] == "env" else (_spec, _corners)
    findings = [
        found for check in (*checks, _params, _variants, _runtime) for found in check(envelope)
    ]
    return CheckReport(target["entrypoint"] or target["qualname"], tuple(findings))


def report_lists(report: CheckReport) -> dict[str, list[str]]:
    """Return a report as the lists of the published tool: failed, warnings, not_checked, passed."""
    levels: dict[str, Level] = {
        "failed": "fail",
        "warnings": "warn",
        "not_checked": "skipped",
        "passed": "ok",
    }
    return {
        name: [f"{finding.check}: {finding.message}" for finding in report.of(level)]
        for name, level in levels.items()
    }


# Envs


def _tags(envelope: _Envelope) -> Iterator[Finding]:
    tags = envelope["env_tags"]
    if tags is None:
        yield Finding(
            "env_tags",
            "fail",
            "the env declares no tags, so no model can be adapted to it",
            "set tags = EnvTags(...) on the class",
        )
    else:
        yield from _fit("env_tags", tags, envelope["env_spec"])


def _fit(check: str, tags: Any, spec: Any) -> Iterator[Finding]:
    """Check tags by themselves, and against the spaces where those are known."""
    if _error(tags):
        yield Finding(check, "fail", _error(tags))
        return
    from rlmesh.adapters.spec_checks import check_tags
    from rlmesh.adapters.tagging import check_env_tags
    from rlmesh.adapters.tags import EnvTags

    doubts: list[str] = []
    try:
        declared = EnvTags.from_dict(tags)
        if _error(spec):
            check_tags(declared)
        else:
            spaces = [space_from_form(spec[f"{name}_space"]) for name in ("observation", "action")]
            advisories = check_env_tags(declared, *spaces)
            doubts += [a.message for a in advisories if a.code != "unregistered-role"]
    except ValueError as exc:
        yield Finding(check, "fail", str(exc))
        return
    yield from (Finding(check, "warn", doubt) for doubt in doubts)
    yield from _roles(check, tags)
    fits = "declared" if _error(spec) else "declared, and they fit the spaces"
    yield Finding(check, "ok", fits)


def _env_spec(envelope: _Envelope) -> Iterator[Finding]:
    yield _built("env_spec", envelope["env_spec"], "fail")


def _built(check: str, spec: Any, level: Level) -> Finding:
    message = _error(spec)
    if not message:
        return Finding(check, "ok", "spaces read")
    kind = spec.get("error_type", "")
    shown = f"the env could not be built: {kind}: {message}"
    if kind in ("ImportError", "ModuleNotFoundError") or _ABSENT_HERE.search(message):
        return Finding(
            check, "skipped", shown, "describe it where it can be built, in its image for instance"
        )
    return Finding(check, level, shown)


def _branches(envelope: _Envelope) -> Iterator[Finding]:
    contracts = envelope.get("env_contracts")
    if contracts is None:
        return
    if _error(contracts):
        yield Finding("env_contracts", "fail", _error(contracts))
        return
    for branch in contracts["branches"]:
        if branch["default"]:
            continue
        check = f"env_contracts[{', '.join(f'{k}={v}' for k, v in branch['params'].items())}]"
        yield _built(check, branch["env_spec"], "warn")
        if branch["env_tags"] is not None:
            yield from _fit(check, branch["env_tags"], branch["env_spec"])


# Models


def _spec(envelope: _Envelope) -> Iterator[Finding]:
    spec = envelope["model_spec"]
    if spec is None:
        yield Finding(
            "model_spec",
            "warn",
            "the class declares no spec, so the model gets each env's raw observations",
            "set spec = ModelSpec(...) on the class; one set in load() is not known before",
        )
        return
    if _error(spec):
        yield Finding("model_spec", "fail", _error(spec))
        return
    from rlmesh.adapters.spec_checks import check_spec
    from rlmesh.adapters.specs import ModelSpec

    try:
        check_spec(ModelSpec.from_dict(spec))
    except ValueError as exc:
        yield Finding("model_spec", "fail", str(exc))
        return
    yield from _roles("model_spec", spec)
    yield Finding("model_spec", "ok", "declared")


def _corners(envelope: _Envelope) -> Iterator[Finding]:
    corners, native = envelope["corners"], envelope.get("native_chunk")
    if envelope["sources"]["predict"] is None:
        yield Finding(
            "corners",
            "fail",
            f"nothing answers predict(): the class defines {', '.join(corners) or 'no corner'}",
            "define predict(), or a corner that it can be derived from",
        )
    for name, signature in envelope["signatures"].items():
        if _error(signature):
            yield Finding("corners", "fail", f"{name}: {_error(signature)}")
    if native is not None:
        if isinstance(native, bool) or not isinstance(native, int) or native < 1:
            yield Finding("native_chunk", "fail", f"expected an int of 1 or more, got {native!r}")
        elif not any("chunk" in name for name in corners):
            yield Finding("native_chunk", "fail", "set, but the class defines no chunk corner")
    if corners:
        yield Finding("corners", "ok", ", ".join(corners))


# Both


def _roles(check: str, part: Any) -> Iterator[Finding]:
    from rlmesh.adapters.vocabulary import is_registered

    for role in dict.fromkeys(_roles_in(part)):
        if not is_registered(role):
            yield Finding(
                check,
                "warn",
                f"role {role!r} is not in the role registry; it matches only the same text",
                "use a registered role, or x/... to say that it is private",
            )


def _roles_in(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in cast("dict[str, Any]", part).items():
            if name == "role" and isinstance(value, str):
                yield value
            else:
                yield from _roles_in(value)
    elif isinstance(part, list):
        for item in cast("list[Any]", part):
            yield from _roles_in(item)


def _params(envelope: _Envelope) -> Iterator[Finding]:
    if _error(envelope["params"]):
        yield Finding("params", "fail", _error(envelope["params"]))


def _variants(envelope: _Envelope) -> Iterator[Finding]:
    variants = envelope.get("variants", {})
    for name, value in variants.items():
        if name == "error" or name.endswith("_error"):
            yield Finding("variants", "warn", f"{name}: {value}")
    for entry in variants.get("catalog", ()):
        if "error" in entry:
            yield Finding("variants", "warn", f"{entry['id']}: {entry['error']}")
    if "catalog" in variants:
        yield Finding("variants", "ok", f"{len(variants['catalog'])} listed")


def _runtime(envelope: _Envelope) -> Iterator[Finding]:
    runtime = envelope["runtime"]
    error = runtime.get("workflow_edition_error")
    if error:
        yield Finding("runtime", "fail", error)
    else:
        edition = runtime["preferred_workflow_edition"]
        yield Finding("runtime", "ok", f"{runtime['protocol_generation']}, edition {edition}")


def _error(part: Any) -> str:
    """Return what the badge says that stands in place of a part; empty for the part itself."""
    if not isinstance(part, dict) or "error" not in part:
        return ""
    return str(cast("dict[str, Any]", part)["error"])
