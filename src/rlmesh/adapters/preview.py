"""One HTML page that shows what a policy will see, before an episode is wasted on it.

Each camera before and after, side by side; each state vector element by element, with names; what
the env gets for a unit action; the plan and its advisories. The page is one file without scripts,
links or requests.

    python -m rlmesh.adapters.preview --env my_sims:PickPlace --model my_policy:Policy \\
        --out preview.html

`--env` is ``module:name`` or a registered Gymnasium id; where it publishes no tags, `--tags` names
them. `--model` is ``module:name`` of a model class, a spec, or a function that returns one, such as
``rlmesh.adapters.presets:openpi_libero``. Exit status: 0, 1 on an error, 2 for a wrong command
line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlmesh.adapters.adapter import Adapter
from rlmesh.adapters.advisory import Advisory
from rlmesh.adapters.check import check, tags_of
from rlmesh.adapters.preview_html import page
from rlmesh.adapters.preview_views import action_views, camera_views, text_views, vector_views
from rlmesh.adapters.resolution import resolve
from rlmesh.adapters.targets import make_env, spec_of, tags_named

__all__ = ["main", "preview"]


def preview(
    adapter: Adapter,
    observation: Any,
    *,
    title: str = "What the policy sees",
    subtitle: str = "",
    findings: Sequence[Advisory] = (),
) -> str:
    """Return the page for one raw observation of the adapter's env.

    The adapter's memory is neither used nor changed: stacked frames are those of a first step.

    Args:
        adapter: as :func:`~rlmesh.adapters.resolve` gives it.
        observation: what the env's reset or step returned.
        title: the page's heading.
        subtitle: a line under it.
        findings: more advisories than the adapter's own, such as those of
            :func:`~rlmesh.adapters.check.check`.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: the observation lacks a leaf the plan reads.
    """
    plan = adapter.plan
    fresh = Adapter(plan)
    payload = fresh.transform_obs(observation)
    return page(
        title=title,
        subtitle=subtitle or repr(adapter),
        cameras=list(camera_views(plan, observation, payload)),
        vectors=list(vector_views(plan, observation, payload)),
        texts=list(text_views(plan, payload)),
        actions=list(action_views(plan.action, fresh.transform_action)),
        explain=adapter.explain(),
        advisories=[*adapter.advisories(), *findings],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Raises:
        SystemExit: the command line is wrong (2), or asked for help (0).
    """
    arguments = _parser().parse_args(argv)
    try:
        text = _page_of(arguments)
        Path(arguments.out).write_text(text, encoding="utf-8")
    except Exception as exc:
        message = " ".join(str(exc).split()) or type(exc).__name__
        print(f"rlmesh.adapters.preview: error: {message}", file=sys.stderr)
        return 1
    print(arguments.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlmesh.adapters.preview",
        description="Write one HTML page that shows what a policy sees of an env.",
        allow_abbrev=False,
    )
    parser.add_argument("--env", required=True, metavar="ENV", help="module:name or a Gymnasium id")
    parser.add_argument("--model", required=True, metavar="MODEL", help="module:name")
    parser.add_argument(
        "--tags", metavar="TAGS", help="module:name of EnvTags, for an env that publishes none"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="page to write")
    parser.add_argument("--seed", type=int, default=0, help="of the env (default 0)")
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        help="look at the observation after this many random actions (default 0: the first one)",
    )
    parser.add_argument(
        "--check", action="store_true", help="also run a few steps and add what looks wrong"
    )
    return parser


def _page_of(arguments: argparse.Namespace) -> str:
    spec = spec_of(arguments.model)
    env = make_env(arguments.env)
    try:
        tags = tags_named(arguments.tags) if arguments.tags else tags_of(env)
        adapter = resolve(tags, env.observation_space, env.action_space, spec)
        findings = check(env, spec, seed=arguments.seed, tags=tags) if arguments.check else []
        observation, _ = env.reset(seed=arguments.seed)
        env.action_space.seed(arguments.seed)
        for _ in range(arguments.steps):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()
        return preview(
            adapter,
            observation,
            title=f"What {arguments.model} sees of {arguments.env}",
            subtitle=f"seed {arguments.seed}, after {arguments.steps} random actions",
            findings=findings,
        )
    finally:
        env.close()


if __name__ == "__main__":
    sys.exit(main())
