"""`twinbus rehearse`: an outage on purpose, with every message that was sent accounted for."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, CaFileOption, Call, DataOption, JsonOption
from twinbus.cli.cost.options import duration_option
from twinbus.cli.output import Output
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.errors import ArgumentError
from twinbus.model.durations import millis_of, short_duration
from twinbus.model.pairing_limits import FAILOVER_INTERVAL_MAX, PING_INTERVAL_MAX, PING_INTERVAL_MIN
from twinbus.rehearsal.interruption import ending_signals_interrupt
from twinbus.rehearsal.rehearsal_settings import Engine
from twinbus.rehearsal.script import DURATION_DEFAULT_S, SCRIPTS, FaultKind, Script
from twinbus.rehearsal.script_file import read_script
from twinbus.rehearsal.traffic import RATE_DEFAULT

if TYPE_CHECKING:
    from twinbus.rehearsal.drain import Drain
    from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
    from twinbus.rehearsal.report import RehearsalReport
    from twinbus.rehearsal.stage import Place, Stage

DEFAULT = "outage"
NAMESPACE_HELP = "A namespace that runs on this machine, or a connection string; a temporary one if omitted."


TRAFFIC_MIN, TRAFFIC_MAX = timedelta(seconds=1), timedelta(days=7)
BARE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


def register(app: typer.Typer) -> None:
    app.command("rehearse")(rehearse)


def rehearse(
    script: Annotated[
        str | None,
        typer.Option(
            "--script",
            metavar="NAME|FILE",
            help=f"One of {', '.join(SCRIPTS)}, or a TOML or JSON file of faults; see docs/how-to/rehearse.md.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Determines the traffic and the exact start of faults.")] = 0,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration", metavar="DURATION", help=f"Length of the traffic; {DURATION_DEFAULT_S:g}s without a script."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", help="Messages per second, for each of the two senders.")
    ] = RATE_DEFAULT,
    engine: Annotated[
        Engine | None,
        typer.Option("--engine", help="What moves the backlog to the primary; if omitted, Spark if it is installed."),
    ] = None,
    failover_interval: Annotated[
        str,
        typer.Option(
            "--failover-interval", metavar="DURATION", help="How long an entity may fail before it fails over."
        ),
    ] = "1s",
    ping_interval: Annotated[
        str,
        typer.Option(
            "--ping-interval", metavar="DURATION", help="Time between pings of an entity that has failed over."
        ),
    ] = "2s",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report with plots to one HTML file.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="Price sheet for the bill; a built-in example if omitted."),
    ] = None,
    primary: Annotated[
        str | None, typer.Option("--primary", envvar="TWINBUS_REHEARSAL_PRIMARY", help=NAMESPACE_HELP)
    ] = None,
    secondary: Annotated[
        str | None, typer.Option("--secondary", envvar="TWINBUS_REHEARSAL_SECONDARY", help=NAMESPACE_HELP)
    ] = None,
    primary_endpoint: Annotated[
        str | None,
        typer.Option("--primary-endpoint", help="HTTP address of the primary, if it is not on the usual port."),
    ] = None,
    secondary_endpoint: Annotated[
        str | None,
        typer.Option("--secondary-endpoint", help="HTTP address of the secondary, if it is not on the usual port."),
    ] = None,
    allow: Annotated[
        list[FaultKind] | None,
        typer.Option("--allow", help="With existing namespaces: a kind of fault that may be caused."),
    ] = None,
    ca_file: CaFileOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Rehearse an outage on a temporary pair of namespaces and account for every message.

    The exit code is 1 if the ledger does not balance.
    """
    from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
    from twinbus.rehearsal.spark_drain import choose_engine

    output = Output(as_json=as_json)
    if (primary is None) != (secondary is None):
        raise ArgumentError("Give both --primary and --secondary, or neither for a temporary pair.")
    if allow and primary is None:
        raise ArgumentError("--allow is for existing namespaces; on a temporary pair everything is allowed.")
    able, drain = choose_engine(engine)
    settings = RehearsalSettings(
        seed=seed,
        rate=rate,
        engine=able,
        failover_interval_s=_seconds("--failover-interval", failover_interval, timedelta(0), FAILOVER_INTERVAL_MAX),
        ping_interval_s=_seconds("--ping-interval", ping_interval, PING_INTERVAL_MIN, PING_INTERVAL_MAX),
    )
    length = None if duration is None else _seconds("--duration", duration, TRAFFIC_MIN, TRAFFIC_MAX)
    named = SCRIPTS.get(script or DEFAULT)
    chosen = named(length or DURATION_DEFAULT_S) if named is not None else read_script(Path(script or ""), length)
    if named is not None and primary is not None:
        chosen = _allowed(chosen, allow or ())
    read_price_sheet(prices)
    if report is not None:
        _check_writable(report)
    with (
        ending_signals_interrupt(),
        _stage(primary, secondary, primary_endpoint, secondary_endpoint, allow, data) as stage,
    ):
        found = _run(stage, chosen, settings, drain, prices, output)
    _show(found, report, output)


def _seconds(option: str, text: str, low: timedelta, high: timedelta) -> float:
    """A bare number is one of seconds."""
    given = timedelta(seconds=float(text)) if BARE.fullmatch(text) else duration_option(option, text)
    if not low <= given <= high:
        limits = (short_duration(millis_of(each)) for each in (low, high))
        raise ArgumentError(f"{option}: choose {' to '.join(limits)}.")
    return given.total_seconds()


def _allowed(script: Script, allowed: Sequence[FaultKind]) -> Script:
    """The allowed faults of a script that comes with it; without any of them the traffic alone is still worth a rehearsal."""
    missing = [kind.value for kind in allowed if kind not in script.kinds]
    if missing:
        raise ArgumentError(f"The script has no {' and no '.join(missing)}. Give another with --script.")
    return script.only(allowed)


def _run(
    stage: "Stage",
    script: Script,
    settings: "RehearsalSettings",
    drain: "Drain",
    prices: Path | None,
    output: Output,
) -> "RehearsalReport":
    from twinbus.rehearsal.bill import bill_of
    from twinbus.rehearsal.live_view import LiveView
    from twinbus.rehearsal.rehearsal import Rehearsal

    view = LiveView(output.console, is_silent=output.as_json)
    with contextlib.closing(drain):
        rehearsal = Rehearsal(stage, script, settings, drain, lambda stage: bill_of(stage, prices), view.hear)
        with view.shown(rehearsal.status):
            return rehearsal.run()


def _show(found: "RehearsalReport", file: Path | None, output: Output) -> None:
    from twinbus.rehearsal.report import as_document
    from twinbus.rehearsal.report_html import report_html
    from twinbus.rehearsal.report_text import report_text

    if file is not None:
        file.write_text(report_html(found), encoding="utf-8")
    if output.as_json:
        print(json.dumps(as_document(found)))
    else:
        output.console.print(report_text(found))
        if file is not None:
            output.console.print(f"\nThe report with plots is in {file}.", markup=False)
    if not found.is_balanced:
        raise typer.Exit(1)


@contextlib.contextmanager
def _stage(
    primary: str | None,
    secondary: str | None,
    primary_endpoint: str | None,
    secondary_endpoint: str | None,
    allowed: list[FaultKind] | None,
    data: Path,
) -> "Iterator[Stage]":
    from twinbus.rehearsal.stage import GivenStage
    from twinbus.rehearsal.throwaway_stage import throw_away_stage

    if primary is None or secondary is None:
        with throw_away_stage() as stage:
            yield stage
        return
    yield GivenStage(
        _place(primary, primary_endpoint, data), _place(secondary, secondary_endpoint, data), allowed or ()
    )


def _place(given: str, endpoint: str | None, data: Path) -> "Place":
    from twinbus.rehearsal.stage import Place

    call = Call.to(given, endpoint, data, Output(as_json=False))
    return Place(call.connection_string, call.endpoint)


def _check_writable(file: Path) -> None:
    """At the start, not when the rehearsal is over."""
    try:
        file.open("a").close()
    except OSError as fault:
        raise ArgumentError(
            f"{file} cannot be written: {fault.strerror}. Choose another file for the report."
        ) from None
