"""A log priced under other options, line by line."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cost.made_logs import PRIMARY, SECONDARY, busy_hours, idle_polls, millis, operation, outage, write_log
from twinbus.cli.app import run
from twinbus.cost.price_sheet_file import example_text, read_price_sheet
from twinbus.cost.what_if import Change, Comparison, Counted, Line, count_log, what_if
from twinbus.errors import ArgumentError
from twinbus.meter.log_reader import open_logs
from twinbus.meter.operation import Cause

START = millis("2026-11-15 06:00")
BASIC, STANDARD = (read_price_sheet(None).plan(name) for name in ("basic", "standard"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    to_primary, to_secondary = outage(START, messages=30)
    write_log(tmp_path / PRIMARY / "operations", [*busy_hours(START, 2, seed=1), *to_primary])
    write_log(tmp_path / SECONDARY / "operations", [*idle_polls(START, 24), *to_secondary], namespace=SECONDARY)
    return tmp_path


@pytest.fixture
def counted(data: Path) -> Counted:
    return count_log(open_logs(sorted(data.glob("*/operations"))))


def line(found: Comparison, cause: Cause, path: str) -> Line:
    return next(each for each in found.lines if (each.cause, each.path) == (cause, path))


def test_nothing_changed_costs_the_same(counted: Counted) -> None:
    found = what_if(counted, Change(), BASIC, BASIC)
    assert found.money == found.money_then
    assert all(each.units == each.units_then and not each.why for each in found.lines)
    assert counted.backlog_queues == 10


@pytest.mark.parametrize(
    ("change", "receives"),
    [
        (Change(poll=timedelta(minutes=5)), 2_880),
        (Change(poll=timedelta(minutes=30)), 480),
        (Change(syphons=3), 2_880),
        (Change(syphons=0), 0),
        (Change(queues=5), 480),
        (Change(poll=timedelta(seconds=10), syphons=2, queues=20), 960 * 90 * 2 * 2),
    ],
)
@pytest.mark.rule("D2")
def test_idle_receives_follow_poll_syphons_and_queues(counted: Counted, change: Change, receives: int) -> None:
    idle = line(what_if(counted, change, BASIC, BASIC), Cause.EMPTY_RECEIVE, "syphon")
    assert (idle.units, idle.units_then) == (960, receives)
    assert idle.money_then - idle.money == (receives - 960) * Decimal("0.00000005")


@pytest.mark.rule("D3")
def test_pings_follow_their_interval(counted: Counted) -> None:
    pings = line(what_if(counted, Change(ping_interval=timedelta(seconds=10)), BASIC, BASIC), Cause.PING, "primary")
    assert (pings.units, pings.units_then, pings.why) == (5, 30, "× 60 s / 10 s between pings")


def test_empty_receives_of_the_application_stay_as_they_are(counted: Counted) -> None:
    own = line(what_if(counted, Change(poll=timedelta(minutes=1)), BASIC, BASIC), Cause.EMPTY_RECEIVE, "primary")
    assert own.units == own.units_then > 0


@pytest.mark.rule("D4")
def test_without_pairing_the_secondary_and_the_pings_go_and_sends_home_are_the_applications_own(
    counted: Counted,
) -> None:
    found = what_if(counted, Change(without_pairing=True), STANDARD, STANDARD)
    assert line(found, Cause.SEND, "backlog").units_then == 0
    assert line(found, Cause.RECEIVE, "syphon").units_then == 0
    assert line(found, Cause.EMPTY_RECEIVE, "syphon").units_then == 0
    assert line(found, Cause.PING, "primary").units_then == 0
    assert line(found, Cause.SEND, "syphon").units_then == 30
    assert found.base == 20
    assert found.base_then == 10


def test_another_plan_prices_the_same_operations(counted: Counted) -> None:
    found = what_if(counted, Change(), BASIC, STANDARD)
    assert all(each.units == each.units_then for each in found.lines)
    assert found.money_then == 20


def test_lines_and_base_charges_add_up_to_the_total(counted: Counted) -> None:
    found = what_if(counted, Change(poll=timedelta(seconds=1)), BASIC, STANDARD)
    assert round(sum(each.money for each in found.lines) + found.base, 12) == round(found.money, 12)
    assert round(sum(each.money_then for each in found.lines) + found.base_then, 12) == round(found.money_then, 12)


@pytest.mark.rule("D5")
def test_each_month_and_namespace_has_its_own_tiers(tmp_path: Path) -> None:
    for seed, month in enumerate(("2026-10", "2026-11"), 1):
        write_log(tmp_path, [operation(millis(f"{month}-01 00:00"), Cause.SEND, size=0, count=14_000_000)], seed=seed)
    found = what_if(count_log(open_logs([tmp_path])), Change(), STANDARD, STANDARD)
    assert [bill.operations_money for bill in found.bills] == [Decimal("0.8"), Decimal("0.8")]


def test_options_that_change_nothing_in_a_log_are_reported(
    counted: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = Change(syphons=3, ping_interval=timedelta(seconds=10))
    assert not what_if(counted, change, BASIC, BASIC).notes
    log = tmp_path / "of-one"
    write_log(log, busy_hours(START, 1, seed=1))
    polls, pings = what_if(count_log(open_logs([log])), change, BASIC, BASIC).notes
    assert polls.startswith("No poll of an idle syphon is in the log")
    assert pings.startswith("No ping is in the log")
    assert run(["cost", "what-if", str(log), "--poll", "1m"]) == 0
    assert polls in capsys.readouterr().out.replace("\n", " ")
    assert run(["cost", "what-if", str(log), "--poll", "1m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [polls]


def test_a_log_without_operations_costs_nothing(tmp_path: Path) -> None:
    assert what_if(count_log(open_logs([tmp_path])), Change(syphons=3), STANDARD, STANDARD).money == 0


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least a second"):
        Change(poll=timedelta(0))
    with pytest.raises(ArgumentError, match="at least one backlog queue"):
        Change(queues=0)
    with pytest.raises(ArgumentError, match="at least one syphon"):
        Change(syphons_was=0)


def test_the_command_shows_the_difference_of_each_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "mine.toml").write_text(example_text().replace("per_million = 0.05", "per_million = 0.5"))
    words = ["cost", "what-if", "--data", str(data), "--plan", "basic", "--with-prices", str(data / "mine.toml")]
    assert run([*words, "--poll", "1m"]) == 0
    assert "× 900 s / 60 s of poll" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ping = next(each for each in document["lines"] if each["cause"] == "ping")
    assert (ping["money"], ping["money_then"], ping["difference"]) == ("0.00000025", "0.0000025", "0.00000225")
