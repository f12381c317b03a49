"""`twinbus cost explain` and `twinbus cost what-if`: questions to operations logs, answered without Spark."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.cost.log_tables import print_comparison, print_explanation
from twinbus.cli.cost.options import (
    PING_INTERVAL_TEXT,
    SYPHON_POLL_TEXT,
    LogsArgument,
    PlanOption,
    PricesOption,
    duration_option,
    find_logs,
)
from twinbus.cli.failures import CommandFailed
from twinbus.cli.output import Output
from twinbus.cost.amounts import money_value
from twinbus.cost.price_sheet_file import read_price_sheet

if TYPE_CHECKING:
    from twinbus.cost.explain import Explanation
    from twinbus.cost.what_if import Comparison


def register(app: typer.Typer) -> None:
    app.command("explain")(explain_command)
    app.command("what-if")(what_if_command)


def explain_command(
    message_id: Annotated[str, typer.Argument(help="Message id, as the application or the SDK set it.")],
    logs: LogsArgument = None,
    data: DataOption = DATA_DEFAULT,
    prices: PricesOption = None,
    plan: PlanOption = None,
    as_json: JsonOption = False,
) -> None:
    """List every charged operation of one message, over both namespaces of a pair."""
    from twinbus.cost.explain import explain
    from twinbus.meter.log_reader import open_logs

    sheet = read_price_sheet(prices)
    chosen = sheet.plan(plan)
    opened = open_logs(find_logs(logs, data))
    found = explain(opened, message_id, chosen)
    if not found.steps:
        raise CommandFailed(_not_found(found, len(opened.unusable)))
    output = Output(as_json=as_json)
    if as_json:
        output.record(
            {
                "message_id": message_id,
                "steps": [
                    {
                        **asdict(step),
                        "meaning": step.meaning,
                        "money": money_value(step.money),
                        "list_money": money_value(step.list_money),
                    }
                    for step in found.steps
                ],
                "units": found.units,
                "money": money_value(found.money),
                "list_money": money_value(found.list_money),
                "was_failed_over": found.was_failed_over,
                "aggregated": found.aggregated,
                "left_out": opened.unusable,
            }
        )
    else:
        print_explanation(output.console, found, sheet, opened.unusable)


def _not_found(found: "Explanation", sick_count: int) -> str:
    text = f"No operation on a message '{found.message_id}' is in the log."
    if found.aggregated:
        text += (
            f" {found.aggregated:,} operations were logged as sums, without message ids; this one may be among them."
        )
    if sick_count:
        text += f" {sick_count:,} files of the log cannot be read."
    return text + " A log given by its folder may be five minutes behind."


def what_if_command(
    logs: LogsArgument = None,
    data: DataOption = DATA_DEFAULT,
    poll: Annotated[str | None, typer.Option("--poll", help="Another poll length of the syphon, such as 5m.")] = None,
    poll_was: Annotated[str, typer.Option("--poll-was", help="The poll length in the log.")] = SYPHON_POLL_TEXT,
    syphons: Annotated[int | None, typer.Option("--syphons", help="Another number of syphons.")] = None,
    syphons_was: Annotated[int, typer.Option("--syphons-was", help="The number of syphons in the log.")] = 1,
    queues: Annotated[int | None, typer.Option("--queues", help="Another number of backlog queues.")] = None,
    ping_interval: Annotated[str | None, typer.Option("--ping-interval", help="Another time between pings.")] = None,
    ping_interval_was: Annotated[
        str, typer.Option("--ping-interval-was", help="The time between pings in the log.")
    ] = PING_INTERVAL_TEXT,
    without_pairing: Annotated[bool, typer.Option("--without-pairing", help="Without a pair.")] = False,
    with_prices: Annotated[
        Path | None, typer.Option("--with-prices", metavar="FILE", help="Another price sheet.")
    ] = None,
    with_plan: Annotated[str | None, typer.Option("--with-plan", help="Another plan.")] = None,
    prices: PricesOption = None,
    plan: PlanOption = None,
    as_json: JsonOption = False,
) -> None:
    """Price a real log as it is and as it would be with other options, line by line."""
    from twinbus.cost.what_if import Change, count_log, what_if
    from twinbus.meter.log_reader import open_logs

    change = Change(
        poll_was=duration_option("--poll-was", poll_was),
        poll=_optional("--poll", poll),
        syphons_was=syphons_was,
        syphons=syphons,
        queues=queues,
        ping_interval_was=duration_option("--ping-interval-was", ping_interval_was),
        ping_interval=_optional("--ping-interval", ping_interval),
        without_pairing=without_pairing,
    )
    sheet, other = read_price_sheet(prices), read_price_sheet(with_prices or prices)
    chosen = sheet.plan(plan)
    opened = open_logs(find_logs(logs, data))
    found = what_if(count_log(opened), change, chosen, other.plan(with_plan or plan))
    output = Output(as_json=as_json)
    if as_json:
        output.record({**_comparison_document(found), "notes": found.notes, "left_out": opened.unusable})
    else:
        print_comparison(output.console, found, sheet, other, opened.unusable)


def _comparison_document(found: "Comparison") -> dict[str, object]:
    return {
        "lines": [
            {
                "cause": line.cause,
                "path": line.path,
                "units": line.units,
                "units_then": line.units_then,
                "money": money_value(line.money),
                "money_then": money_value(line.money_then),
                "difference": money_value(line.money_then - line.money),
                "why": line.why,
            }
            for line in found.lines
        ],
        "base": money_value(found.base),
        "base_then": money_value(found.base_then),
        "money": money_value(found.money),
        "money_then": money_value(found.money_then),
        "difference": money_value(found.money_then - found.money),
    }


def _optional(option: str, text: str | None) -> timedelta | None:
    return None if text is None else duration_option(option, text)
