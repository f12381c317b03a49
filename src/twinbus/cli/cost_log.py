"""`twinbus cost explain` and `twinbus cost what-if`: questions to a log of operations."""

import typer


def register(app: typer.Typer) -> None:
    pass
