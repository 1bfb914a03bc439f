"""The metadata envelope of an env or model: everything known of it without running it."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from rlmesh.describing.badges import guarded
from rlmesh.describing.envs import bind_env, describe_env
from rlmesh.describing.models import bind_model, describe_model
from rlmesh.describing.runtime import runtime_facts
from rlmesh.describing.targets import Target, find_target
from rlmesh.describing.variants import describe_variants
from rlmesh.values.plain import plain
from rlmesh.wire.contract import EnvContract

__all__ = [
    "DESCRIBE_METADATA_KEY",
    "DESCRIBE_SCHEMA_VERSION",
    "check_time",
    "describe",
    "describe_json",
    "describe_served",
]

DESCRIBE_METADATA_KEY = "rlmesh.describe.v1"
"""Under which a server's handshake carries the envelope of what it serves."""

DESCRIBE_SCHEMA_VERSION = 1

_ORDER = (
    "schema_version",
    "kind",
    "generated_at",
    "target",
    *("env_spec", "env_tags", "env_contracts"),
    *("model_spec", "corners", "native_chunk"),
    *("params", "variants"),
    *("framework", "device", "allow_fusion", "signatures", "sources"),
    "runtime",
)

_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d)(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)


def describe(
    obj: Any, *, kind: str | None = None, generated_at: str | None = None
) -> dict[str, Any]:
    """Return everything that can be known of an env or model without running it, as JSON data.

    Of a model nothing is loaded and nothing is called. An env is built once, with the defaults, to
    read its spaces (once for every contract branch), and closed; an env that is there already is
    only read. What fails on the way, in whatever manner, becomes an error badge in its place:
    ``{"error": message, "error_type": class name}``.

    Args:
        obj: an :class:`~rlmesh.EnvFactory`, an env or a vector env, a :class:`~rlmesh.Model` or a
            policy object; the class of one; a callable that returns an env, or a predict function;
            or the ``"module:Class"`` that names one of these.
        kind: ``"env"`` or ``"model"``; needed for a callable, told by the methods of all others.
        generated_at: an RFC 3339 time to put on it. Default: none, so that the envelope of the same
            thing is the same, byte for byte.

    Returns:
        ``schema_version``, ``kind``, ``target``, ``params``, ``runtime`` and, where the class lists
        them, ``variants``; of an env ``env_spec``, ``env_tags`` and, with ``tag_params``,
        ``env_contracts``; of a model ``model_spec``, ``corners``, ``native_chunk`` if it is set,
        ``framework``, ``device``, ``allow_fusion``, ``signatures`` and ``sources``.

    Raises:
        TypeError: ``obj`` is neither, or a callable without ``kind``.
        ValueError: ``kind`` or ``generated_at`` is not what it should be.
        ImportError: ``"module:Class"`` names nothing.

    Example:
        >>> import rlmesh
        >>> class Upright(rlmesh.numpy.Model):
        ...     def load(self, gain: float = 0.5): ...
        ...
        ...     def predict(self, observation):
        ...         return int(observation[2] > 0)
        >>> envelope = rlmesh.describe(Upright)
        >>> envelope["corners"], envelope["params"]["signature_tier"][0]["name"]
        (['predict'], 'gain')
    """
    return json.loads(describe_json(obj, kind=kind, generated_at=generated_at))


def describe_json(obj: Any, *, kind: str | None = None, generated_at: str | None = None) -> str:
    """Return :func:`describe`'s envelope as text: one line, the same bytes for the same thing.

    Keys are sorted, but for those of the envelope itself, which keep their order.
    """
    check_time(generated_at)
    target = find_target(obj, kind)
    return _written(_gathered(target, generated_at=generated_at))


def describe_served(
    target: Target, *, contract: EnvContract | None = None, edition: str | None = None
) -> str:
    """Return the envelope of what is being served.

    Args:
        target: what it was made of.
        contract: of the served env; its spaces are those in the envelope, and nothing is built.
        edition: the workflow edition that clients are told.
    """
    return _written(_gathered(target, contract=contract, edition=edition))


def _gathered(
    target: Target,
    *,
    generated_at: str | None = None,
    contract: EnvContract | None = None,
    edition: str | None = None,
) -> dict[str, Any]:
    envelope: dict[str, Any] = {
        "schema_version": DESCRIBE_SCHEMA_VERSION,
        "kind": target.kind,
        "target": {"entrypoint": target.entrypoint, "qualname": target.name},
    }
    if generated_at is not None:
        envelope["generated_at"] = generated_at
    if target.kind == "env":
        envelope.update(describe_env(target, contract))
        bind = bind_env(target)
    else:
        envelope.update(describe_model(target))
        bind = bind_model(target)
    variants = guarded(lambda: describe_variants(target.thing, bind))
    if variants:
        envelope["variants"] = variants
    authored = guarded(lambda: getattr(target.thing, "workflow_edition", None))
    envelope["runtime"] = runtime_facts(keyword=edition, authored=authored)
    return envelope


def _written(envelope: dict[str, Any]) -> str:
    parts = [
        f"{json.dumps(name)}:{_dumped(plain(envelope[name]))}"
        for name in _ORDER
        if name in envelope
    ]
    return "{" + ",".join(parts) + "}"


def _dumped(value: Any) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def check_time(text: str | None) -> None:
    """Raise ValueError unless ``text`` is an RFC 3339 time, or None."""
    if text is None:
        return
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"generated_at must be a str or None, got {type(text).__name__}")
    matched = _RFC_3339.fullmatch(text)
    try:
        # A leap second is allowed there, but not known to datetime.
        if matched and int(matched[2]) <= 60:
            datetime.datetime.fromisoformat(matched[1] + "00")
            return
    except ValueError:
        pass
    raise ValueError(
        f"generated_at must be an RFC-3339 timestamp such as 2026-06-01T12:00:00Z, got {text!r}"
    )
