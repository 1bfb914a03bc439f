"""``rlmesh run``: evaluate a policy from the shell."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rlmesh.cli.ending import Ended, Terminated, complain_of, report, status_of
from rlmesh.cli.making import bind_model, check_words, close_aloud, load_model, make_envs
from rlmesh.cli.output import check_writable, only_results
from rlmesh.cli.parameters import json_object, seed_list

if TYPE_CHECKING:
    from rlmesh.evals.engine import Request

__all__ = ["run"]

_COUNT, _WHOLE = click.IntRange(1), click.IntRange(0)


_file = click.Path(dir_okay=False, path_type=Path)
_json: dict[str, Any] = {"callback": json_object, "metavar": "JSON"}

_OPTIONS = [
    click.option(
        "--seeds", callback=seed_list, metavar="SEEDS", help="One episode each: 0:50, 0,1,7."
    ),
    click.option(
        "--episodes",
        type=_WHOLE,
        metavar="N",
        help="How many; past the last seed they are unseeded. Default: one a seed, or one.",
    ),
    click.option("--model-kwargs", **_json, help="Keyword arguments of the Model's load()."),
    click.option("--env-kwargs", **_json, help="Keyword arguments of what makes each ENV."),
    click.option("--lanes", type=_COUNT, metavar="N", help="Make N of each ENV. Default: 1."),
    click.option(
        "--package",
        "packages",
        multiple=True,
        metavar="P",
        help="Import P first, which registers envs. May be repeated.",
    ),
    click.option(
        "--replica",
        "replicas",
        multiple=True,
        metavar="ADDRESS",
        help="Another copy of a served MODEL. May be repeated.",
    ),
    click.option("--max-episode-steps", type=_COUNT, metavar="N", help="Truncate at that step."),
    click.option(
        "--max-episode-seconds", type=float, metavar="S", help="Truncate after that long."
    ),
    click.option(
        "--horizon",
        type=int,
        default=1,
        metavar="K",
        help="Actions of a chunk to execute before predicting again. Default: 1.",
    ),
    click.option(
        "--prefetch-lead",
        type=_WHOLE,
        default=0,
        metavar="M",
        help="Predict the next chunk while M actions are left. Default: 0.",
    ),
    click.option(
        "--instruction", metavar="TEXT", help="Fills the text leaves of the model's spec."
    ),
    click.option(
        "--trust-entrypoints", is_flag=True, help="Let the model's spec name code to import."
    ),
    click.option(
        "--trial-index-base",
        type=_WHOLE,
        default=0,
        metavar="N",
        help="The trial of the first episode, for envs that take one. Default: 0.",
    ),
    click.option(
        "--pushdown", is_flag=True, help="Let the envs' servers shrink cameras to what is read."
    ),
    click.option("--max-batch", type=_COUNT, metavar="N", help="Most lanes in one prediction."),
    click.option(
        "--batch-wait-ms",
        type=float,
        metavar="MS",
        help="Longest wait for more lanes. Default: found by the run.",
    ),
    click.option(
        "--retries",
        type=_WHOLE,
        default=0,
        metavar="N",
        help="Run an episode again, N times at most, when its server is lost. Default: 0.",
    ),
    click.option(
        "--journal",
        type=_file,
        metavar="FILE",
        help="Keep every finished episode there; the same command goes on from it.",
    ),
    click.option("--out", type=_file, metavar="FILE", help="Write the result there, as JSON."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--table", is_flag=True, help="Print a line an episode instead of a summary."),
    click.option(
        "--score",
        type=click.Choice(["success", "reward"]),
        default="success",
        help="What an episode must have to be scored: a success or failure that its env "
        "reports (the default), or a finite reward.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    click.option("--verbose", is_flag=True, help="Show the traceback of an error."),
]
"""In the order of the help."""


def _options(function: Any) -> Any:
    """Give ``function`` the options."""
    for decorate in reversed(_OPTIONS):
        function = decorate(function)
    return function


@click.command(short_help="Evaluate a policy on one env or several.")
@click.argument("model", metavar="MODEL")
@click.argument("envs", metavar="ENV...", nargs=-1, required=True)
@_options
def run(model: str, envs: tuple[str, ...], **options: Any) -> int:
    """Evaluate MODEL on ENV, and report the success rate with its 95 % interval.

    \b
    MODEL is
      module:Class  a Model subclass, a policy class or object with predict(),
                    or a function of one observation
      host:port     a served model, or unix:///path
      random        samples of the action space, a baseline
    ENV is
      module:name   an EnvFactory, an env class, or a function that returns one
      CartPole-v1   a registered Gymnasium env; gym:ID where that is in doubt
      host:port     a served env, or unix:///path

    Several ENVs, of equal spaces, are driven together. Modules are also looked
    for in the current folder. What servers ask for is taken from $RLMESH_TOKEN.

    \b
    Examples:
      rlmesh run my_policy:Policy CartPole-v1 --seeds 0:50 --lanes 4
      rlmesh run random my_sim:make --env-kwargs '{"task": "pick"}' --json
      rlmesh run my_policy:Policy sim-a:5555 sim-b:5555 --seeds 0:500 \\
          --retries 2 --journal run.jsonl --out result.json

    \b
    Exit status:
      0    every episode asked for was scored: its env reported success or
           failure (with --score reward: its reward is finite)
      1    an error; what was finished before is printed and written
      2    the command line is wrong, and nothing was run
      3    nothing, or not everything, was scored
      130  Ctrl-C (143: SIGTERM); what was finished is printed and written

    --json prints one document: totals, episodes, lost attempts ("errors"), how
    many episodes were "asked" for, and what the run was "stopped_by", or null. A
    number that is not finite is null. --out writes the same, whole or not at
    all, and not at all if no episode could begin.
    """
    out: Path | None = options["out"]
    request = _request(model, envs, options)
    if out is not None:
        check_writable(out)
    with only_results() as stdout, _sigterm_ends(), contextlib.ExitStack() as made:
        ended = _evaluate(model, envs, request, options, made)
        complain_of(ended.error, verbose=options["verbose"])
        asked = len(request.seeds)
        written = report(
            ended, asked, stdout, out=out, as_json=options["as_json"], table=options["table"]
        )
        return status_of(ended, asked, by=options["score"]) if written else 1


def _request(model: str, envs: tuple[str, ...], options: dict[str, Any]) -> Request:
    """Return what is asked for, once nothing about it is impossible; nothing was imported."""
    check_words(
        model,
        options["replicas"],
        envs,
        model_kwargs=options["model_kwargs"],
        env_kwargs=options["env_kwargs"],
        lanes=options["lanes"],
    )
    from rlmesh.evals.engine import check_request
    from rlmesh.models import check_horizon

    names = (
        *("seeds", "episodes", "max_episode_steps", "max_episode_seconds", "prefetch_lead"),
        *("retries", "max_batch", "batch_wait_ms", "journal", "pushdown", "trial_index_base"),
    )
    given = {name: options[name] for name in names}
    try:
        check_horizon(options["horizon"])
        return check_request(hooks=None, max_episodes=None, progress=not options["quiet"], **given)
    except (TypeError, ValueError) as exc:
        raise click.UsageError(str(exc)) from None


def _evaluate(
    word: str,
    envs: tuple[str, ...],
    request: Request,
    options: dict[str, Any],
    made: contextlib.ExitStack,
) -> Ended:
    """Run it; what was made for it is closed by ``made``, after the result is out."""
    from rlmesh.evals.engine import partial_result
    from rlmesh.evals.run import session
    from rlmesh.serve.model_sources import close_quietly

    kwargs: dict[str, Any] = options["env_kwargs"] or {}
    try:
        model = load_model(word, options["replicas"])
        targets = make_envs(envs, kwargs, options["lanes"] or 1, options["packages"], made)
        with contextlib.ExitStack() as unused:
            model = bind_model(model, options["model_kwargs"], word)
            if options["model_kwargs"] is not None:
                unused.callback(close_quietly, model)
            driven = session(
                model,
                targets if len(targets) > 1 else targets[0],
                instruction=options["instruction"],
                trust_entrypoints=options["trust_entrypoints"] or None,
                execution_horizon=options["horizon"],
            )
            unused.pop_all()  # the session closes it
        try:
            result = driven.execute(request, last=True, config=_binding(options))
        except BaseException as exc:
            driven.abort(exc)
            raise
        made.callback(close_aloud, "the session", driven.close)
    except (Exception, KeyboardInterrupt, SystemExit) as exc:
        return Ended(partial_result(exc), exc)
    return Ended(result)


def _binding(options: dict[str, Any]) -> dict[str, Any]:
    """Return what makes model and envs others than their names say: a journal must agree on it."""
    names = ("model_kwargs", "env_kwargs")
    return {name: options[name] for name in names if options[name]}


@contextlib.contextmanager
def _sigterm_ends() -> Generator[None, None, None]:
    """End the run at the first SIGTERM, as Ctrl-C would; the second one kills."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
