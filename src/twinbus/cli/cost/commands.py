"""`twinbus cost`: the bill before it happens, and the prices behind it. What comes after is in `log`."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.cost import log as cost_log
from twinbus.cli.cost.options import (
    PING_INTERVAL_TEXT,
    SYPHON_POLL_TEXT,
    PlanOption,
    PricesOption,
    duration_option,
)
from twinbus.cli.cost.tables import estimate_document, print_estimate
from twinbus.cli.failures import CommandFailed
from twinbus.cli.help_pages import Group
from twinbus.cli.output import Output
from twinbus.cost.advice import warnings
from twinbus.cost.amounts import money_value
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import estimate
from twinbus.cost.price_sheet_file import example_text, read_price_sheet
from twinbus.errors import ArgumentError
from twinbus.model.durations import millis_of, short_duration
from twinbus.model.message_limits import MESSAGE_SIZE_CEILING
from twinbus.model.pairing_limits import (
    BACKLOG_QUEUE_COUNT_DEFAULT,
    FAILOVER_INTERVAL_DEFAULT,
)

FAILOVER_INTERVAL_TEXT = short_duration(millis_of(FAILOVER_INTERVAL_DEFAULT))
RATE_MAX = 1_000_000_000
COUNT_MAX = 1_000_000

app = Group("Estimate what operations will cost, and explain what they have cost.")
cost_log.register(app)


@app.command("estimate")
def estimate_command(
    queues: Annotated[
        int, typer.Option("--queues", max=COUNT_MAX, help="Backlog queues of the pair.")
    ] = BACKLOG_QUEUE_COUNT_DEFAULT,
    poll: Annotated[str, typer.Option("--poll", help="How long one receive of the syphon waits.")] = SYPHON_POLL_TEXT,
    syphons: Annotated[int, typer.Option("--syphons", max=COUNT_MAX, help="Syphons that run at the same time.")] = 1,
    processes: Annotated[
        int, typer.Option("--processes", max=COUNT_MAX, help="Processes that send through the pair.")
    ] = 1,
    entities: Annotated[
        int, typer.Option("--entities", max=COUNT_MAX, help="Entities that are unavailable in an outage.")
    ] = 1,
    ping_interval: Annotated[str, typer.Option("--ping-interval", help="Time between two pings.")] = PING_INTERVAL_TEXT,
    failover_interval: Annotated[
        str, typer.Option("--failover-interval", help="How long sends fail before they go to the backlog.")
    ] = FAILOVER_INTERVAL_TEXT,
    rate: Annotated[str, typer.Option("--rate", help="Messages per second, over all entities.")] = "0",
    size: Annotated[int, typer.Option("--size", max=MESSAGE_SIZE_CEILING, help="Bytes per message.")] = 1024,
    outage: Annotated[str, typer.Option("--outage", help="How long the primary is unavailable, such as 2h.")] = "0s",
    prices: PricesOption = None,
    plan: PlanOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate operations and cost of a pair per hour, day and 30 days, with the formula behind each line."""
    deployment = Deployment(
        backlog_queues=queues,
        poll=duration_option("--poll", poll),
        syphons=syphons,
        processes=processes,
        entities=entities,
        ping_interval=duration_option("--ping-interval", ping_interval),
        failover_interval=duration_option("--failover-interval", failover_interval),
        rate=_rate(rate),
        size=size,
        outage=duration_option("--outage", outage),
    )
    sheet = read_price_sheet(prices)
    result = estimate(deployment, sheet.plan(plan))
    output = Output(as_json=as_json)
    if as_json:
        output.record(estimate_document(result, sheet, warnings(deployment)))
    else:
        print_estimate(output.console, result, sheet, warnings(deployment))


@app.command("prices")
def prices_command(
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the example sheet to this file, for editing.")
    ] = None,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show and check a price sheet, or write an example to start from."""
    output = Output(as_json=as_json)
    if write is not None:
        _write_new(write, example_text())
        output.done(f"Wrote {write}. Edit the prices and use it with --prices {write}", file=str(write))
        return
    sheet = read_price_sheet(prices)
    rows = [
        {
            "plan": plan.name,
            "from_operation": 0 if index == 0 else plan.operations[index - 1].up_to,
            "up_to": tier.up_to,
            "per_million": money_value(tier.price),
            "base_per_month": money_value(plan.base_per_month),
            "bandwidth_per_gb": money_value(plan.bandwidth[-1].price),
        }
        for plan in sheet.plans.values()
        for index, tier in enumerate(plan.operations)
    ]
    if as_json:
        output.record(
            {"sheet": sheet.name, "as_of": sheet.as_of, "currency": sheet.currency, "tiers": rows}
            | {"is_example": sheet.is_example, "default_plan": sheet.default_plan}
        )
        return
    output.done(sheet.caption)
    output.table(("plan", "from_operation", "up_to", "per_million", "base_per_month", "bandwidth_per_gb"), rows)


def _write_new(file: Path, text: str) -> None:
    """Never overwrite a sheet that may have been edited."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise ArgumentError(f"{file} exists. Choose another name, or remove it first.") from None
    except OSError as fault:
        raise CommandFailed(f"{file} cannot be written: {fault.strerror}.") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _rate(text: str) -> Fraction:
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ArgumentError(
            f"--rate: '{text}' is not a number of messages per second. Write it like 50 or 0.2."
        ) from None
    if rate > RATE_MAX:
        raise ArgumentError(f"--rate: at most {RATE_MAX:,} messages per second.")
    return rate
