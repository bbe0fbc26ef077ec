"""`completion`: scripts that let bash, zsh and fish complete `magnetar`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from magnetar.cli.session import HELP
from magnetar.command_names import COMPLETE_VARIABLE


@click.command(context_settings=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  magnetar completion bash > ~/.local/share/bash-completion/completions/magnetar
    zsh   magnetar completion zsh > "${fpath[1]}/_magnetar"
    fish  magnetar completion fish > ~/.config/fish/completions/magnetar.fish
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from magnetar.cli.main import completed_group  # noqa: PLC0415 - the table of commands names this module

    found = get_completion_class(shell)
    assert found is not None, "click knows these three"
    click.echo(found(completed_group(), {}, "magnetar", COMPLETE_VARIABLE).source())
