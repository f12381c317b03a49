from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.meter.operation import Operation
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.failover import Route
from twinbus.pairing.deciding.partitioning import Partitioning
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


@pytest.mark.rule("B4.4")
@pytest.mark.parametrize("answer", [None, True, "outage"])
def test_a_classifier_that_returns_something_else_starts_no_timer_and_hides_no_error(answer: Any) -> None:
    pair = availability(classifier=lambda _: answer, failover_interval=timedelta(0))
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


@pytest.mark.rule("B2")
def test_one_flag_says_whether_anything_is_to_be_decided_about_an_entity() -> None:
    """Senders read nothing else before a message, so it must not be true a moment too long."""
    pair = availability(failover_interval=timedelta(seconds=1), ping_jitter=0)
    watch = pair.watch("orders")
    assert watch.is_straight
    pair.primary_failed("orders", DOWN, NOON)
    assert not watch.is_straight, "a success would have to stop the timer"
    pair.primary_answered("orders", NOON + 1)
    assert watch.is_straight
    pair.primary_failed("orders", DOWN, NOON + 2)
    pair.advance(NOON + 2000)
    assert not watch.is_straight, "failed over"
    pair.mark_healthy("orders", NOON + 3000)
    assert watch.is_straight
    pair.asked("orders", Partitioning(16), NOON)
    assert not watch.is_straight, "it has to be remembered when its fragments answer"


@pytest.mark.rule("B2")
def test_after_the_end_of_a_pair_every_send_has_to_ask() -> None:
    pair = availability()
    watch = pair.watch("orders")
    pair.end()
    pair.state()
    assert not watch.is_straight
    assert not pair.watch("bills").is_straight
    forked = availability()
    watch = forked.watch("orders")
    forked.after_fork()
    assert not watch.is_straight


@pytest.mark.rule("B8.7")
def test_an_unprotected_pair_that_finds_messages_in_its_backlog_begins_to_catch_up() -> None:
    pair = SendAvailability(SendAvailabilityPairedNamespaceOptions(), {}, Random(1))
    watch = pair.watch("orders")
    assert watch.is_straight
    pair.protected(QUEUES, NOON, has_waiting=True)
    assert not watch.is_straight
    assert pair.route("orders", NOON, ["a"]) is Route.HOLD
    assert pair.route("orders", NOON) is Route.PRIMARY, "messages without a session are not held up"
