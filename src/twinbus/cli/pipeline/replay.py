"""`twinbus pipeline replay`: captured messages and dead letters back to entities."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from twinbus.cli.command import Call, command
from twinbus.cli.failures import CommandFailed
from twinbus.cli.output import Output
from twinbus.cli.pipeline.spark_job import (
    MasterOption,
    ReportOption,
    SettingsOption,
    check_lake,
    check_report,
    require_namespace,
    spark_job,
)
from twinbus.errors import ArgumentError
from twinbus.pipeline.connection_options import CONNECTION_STRING, ConnectionOptions, OptionError
from twinbus.pipeline.replay.message_ids import OPTION as MESSAGE_IDS_OPTION
from twinbus.pipeline.replay.message_ids import MessageIds, dropping_destinations, renamed_dead_letters
from twinbus.pipeline.replay.replay_tally import COLUMNS
from twinbus.pipeline.run_report import RunLog
from twinbus.pipeline.session import choose_master, require_spark
from twinbus.rehearsal.interruption import stop_by_signal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twinbus.pipeline.replay.dead_letter_job import DeadLetterReplay
    from twinbus.pipeline.replay.lake_job import LakeReplay
    from twinbus.pipeline.replay.message_ids import Detects
    from twinbus.pipeline.stop_request import StopRequest

    Job = LakeReplay | DeadLetterReplay

COUNT_COLUMNS = ("entity", "destination", "messages", "first", "last")
DEAD_LETTER_QUEUE = "/$DeadLetterQueue"
SAMPLE_COUNT_DEFAULT = 10


def register(app: typer.Typer) -> None:
    command(app, "replay")(replay)


def replay(
    call: Call,
    entities: Annotated[
        list[str] | None,
        typer.Argument(
            help="Queues or TOPIC/Subscriptions/NAME; * and ? are wildcards. Required with --dead-letters; with --lake, all "
            "if omitted."
        ),
    ] = None,
    *,
    lake: Annotated[str | None, typer.Option("--lake", help="Replay from the lake that `capture` wrote.")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Replay the dead-letter queues of these entities.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option("--where", help='Condition in Spark SQL over the columns, such as "deliveryCount > 5".'),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Queue or topic to send all of them to; if omitted, each goes back to where it was."),
    ] = None,
    message_ids: Annotated[
        MessageIds,
        typer.Option(
            MESSAGE_IDS_OPTION,
            help="keep: copies keep the original ids. new: copies get new ids, and the original id in the property "
            "CopyOfMessageId. auto: dead letters get new ones if the destination detects duplicates.",
        ),
    ] = MessageIds.AUTO,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="At most this many messages per second.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and show the messages, and send nothing.")] = False,
    sample: Annotated[
        int, typer.Option("--sample", min=0, max=1_000, help="With --dry-run: show this many messages.")
    ] = SAMPLE_COUNT_DEFAULT,
    report: ReportOption = None,
    master: MasterOption = None,
    conf: SettingsOption = None,
) -> None:
    """Send messages again: a dead letter is removed once its copy is acknowledged; a lake stays as it is.

    A destination that detects duplicates drops a message whose id it has seen: see --message-ids.
    """
    require_spark()
    from twinbus.pipeline.replay.destinations import destinations_of
    from twinbus.pipeline.stop_request import StopRequest

    check_report(report)
    if (lake is None) != dead_letters:
        raise ArgumentError("Choose what to replay: --lake FOLDER, or --dead-letters and entities.")
    if lake is not None:
        check_lake(lake)
    if rate is not None and not isfinite(rate):
        raise ArgumentError(f"--rate {rate}: a number of messages; omit it for no limit.")
    paths = _dead_letter_paths(call, entities or ()) if dead_letters else list(entities or ())
    if dead_letters or not dry_run:
        require_namespace(call)
    is_local = (choose_master(master, os.environ) or "").startswith("local")
    with TemporaryDirectory(prefix="twinbus-replay-") as folder, spark_job("replay", master, conf) as spark:
        chosen = _chosen(spark, call, lake, paths, where, with_bodies=dry_run and sample > 0)
        if dry_run:
            _show_plan(chosen, to, sample, call.output)
            return
        stop = StopRequest(Path(folder) / "stop" if is_local else None)
        if lake is None:
            _move_dead_letters(spark, call, chosen, destinations_of(paths, to), message_ids, stop, rate, report)
        else:
            _send_captured(spark, call, chosen, to, message_ids, stop, rate, report)


def _dead_letter_paths(call: Call, entities: Sequence[str]) -> list[str]:
    from twinbus.pipeline.captured_entities import all_paths, chosen_entities

    if not entities:
        raise ArgumentError("--dead-letters: name the queues or subscriptions whose dead letters to replay.")
    wanted = [
        each if each.lower().endswith(DEAD_LETTER_QUEUE.lower()) else each + DEAD_LETTER_QUEUE for each in entities
    ]
    return chosen_entities(wanted, lambda: all_paths(call.administration()))


def _chosen(
    spark: "SparkSession", call: Call, lake: str | None, paths: list[str], where: str | None, *, with_bodies: bool
) -> "DataFrame":
    from twinbus.pipeline.replay.choice import captured, dead_letters

    if lake is not None:
        return captured(spark, lake, paths, where)
    return dead_letters(spark, {CONNECTION_STRING: call.connection_string}, paths, where, with_bodies=with_bodies)


def _check_destinations(call: Call, destinations: set[str]) -> None:
    """All of them, before anything is sent to one of them."""
    from twinbus.pipeline.sink.options import SinkOptions
    from twinbus.pipeline.sink.target_check import check_targets

    connection = ConnectionOptions.from_options({CONNECTION_STRING: call.connection_string})
    for destination in sorted(destinations):
        try:
            check_targets(SinkOptions(connection, destination))
        except OptionError as wrong:
            raise CommandFailed(str(wrong)) from None


def _detects(call: Call) -> "Detects":
    def detects(path: str) -> bool | None:
        from twinbus.pipeline.replay.duplicate_detection import detects_duplicates

        with call.administration() as administration:
            return detects_duplicates(administration, path)

    return detects


def _move_dead_letters(
    spark: "SparkSession",
    call: Call,
    chosen: "DataFrame",
    destinations: dict[str, str],
    message_ids: MessageIds,
    stop: "StopRequest",
    rate: float | None,
    report: Path | None,
) -> None:
    from twinbus.pipeline.replay.dead_letter_job import DeadLetterReplay

    _check_destinations(call, set(destinations.values()))
    renamed = renamed_dead_letters(destinations.values(), message_ids, _detects(call))
    connection = ConnectionOptions.from_options({CONNECTION_STRING: call.connection_string})
    job = DeadLetterReplay(spark, connection, stop, rate)
    with _reported(job, stop, call.output, report):
        job.run(chosen, destinations, renamed)


def _send_captured(
    spark: "SparkSession",
    call: Call,
    chosen: "DataFrame",
    to: str | None,
    message_ids: MessageIds,
    stop: "StopRequest",
    rate: float | None,
    report: Path | None,
) -> None:
    from twinbus.pipeline.replay.destinations import destinations_of
    from twinbus.pipeline.replay.lake_job import LakeReplay, entities_in, hours_of

    hours = hours_of(chosen)
    destinations = destinations_of(entities_in(hours), to)
    _check_destinations(call, set(destinations.values()))
    for path in dropping_destinations(destinations.values(), message_ids, _detects(call)):
        typer.echo(
            f"'{path}' detects duplicates: it drops messages whose ids it has seen within its window, and they count as "
            f"replayed. To send them all, use {MESSAGE_IDS_OPTION} new; {MESSAGE_IDS_OPTION} keep hides this warning.",
            err=True,
        )
    is_renaming = message_ids is MessageIds.NEW
    job = LakeReplay(spark, {CONNECTION_STRING: call.connection_string}, stop, rate, is_renaming)
    with _reported(job, stop, call.output, report):
        job.run(chosen, hours, destinations)


def _show_plan(chosen: "DataFrame", to: str | None, sample: int, output: Output) -> None:
    from twinbus.pipeline.replay.choice import SAMPLE_COLUMNS, counts_of, sample_of
    from twinbus.pipeline.replay.destinations import destinations_of

    counts = counts_of(chosen)
    destinations = destinations_of([each.entity for each in counts], to)
    records = [{**asdict(each), "destination": destinations[each.entity]} for each in counts]
    shown = sample_of(chosen, sample) if sample else []
    if output.as_json:
        output.record({"messages": sum(each.messages for each in counts), "entities": records, "sample": shown})
        return
    output.table(COUNT_COLUMNS, records)
    if shown:
        output.console.print()
        output.table(SAMPLE_COLUMNS, shown)


@contextmanager
def _reported(job: "Job", stop: "StopRequest", output: Output, report: Path | None) -> Iterator[None]:
    """While the job runs it shows its progress and can be stopped; however it ends, it prints what it did."""
    log = RunLog(time.monotonic)
    try:
        with stop_by_signal(stop.ask), _shown(job, output):
            job.show = partial(_note, job, log, job.show)
            yield
    finally:
        # First, because it says where to go on: the page may not find room on its disk.
        _print_result(job, output)
        if report is not None:
            _note(job, log, lambda: None)
            report.write_text(log.html("Replay", COLUMNS, [each.record() for each in job.tallies]), encoding="utf-8")
    unconfirmed = sum(each.unconfirmed for each in job.tallies)
    if unconfirmed:
        typer.echo(
            f"{unconfirmed} messages are unconfirmed: Spark lost an executor with the report on them. They were moved, or another"
            " receiver took them.",
            err=True,
        )
    refused = sum(each.refused for each in job.tallies)
    if refused:
        said = next(each.last_error for each in job.tallies if each.refused)
        raise CommandFailed(f"{refused} messages were refused and not moved: {said}")
    if stop.is_asked and any(each.left for each in job.tallies):
        raise typer.Abort


def _note(job: "Job", log: RunLog, show: Callable[[], None]) -> None:
    for each in job.tallies:
        log.note(each.entity, each.chosen - each.left, each.left)
    show()


@contextmanager
def _shown(job: "Job", output: Output) -> Iterator[None]:
    """On a terminal, a bar for all messages; it moves with each round."""
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
    with Progress(*columns, console=output.console, transient=True) as progress:
        bar = progress.add_task("replay", total=None, rate="")

        def show() -> None:
            total = sum(each.chosen for each in job.tallies)
            done = total - sum(each.left for each in job.tallies)
            elapsed_s = progress.tasks[bar].elapsed or 0.0
            rate = f"{done / elapsed_s:,.0f}/s" if elapsed_s else ""
            progress.update(bar, total=total, completed=done, rate=rate)

        job.show = show
        yield


def _print_result(job: "Job", output: Output) -> None:
    output.table(COLUMNS, [each.record() for each in job.tallies])
