"""`twinbus syphon` moves messages from the backlog queues of pairs to the primary; `twinbus backlog` shows them."""

import asyncio
import contextlib
import signal
import sys
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from twinbus.cli.command import DATA_DEFAULT, CaFileOption, Call, DataOption, JsonOption
from twinbus.cli.namespaces.running import find_known
from twinbus.cli.output import Output
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from twinbus.pairing.syphon.service import PairToDrain

SHOW_INTERVAL_S = 0.5

NAMESPACE_HELP = "A namespace that runs on this machine, or a connection string."
PrimaryOption = Annotated[str, typer.Option("--primary", envvar="TWINBUS_PRIMARY", help=NAMESPACE_HELP)]
SecondaryOption = Annotated[str, typer.Option("--secondary", envvar="TWINBUS_SECONDARY", help=NAMESPACE_HELP)]
PrimaryNameOption = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        help="Name of the primary in the names of its backlog queues; derived from its host if omitted.",
    ),
]
SecondaryEndpointOption = Annotated[
    str | None,
    typer.Option("--secondary-endpoint", help="HTTP address of the secondary, if it is not on the usual port."),
]
PairsOption = Annotated[
    Path | None,
    typer.Option(
        "--pairs", metavar="FILE", exists=True, dir_okay=False, help="TOML file with a table 'pair' for each pair."
    ),
]


@dataclass(frozen=True, slots=True)
class WantedPair:
    """Namespaces by name or connection string."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    primary_name: str | None = None
    secondary_endpoint: str | None = None


def register(app: typer.Typer) -> None:
    app.command("syphon")(syphon)
    app.command("backlog")(backlog)


def syphon(
    primary: PrimaryOption = "primary",
    secondary: SecondaryOption = "secondary",
    primary_name: PrimaryNameOption = None,
    secondary_endpoint: SecondaryEndpointOption = None,
    pairs: PairsOption = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="At most this many messages per second, for each pair.")
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Stop when nothing is left in the backlog.")
    ] = False,
    ca_file: CaFileOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Move messages from backlog queues to where they were sent, until Ctrl-C."""
    output = Output(as_json=as_json)
    found = _find(WantedPair(primary, secondary, primary_name, secondary_endpoint), pairs, data, output)
    asyncio.run(_run(found, rate, until_empty, output))
    output.table(
        ("pair", "backlog_queues", "moved", "left", "dead_lettered", "last_error"),
        [
            {
                "pair": number,
                "backlog_queues": len(pair.queues),
                "moved": pair.tally.moved,
                "left": pair.tally.left,
                "dead_lettered": pair.tally.dead_lettered,
                "last_error": None if pair.tally.last_error is None else str(pair.tally.last_error),
            }
            for number, pair in enumerate(found, 1)
        ],
    )


def backlog(
    primary: PrimaryOption = "primary",
    secondary: SecondaryOption = "secondary",
    primary_name: PrimaryNameOption = None,
    secondary_endpoint: SecondaryEndpointOption = None,
    pairs: PairsOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show how many messages wait in each backlog queue, by destination."""
    output = Output(as_json=as_json)
    found = _find(WantedPair(primary, secondary, primary_name, secondary_endpoint), pairs, data, output)
    output.table(("queue", "destination", "waiting", "size_bytes", "is_all"), asyncio.run(_survey(found)))


async def _survey(pairs: "Sequence[PairToDrain]") -> list[dict[str, Any]]:
    from twinbus.client.namespace import Namespace
    from twinbus.pairing.syphon.survey import survey

    rows: list[dict[str, Any]] = []
    for pair in pairs:
        async with await Namespace.connect(pair.secondary) as namespace:
            rows += [
                {
                    "queue": each.queue,
                    "destination": each.path,
                    "waiting": each.count,
                    "size_bytes": each.size_bytes,
                    "is_all": each.is_all,
                }
                for each in await survey(namespace, pair.queues)
            ]
    return rows


def _find(single: WantedPair, file: Path | None, data: Path, output: Output) -> "list[PairToDrain]":
    from twinbus.pairing.syphon.service import find_backlog

    found = []
    for each in [single] if file is None else read_pairs(file):
        home = connection_string_of_primary(each.primary, data)
        spare = Call.to(each.secondary, each.secondary_endpoint, data, output)
        found.append(find_backlog(home, spare.connection_string, spare.administration(), each.primary_name))
    return found


def read_pairs(file: Path) -> list[WantedPair]:
    """[[pair]] tables with `primary`, `secondary` and, where needed, `primary_name` and `secondary_endpoint`."""
    try:
        pairs = [WantedPair(**table) for table in tomllib.loads(file.read_text(encoding="utf-8")).get("pair", [])]
        texts = [text for pair in pairs for text in (getattr(pair, each.name) for each in fields(pair))]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{file} is not TOML: {error}.") from None
    except TypeError:
        names = ", ".join(each.name for each in fields(WantedPair))
        raise ArgumentError(f"A [[pair]] of {file} needs primary and secondary, and may have: {names}.") from None
    if not all(isinstance(text, str | None) for text in texts):
        raise ArgumentError(f"A value in a [[pair]] of {file} is not a string. Put it in quotes.")
    if not pairs:
        raise ArgumentError(f"{file} has no [[pair]] table.")
    return pairs


def connection_string_of_primary(given: str, data: Path) -> str:
    """Also of a namespace that is down: the backlog is needed in an outage, and a syphon waits for its end."""
    return given if "=" in given else find_known(data, given).connection_string


async def _run(pairs: "Sequence[PairToDrain]", rate: float | None, until_empty: bool, output: Output) -> None:
    from twinbus.clock import SteadyClock
    from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
    from twinbus.pairing.syphon.service import run_syphons

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    options = SendAvailabilityPairedNamespaceOptions(syphon_messages_per_second_max=rate)
    async with _shown(pairs, output):
        await run_syphons(pairs, options, SteadyClock(), stop, until_empty=until_empty)


@contextlib.asynccontextmanager
async def _shown(pairs: "Sequence[PairToDrain]", output: Output) -> "AsyncIterator[None]":
    """Report why messages are left as it happens, and on a terminal show a bar per pair: how much of what waited at the
    start was moved."""
    with contextlib.ExitStack() as ending:
        tasks = [asyncio.create_task(_report_errors(pairs))]
        if output.console.is_terminal and not output.as_json:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            progress = ending.enter_context(Progress(*columns, console=output.console))
            tasks.append(asyncio.create_task(_show(pairs, progress)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _report_errors(pairs: "Sequence[PairToDrain]") -> None:
    """A syphon waits as long as a destination is down or refuses messages, so the reason is printed meanwhile."""
    reported: dict[int, str] = {}
    while True:
        for number, pair in enumerate(pairs, 1):
            error = pair.tally.last_error
            text = "" if error is None else " ".join(str(error).split())
            if text != reported.get(number, ""):
                reported[number] = text
                print(f"twinbus: pair {number}: {text}", file=sys.stderr, flush=True)
        await asyncio.sleep(SHOW_INTERVAL_S)


async def _show(pairs: "Sequence[PairToDrain]", progress: Progress) -> None:
    waiting = await asyncio.gather(*(asyncio.to_thread(_waiting, pair) for pair in pairs))
    bars = [
        progress.add_task(f"pair {number}", total=pair.tally.moved + count)
        for number, (pair, count) in enumerate(zip(pairs, waiting, strict=True), 1)
    ]
    while True:
        for bar, pair in zip(bars, pairs, strict=True):
            done = pair.tally.moved + pair.tally.dead_lettered
            total = max(progress.tasks[bar].total or 0, done)
            progress.update(bar, completed=done, total=total)
        await asyncio.sleep(SHOW_INTERVAL_S)


def _waiting(pair: "PairToDrain") -> int:
    """0 if the namespace does not answer: the bar grows as messages are moved, and the syphon waits anyway."""
    from azure.core.exceptions import AzureError

    try:
        return pair.waiting_count()
    except AzureError:
        return 0
