"""The command ``python -m rlmesh.describe``: an envelope on standard output, and nothing else.

Exit status: 0 with an envelope, however many error badges are in it (each is told on standard
error); 1 without one, or with ``--check`` when something fails; 2 for a wrong command line; 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Generator, Sequence
from typing import Any, NoReturn, cast

from rlmesh.describing.envelope import check_time, describe_json

__all__ = ["LABEL", "PROG", "main", "make_parser", "program"]

PROG = "python -m rlmesh.describe"

LABEL = "dev.rlmesh.describe"
"""The image label that holds an envelope."""


def program() -> NoReturn:
    """Run the command as a process: what the author's code prints at exit is kept apart, too."""
    status = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        os.dup2(2, 1)
    sys.exit(status)


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Run the command and return its exit status.

    Args:
        argv: the arguments; default those of the process.
        prog: what the command is called in its usage.

    Raises:
        SystemExit: the command line is wrong (2), or asked for help (0).
    """
    parser = make_parser(prog)
    given = parser.parse_args(argv)
    target, kind = _named(parser, given)
    _check_flags(parser, given)
    if given.check:
        return _check(target, kind, as_json=given.json)
    try:
        with _prints_to_stderr():
            text = describe_json(target, kind=kind, generated_at=given.generated_at)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:
        message = " ".join(str(exc).split()) or type(exc).__name__
        print(f"rlmesh.describe: error: {message}", file=sys.stderr)
        return 1
    for place, message in _badges(json.loads(text)):
        print(f"rlmesh.describe: note: {place}: {message}", file=sys.stderr)
    return _put(f"{LABEL}={text}" if given.label else text, given.out)


def _named(parser: argparse.ArgumentParser, given: Any) -> tuple[str, str | None]:
    """Return what to describe and what kind it was said to be."""
    kinds = [kind for kind in ("env", "model") if getattr(given, kind) is not None]
    named = [n for n in (given.target, given.env, given.model) if n]
    if len(named) != 1 or len(kinds) > 1:
        parser.error("expected exactly one MODULE:NAME, and at most one of --env and --model")
    return named[0], kinds[0] if kinds else None


def _check_flags(parser: argparse.ArgumentParser, given: Any) -> None:
    if given.check and (given.label or given.out or given.generated_at):
        parser.error("--check prints a report; --label, --out and --generated-at are for envelopes")
    if given.json and not given.check:
        parser.error("--json is for --check; an envelope is JSON anyway")
    try:
        check_time(given.generated_at)
    except ValueError as exc:
        parser.error(f"--generated-at: {exc}")


def _check(target: str, kind: str | None, *, as_json: bool) -> int:
    from rlmesh.describing.checked import check_entrypoint, report_lists

    try:
        with _prints_to_stderr():
            report = check_entrypoint(target, kind=kind)
    except KeyboardInterrupt:
        return 130
    print(json.dumps(report_lists(report)) if as_json else report)
    return 0 if report.passed else 1


def _put(text: str, out: str | None) -> int:
    # As bytes: the encoding of a terminal must not change them.
    data = (text + "\n").encode("utf-8")
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return 0
    try:
        with open(out, "wb") as file:
            file.write(data)
    except OSError as exc:
        print(f"rlmesh.describe: error: --out {out}: {exc.strerror}", file=sys.stderr)
        return 1
    return 0


def _badges(part: Any, place: str = "") -> Generator[tuple[str, str], None, None]:
    """Yield where an envelope has an error, and what it says."""
    if isinstance(part, dict):
        for name, value in cast("dict[str, Any]", part).items():
            if name == "error" or name.endswith("_error"):
                where = place if name == "error" else f"{place}.{name}".strip(".")
                yield where, str(value)
            elif name != "metadata":
                yield from _badges(value, f"{place}.{name}".strip("."))
    elif isinstance(part, list):
        for index, value in enumerate(cast("list[Any]", part)):
            yield from _badges(value, f"{place}[{index}]")


@contextlib.contextmanager
def _prints_to_stderr() -> Generator[None, None, None]:
    """Send what is printed meanwhile, by Python or anything below it, to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the parser, for a command that goes by ``prog``."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s (MODULE:NAME | --env MODULE:NAME | --model MODULE:NAME) [options]",
        description="Print what can be known of an env or model without running it, as one line of "
        "JSON. An env is built once, to read its spaces; of a model nothing is loaded.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "target",
        nargs="?",
        metavar="MODULE:NAME",
        help="an EnvFactory, an env or its class; a Model, a policy or its class",
    )
    add(
        "--env",
        nargs="?",
        const="",
        metavar="MODULE:NAME",
        help="an env, or anything that returns one",
    )
    add(
        "--model",
        nargs="?",
        const="",
        metavar="MODULE:NAME",
        help="a model, or a predict function",
    )
    add("--label", action="store_true", help=f"print {LABEL}=..., for docker build --label")
    add("--out", metavar="FILE", help="write to FILE instead of standard output")
    add(
        "--generated-at",
        metavar="TIME",
        help="an RFC 3339 time to put on it; without one the output is reproducible",
    )
    add(
        "--check",
        action="store_true",
        help="instead, say what is wrong with it as far as that shows without running it",
    )
    add("--json", action="store_true", help="with --check: the report as JSON")
    return parser
