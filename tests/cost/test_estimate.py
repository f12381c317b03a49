"""The estimate has the contract's numbers, and each line has its formula."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from twinbus.cost.advice import warnings
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import Estimate, Line, Namespace, estimate
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.errors import ArgumentError
from twinbus.meter.operation import units_of
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions

STANDARD = read_price_sheet(None).plan("standard")
HOURS = {"hour": 1, "day": 24, "30 days": 720}
LEGS = ("sends to backlog", "receives from backlog", "sends home", "receives at home")


def of(deployment: Deployment) -> Estimate:
    return estimate(deployment, STANDARD)


def five_seconds(size: int) -> Estimate:
    """An outage that is noticed at once, and its end too; a message a second."""
    short, second = timedelta(seconds=5), timedelta(seconds=1)
    return of(Deployment(rate=Fraction(1), size=size, failover_interval=0 * second, ping_interval=second, outage=short))


def line(result: Estimate, name: str) -> Line:
    return next(line for line in result.lines if line.name == name)


@pytest.mark.parametrize(("period", "receives"), [("hour", 40), ("day", 960), ("30 days", 28_800)])
@pytest.mark.rule("D2.2")
def test_ten_backlog_queues_polled_for_fifteen_minutes_each_cost_these_idle_receives(
    period: str, receives: int
) -> None:
    idle = line(of(Deployment()), "idle receives")
    assert idle.operations(HOURS[period]) == receives
    assert idle.formula == "10 backlog queues × 1 syphon × 3,600 s / 900 s of poll"


@pytest.mark.parametrize(("queues", "syphons", "poll_s"), [(1, 1, 900), (10, 3, 10), (7, 2, 7), (10, 0, 900)])
@pytest.mark.rule("D2.1")
def test_idle_receives_of_30_days_are_queues_times_syphons_times_seconds_over_poll(
    queues: int, syphons: int, poll_s: int
) -> None:
    deployment = Deployment(backlog_queues=queues, syphons=syphons, poll=timedelta(seconds=poll_s))
    expected = queues * syphons * Fraction(2_592_000, poll_s)
    assert line(of(deployment), "idle receives").operations(720) == expected


@pytest.mark.parametrize(("entities", "processes", "interval_s"), [(1, 1, 60), (5, 4, 60), (1, 1, 1), (3, 2, 1800)])
@pytest.mark.rule("D3.1")
def test_pings_a_day_are_86400_over_the_interval_for_each_entity_and_process(
    entities: int, processes: int, interval_s: int
) -> None:
    deployment = Deployment(entities=entities, processes=processes, ping_interval=timedelta(seconds=interval_s))
    expected = entities * processes * Fraction(86_400, interval_s)
    assert line(of(deployment), "pings").operations(24) == expected


@pytest.mark.parametrize(("outage_s", "pings"), [(60, 0), (61, 1), (120, 1), (121, 2), (86_460, 1440)])
@pytest.mark.rule("D3")
def test_pings_of_an_outage_begin_an_interval_after_failover_and_end_with_the_first_that_gets_through(
    outage_s: int, pings: int
) -> None:
    assert line(of(Deployment(outage=timedelta(seconds=outage_s))), "pings").in_outage == pings


@pytest.mark.rule("D4.1")
def test_a_failed_over_message_costs_four_operations_instead_of_two() -> None:
    outage = Deployment(rate=Fraction(10), outage=timedelta(minutes=11))
    result = of(outage)
    assert outage.failed_over_messages == 6_000
    assert [line(result, leg).in_outage for leg in LEGS] == [6_000] * 4
    per_message = sum(line(result, leg).in_outage for leg in LEGS) / outage.failed_over_messages
    assert per_message == 4
    healthy = sum(line(result, name).per_hour for name in ("sends", "receives"))
    assert healthy == 2 * 10 * 3_600


@pytest.mark.parametrize(("outage_s", "messages"), [(60, 0), (61, 60), (90, 60), (120, 60), (121, 120)])
@pytest.mark.rule("D4")
def test_messages_go_to_the_backlog_until_a_ping_finds_that_the_outage_is_over(outage_s: int, messages: int) -> None:
    deployment = Deployment(rate=Fraction(1), outage=timedelta(seconds=outage_s))
    assert deployment.failed_over_messages == messages
    sends = line(of(deployment), "sends")
    assert of(deployment).in_period(sends, 1) == 3_600 - 60 - messages


@pytest.mark.rule("D4.2")
def test_size_and_bandwidth_count_in_each_leg() -> None:
    result = five_seconds(size=100_000)
    assert [line(result, leg).in_outage for leg in LEGS] == [10] * 4
    assert [line(result, leg).bytes_of(10) for leg in LEGS] == [5 * 100_512, 5 * 100_512, 500_000, 500_000]


@pytest.mark.rule("D4")
def test_a_message_that_passes_64_kb_when_rewritten_costs_more_in_the_backlog_only() -> None:
    result = five_seconds(size=65_536)
    assert [line(result, leg).in_outage for leg in LEGS] == [10, 10, 5, 5]


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (262_144, 4)])
@pytest.mark.rule("D1")
def test_every_64_kb_begun_is_one_operation(size: int, units: int) -> None:
    assert units_of(size) == units


@pytest.mark.rule("D5")
def test_the_bill_of_30_days_goes_through_the_tiers_of_each_namespace() -> None:
    primary, secondary = of(Deployment(rate=Fraction(10))).bills
    assert (primary.namespace, secondary.namespace) == (Namespace.PRIMARY, Namespace.SECONDARY)
    assert primary.units == 2 * 25_920_000
    assert primary.operations_money == Decimal("0.80") * (51_840_000 - 13_000_000) / 1_000_000
    assert secondary.units == 28_800
    assert secondary.operations_money == 0
    assert secondary.money == Decimal(10)


def test_messages_of_an_outage_are_not_charged_as_healthy_ones_too() -> None:
    calm = of(Deployment(rate=Fraction(10)))
    outage = of(Deployment(rate=Fraction(10), outage=timedelta(hours=1), failover_interval=timedelta(0)))
    extra = sum(bill.units for bill in outage.bills) - sum(bill.units for bill in calm.bills)
    assert extra == 2 * 36_000 + 60  # two legs more, and the pings


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        (Deployment(poll=timedelta(seconds=10)), "Polls of 10 s cost 90 times as many idle receives"),
        (Deployment(syphons=4), "86,400 idle receives in 30 days for 3 more"),
        (Deployment(entities=10, processes=20), "ping 288,000 times a day"),
        (Deployment(size=65_600), "are 64 over a multiple of 64 KB and count as 2 operations instead of 1"),
        (Deployment(size=65_500), "pass a multiple of 64 KB: 2 operations in the backlog, 1 at home"),
    ],
)
def test_dear_choices_are_warned_about(deployment: Deployment, said: str) -> None:
    assert len(warnings(deployment)) == 1
    assert said in warnings(deployment)[0]


def test_the_defaults_of_a_pair_are_not_warned_about() -> None:
    assert warnings(Deployment(rate=Fraction(100), outage=timedelta(hours=3))) == []


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one backlog queue"):
        Deployment(backlog_queues=0)
    with pytest.raises(ArgumentError, match="at least a second"):
        Deployment(poll=timedelta(0))


def test_an_estimate_assumes_the_defaults_of_a_pair() -> None:
    planned, pair = Deployment(), SendAvailabilityPairedNamespaceOptions()
    assert (planned.backlog_queues, planned.ping_interval, planned.failover_interval) == (
        pair.backlog_queue_count,
        pair.ping_primary_interval,
        pair.failover_interval,
    )
