"""What a pair costs, as it tells its meter."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.errors import ServerBusy
from twinbus.meter.operation import NO_METER, Cause, Operation, Path
from twinbus.pairing.courier import Courier, Step, ToPrimary
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_meter import size_of
from twinbus.pairing.stock.failures import classify
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.pump_meter import metered
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import Answer, Complete, Receive, Request, SendAll, Taken, Transfer
from twinbus.testing.sim_clock import SimClock

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LOCK = MINUTE
BACKLOG_QUEUES = {index: f"contoso/x-servicebus-transfer/{index}" for index in range(10)}


class KeptOperations:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[Operation] = []

    def record(self, operation: Operation, /) -> None:
        self.rows.append(operation)

    def counts(self) -> Counter[tuple[str, str, str]]:
        """By cause, entity and path."""
        found: Counter[tuple[str, str, str]] = Counter()
        for row in self.rows:
            found[row.cause.value, row.entity, row.path.value] += row.operations
        return found


class Trip:
    """A pump and what its transport answers."""

    def __init__(self, *pages: list[Taken]) -> None:
        self.clock = SimClock()
        self.meter = KeptOperations()
        self.pages = list(pages)
        self.failure: Exception | None = None
        self.pump = Pump("backlog", classify, RateCap(None), self.clock, lambda _: None)

    def perform(self, request: Request) -> Answer:
        if isinstance(request, Receive):
            if self.pages:
                return self.pages.pop(0)
            self.clock.advance(int(request.wait_s * 1000))
            return []
        if isinstance(request, SendAll):
            return [self.failure] * len(request.chunks)
        return None

    def do_pass(self) -> None:
        run(metered(self.pump.do_pass(900), "backlog", self.meter, self.clock), self.perform)


def taken(clock: SimClock, number: int, size: int = 100) -> Taken:
    return Taken(None, number, clock.now() + LOCK, Transfer("orders", number, size, None, None))


@pytest.mark.rule("D4")
def test_a_syphon_counts_a_receive_and_a_send_for_each_message_and_its_size_in_both() -> None:
    trip = Trip([taken(SimClock(), 1), taken(SimClock(), 2, size=65_537)])
    trip.do_pass()
    assert trip.meter.counts() == {
        ("receive", "backlog", "syphon"): 2,
        ("send", "orders", "syphon"): 2,
        ("settle", "backlog", "syphon"): 2,
    }
    units = {row.cause: row.units for row in trip.meter.rows}
    assert units == {Cause.RECEIVE: 3, Cause.SEND: 3, Cause.SETTLE: 0}


def test_what_the_destination_did_not_take_was_received_and_not_sent() -> None:
    trip = Trip([taken(SimClock(), 1)])
    trip.failure = ServerBusy("later")
    trip.do_pass()
    assert trip.meter.counts() == {("receive", "backlog", "syphon"): 1}


def test_a_receive_that_fails_is_no_operation_and_the_pump_hears_of_the_failure() -> None:
    trip = Trip()

    def fail(request: Request) -> Answer:
        raise ConnectionError("gone")

    run(metered(trip.pump.do_pass(900), "backlog", trip.meter, trip.clock), fail)
    assert not trip.meter.rows


def test_a_pump_that_is_to_stop_before_it_began_ends() -> None:
    trip = Trip()
    trip.pump.is_stopping = True
    run(metered(trip.pump.run(), "backlog", trip.meter, trip.clock), trip.perform)
    run(metered(trip.pump.run(), "backlog", NO_METER, trip.clock), trip.perform)
    assert not trip.meter.rows


@pytest.mark.rule("D2")
@pytest.mark.parametrize(("time", "count"), [(HOUR, 40), (DAY, 960), (30 * DAY, 28_800)])
def test_the_pumps_of_ten_idle_backlog_queues_receive(time: int, count: int) -> None:
    meter = KeptOperations()
    for queue in BACKLOG_QUEUES.values():
        trip = Trip()
        end = trip.clock.now() + time
        trip.meter = meter

        def perform(request: Request, trip: Trip = trip, end: int = end) -> Answer:
            answer = trip.perform(request)
            trip.pump.is_stopping = trip.clock.now() >= end
            return answer

        run(metered(trip.pump.run(), queue, meter, trip.clock), perform)
    assert {row.cause for row in meter.rows} == {Cause.EMPTY_RECEIVE}
    assert sum(row.units for row in meter.rows) == count


@pytest.mark.rule("D3.1")
@pytest.mark.parametrize("interval_s", [1, 60, 1800])
def test_an_entity_that_is_down_for_a_day_costs_a_ping_each_interval(interval_s: int) -> None:
    meter = KeptOperations()
    availability = availability_with(meter, ping_primary_interval=timedelta(seconds=interval_s))
    clock = SimClock()
    availability.primary_failed("orders", ConnectionError("down"), clock.now())
    availability.advance(clock.now())
    end = clock.now() + DAY
    while (at := availability.next_action_at()) <= end:
        for path in availability.advance(at):
            availability.ping_failed(path, ConnectionError("down"), at)
    assert meter.counts() == {("ping", "orders", "primary"): 86_400 // interval_s}


def test_sends_are_counted_where_they_went_with_their_sizes() -> None:
    meter = KeptOperations()
    availability = availability_with(meter)
    clock = SimClock()
    courier = Courier("orders", availability, clock, lambda: "new", lambda: None)
    small, large = ServiceBusMessage("x", message_id="a"), ServiceBusMessage(b"x" * 70_000, message_id="b")
    run(courier.send([small, large], 60), at_once)
    run(courier.cancel([5, 6], 60), at_once)
    assert [(row.cause, row.message_id, row.units) for row in meter.rows[:2]] == [("send", "a", 1), ("send", "b", 2)]
    availability.primary_failed("orders", ConnectionError("down"), clock.now())
    availability.advance(clock.now())
    run(courier.send([small, large], 60), at_once)
    queue = BACKLOG_QUEUES[courier.backlog.queue or 0]
    assert meter.counts() == {
        ("send", "orders", "primary"): 2,
        ("cancel", "orders", "primary"): 2,
        ("send", queue, "backlog"): 2,
    }
    assert {row.path for row in meter.rows if row.entity == queue} == {Path.BACKLOG}


def test_the_size_of_a_message_is_about_what_it_has_on_the_wire() -> None:
    assert 70_000 < size_of(ServiceBusMessage(b"x" * 70_000)) < 70_200


def availability_with(meter: KeptOperations, **options: timedelta) -> SendAvailability:
    chosen = SendAvailabilityPairedNamespaceOptions(
        failover_interval=timedelta(0),
        ping_jitter=0.0,
        meter=meter,
        **options,  # type: ignore[arg-type]
    )
    return SendAvailability(chosen, BACKLOG_QUEUES, Random(1))


def at_once(attempt: Step) -> list[int] | None:
    return [] if isinstance(attempt, ToPrimary) else None


def test_a_meter_that_fails_keeps_no_message_from_coming_home() -> None:
    class BrokenMeter:
        def record(self, operation: Operation, /) -> None:
            raise OSError("no space left")

    trip = Trip([taken(SimClock(), 1)])
    requests: list[Request] = []

    def perform(request: Request) -> Answer:
        requests.append(request)
        return trip.perform(request)

    run(metered(trip.pump.do_pass(900), "backlog", BrokenMeter(), trip.clock), perform)
    assert any(isinstance(request, Complete) for request in requests)
