"""`twinbus cost`: the bill before it happens, and the prices behind it. What comes after is in `cost_log`."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.cost import log as cost_log
from twinbus.cli.cost.options import PlanOption, PricesOption, duration_option
from twinbus.cli.cost.tables import estimate_document, print_estimate
from twinbus.cli.failures import CommandFailed
from twinbus.cli.output import Output
from twinbus.cost.advice import warnings
from twinbus.cost.amounts import money_value
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import estimate
from twinbus.cost.price_sheet_file import example_text, read_price_sheet
from twinbus.errors import ArgumentError

RATE_MAX = 1_000_000_000
COUNT_MAX = 1_000_000
SIZE_MAX = 100 * 1024 * 1024
"""The largest message that a namespace of any tier takes."""

app = typer.Typer(no_args_is_help=True, help="What operations cost: estimated before, explained after.")
cost_log.register(app)


@app.command("estimate")
def estimate_command(
    queues: Annotated[int, typer.Option("--queues", max=COUNT_MAX, help="Backlog queues of the pair.")] = 10,
    poll: Annotated[str, typer.Option("--poll", help="How long one receive of the syphon waits, such as 15m.")] = "15m",
    syphons: Annotated[int, typer.Option("--syphons", max=COUNT_MAX, help="Syphons that run at the same time.")] = 1,
    processes: Annotated[
        int, typer.Option("--processes", max=COUNT_MAX, help="Processes that send through the pair.")
    ] = 1,
    entities: Annotated[
        int, typer.Option("--entities", max=COUNT_MAX, help="Entities that are unavailable in an outage.")
    ] = 1,
    ping_interval: Annotated[str, typer.Option("--ping-interval", help="Time between two pings.")] = "1m",
    failover_interval: Annotated[
        str, typer.Option("--failover-interval", help="Time of failures before sends go to the backlog.")
    ] = "1m",
    rate: Annotated[str, typer.Option("--rate", help="Messages a second, over all entities.")] = "0",
    size: Annotated[int, typer.Option("--size", max=SIZE_MAX, help="Bytes of a message.")] = 1024,
    outage: Annotated[str, typer.Option("--outage", help="How long the primary is away, such as 2h.")] = "0s",
    prices: PricesOption = None,
    plan: PlanOption = None,
    as_json: JsonOption = False,
) -> None:
    """Operations and money of a pair per hour, day and 30 days, with the formula behind each line."""
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
        Path | None, typer.Option("--write", metavar="FILE", help="Write the example sheet here, to be edited.")
    ] = None,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a price sheet and so check it, or write an example to start from."""
    output = Output(as_json=as_json)
    if write is not None:
        _write_new(write, example_text())
        output.done(f"Wrote {write}. Put your prices in and use it with --prices {write}", file=str(write))
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
    """Never over a sheet that somebody has edited."""
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
        raise ArgumentError(f"--rate: '{text}' is no number of messages a second. Write it like 50 or 0.2.") from None
    if rate > RATE_MAX:
        raise ArgumentError(f"--rate: {RATE_MAX:,} messages a second are the most.")
    return rate
