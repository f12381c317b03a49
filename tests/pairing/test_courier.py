import asyncio
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusServerBusyError,
)

from tests.pairing.world import World, run_send
from twinbus.meter.operation import Operation
from twinbus.pairing.backlog.delivery import Pause, ToBacklog
from twinbus.pairing.courier import UNNUMBERED, AskPartitioning, Courier, Step, Steps, ToPrimary
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.errors import BacklogUnavailable
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rewriting.preflight import PairedMessageBatch
from twinbus.pairing.rewriting.transfer import AnyMessage, annotated
from twinbus.pairing.stock.failures import FailureKind
from twinbus.pairing.stock.line import NotWantedAnyMore, WaitedForItself
from twinbus.pairing.stock.steps import run, run_async

DOWN = ConnectionError("down")


class Recorder:
    """Performs attempts by writing them down, and fails those it is told to."""

    def __init__(self, world: World, primary: Exception | None = None, backlog: list[Exception] | None = None) -> None:
        self.world = world
        self.attempts: list[ToPrimary | ToBacklog] = []
        self.primary = primary
        self.backlog = backlog or []

    def __call__(self, attempt: Step) -> list[int] | None:
        if isinstance(attempt, Pause):
            self.world.clock.at += attempt.duration
            return None
        assert not isinstance(attempt, AskPartitioning)
        self.attempts.append(attempt)
        error = self.primary if isinstance(attempt, ToPrimary) else (self.backlog.pop(0) if self.backlog else None)
        if error is not None:
            raise error
        return [7] if isinstance(attempt, ToPrimary) else None

    def parcels(self) -> list[AmqpAnnotatedMessage | ServiceBusMessageBatch]:
        return [attempt.parcel for attempt in self.attempts if isinstance(attempt, ToBacklog)]


def courier_of(world: World, is_failed_over: bool) -> Courier:
    courier = world.sender("orders").courier
    if is_failed_over:
        world.availability.primary_failed("orders", DOWN, world.clock.at)
        world.pass_time(timedelta(minutes=1))
    return courier


def send(
    courier: Courier, recorder: Recorder, outgoing: AnyMessage | list[AnyMessage] | ServiceBusMessageBatch
) -> None:
    run_send(courier, outgoing, 60, recorder)


@pytest.mark.rule("B5")
def test_a_list_that_needs_more_than_one_batch_once_rewritten_goes_in_several_in_order() -> None:
    world = World(1)
    courier, recorder = courier_of(world, True), Recorder(world)
    messages: list[AnyMessage] = [ServiceBusMessage(b"x" * 10_000, message_id=str(each)) for each in range(30)]
    send(courier, recorder, messages)
    batches = [parcel for parcel in recorder.parcels() if isinstance(parcel, ServiceBusMessageBatch)]
    assert [len(batch) for batch in batches] == [26, 4]


@pytest.mark.rule("B5")
def test_a_batch_filled_before_the_failover_is_taken_apart_for_the_backlog() -> None:
    world = World(1)
    batch = PairedMessageBatch("orders", 256 * 1024, 256 * 1024)
    for _ in range(3):
        batch.add_message(ServiceBusMessage("x", session_id="s"))
    recorder = Recorder(world)
    send(courier_of(world, True), recorder, batch)
    (parcel,) = recorder.parcels()
    assert isinstance(parcel, ServiceBusMessageBatch)
    assert len(parcel) == 3


def test_only_batches_of_this_sender_are_accepted_healthy_or_not() -> None:
    world = World(1)
    courier, recorder = courier_of(world, False), Recorder(world)
    for batch in (ServiceBusMessageBatch(max_size_in_bytes=1000), PairedMessageBatch("bills", 100_000, 1000)):
        batch.add_message(ServiceBusMessage("x"))
        with pytest.raises(ValueError, match="create_message_batch"):
            send(courier, recorder, batch)
    assert recorder.attempts == []


@pytest.mark.rule("B4.3")
def test_a_refusal_by_the_primary_is_raised_and_starts_no_timer() -> None:
    world = World(1)
    courier = courier_of(world, False)
    with pytest.raises(ServiceBusServerBusyError):
        send(courier, Recorder(world, ServiceBusServerBusyError()), ServiceBusMessage("x"))
    assert world.availability.watch("orders").is_untroubled


@pytest.mark.rule("B4.3")
@pytest.mark.parametrize(
    "call",
    [
        lambda courier: courier.send([ServiceBusMessage("x")], 10),
        lambda courier: courier.cancel(7, 10),
        lambda courier: courier.new_batch(None),
    ],
)
def test_what_a_close_breaks_off_says_nothing_about_the_primary(call: Callable[[Courier], Steps[Any]]) -> None:
    world = World(1)
    courier = courier_of(world, False)

    def closed(_: Step) -> None:
        courier.is_closed = True
        raise DOWN

    with pytest.raises(ValueError, match="closed"):
        run(call(courier), closed)
    assert world.availability.watch("orders").is_untroubled


@pytest.mark.rule("B5")
def test_a_message_the_backlog_cannot_take_costs_no_queue_its_place() -> None:
    world = World(1)
    courier = courier_of(world, True)
    with pytest.raises(MessageSizeExceededError):
        send(courier, Recorder(world, backlog=[MessageSizeExceededError()]), ServiceBusMessage("x"))
    assert all(queue.out_until is None for queue in world.availability.state().backlog_queues)


@pytest.mark.rule("B5.3")
def test_a_hung_queue_gets_half_of_the_time_and_the_next_one_the_rest() -> None:
    world = World(1)
    courier, recorder = courier_of(world, True), Recorder(world, backlog=[OperationTimeoutError()])
    send(courier, recorder, ServiceBusMessage("x"))
    assert [attempt.timeout_s for attempt in recorder.attempts] == [30, 30]


@pytest.mark.rule("B10")
def test_a_message_scheduled_while_failed_over_has_no_number_and_cannot_be_cancelled() -> None:
    world = World(1)
    courier, recorder = courier_of(world, True), Recorder(world)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    messages: list[AnyMessage] = [ServiceBusMessage("x"), AmqpAnnotatedMessage(data_body=b"x")]
    numbers = run(courier.schedule(messages, at, None), recorder)
    assert numbers == [UNNUMBERED, UNNUMBERED]
    assert len(recorder.parcels()) == 1
    with pytest.raises(ValueError, match="scheduled while failed over"):
        run(courier.cancel(numbers, None), recorder)


def test_a_schedule_on_a_good_day_returns_the_primarys_numbers() -> None:
    world = World(1)
    courier = courier_of(world, False)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert run(courier.schedule([ServiceBusMessage("x")], at, None), Recorder(world)) == [7]


def test_a_timeout_must_be_positive() -> None:
    world = World(1)
    with pytest.raises(ValueError, match="greater than 0"):
        run_send(courier_of(world, False), ServiceBusMessage("x"), 0, Recorder(world))


@pytest.mark.parametrize("timeout_s", [math.inf, 1e12, None])
def test_a_timeout_may_be_as_long_as_the_sdk_takes_it(timeout_s: float | None) -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(operation_timeout=timedelta.max))
    recorder = Recorder(world)
    run_send(courier_of(world, False), ServiceBusMessage("x"), timeout_s, recorder)
    assert 86_400 < recorder.attempts[0].timeout_s < threading.TIMEOUT_MAX


@pytest.mark.rule("B5")
def test_a_send_with_no_time_left_is_not_sent_twice() -> None:
    """With an interval of zero a failed send goes on at the backlog, but not after its own deadline."""
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(0)))
    courier = world.sender("orders").courier

    def hang(attempt: Step) -> list[int] | None:
        world.clock.at += 60_000
        raise OperationTimeoutError()

    with pytest.raises(OperationTimeoutError):
        run_send(courier, ServiceBusMessage("x"), 60, hang)


@pytest.mark.rule("B5")
def test_a_caller_in_a_hurry_costs_no_queue_its_place() -> None:
    world = World(1)
    courier = courier_of(world, True)
    with pytest.raises(OperationTimeoutError):
        run_send(courier, ServiceBusMessage("x"), 0.5, Recorder(world, backlog=[OperationTimeoutError()]))
    assert all(queue.out_until is None for queue in world.availability.state().backlog_queues)


def test_a_refusal_that_is_raised_again_and_again_does_not_grow() -> None:
    world = World(1)
    courier = courier_of(world, True)
    world.entities["orders"].is_deleted = True
    world.pass_time(timedelta(minutes=1))
    depths = []
    for _ in range(3):
        with pytest.raises(MessagingEntityNotFoundError) as caught:
            send(courier, Recorder(world), ServiceBusMessage("x"))
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


@pytest.mark.rule("B5")
def test_a_message_that_was_changed_after_it_was_added_to_a_batch_goes_as_it_was_added() -> None:
    """The SDK's batch keeps bytes, so one message object may be changed and added again and again."""
    batch = PairedMessageBatch("orders", 256 * 1024, 256 * 1024)
    message = ServiceBusMessage("x", application_properties={}, time_to_live=timedelta(hours=1))
    for number in range(3):
        message.message_id = message.partition_key = str(number)
        message.time_to_live = timedelta(hours=1 + number)
        assert message.application_properties is not None
        message.application_properties["number"] = number
        batch.add_message(message)
    kept = [annotated(each) for each in batch.messages]
    assert [each.properties.message_id for each in kept if each.properties] == ["0", "1", "2"]
    assert [each.annotations for each in kept] == [{b"x-opt-partition-key": number} for number in "012"]
    assert [each.application_properties for each in kept] == [{"number": number} for number in range(3)]
    assert [each.header.time_to_live for each in kept if each.header] == [3_600_000, 7_200_000, 10_800_000]


@pytest.mark.rule("B3")
def test_cancelling_nothing_is_no_success_that_stops_the_timer() -> None:
    world = World(1)
    courier, recorder = courier_of(world, False), Recorder(world)
    world.availability.primary_failed("orders", DOWN, world.clock.at)
    run(courier.cancel([], None), recorder)
    assert recorder.attempts == []
    assert not world.availability.watch("orders").is_untroubled


class BrokenMeter:
    def record(self, operation: Operation, /) -> None:
        raise OSError("no space left")


@pytest.mark.parametrize("is_failed_over", [False, True])
def test_a_meter_that_fails_does_not_make_an_accepted_message_look_refused(is_failed_over: bool) -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(meter=BrokenMeter()))
    courier, recorder = courier_of(world, is_failed_over), Recorder(world)
    send(courier, recorder, ServiceBusMessage("x"))
    assert len(recorder.attempts) == 1


@pytest.mark.rule("B3")
@pytest.mark.parametrize(("timeout_s", "primary_s"), [(3, 1.8), (10, 6), (60, 45)])
def test_with_an_interval_of_zero_a_part_of_the_time_is_kept_for_the_backlog(
    timeout_s: float, primary_s: float
) -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(0)))
    recorder = Recorder(world)
    run_send(world.sender("orders").courier, ServiceBusMessage("x"), timeout_s, recorder)
    assert recorder.attempts[0].timeout_s == primary_s


@pytest.mark.rule("B2")
def test_with_a_longer_interval_the_primary_has_all_of_the_time() -> None:
    world = World(1)
    recorder = Recorder(world)
    send(courier_of(world, False), recorder, ServiceBusMessage("x"))
    assert recorder.attempts[0].timeout_s == 60


@pytest.mark.rule("B4")
def test_time_that_was_waited_in_line_starts_no_timer_and_takes_no_queue_out() -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(0)))
    waited = WaitedForItself(message="in line")
    courier = world.sender("orders").courier
    with pytest.raises(WaitedForItself):
        send(courier, Recorder(world, waited), ServiceBusMessage("x"))
    assert world.availability.watch("orders").is_untroubled
    recorder = Recorder(world, DOWN, backlog=[waited])
    send(courier, recorder, ServiceBusMessage("x"))
    assert all(queue.out_until is None for queue in world.availability.state().backlog_queues)


@pytest.mark.rule("B5")
def test_what_a_send_waits_for_its_turn_is_added_to_its_time() -> None:
    world = World(1)
    courier = courier_of(world, True)
    attempts: list[ToBacklog] = []

    def wait_then_fail_once(attempt: Step) -> None:
        assert isinstance(attempt, ToBacklog)
        world.clock.at += 50_000
        attempt.waited += 50_000
        attempts.append(attempt)
        if len(attempts) == 1:
            raise DOWN

    run_send(courier, ServiceBusMessage("x"), 10, wait_then_fail_once)
    assert [attempt.timeout_s for attempt in attempts] == [5, 5]


@pytest.mark.rule("B4")
def test_a_link_that_was_detached_because_it_was_idle_is_opened_again_for_the_same_send() -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(classifier=lambda _: FailureKind.DETACHED))
    attempts: list[Step] = []

    def detached_at_first(attempt: Step) -> None:
        attempts.append(attempt)
        if len(attempts) == 1:
            raise DOWN

    run_send(world.sender("orders").courier, ServiceBusMessage("x"), 10, detached_at_first)
    assert len(attempts) == 2
    assert world.availability.watch("orders").is_untroubled


def test_keys_that_every_queue_refuses_are_reported_without_waiting_for_the_timeout() -> None:
    world = World(1)
    courier, recorder = courier_of(world, True), Recorder(world, backlog=[ServiceBusAuthorizationError()] * 10)
    began = world.clock.at
    with pytest.raises(BacklogUnavailable):
        send(courier, recorder, ServiceBusMessage("x"))
    assert len(recorder.attempts) == 3
    assert world.clock.at == began


@pytest.mark.parametrize("is_list", [True, False])
def test_without_a_backlog_a_send_that_waits_for_its_turn_stays_with_the_primary(is_list: bool) -> None:
    """An unprotected pair has nowhere else to send it, whatever is known against the primary."""
    world = World(1)
    availability = SendAvailability(world.options, {}, world.random)
    courier = Courier("orders", availability, world.clock, lambda: "id", lambda: None)
    message = ServiceBusMessage("x")
    outgoing = [message] if is_list else message

    def accepted_after_a_wait(attempt: Step) -> None:
        assert isinstance(attempt, ToPrimary)
        availability.primary_failed("orders", DOWN, world.clock.at)  # others, which are in front
        world.clock.at += 60_000
        availability.advance(world.clock.at)
        if not attempt.is_wanted():
            raise NotWantedAnyMore

    run_send(courier, outgoing, 10, accepted_after_a_wait)


class Broken(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


@pytest.mark.rule("B8.7")
def test_a_send_that_ctrl_c_ended_is_not_under_way_however_long_its_error_is_kept() -> None:
    """A session whose message is under way is never home."""
    world = World(1)
    courier = courier_of(world, True)

    def broken(_: Step) -> None:
        raise Broken

    with pytest.raises(Broken) as kept:
        run(courier.send([ServiceBusMessage("x", session_id="a")], 10), broken)
    trails = world.availability.watch("orders").catching_up.trails
    assert [trail.under_way for trail in trails.values()] == [0], kept


async def test_aio_a_send_that_is_cancelled_is_not_under_way_however_long_its_error_is_kept() -> None:
    world = World(1)
    courier = courier_of(world, True)

    async def cancelled(_: Step) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError) as kept:
        await run_async(courier.send([ServiceBusMessage("x", session_id="a")], 10), cancelled)
    trails = world.availability.watch("orders").catching_up.trails
    assert [trail.under_way for trail in trails.values()] == [0], kept
