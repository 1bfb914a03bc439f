"""``rlmesh completion``: what makes a shell complete the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


@click.command(short_help="Print the script that makes a shell complete rlmesh.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the completion script of SHELL.

    \b
    bash, 4.4 or newer, in ~/.bashrc:
      eval "$(rlmesh completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(rlmesh completion zsh)"
    fish:
      rlmesh completion fish > ~/.config/fish/completions/rlmesh.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "rlmesh", "_RLMESH_COMPLETE").source())
    return 0
