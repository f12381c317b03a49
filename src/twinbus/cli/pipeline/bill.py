"""`twinbus pipeline bill`: operations logs to counts, money and a report, on Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.cost.bill_tables import print_bill
from twinbus.cli.cost.options import LogsArgument, PlanOption, PricesOption, find_logs
from twinbus.cli.output import Output
from twinbus.cli.pipeline.spark_job import MasterOption, SettingsOption, spark_job
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.summary_document import summary_document
from twinbus.pipeline.masters import CONNECT_SCHEME
from twinbus.pipeline.session import require_spark

if TYPE_CHECKING:
    from twinbus.cost.summary import Summary
    from twinbus.pipeline.bill.job import Ledger


def register(app: typer.Typer) -> None:
    app.command("bill")(bill)


def bill(
    logs: LogsArgument = None,
    data: DataOption = DATA_DEFAULT,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the bill; 'bill' below --data if omitted.")
    ] = None,
    month: Annotated[
        str | None, typer.Option("--month", metavar="YYYY-MM", help="Month to report; the newest if omitted.")
    ] = None,
    prices: PricesOption = None,
    plan: PlanOption = None,
    master: MasterOption = None,
    conf: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count and price operations logged since the last run, and write the report of a month.

    The folder of the bill also gets Parquet and CSV files by hour, day and month. Files that cannot be read are reported and
    skipped; a later run counts them once they can be read.
    """
    require_spark()
    from twinbus.pipeline.bill.counts import JVM_SETTINGS, SETTINGS
    from twinbus.pipeline.bill.job import update_ledger
    from twinbus.pipeline.bill.report import require_month, summary_of, write_report

    if month is not None:
        require_month(month)
    sheet = read_price_sheet(prices)
    chosen = sheet.plan(plan)
    output = Output(as_json=as_json)
    found = find_logs(logs, data)
    folder = out or data / "bill"
    with _progress(output) as progress:
        progress("starting Spark")
        wanted = SETTINGS if (master or "").startswith(CONNECT_SCHEME) else SETTINGS | JVM_SETTINGS
        settings = [*(f"{name}={value}" for name, value in wanted.items()), *(conf or ())]
        with spark_job("bill", master, settings) as spark:
            ledger = update_ledger(spark, found, folder, chosen, progress)
        summary = summary_of(ledger, folder, sheet, chosen, month)
    page = None if summary is None else write_report(summary, ledger, folder)
    _print_result(output, summary, ledger, page, found)


def _print_result(
    output: Output, summary: "Summary | None", ledger: "Ledger", page: Path | None, logs: Sequence[Path]
) -> None:
    intake = ledger.intake
    if output.as_json:
        facts = {
            "counted_hours": intake.hours,
            "counted_files": intake.files,
            "left_out": {**intake.unusable, **intake.held_back},
            "report": None if page is None else str(page),
        }
        output.record({**facts, **({} if summary is None else summary_document(summary))})
        return
    if summary is None:
        output.done(f"No operations are logged in {', '.join(map(str, logs))} yet.")
    else:
        print_bill(output.console, summary)
    for name, reason in sorted({**intake.unusable, **intake.held_back}.items()):
        output.console.print(f"[bold yellow]skipped:[/] {name.replace('[', chr(92) + '[')} {reason}", highlight=False)
    counted = f"Hours counted in this run: {intake.hours:,}, from {intake.files:,} files."
    output.done(counted if page is None else f"{counted} Report: {page}")


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[str], None]]:
    """On a terminal, a line that says what is being done."""
    if output.as_json or not output.console.is_terminal:
        yield lambda _: None
        return
    with output.console.status("") as status:
        yield status.update
