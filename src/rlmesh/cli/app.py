"""The group of commands, and what becomes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rlmesh._version import __version__
from rlmesh.cli.check import check
from rlmesh.cli.completion import completion
from rlmesh.cli.passing import describe, serve
from rlmesh.cli.run import run
from rlmesh.cli.version import version

__all__ = ["app", "run_app"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="%(version)s")
def app() -> None:
    """Know how good a policy is, whichever process its simulator lives in.

    \b
    Evaluate a policy on a simulator, here or served elsewhere:
      rlmesh run my_policy:Policy my_sim:make_env --seeds 0:50
      rlmesh serve --env CartPole-v1 --address 127.0.0.1:5555
      rlmesh run my_policy:Policy 127.0.0.1:5555 --seeds 0:50
    Find out whether the simulator is fit for that:
      rlmesh check my_sim:make_env

    \b
    Exit status of every command:
      0    done: scored, passed, printed, or stopped in good order
      1    an error, or a check that failed; standard error tells
      2    the command line is wrong
      3    run: nothing, or not everything, was scored
      130  Ctrl-C

    Standard output has the result and nothing else; what is said on the way
    goes to standard error. COMMAND --help tells more, and so does docs/cli.md.
    """


for command in (run, serve, check, describe, version, completion):
    app.add_command(command)


def run_app(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Raises:
        SystemExit: the shell asked for completions, or ``serve`` refused its arguments.
    """
    arguments = None if argv is None else list(argv)
    try:
        status = app.main(arguments, standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read the output has left; that the interpreter flushes it must not be an error.
        sys.stdout = None
        return 1
    return status if isinstance(status, int) else 0
