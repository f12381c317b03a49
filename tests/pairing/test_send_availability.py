from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.meter.operation import Operation
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.failover import Route
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.events import Availability, EventKind, PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.stock.failures import FailureKind

NOON = 1_800_000_000_000
MINUTE = 60_000
DOWN = ConnectionError("down")
QUEUES = {0: "p/x-servicebus-transfer/0"}


def availability(**chosen: object) -> SendAvailability:
    return SendAvailability(SendAvailabilityPairedNamespaceOptions(**chosen), QUEUES, Random(1))  # type: ignore[arg-type]


@pytest.mark.rule("B7")
def test_pings_come_early_by_a_random_share_and_never_late() -> None:
    pair = availability(ping_jitter=0.2)
    pair.primary_failed("orders", DOWN, NOON)
    pinged: list[int] = []
    for second in range(3600):
        now = NOON + second * 1000
        for ping in pair.advance(now):
            pinged.append(now)
            pair.ping_failed(ping, DOWN, now)
    gaps = {later - earlier for earlier, later in pairwise(pinged)}
    assert len(gaps) > 5
    assert min(gaps) >= 0.8 * MINUTE - 1000
    assert max(gaps) <= MINUTE


@pytest.mark.rule("B7.1")
def test_many_senders_of_one_entity_make_one_ping() -> None:
    pair = availability(ping_jitter=0)
    for _ in range(50):
        pair.primary_failed("orders", DOWN, NOON)
    assert [ping.path for ping in pair.advance(NOON + 2 * MINUTE)] == ["orders"]
    assert pair.advance(NOON + 2 * MINUTE) == []


@pytest.mark.rule("B3")
def test_an_entity_is_one_however_its_path_is_written() -> None:
    pair = availability(failover_interval=timedelta(0))
    pair.primary_failed("Orders", DOWN, NOON)
    assert pair.route("ORDERS", NOON) is Route.BACKLOG
    assert len(pair.state().entities) == 1


@pytest.mark.rule("B11.2")
def test_a_callback_may_ask_for_the_state() -> None:
    seen: list[tuple[EventKind, Availability]] = []

    def look(event: PairingEvent) -> None:
        seen.append((event.kind, pair.state().entities[0].availability))

    pair = availability(on_event=look)
    pair.primary_failed("orders", DOWN, NOON)
    pair.advance(NOON + MINUTE)
    pair.ping_answered(Ping("orders", None, "s"), NOON + 2 * MINUTE)
    assert seen == [
        (EventKind.TIMER_STARTED, Availability.FAILING),
        (EventKind.FAILED_OVER, Availability.FAILED_OVER),
        (EventKind.PING, Availability.FAILED_OVER),
        (EventKind.RECOVERED, Availability.HEALTHY),
    ]


def test_the_pinger_is_woken_when_a_timer_starts() -> None:
    pair = availability()
    woken: list[int] = []
    pair.wake = lambda: woken.append(1)
    pair.primary_failed("orders", DOWN, NOON)
    assert woken
    assert pair.next_action_at() == NOON + MINUTE


def test_a_callback_that_fails_changes_nothing_for_the_sender() -> None:
    def fail(_: PairingEvent) -> None:
        raise RuntimeError("of the application")

    pair = availability(on_event=fail, failover_interval=timedelta(0))
    assert pair.primary_failed("orders", DOWN, NOON) is Route.BACKLOG


def test_a_classifier_that_fails_starts_no_timer_and_hides_no_error() -> None:
    def fail(_: BaseException) -> FailureKind:
        raise RuntimeError("of the application")

    pair = availability(classifier=fail, failover_interval=timedelta(0))
    assert pair.primary_failed("orders", DOWN, NOON) is Route.PRIMARY
    assert pair.state().entities == ()


def test_marking_an_entity_healthy_that_has_no_sender_does_nothing() -> None:
    pair = availability()
    pair.mark_healthy("no-such-queue", NOON)
    assert pair.state().entities == ()


@pytest.mark.rule("B11.1")
def test_every_event_of_an_entity_has_one_path_however_its_senders_write_it() -> None:
    """A gauge by path would otherwise stay at failed over under the one name and recover under the other."""
    events: list[PairingEvent] = []
    pair = availability(on_event=events.append, failover_interval=timedelta(0))
    pair.watch("orders")
    pair.primary_failed("ORDERS", DOWN, NOON)
    pair.backlog_sent("Orders", 0, [ServiceBusMessage("x")], NOON)
    pair.ping_failed(Ping("oRDERS", None, "s"), DOWN, NOON)
    pair.mark_healthy("OrderS", NOON)
    assert [event.kind for event in events] == [
        EventKind.TIMER_STARTED,
        EventKind.FAILED_OVER,
        EventKind.BACKLOG_SEND,
        EventKind.PING,
        EventKind.RECOVERED,
    ]
    assert {event.path for event in events} == {"orders"}


@pytest.mark.rule("B7")
def test_a_meter_that_fails_ends_no_pings() -> None:
    class BrokenMeter:
        def record(self, operation: Operation, /) -> None:
            raise OSError("no space left")

    pair = availability(failover_interval=timedelta(0), meter=BrokenMeter())
    pair.primary_failed("orders", DOWN, NOON)
    (ping,) = pair.advance(NOON + MINUTE)
    pair.ping_failed(ping, DOWN, NOON + MINUTE)
    assert [each.path for each in pair.advance(NOON + 2 * MINUTE)] == ["orders"]


@pytest.mark.rule("B4.3")
def test_time_in_which_this_process_did_not_run_never_fails_a_primary_over() -> None:
    pair, lost = availability(failover_interval=timedelta(seconds=10)), 0
    pair.lost = lambda _: lost
    pair.primary_failed("orders", DOWN, NOON)
    lost = 59_000
    assert pair.advance(NOON + MINUTE) == []
    assert pair.route("orders", NOON + MINUTE) is Route.PRIMARY
    assert pair.route("orders", NOON + MINUTE + 8_999) is Route.PRIMARY
    assert pair.route("orders", NOON + MINUTE + 9_000) is Route.BACKLOG


@pytest.mark.rule("B3.4")
def test_what_this_process_lost_before_a_failure_does_not_put_its_failover_off() -> None:
    pair = availability(failover_interval=timedelta(0))
    pair.lost = lambda now: now - NOON
    assert pair.primary_failed("orders", DOWN, NOON + MINUTE) is Route.BACKLOG
