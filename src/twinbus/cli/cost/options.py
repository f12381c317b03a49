"""Options that the commands about money share."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.namespaces.running import all_running
from twinbus.client.namespace_http import NamespaceRefused
from twinbus.errors import ArgumentError
from twinbus.model.durations import NEVER_DELTA, parse_duration

LOG_FOLDER = "operations"
"""Of a namespace's data folder."""

PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", envvar="TWINBUS_PRICES", help="Price sheet; an example is built in."),
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", help="Plan of the price sheet, such as standard; its default plan if not given.")
]
LogsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[LOG]...", help="Folders of operations logs; those of all namespaces below --data if none is given."
    ),
]


def find_logs(given: Sequence[Path] | None, data: Path) -> list[Path]:
    """Those given, or those of all namespaces below `data`, with all that the running ones did until now."""
    if given:
        return list(given)
    found = {path.absolute() for path in data.glob(f"*/{LOG_FOLDER}") if path.is_dir()}
    for running in all_running(data):
        # One that keeps no log, or does not answer, has nothing to add to what is there.
        with suppress(NamespaceRefused):
            answer = running.ask("POST", "/$meter/flush")
            folder = Path(answer["operations"]).absolute()
            # There is none yet where nothing was done yet.
            found |= {folder} if folder.is_dir() else set()
    if not found:
        raise ArgumentError(
            f"No namespace below {data} has anything in its operations log. Use one there, or give the folder of a log."
        )
    return sorted(found)


def duration_option(option: str, text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ArgumentError as wrong:
        raise ArgumentError(f"{option}: {wrong}") from None
    if duration >= NEVER_DELTA:
        raise ArgumentError(f"{option}: 'never' has no length. Write it like 30s, 5m, 1h or 7d.")
    return duration
