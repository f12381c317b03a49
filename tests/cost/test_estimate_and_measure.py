"""What the estimate says beforehand is what is billed afterwards: hours of a pair on a simulated clock, with an outage."""

from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from tests.cost.made_logs import write_log
from tests.cost.simulated_pair import SYPHON_CREDIT, SimulatedPair
from twinbus.clock import Millis
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import Estimate, Line, estimate
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.what_if import Counted, count_log
from twinbus.meter.log_reader import open_logs
from twinbus.meter.operation import Cause, Operation
from twinbus.meter.operation import Path as Way

PLAN = read_price_sheet(None).plan("standard")
HOUR: Millis = 3_600_000
SECOND: Millis = 1_000
SIZE = 1_000
MEASURED = {
    "idle receives": (Cause.EMPTY_RECEIVE, Way.SYPHON),
    "sends": (Cause.SEND, Way.PRIMARY),
    "pings": (Cause.PING, Way.PRIMARY),
    "sends to backlog": (Cause.SEND, Way.BACKLOG),
    "receives from backlog": (Cause.RECEIVE, Way.SYPHON),
    "sends home": (Cause.SEND, Way.SYPHON),
}
"""Lines of the estimate as the log has them. Receives are together: the log does not say which way a message came."""


class Measured:
    """A bill's counts, through the log and its reader."""

    def __init__(self, folder: Path, pair: SimulatedPair) -> None:
        rows: dict[str, list[Operation]] = {"primary": [], "secondary": []}
        reported: list[Operation] = []
        for namespace, row in pair.operations():
            rows.get(namespace, reported).append(row)
        # Pings that reach nobody are in no log of a namespace: of those there is the report of who sent them.
        pings = [row for row in reported if row.cause is Cause.PING]
        self.answered_pings = sum(row.operations for row in rows["primary"] if row.cause is Cause.PING)
        rows["primary"] = [*(row for row in rows["primary"] if row.cause is not Cause.PING), *pings]
        self._counted = counted(folder, rows)
        self.reported = [row for row in reported if row.cause is Cause.SEND]

    def units(self, cause: Cause, way: Way) -> int:
        return sum(each.units for each in self._counted.counts if (each.cause, each.path) == (cause, way))

    def total(self) -> int:
        return sum(each.units for each in self._counted.counts)


def counted(folder: Path, rows: dict[str, list[Operation]]) -> Counted:
    for namespace, own in rows.items():
        (folder / namespace).mkdir()
        write_log(folder / namespace, own, namespace=namespace)
    return count_log(open_logs([folder / namespace for namespace in rows]))


def lines(result: Estimate) -> dict[str, Line]:
    return {line.name: line for line in result.lines}


def send_until(pair: SimulatedPair, end: Millis, rate: int) -> None:
    """A steady rate, from now on; the message that is due at the end is not sent yet."""
    while pair.now < end:
        pair.advance(pair.now)
        pair.send()
        pair.advance(pair.now + SECOND // rate)


@pytest.mark.parametrize(("hours", "receives"), [(1, 40), (24, 960)])
@pytest.mark.rule("D5.1", "D2")
def test_idle_hours_of_a_syphon_cost_what_was_estimated(tmp_path: Path, hours: int, receives: int) -> None:
    pair = SimulatedPair(tmp_path / "pair", Deployment())
    pair.start_syphon()
    pair.advance(hours * HOUR)
    found = Measured(tmp_path, pair)
    assert found.units(*MEASURED["idle receives"]) == found.total() == receives
    assert lines(estimate(Deployment(), PLAN))["idle receives"].operations(hours) == receives


@pytest.mark.parametrize(("outage_s", "rate"), [(600, 1), (601, 1), (90, 5), (90, 1), (45, 1)])
@pytest.mark.rule("D5.1", "D3", "D4")
def test_an_outage_costs_what_was_estimated(tmp_path: Path, outage_s: int, rate: int) -> None:
    """Ten minutes, the outage, two minutes more, and half an hour with a syphon that brings home what was set aside."""
    deployment = Deployment(rate=Fraction(rate), size=SIZE, outage=timedelta(seconds=outage_s))
    pair = SimulatedPair(tmp_path / "pair", deployment, away_at=600 * SECOND)
    syphon_at = pair.back_at + 120 * SECOND
    end = syphon_at + HOUR // 2
    send_until(pair, syphon_at, rate)
    pair.start_syphon()
    send_until(pair, end, rate)
    found, expected = Measured(tmp_path, pair), estimate(deployment, PLAN)
    assert_as_estimated(found, expected, hours=Fraction(end, HOUR), syphon_hours=Fraction(1, 2))
    assert pair.refused == rate * min(outage_s, 60)
    assert found.answered_pings == (1 if outage_s > 60 else 0)


def assert_as_estimated(found: Measured, expected: Estimate, hours: Fraction, syphon_hours: Fraction) -> None:
    known = lines(expected)
    wanted = {name: expected.in_period(known[name], hours) for name in MEASURED}
    wanted["idle receives"] = known["idle receives"].per_hour * syphon_hours
    # Few messages come on the credit of one poll, which then waits on: it is charged for them instead.
    wanted["idle receives"] -= 0 < expected.deployment.failed_over_messages < SYPHON_CREDIT // 2
    assert {name: found.units(*MEASURED[name]) for name in MEASURED} == wanted
    received = expected.in_period(known["receives"], hours) + known["receives at home"].in_outage
    assert found.units(Cause.RECEIVE, Way.PRIMARY) == received
    # Nothing else was billed, and what the pair says of its own sends is what the namespaces counted.
    assert found.total() == sum(wanted.values()) + received
    assert len(found.reported) == wanted["sends"] + wanted["sends to backlog"]
