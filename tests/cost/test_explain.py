"""One message's charged steps, found over both namespaces' logs."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cost.made_logs import BACKLOG, PRIMARY, SECONDARY, SYPHON, busy_hours, millis, operation, outage, write_log
from twinbus.cli.app import run
from twinbus.cost.explain import explain
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.meter.log_reader import open_logs
from twinbus.meter.operation import Cause

START = millis("2026-11-15 06:10")
PLAN = read_price_sheet(None).plan("standard")
MILLION = 1_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    to_primary, to_secondary = outage(START, messages=5)
    write_log(tmp_path / PRIMARY / "operations", to_primary)
    write_log(tmp_path / SECONDARY / "operations", to_secondary, namespace=SECONDARY)
    return tmp_path


def logs(data: Path) -> list[Path]:
    return sorted(data.glob("*/operations"))


@pytest.mark.rule("D4")
def test_a_failed_over_message_is_followed_through_its_four_charged_steps(data: Path) -> None:
    found = explain(open_logs(logs(data)), "m-3", PLAN)
    charged = [step for step in found.steps if step.units]
    assert [(step.namespace, step.meaning) for step in charged] == [
        (SECONDARY, "sent to a backlog queue: its entity had failed over"),
        (SECONDARY, "taken from its backlog queue by the syphon"),
        (PRIMARY, "sent home by the syphon"),
        (PRIMARY, "received"),
    ]
    assert [step.bytes for step in charged] == [1512, 1512, 1000, 1000]
    assert found.units == 4
    assert found.list_money == 4 * Decimal("0.0000008")
    assert found.was_failed_over


def test_what_the_syphon_sent_home_it_had_taken_before_also_where_clocks_differ_a_little(tmp_path: Path) -> None:
    """The first send home was tried again later, from what was taken a second time."""
    backlog = BACKLOG.format(0)
    home = [
        operation(START + 100, Cause.SEND, who=SYPHON, message_id="m"),
        operation(START + 150, Cause.RECEIVE, message_id="m"),
        operation(START + 60_100, Cause.SEND, who=SYPHON, message_id="m"),
    ]
    taken = [
        operation(START, Cause.SEND, backlog, message_id="m"),
        operation(START + 200, Cause.RECEIVE, backlog, who=SYPHON, message_id="m"),
        operation(START + 60_000, Cause.RECEIVE, backlog, who=SYPHON, message_id="m"),
    ]
    write_log(tmp_path / "primary", home)
    write_log(tmp_path / "secondary", taken, namespace=SECONDARY)
    found = explain(open_logs([tmp_path / "primary", tmp_path / "secondary"]), "m", PLAN)
    assert [(step.cause, step.namespace) for step in found.steps] == [
        (Cause.SEND, SECONDARY),
        (Cause.RECEIVE, SECONDARY),
        (Cause.SEND, PRIMARY),
        (Cause.RECEIVE, PRIMARY),
        (Cause.RECEIVE, SECONDARY),
        (Cause.SEND, PRIMARY),
    ]


def test_a_message_of_several_units_and_its_forward_copies_are_listed(tmp_path: Path) -> None:
    steps = [
        operation(START, Cause.SEND, "first", size=70_000, message_id="big"),
        operation(START + 1, Cause.FORWARD, "second", size=70_000, message_id="big"),
        operation(START + 2, Cause.RECEIVE, "second", size=70_000, message_id="big"),
        operation(START + 3, Cause.RECEIVE, "second", message_id="other"),
    ]
    write_log(tmp_path, steps)
    found = explain(open_logs([tmp_path]), "big", PLAN)
    assert [(step.entity, step.meaning, step.units) for step in found.steps] == [
        ("first", "sent", 2),
        ("second", "forwarded by its entity", 2),
        ("second", "received", 2),
    ]
    assert not found.was_failed_over


@pytest.mark.rule("D5")
def test_a_step_costs_what_the_month_has_come_to(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [
            operation(millis("2026-11-01 00:00"), Cause.SEND, count=13 * MILLION - 1),
            operation(millis("2026-11-02 00:00"), Cause.SEND, message_id="edge"),
            operation(millis("2026-11-03 00:00"), Cause.RECEIVE, message_id="edge"),
            operation(millis("2026-12-01 00:00"), Cause.SEND, message_id="edge"),
        ],
    )
    found = explain(open_logs([tmp_path]), "edge", PLAN)
    assert [step.money for step in found.steps] == [0, Decimal("0.0000008"), 0]


def test_operations_that_were_logged_as_sums_are_mentioned(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [
            operation(START, Cause.SEND, message_id="one"),
            operation(START + 5, Cause.RECEIVE, count=400),
            operation(START + 5, Cause.RECEIVE, "elsewhere", count=7),
            operation(START + 5, Cause.SETTLE, count=300),
            operation(START + 3 * 3_600_000, Cause.RECEIVE, count=50),
        ],
    )
    assert explain(open_logs([tmp_path]), "one", PLAN).aggregated == 400
    assert explain(open_logs([tmp_path]), "unknown", PLAN).aggregated == 457


def test_a_log_that_was_copied_has_every_step_once(data: Path) -> None:
    for file in data.rglob("*.parquet"):
        shutil.copy(file, file.with_name(f"copy-{file.name}"))
    assert explain(open_logs(logs(data)), "m-3", PLAN).units == 4


def test_the_command_says_it_all_as_text_and_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "explain", "m-3", "--data", str(data)]) == 0
    printed = capsys.readouterr().out
    assert "sent home by the syphon" in printed
    assert "four operations instead of two" in printed
    assert run(["cost", "explain", "m-3", "--data", str(data), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["units"], document["list_money"]) == (4, "0.0000032")
    assert document["steps"][0]["at"] == "2026-11-15T06:10:00.003000+00:00"


def test_a_message_that_is_not_there_fails_in_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(data / PRIMARY / "operations", busy_hours(START, 1, seed=1), seed=9)
    assert run(["cost", "explain", "nobody", "--data", str(data)]) == 1
    said = capsys.readouterr().err
    assert "No operation on a message 'nobody'" in said
    assert "logged as sums" in said
    assert said.count("\n") == 1


def test_a_folder_without_logs_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "explain", "x", "--data", str(tmp_path)]) == 2
    assert "has operations in its log" in capsys.readouterr().err
