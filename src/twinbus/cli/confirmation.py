"""The question before something that cannot be undone, and the option that answers it."""

import sys
from typing import Annotated

import typer

from twinbus.cli.failures import CommandFailed
from twinbus.errors import ArgumentError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, is_agreed: bool, otherwise: str) -> None:
    """Returns if the person agrees, beforehand or now. Raises CommandFailed with `otherwise` if not."""
    if is_agreed:
        return
    try:
        is_agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        if sys.stdin.isatty():
            raise
        raise ArgumentError("There is no terminal to confirm this at. Add --yes.") from None
    if not is_agreed:
        raise CommandFailed(otherwise)
