"""Commands whose arguments another parser reads: ``rlmesh serve`` and ``rlmesh describe``.

They work without click, too, as ``python -m rlmesh.serve`` and ``python -m rlmesh.describe``; one
parser each serves both names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rlmesh.cli.output import leave_to_result

if TYPE_CHECKING:
    import argparse

__all__ = ["describe", "serve"]


class _Passing(click.Command):
    """Leaves all of its arguments to a parser of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["argv"] = list(args)
        return []

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        flags: dict[str, Any] = self.parser()._option_string_actions  # pyright: ignore[reportPrivateUsage]
        return [
            CompletionItem(flag, help=action.help)
            for flag, action in flags.items()
            if incomplete.startswith("-") and flag.startswith(incomplete)
        ]

    def parser(self) -> argparse.ArgumentParser:
        """Return what reads the arguments."""
        raise NotImplementedError


class _Serve(_Passing):
    def parser(self) -> argparse.ArgumentParser:
        from rlmesh.serve.arguments import make_parser

        return make_parser("rlmesh serve")


class _Describe(_Passing):
    def parser(self) -> argparse.ArgumentParser:
        from rlmesh.describing.command import make_parser

        return make_parser("rlmesh describe")


@click.command(cls=_Serve, short_help="Serve a model or an env until it is stopped.")
def serve(argv: list[str]) -> int:
    """Do what ``python -m rlmesh.serve`` does."""
    from rlmesh.serve import main

    return main(argv, prog="rlmesh serve")


@click.command(cls=_Describe, short_help="Print what is known of an env or model, as JSON.")
def describe(argv: list[str]) -> int:
    """Do what ``python -m rlmesh.describe`` does."""
    from rlmesh.describing.command import main

    status = main(argv, prog="rlmesh describe")
    leave_to_result()
    return status
