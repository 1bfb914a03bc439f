"""The command line of ``python -m rlmesh.serve`` and the environment variables behind it."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast

from rlmesh.serve.settings import check_framework, check_mode
from rlmesh.transport.address import parse_address
from rlmesh.transport.options import ServeOptions
from rlmesh.wire.editions import check_edition, declared_edition

__all__ = ["DEFAULT_ADDRESS", "PROG", "Command", "Kind", "UsageError"]
__all__ += ["make_parser", "parse_command", "refuse_command"]

DEFAULT_ADDRESS = "127.0.0.1:50051"
PROG = "python -m rlmesh.serve"

Kind = Literal["env", "model"]

_RESERVED = {
    "num_envs": "--num-envs",
    "vectorization_mode": "--vectorization-mode",
    "framework": "--framework",
    "device": "--device",
    "workflow_edition": "--workflow-edition",
}
_ONLY: dict[Kind, tuple[str, ...]] = {
    "env": ("num_envs", "vectorization_mode", "framework", "device"),
    "model": ("max_batch", "batch_wait_ms"),
}


class UsageError(ValueError):
    """The command line asks for what its target cannot be given."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to serve, and how.

    Attributes:
        target: ``module:name``, the id of a registered env, or the thing itself.
        kind: what it is; None where it says so itself.
        address: where to listen; what is no address is a ValueError.
        workflow_edition: what a call says, above all other declarations.
        flags: the options given on the command line, rather than by the environment.
    """

    target: Any
    kind: Kind | None
    address: str
    binding: dict[str, Any] = field(default_factory=dict[str, Any])
    packages: tuple[str, ...] = ()
    num_envs: int | None = None
    vectorization_mode: str | None = None
    framework: Any = None
    device: Any = None
    workflow_edition: str | None = None
    max_batch: int | None = None
    batch_wait_ms: float | None = None
    ready_fd: int | None = None
    verbose: bool = False
    options: ServeOptions = field(default_factory=ServeOptions)
    flags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        parse_address(self.address, bind=True)  # what cannot be bound is found before all else

    @property
    def name(self) -> str:
        """How messages call the target."""
        if isinstance(self.target, str):
            return self.target
        return str(getattr(self.target, "__qualname__", type(self.target).__qualname__))

    def check_flags(self, kind: Kind) -> None:
        """Raise UsageError for a flag of the other kind; the environment may hold both kinds'."""
        other: Kind = "model" if kind == "env" else "env"
        wrong = [name for name in _ONLY[other] if name in self.flags]
        if wrong:
            shown = ", ".join("--" + name.replace("_", "-") for name in wrong)
            article = "an" if other == "env" else "a"
            raise UsageError(f"{shown}: only for {article} {other}, and {self.name} is no {other}")


def refuse_command(message: str, prog: str = PROG) -> NoReturn:
    """Show how the command is used and what was wrong with it, and exit with status 2."""
    make_parser(prog).error(message)


def parse_command(argv: Sequence[str] | None = None, prog: str = PROG) -> Command:
    """Return the command of ``argv`` and the environment.

    Raises:
        SystemExit: it is wrong (2), or asked for help (0). Nothing was loaded.
    """
    parser = make_parser(prog)
    given = parser.parse_args(argv)
    targets = [t for t in (given.target, given.env, given.model) if t is not None]
    if len(targets) != 1:
        parser.error("expected exactly one of MODULE:NAME, --env and --model")
    (target,) = targets
    if given.env is None and ":" not in target:
        parser.error(f"expected MODULE:NAME, got {target!r}; serve a registered env with --env")
    flags = frozenset(name for name, value in vars(given).items() if value is not None)
    for name, variable, convert in _VARIABLES:
        text = os.environ.get(variable, "").strip()
        if name not in flags and text:
            try:
                setattr(given, name, convert(text))
            except (argparse.ArgumentTypeError, ValueError) as exc:
                parser.error(f"{variable}: {exc}")
    binding: dict[str, Any] = given.kwargs_json or {}
    for name, flag in _RESERVED.items():
        if name in binding:
            parser.error(f"the keyword arguments hold {name!r}, which is set with {flag}")
    try:
        declared_edition(option=given.workflow_edition)
        return _command(given, target, binding, flags)
    except ValueError as exc:
        parser.error(str(exc))


def _command(
    given: argparse.Namespace, target: str, binding: dict[str, Any], flags: frozenset[str]
) -> Command:
    return Command(
        target=target,
        kind="env" if given.env is not None else "model" if given.model is not None else None,
        address=DEFAULT_ADDRESS if given.address is None else given.address,
        binding=binding,
        packages=tuple(given.package or ()),
        num_envs=given.num_envs,
        vectorization_mode=given.vectorization_mode,
        framework=given.framework,
        device=given.device,
        max_batch=given.max_batch,
        batch_wait_ms=given.batch_wait_ms,
        ready_fd=given.ready_fd,
        verbose=bool(given.verbose),
        options=ServeOptions(
            token=os.environ.get("RLMESH_TOKEN") or None,
            idle_timeout_seconds=given.idle_timeout,
            workflow_edition=given.workflow_edition,
        ),
        flags=flags,
    )


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the parser, for a command that goes by ``prog``."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s (MODULE:NAME | --env ID | --model MODULE:NAME) [options]",
        description="Serve a model or an env until SIGTERM or Ctrl-C. What an option is not given "
        "for is taken from its environment variable. A token that clients must show is taken from "
        "$RLMESH_TOKEN alone, since command lines are public.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "target",
        nargs="?",
        metavar="MODULE:NAME",
        help="a Model or policy, its class, a predict function of one observation; an EnvFactory, "
        "its class; an env, its class, a function that returns one",
    )
    add(
        "--env",
        metavar="ID",
        help="an env: registered, as CartPole-v1, or MODULE:NAME of what makes one",
    )
    add("--model", metavar="MODULE:NAME", help="a model, if MODULE:NAME alone is taken for an env")
    _add_common(parser)
    _add_kinds(parser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--package",
        action="append",
        metavar="P",
        help="import P first, which registers the env; may be repeated",
    )
    add(
        "--address",
        metavar="A",
        help="host:port, port, tcp://... or unix:///path (default: $RLMESH_ADDRESS or "
        f"{DEFAULT_ADDRESS}; {os.environ.get('RLMESH_ADDRESS') or DEFAULT_ADDRESS} here)",
    )
    add(
        "--kwargs-json",
        type=_json_object,
        metavar="J",
        help="JSON object with keyword arguments of the env, or of the model's load() "
        "(default: $RLMESH_MAKE_KWARGS)",
    )
    add(
        "--workflow-edition",
        type=_converter(check_edition),
        metavar="E",
        help="the edition that what is served was authored against, unless "
        "$RLMESH_WORKFLOW_EDITION is set",
    )
    add(
        "--idle-timeout",
        type=_seconds,
        metavar="S",
        help="stop after S seconds without a request",
    )
    add(
        "--ready-fd",
        type=_descriptor,
        metavar="FD",
        help="once bound, write the resolved address and a newline to FD and close it",
    )
    add("--verbose", action="store_true", default=None, help="log, and show tracebacks")


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("for an env").add_argument
    add(
        "--num-envs",
        type=_positive,
        metavar="N",
        help="serve N envs, as lanes that are reset and stepped alone ($RLMESH_NUM_ENVS)",
    )
    add(
        "--vectorization-mode",
        choices=("sync", "async"),
        help="as gymnasium's vector env, stepped in lockstep ($RLMESH_VECTORIZATION_MODE)",
    )
    add(
        "--framework",
        type=_converter(check_framework),
        metavar="F",
        help="what its actions are: numpy, torch or jax ($RLMESH_FRAMEWORK; default: what the env "
        "was made for, else numpy)",
    )
    add("--device", metavar="D", help="where they are put, for torch and jax ($RLMESH_DEVICE)")
    add = parser.add_argument_group("for a model").add_argument
    add("--max-batch", type=_positive, metavar="N", help="most rows in one forward pass")
    add(
        "--batch-wait-ms",
        type=_milliseconds,
        metavar="MS",
        help="longest wait of a request for others (default: found by the server)",
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise argparse.ArgumentTypeError(f"not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text}")
    return cast("dict[str, Any]", value)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text!r}")
    return int(text)


def _descriptor(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 3:
        raise argparse.ArgumentTypeError(f"expected a descriptor >= 3, got {text!r}")
    return int(text)


def _milliseconds(text: str) -> float:
    return _number(text, "milliseconds", least=0.0)


def _seconds(text: str) -> float:
    value = _number(text, "seconds", least=0.0)
    if value == 0:
        raise argparse.ArgumentTypeError("expected more than 0 seconds")
    return value


def _number(text: str, unit: str, *, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        raise argparse.ArgumentTypeError(f"expected {unit}, got {text!r}")
    return value


def _converter(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return ``check`` such that argparse shows what it says."""

    def convert(text: str) -> Any:
        try:
            return check(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from None

    return convert


_VARIABLES: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("address", "RLMESH_ADDRESS", str),
    ("kwargs_json", "RLMESH_MAKE_KWARGS", _json_object),
    ("num_envs", "RLMESH_NUM_ENVS", _positive),
    ("vectorization_mode", "RLMESH_VECTORIZATION_MODE", check_mode),
    ("framework", "RLMESH_FRAMEWORK", check_framework),
    ("device", "RLMESH_DEVICE", str),
)
