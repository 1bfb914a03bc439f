"""From the words of a command line to models and envs, and to the end of what was made."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from rlmesh.cli.output import complain

__all__ = ["bind_model", "check_words", "close_aloud", "is_local"]
__all__ += ["load_model", "make_envs", "token"]

_GYM = "gym:"


def token() -> str | None:
    """Return what servers ask for; from the environment alone, since command lines are public."""
    return os.environ.get("RLMESH_TOKEN") or None


def is_local(word: str) -> bool:
    """Whether ``word`` names an env that is made here, rather than an address."""
    from rlmesh.serve.targets import is_address

    return word.startswith(_GYM) or not is_address(word)


def check_words(
    model: str,
    replicas: Sequence[str],
    envs: Sequence[str],
    *,
    model_kwargs: Mapping[str, Any] | None,
    env_kwargs: Mapping[str, Any] | None,
    lanes: int | None,
) -> None:
    """Refuse what cannot be meant, before anything is imported.

    Raises:
        click.UsageError: naming the word.
    """
    from rlmesh.serve.targets import is_address
    from rlmesh.transport.address import parse_address

    for word in (*replicas, *(w for w in (model, *envs) if not w.startswith(_GYM))):
        if word in replicas or is_address(word):
            try:
                parse_address(word)
            except ValueError as exc:
                raise click.UsageError(str(exc)) from None
    served = is_address(model)
    if replicas and not served:
        raise click.UsageError(
            f"--replica is for a served model, and {model} is none; give its address as MODEL"
        )
    if not served and model != "random" and ":" not in model:
        raise click.UsageError(
            f"MODEL: expected MODULE:NAME, an address or random, got {model!r}; the order is MODEL "
            "ENV..."
        )
    if model_kwargs is not None and (served or model == "random"):
        raise click.UsageError(f"--model-kwargs are for a Model that is made here, not {model}")
    if not any(map(is_local, envs)):
        given = [
            name
            for name, value in (("--env-kwargs", env_kwargs), ("--lanes", lanes))
            if value is not None
        ]
        if given:
            raise click.UsageError(
                f"{', '.join(given)}: only for an env that is made here, and {', '.join(envs)} is "
                "served elsewhere"
            )


def load_model(word: str, replicas: Sequence[str]) -> Any:
    """Return what ``word`` names, as an evaluation takes it; no weights are read yet.

    Raises:
        ImportError: there is no such module, or nothing of that name in it.
        TypeError: it is an env.
    """
    from rlmesh.serve.targets import is_address, is_env_like, load_target

    if word == "random":
        from rlmesh.evals.policy import RANDOM_SAMPLE

        return RANDOM_SAMPLE
    if is_address(word):
        from rlmesh.evals.model import RemoteModel

        handles = [RemoteModel(address, token=token()) for address in (word, *replicas)]
        return handles if replicas else handles[0]
    target = load_target(word)
    if not _has_corner(target) and (is_env_like(target) or hasattr(target, "make")):
        raise TypeError(f"{word} is an env or makes one, and no model; the order is MODEL ENV...")
    return target


def _has_corner(thing: Any) -> bool:
    from rlmesh.models.corners import CORNERS

    return any(callable(getattr(thing, corner, None)) for corner in CORNERS)


def bind_model(target: Any, kwargs: Mapping[str, Any] | None, word: str) -> Any:
    """Return the model made with ``kwargs``; without any, what a run makes of it is left to it.

    A run makes a class once its spec is known to fit the env, and before that reads no weights.
    """
    if kwargs is None:
        return target
    from rlmesh.serve.model_sources import make_model

    return make_model(target, kwargs, word)


def make_envs(
    words: Sequence[str],
    kwargs: Mapping[str, Any],
    lanes: int,
    packages: Sequence[str],
    made: contextlib.ExitStack,
) -> list[Any]:
    """Return what an evaluation takes as its envs: ``lanes`` for each that is made here.

    Args:
        made: closes what was made and dialled.
    """
    for package in packages:
        importlib.import_module(package)
    envs: list[Any] = []
    for word in words:
        if is_local(word):
            envs += _made_here(word.removeprefix(_GYM), kwargs, lanes, made)
        elif token() is None:
            envs.append(word)
        else:
            envs.append(_handle(word, made))
    return envs


def _made_here(
    word: str, kwargs: Mapping[str, Any], lanes: int, made: contextlib.ExitStack
) -> list[Any]:
    from rlmesh.serve.env_sources import env_source

    source = env_source(word, kwargs)
    if _has_corner(source.thing):
        raise TypeError(f"{word} is a model, and no env; the order is MODEL ENV...")
    made.callback(close_aloud, word, source.close)
    return [source.one() for _ in range(lanes)]


def _handle(address: str, made: contextlib.ExitStack) -> Any:
    """Return a client that shows the token; for addresses alone a run has none."""
    from rlmesh import numpy as bound

    try:
        client: Any = bound.RemoteEnv(address, token=token())
    except ValueError:  # several lanes; any other fault is met again
        client = bound.RemoteVectorEnv(address, token=token())
    made.callback(client.close)
    return client


def close_aloud(what: str, close: Callable[[], Any]) -> None:
    """Close what was made; a result that is there already stays what it is."""
    try:
        close()
    except Exception as exc:
        complain(f"note: closing {what} raised {type(exc).__name__}: {exc}")
