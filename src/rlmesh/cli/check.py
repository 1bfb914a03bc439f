"""``rlmesh check``: an env against its own contract, from the shell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rlmesh.cli.making import is_local, token
from rlmesh.cli.output import only_results, strict_json
from rlmesh.cli.parameters import json_object

if TYPE_CHECKING:
    from rlmesh.checks.findings import CheckReport

__all__ = ["check"]


@click.command(short_help="Check an env against its own contract.")
@click.argument("target", metavar="TARGET")
@click.option(
    "--env-kwargs", callback=json_object, metavar="JSON", help="What makes it is given this."
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="P",
    help="Import P first, which registers envs; may be repeated.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=100,
    metavar="N",
    help="Steps of each play (default 100). Ends of longer episodes are not seen.",
)
@click.option("--seed", type=int, default=0, metavar="S", help="The first seed (default 0).")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    metavar="S",
    help="Longest time for one check (default 300 s).",
)
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON document.")
def check(target: str, packages: tuple[str, ...], **options: Any) -> int:
    """Check whether evaluations on TARGET can be trusted.

    \b
    TARGET is
      module:name   an EnvFactory, an env class, or a function that returns one;
                    single and vector envs
      CartPole-v1   a registered Gymnasium env; gym:ID where that is in doubt
      host:port     a served env, or unix:///path, of which the outside is seen

    The same seed is played with the same random actions again after another
    one, beside another instance, in another process, on another thread and over
    a socket, and compared to the bit. On the way it looks at spaces, rewards,
    infos, metadata, frames, outcomes, the autoreset of vector envs, and times.
    An env that crashes or hangs is a finding: it runs in a process of its own.

    \b
    Examples:
      rlmesh check my_sim:make --env-kwargs '{"task": "pick"}' --steps 500
      rlmesh check 127.0.0.1:5555 --json

    \b
    A finding is one of
      FAIL          an evaluation would be wrong, or break
      warn          it works, and there is something to know
      not checked   and why
      ok

    \b
    Exit status:
      0    nothing failed
      1    something failed
      2    the command line is wrong
      130  Ctrl-C
    """
    with only_results() as stdout:
        report = _check(target, packages, options)
        text = strict_json(report.to_dict()) if options["as_json"] else str(report)
        print(text, file=stdout, flush=True)
    return 0 if report.passed else 1


def _check(target: str, packages: tuple[str, ...], options: dict[str, Any]) -> CheckReport:
    from rlmesh.transport.address import parse_address

    kwargs: dict[str, Any] | None = options["env_kwargs"]
    steps, seed = options["steps"], options["seed"]
    if is_local(target):
        from rlmesh.checks.apart import check_apart

        return check_apart(
            target.removeprefix("gym:"),
            kwargs or {},
            packages,
            steps=steps,
            seed=seed,
            timeout=options["timeout"],
            on_begin=_show,
        )
    if kwargs is not None:
        raise click.UsageError(f"--env-kwargs: only for an env that is made here, not {target}")
    try:
        parse_address(target)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None
    from rlmesh.checks.checking import check_target

    return check_target(target, {}, packages, steps=steps, seed=seed, token=token(), on_begin=_show)


def _show(name: str) -> None:
    """Show on a terminal what is being checked."""
    if sys.stderr.isatty():
        print(f"\rchecking {name:12}\r", end="", file=sys.stderr, flush=True)
