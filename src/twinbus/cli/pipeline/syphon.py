"""`twinbus pipeline syphon`: a Spark job that moves the backlog of many pairs to where it was sent."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from twinbus.cli.command import DATA_DEFAULT, CaFileOption, Call, DataOption, JsonOption
from twinbus.cli.output import Output
from twinbus.cli.pairs.syphon import (
    PairsOption,
    PrimaryNameOption,
    SecondaryEndpointOption,
    WantedPair,
    connection_string_of_primary,
    read_pairs,
)
from twinbus.cli.pipeline.spark_job import (
    MasterOption,
    ReportOption,
    SettingsOption,
    check_report,
    spark_job,
)
from twinbus.errors import ArgumentError
from twinbus.model.durations import parse_duration
from twinbus.pipeline.connection_options import CONNECTION_STRING_ENV, CONNECTION_STRING_FILE, ConnectionOptions
from twinbus.pipeline.run_report import RunLog
from twinbus.pipeline.session import choose_master
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.syphon_settings import (
    LANE_TARGET_DEFAULT,
    POISON_QUOTA_DEFAULT,
    SyphonSettings,
)
from twinbus.rehearsal.interruption import stop_by_signal

if TYPE_CHECKING:
    from twinbus.pipeline.syphon.driver import SyphonJob
    from twinbus.pipeline.syphon.pairs import PairToSyphon
    from twinbus.pipeline.syphon.reports import LaneReport

COLUMNS = ("pair", "backlog_queues", "moved", "left", "dead_lettered", "waiting", "last_error")
REFERENCES = {"env": CONNECTION_STRING_ENV, "file": CONNECTION_STRING_FILE}
LOOK_EVERY_S = 2.0

NAMESPACE_HELP = (
    "env:VARIABLE or file:PATH with a connection string; with a local master also a namespace that runs on this machine, "
    "or a connection string."
)


def register(app: typer.Typer) -> None:
    app.command("syphon")(syphon)


def syphon(
    primary: Annotated[str, typer.Option("--primary", envvar="TWINBUS_PRIMARY", help=NAMESPACE_HELP)] = "primary",
    secondary: Annotated[
        str, typer.Option("--secondary", envvar="TWINBUS_SECONDARY", help=NAMESPACE_HELP)
    ] = "secondary",
    primary_name: PrimaryNameOption = None,
    secondary_endpoint: SecondaryEndpointOption = None,
    pairs: PairsOption = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing is left in the backlog.")] = False,
    budget: Annotated[str, typer.Option("--budget", help="Maximum working time of the tasks of a round.")] = "30s",
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="At most this many messages per second, for each pair.")
    ] = None,
    destination_rate: Annotated[
        float | None,
        typer.Option(
            "--destination-rate", min=0.1, help="At most this many messages per second, for each destination."
        ),
    ] = None,
    lanes_per_queue: Annotated[
        int,
        typer.Option(
            "--pumps-per-queue", min=1, help="More than 1 is faster, but does not keep the order of messages."
        ),
    ] = 1,
    lane_target: Annotated[
        int, typer.Option("--messages-per-pump", min=1, help="Number of messages per pump of a queue.")
    ] = LANE_TARGET_DEFAULT,
    poison_quota: Annotated[
        int, typer.Option("--poison-quota", min=0, help="Messages that a round may dead-letter, for each pair.")
    ] = POISON_QUOTA_DEFAULT,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Tasks per round; as many as Spark has cores if omitted.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="DIR", help="Append a row for every pump and round to Parquet files."),
    ] = None,
    stop_file: Annotated[
        Path | None,
        typer.Option("--stop-file", help="Stop when this file appears; on a cluster it must be on a shared disk."),
    ] = None,
    report: ReportOption = None,
    master: MasterOption = None,
    conf: SettingsOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Move messages from the backlog queues of pairs to where they were sent, on Spark, until Ctrl-C."""
    from twinbus.clock import SteadyClock
    from twinbus.pipeline.stop_request import StopRequest
    from twinbus.pipeline.syphon.driver import SyphonJob

    output = Output(as_json=as_json)
    check_report(report)
    settings = SyphonSettings(
        budget_s=_budget_s(budget),
        lanes_per_queue_max=lanes_per_queue,
        lane_target=lane_target,
        rate=rate,
        destination_rate=destination_rate,
        poison_quota=poison_quota,
        tasks_max=tasks,
    )
    if stop_file is not None and stop_file.exists():
        raise ArgumentError(f"{stop_file} already exists, so the job would stop at once. Remove it first.")
    wanted = [WantedPair(primary, secondary, primary_name, secondary_endpoint)] if pairs is None else read_pairs(pairs)
    is_local = (choose_master(master, os.environ) or "").startswith("local")
    with KeyFolder() as keys:
        found = [_find(each, keys if is_local else None, data, output) for each in wanted]
        stop = StopRequest(stop_file or (keys.path / "stop" if is_local else None))
        with spark_job("syphon", master, conf) as spark:
            job = SyphonJob(spark, found, settings, SteadyClock(), stop, metrics)
            try:
                with stop_by_signal(stop.ask), _shown(job, output), _written_down(job, report):
                    job.run(until_empty=once)
            finally:
                _print_result(job, output)


def _budget_s(text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ArgumentError as wrong:
        raise ArgumentError(f"--budget: {wrong}") from None


def _find(wanted: WantedPair, keys: KeyFolder | None, data: Path, output: Output) -> "PairToSyphon":
    from twinbus.pairing.syphon.service import find_backlog, name_in
    from twinbus.pipeline.syphon.pairs import PairToSyphon
    from twinbus.pipeline.syphon.rounds import PairPlaces

    primary = _reference(wanted.primary, keys, lambda given: connection_string_of_primary(given, data))
    secondary = _reference(wanted.secondary, keys, lambda given: Call.to(given, None, data, output).connection_string)
    # The HTTP port of a namespace on this machine is found by its name.
    known = secondary.resolve() if _is_reference(wanted.secondary) else wanted.secondary
    spare = Call.to(known, wanted.secondary_endpoint, data, output)
    home = primary.resolve()
    backlog = find_backlog(home, secondary.resolve(), spare.administration(), wanted.primary_name)
    return PairToSyphon(wanted.primary_name or name_in(home), PairPlaces(primary, secondary), backlog)


def _is_reference(given: str) -> bool:
    return given.partition(":")[0] in REFERENCES and ":" in given


def _reference(given: str, keys: KeyFolder | None, connection_string: Callable[[str], str]) -> ConnectionOptions:
    if _is_reference(given):
        kind, _, value = given.partition(":")
        reference = ConnectionOptions.from_options({REFERENCES[kind]: value})
        reference.resolve()
        return reference
    if keys is None:
        raise ArgumentError(
            "On a cluster, give a namespace as env:VARIABLE or file:PATH, available on every node: the plan of a Spark "
            "job is stored and shown in many places, so it must not contain a connection string."
        )
    return keys.keep(connection_string(given))


@contextlib.contextmanager
def _written_down(job: "SyphonJob", report: Path | None) -> Iterator[None]:
    """A page about the run, however it ends."""
    if report is None:
        yield
        return
    log, show = RunLog(time.monotonic), job.on_round

    def noted(reports: "Sequence[LaneReport]") -> None:
        _note(job, log)
        show(reports)

    job.on_round = noted
    _note(job, log)
    try:
        yield
    finally:
        _note(job, log)
        report.write_text(log.html("Syphon", COLUMNS, _records(job)), encoding="utf-8")


def _note(job: "SyphonJob", log: RunLog) -> None:
    """What waits is asked for: reports count a message each time that it is left."""
    from twinbus.pipeline.syphon.pairs import look_at_depths

    found = look_at_depths(job.pairs).found
    for number, each in enumerate(job.tallies):
        depths = found.get(number)
        log.note(each.name, each.moved, None if depths is None else sum(depths.values()))


def _print_result(job: "SyphonJob", output: Output) -> None:
    output.table(COLUMNS, _records(job))


def _records(job: "SyphonJob") -> list[dict[str, object]]:
    return [
        {
            "pair": each.name,
            "backlog_queues": each.queue_count,
            "moved": each.moved,
            "left": each.left,
            "dead_lettered": each.dead_lettered,
            "waiting": each.waiting,
            "last_error": each.last_error,
        }
        for each in job.tallies
    ]


@contextlib.contextmanager
def _shown(job: "SyphonJob", output: Output) -> Iterator[None]:
    """On a terminal, a bar per pair: how much of what waited at the start was moved; and a line on the last round."""
    if output.as_json or not output.console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, TextColumn("{task.fields[said]}"), console=output.console) as progress:
        bars = [progress.add_task(pair.name, total=None, said="", rate="") for pair in job.pairs]
        over = threading.Event()
        looking = threading.Thread(target=_look, args=(job, progress, bars, over), daemon=True)
        job.on_round = lambda reports: _show_round(job, progress, bars, reports)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


def _look(job: "SyphonJob", progress: Progress, bars: Sequence[TaskID], over: threading.Event) -> None:
    """Reports come only at the end of a round; the number of waiting messages is always known."""
    from twinbus.pipeline.syphon.pairs import look_at_depths

    most = [0] * len(bars)
    while not over.is_set():
        for pair, depths in look_at_depths(job.pairs).found.items():
            waiting = sum(depths.values())
            most[pair] = max(most[pair], waiting)
            done, elapsed_s = most[pair] - waiting, progress.tasks[bars[pair]].elapsed or 0.0
            rate = f"{done / elapsed_s:,.0f}/s" if elapsed_s else ""
            progress.update(bars[pair], total=most[pair], completed=done, rate=rate)
        over.wait(LOOK_EVERY_S)


def _show_round(job: "SyphonJob", progress: Progress, bars: Sequence[TaskID], reports: "Sequence[LaneReport]") -> None:
    for number, bar in enumerate(bars):
        own = [each for each in reports if each.pair == number]
        if own:
            statuses = ", ".join(sorted({each.status.value for each in own}))
            moved, dead = sum(each.moved for each in own), sum(each.dead_lettered for each in own)
            progress.update(
                bar,
                said=f"round {job.round_count}: {moved} moved, {dead} dead-lettered in {len(own)} pumps, {statuses}",
            )
