"""The report as text, HTML and JSON."""

import json
import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
import typer
from rich.console import Console

from twinbus.cli.output import Output
from twinbus.cli.pairs.rehearse import _show
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.html_report.plots import round_up
from twinbus.rehearsal.bill import Bill, EntityLine, add_up
from twinbus.rehearsal.chronicle import Chronicle
from twinbus.rehearsal.drain import Drained
from twinbus.rehearsal.entities import rehearsed_entities
from twinbus.rehearsal.fault_player import PlayedFault
from twinbus.rehearsal.ledger import Arrival, Ledger, Sender
from twinbus.rehearsal.live_view import moment_line, picture
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.report import EntityStatus, RehearsalReport, Sample, Status, as_document, make_report
from twinbus.rehearsal.report_html import report_html
from twinbus.rehearsal.report_text import report_text
from twinbus.rehearsal.script import Fault, FaultKind
from twinbus.rehearsal.sends import Outcome, SendRecord, Span
from twinbus.rehearsal.traffic import PlannedMessage

ENTITIES = rehearsed_entities("")
TEXT_WIDTH = 80


def operation(
    number: int, cause: str = "send", path: str = "primary", units: int = 1, entity: str = "q"
) -> dict[str, object]:
    return {
        "op_id": f"op-{number}",
        "namespace": "primary",
        "entity": entity,
        "cause": cause,
        "path": path,
        "operations": 1,
        "messages": 1,
        "units": units,
        "bytes": 100 * units,
    }


def bill() -> Bill:
    return add_up([operation(1), operation(2, "receive", "syphon", units=2)], read_price_sheet(None))


def report(*, is_lost: bool = False, with_bill: bool = True) -> RehearsalReport:
    ledger = Ledger(ENTITIES)
    planned = PlannedMessage(1, 0.5, ENTITIES[1], 0, 10)
    name = ledger.sending(planned, Sender.PAIRED)
    ledger.accepted(name)
    if not is_lost:
        ledger.delivered("partitioned", Arrival(name, 1, None, None, planned.body(name)))
    chronicle = Chronicle(lambda: 1.0, lambda _: None)
    chronicle.fault(Fault(FaultKind.KILL, 1.0, 2.0), False)
    chronicle.step("<script>")
    sends = [
        SendRecord(Sender.PAIRED, "partitioned", 0.5, 0.51, Outcome.ACCEPTED),
        SendRecord(Sender.UNPAIRED, "partitioned", 1.5, 1.9, Outcome.REFUSED),
    ]
    return make_report(
        started_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        settings=RehearsalSettings(seed=7),
        duration_s=4.0,
        took_s=9.0,
        balance=ledger.balance(),
        sends=sends,
        played=[PlayedFault(Fault(FaultKind.KILL, 1.0, 2.0), Span(1.0, 3.0))],
        chronicle=chronicle,
        samples=[Sample(0.5, 1, 0), Sample(1.0, 1, 5)],
        drained=Drained(5, 0, 1.5),
        bill=bill() if with_bill else None,
    )


def text_of(found: object) -> str:
    console = Console(width=TEXT_WIDTH, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(found)
    return capture.get()


def test_the_verdict_says_what_the_ledger_says() -> None:
    assert report().is_balanced
    assert "none was lost" in report().verdict
    assert not report(is_lost=True).is_balanced
    assert "1 of 1 deliveries" in report(is_lost=True).verdict


def test_the_text_fits_a_terminal_of_eighty_columns() -> None:
    text = text_of(report_text(report()))
    assert "…" not in text
    for words in ("Sends", "Ledger", "the primary is killed for 2 s", "Latency", "pings", "Bill"):
        assert words in text
    assert "Bill" not in text_of(report_text(report(with_bill=False)))


def test_the_page_needs_nothing_else_and_its_plots_are_well_formed() -> None:
    page = report_html(report())
    plots = re.findall(r"<svg.*?</svg>", page)
    assert len(plots) == 5
    for plot in plots:
        ElementTree.fromstring(plot)
    assert not re.search(r"(src|href)=|url\(|https?://", page)
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_json_has_every_value_and_what_follows_from_them() -> None:
    document = json.loads(json.dumps(as_document(report())))
    assert document["is_balanced"] is True
    assert document["unpaired"]["percent"] == 0.0
    assert document["faults"][0]["paired"]["planned"] == 0
    assert document["started_at"].startswith("2026-01-02T03:04")
    assert document["balance"]["lines"][1]["is_balanced"] is True
    assert document["bill"]["units"] == 3


def test_the_bill_counts_each_operation_once_and_only_those_of_the_rehearsal() -> None:
    rows = [operation(1), operation(1), operation(2, units=3), operation(3, entity="other")]
    found = add_up(rows, read_price_sheet(None), prefix="q")
    assert [(line.cause, line.operations, line.units) for line in found.lines] == [("send", 2, 4)]
    assert found.entities == (EntityLine("primary", "q", "send", "primary", 2, 2, 4, 400),)
    assert found.amount.endswith(" USD")
    assert "an example" in found.basis


@pytest.mark.parametrize(("value", "scale"), [(0, 1), (1, 1), (11, 12), (40, 40), (46, 60), (99, 100), (1062, 1200)])
def test_scales_are_round_numbers_not_below_the_highest_value(value: float, scale: float) -> None:
    assert round_up(value) == scale


def test_the_live_view_shows_where_the_rehearsal_is() -> None:
    found = report()
    status = Status(
        elapsed_s=2.0,
        duration_s=4.0,
        step="sending",
        paired=found.paired,
        unpaired=found.unpaired,
        delivered=1,
        outstanding=3,
        backlog=2,
        entities=(EntityStatus("orders", "failed-over", 2),),
        moments=found.moments,
    )
    text = text_of(picture(status))
    for words in ("sending", "2 of 4 s", "failed-over", "on the way 3", "the primary is killed"):
        assert words in text
    assert "the primary is killed" in moment_line(found.moments[0]).plain


def test_a_ledger_that_does_not_balance_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    _show(report(), None, Output(as_json=True))
    with pytest.raises(typer.Exit) as ended:
        _show(report(is_lost=True), None, Output(as_json=True))
    assert ended.value.exit_code == 1
    assert [json.loads(line)["is_balanced"] for line in capsys.readouterr().out.splitlines()] == [True, False]
