"""Options that the commands about money share."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.namespaces.running import all_running
from twinbus.client.namespace_http import FLUSH_TIMEOUT_S, NamespaceRefused
from twinbus.errors import ArgumentError
from twinbus.model.durations import NEVER_DELTA, millis_of, parse_duration, short_duration
from twinbus.model.pairing_limits import PING_INTERVAL_DEFAULT, SYPHON_POLL

SYPHON_POLL_TEXT = short_duration(millis_of(SYPHON_POLL))
PING_INTERVAL_TEXT = short_duration(millis_of(PING_INTERVAL_DEFAULT))

PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices", metavar="FILE", envvar="TWINBUS_PRICES", help="Price sheet; a built-in example if omitted."
    ),
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", help="Plan of the price sheet, such as standard; its default plan if omitted.")
]
LogsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[LOG]...", help="Folders of operations logs; those of all namespaces below --data if omitted."
    ),
]


def find_logs(given: Sequence[Path] | None, data: Path) -> list[Path]:
    """Those given, or those of all namespaces below `data`, including what running ones did until now."""
    if given:
        return list(given)
    from twinbus.server.data.data_folder import OPERATIONS_FOLDER

    found = {path.absolute() for path in data.glob(f"*/{OPERATIONS_FOLDER}") if path.is_dir()}
    for running in all_running(data):
        # A namespace that keeps no log, or does not answer, has nothing to add.
        with suppress(NamespaceRefused):
            answer = running.ask("POST", "/$meter/flush", timeout_s=FLUSH_TIMEOUT_S)
            folder = Path(answer["operations"]).absolute()
            # The folder does not exist before the first operation.
            found |= {folder} if folder.is_dir() else set()
    if not found:
        raise ArgumentError(
            f"No namespace below {data} has operations in its log. Use a namespace there, or give the folder of a log."
        )
    return sorted(found)


def duration_option(option: str, text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ArgumentError as wrong:
        raise ArgumentError(f"{option}: {wrong}") from None
    if duration >= NEVER_DELTA:
        raise ArgumentError(f"{option}: 'never' is not a length. Write it like 30s, 5m, 1h or 7d.")
    return duration
