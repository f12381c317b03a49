"""`twinbus pipeline capture`: messages of entities to Parquet."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from twinbus.cli.command import Call, command
from twinbus.cli.failures import CommandFailed
from twinbus.cli.output import Output, rich_table
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
from twinbus.model.durations import parse_duration
from twinbus.pipeline.masters import CONNECT_SCHEME
from twinbus.pipeline.run_report import RunLog
from twinbus.pipeline.session import require_spark
from twinbus.rehearsal.interruption import stop_by_signal

if TYPE_CHECKING:
    from twinbus.pipeline.capture import Capture
    from twinbus.pipeline.table_formats import TableFormat

COLUMNS = (
    "entity",
    "state",
    "messages",
    "batches",
    "progress",
    "behind",
    "furthest",
    "per_second",
    "time_left",
    "complete",
    "last_error",
)
BAR_WIDTH = 12
FURTHEST_COUNT = 3
SHOWN_PER_SECOND = 2
INTERVAL_S_MAX = 24 * 3_600.0


def register(app: typer.Typer) -> None:
    command(app, "capture")(capture)


def capture(
    call: Call,
    entities: Annotated[
        list[str],
        typer.Argument(
            help="Queues or TOPIC/Subscriptions/NAME, either followed by /$DeadLetterQueue; * and ? are wildcards."
        ),
    ],
    *,
    lake: Annotated[
        str, typer.Option("--lake", help="Folder for the Parquet files: a path, or a URL that Spark can write to.")
    ],
    consume: Annotated[bool, typer.Option("--consume", help="Remove messages once they are in the lake.")] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop when all present messages are captured.")
    ] = False,
    every: Annotated[str, typer.Option("--every", help="Without --available-now: the time between batches.")] = "10s",
    batch_messages: Annotated[
        int, typer.Option("--batch-messages", min=1, help="At most this many messages per entity and batch.")
    ] = 100_000,
    table_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="parquet, delta or iceberg. The last two need their package: --conf spark.jars.packages=...",
        ),
    ] = "parquet",
    report: ReportOption = None,
    master: MasterOption = None,
    conf: SettingsOption = None,
) -> None:
    """Write messages to a lake of Parquet files, each exactly once; a restart continues where the last run stopped.

    Without --available-now, entities that are created later and match a pattern are captured too, within a minute.
    """
    require_spark()
    from twinbus.pipeline.capture import (
        AT_ONCE_DEFAULT,
        Capture,
        CaptureMode,
        CaptureSettings,
        CaptureState,
        run_captures,
    )
    from twinbus.pipeline.captured_entities import chosen_entities
    from twinbus.pipeline.newcomers import Newcomers
    from twinbus.pipeline.table_formats import session_settings

    check_report(report)
    check_lake(lake)
    chosen = chosen_entities(entities, lambda: _all_paths(call))
    settings = CaptureSettings(
        lake=lake,
        mode=CaptureMode.CONSUME if consume else CaptureMode.BROWSE,
        options={"connectionString": call.connection_string, "maxMessagesPerTrigger": str(batch_messages)},
        interval_s=None if available_now else _interval_s(every),
        table_format=_table_format(table_format),
    )
    if (master or "").startswith(CONNECT_SCHEME):
        raise ArgumentError("A capture writes its batches in the driver. Give a master, not a Connect server.")
    if available_now:
        # A capture without end outlives outages, so it may also begin in one.
        require_namespace(call)
    added = [f"{name}={value}" for name, value in session_settings(settings.table_format, lake).items()]
    with spark_job("capture", master, [*added, *(conf or ())]) as spark:
        captures = [Capture(spark, entity, settings) for entity in chosen]
        log = RunLog(time.monotonic)
        with stop_by_signal() as stop, _shown(captures, call.output) as show_table:

            def show() -> None:
                for each in captures:
                    log.note(each.tally.entity, each.tally.messages, each.tally.behind)
                show_table()

            if available_now:
                run_captures(captures, stop, show, AT_ONCE_DEFAULT)
            else:
                matching = partial(chosen_entities, entities, lambda: _all_paths(call), is_each_matched=False)
                newcomers = Newcomers(captures, matching, lambda path: Capture(spark, path, settings))
                run_captures(captures, stop, show, newcomers=newcomers)
    call.output.table(COLUMNS, _records(captures, as_json=call.output.as_json))
    if report is not None:
        report.write_text(log.html("Capture", COLUMNS, _records(captures, as_json=False)), encoding="utf-8")
    _require_captured(captures)
    if available_now and any(each.tally.state is CaptureState.STOPPED for each in captures):
        # A capture without end is meant to be stopped; this one was to be complete.
        raise typer.Abort


def _table_format(text: str) -> "TableFormat":
    from twinbus.pipeline.table_formats import TableFormat

    if text not in list(TableFormat):
        raise ArgumentError(f"--format is {', '.join(TableFormat)}, not '{text}'.")
    return TableFormat(text)


def _all_paths(call: Call) -> list[str]:
    from twinbus.pipeline.captured_entities import all_paths

    with call.administration() as administration:
        return all_paths(administration)


def _interval_s(text: str) -> float:
    try:
        interval_s = parse_duration(text).total_seconds()
    except ArgumentError as wrong:
        raise ArgumentError(f"--every: {wrong}") from None
    if interval_s > INTERVAL_S_MAX:
        raise ArgumentError(f"--every {text}: must be at most a day.")
    return interval_s


@contextmanager
def _shown(captures: "Sequence[Capture]", output: Output) -> Iterator[Callable[[], None]]:
    """On a terminal, a live table."""
    if output.as_json or not output.console.is_terminal:
        yield lambda: None
        return
    with Live(console=output.console, refresh_per_second=SHOWN_PER_SECOND, transient=True) as live:
        yield lambda: live.update(rich_table(COLUMNS, _records(captures, as_json=False)))


def _require_captured(captures: "Sequence[Capture]") -> None:
    failed = [each.tally.entity for each in captures if each.tally.state == "failed"]
    if failed:
        raise CommandFailed(
            f"Not everything is captured: {len(failed)} of {len(captures)} entities failed ({', '.join(failed)})."
        )


def _records(captures: "Sequence[Capture]", *, as_json: bool) -> list[dict[str, object]]:
    """For people the numbers up to which the lake is complete are one short text."""
    from twinbus.pipeline.completeness import complete_text

    records = []
    for tally in (each.tally for each in captures):
        found = tally.complete
        shown: object = [each._asdict() for each in found or ()] if as_json else found and complete_text(found)
        record = {**asdict(tally), "complete": shown}
        if not as_json:
            record |= {
                "progress": _bar(tally.messages, tally.behind),
                "furthest": _furthest(tally.behind_by_fragment),
                "time_left": _time_left(tally.left_s),
            }
        records.append(record)
    return records


def _bar(done: int, behind: int | None) -> str | None:
    if behind is None or done + behind == 0:
        return None
    full = done * BAR_WIDTH // (done + behind)
    return f"{'━' * full}{'╌' * (BAR_WIDTH - full)} {done * 100 // (done + behind)}%"


def _furthest(behind: Mapping[int, int]) -> str | None:
    """Of a partitioned entity, the fragments with most messages that are not captured: `3: 810, 0: 400`."""
    most = sorted(behind.items(), key=lambda each: -each[1])[:FURTHEST_COUNT]
    shown = [f"{fragment}: {count}" for fragment, count in most if count]
    return ", ".join(shown) if len(behind) > 1 and shown else None


def _time_left(seconds: float | None) -> str | None:
    """In whole seconds: a stream's rate is no better known than that."""
    return None if not seconds else str(timedelta(seconds=round(seconds)))
