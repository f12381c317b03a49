"""Two real namespaces and the outages they can have: what was accepted is delivered, waiting or dead-lettered."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS, until
from twinbus.pairing import (
    Availability,
    EventKind,
    FailureKind,
    PairedNamespaceClient,
    PairedSender,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
    classify,
    pair_namespaces,
)


class Sending:
    """A sender that remembers what was accepted."""

    def __init__(self, sender: PairedSender, **properties: Any) -> None:
        self._sender = sender
        self._numbers = count()
        self._properties = properties
        self.accepted: list[str] = []

    def send(self, timeout: float = 10, batch: int = 1) -> bool:
        bodies = [f"m{next(self._numbers)}" for _ in range(batch)]
        messages = [ServiceBusMessage(body, message_id=body, **self._properties) for body in bodies]
        try:
            self._sender.send_messages(messages if batch > 1 else messages[0], timeout=timeout)
        except ServiceBusError:
            return False
        self.accepted += bodies
        return True

    def send_until(self, condition: Callable[[], bool], timeout: float = 10) -> None:
        def send_and_look() -> bool:
            self.send(timeout)
            return condition()

        until(send_and_look)


@contextmanager
def paired(
    spaces: Spaces, primary: str | None = None, **options: Any
) -> Iterator[tuple[PairedNamespaceClient, list[PairingEvent]]]:
    events: list[PairingEvent] = []
    chosen = SendAvailabilityPairedNamespaceOptions(
        **{
            "backlog_queue_count": 2,
            "failover_interval": timedelta(seconds=0.3),
            "ping_primary_interval": timedelta(seconds=1),
            "on_event": events.append,
            **options,
        }
    )
    with (
        spaces.secondary.administration() as administration,
        pair_namespaces(
            primary or spaces.primary.connection_string,
            spaces.secondary.connection_string,
            chosen,
            secondary_administration=administration,
            **CLIENT_OPTIONS,
        ) as client,
    ):
        yield client, events


def is_in(client: PairedNamespaceClient, availability: Availability) -> Callable[[], bool]:
    return lambda: client.state().entities[0].availability is availability


def arrived(spaces: Spaces, path: str, wanted: list[str]) -> list[str]:
    """What the destination got once all that is wanted is there."""
    until(lambda: spaces.primary.count(path) >= len(wanted))
    return spaces.primary.take_all(path)


def test_on_a_good_day_messages_go_to_the_primary_unchanged(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, events), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        assert sending.send()
        assert sending.send(batch=3)
        assert arrived(spaces, path, sending.accepted) == sending.accepted
        assert events == []


def test_a_killed_primary_costs_no_accepted_message(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, events), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        assert sending.send()
        spaces.primary.kill()
        sending.send_until(is_in(client, Availability.FAILED_OVER))
        assert all(sending.send(batch=1 + number % 3) for number in range(20))
        spaces.primary.revive()
        sending.send_until(is_in(client, Availability.HEALTHY))
        assert sending.send()
        kinds = [event.kind for event in events]
        assert kinds.index(EventKind.TIMER_STARTED) < kinds.index(EventKind.FAILED_OVER)
        assert kinds.index(EventKind.FAILED_OVER) < kinds.index(EventKind.BACKLOG_SEND)
        assert kinds.count(EventKind.RECOVERED) == 1
    with paired(spaces, enable_syphon=True):
        assert set(arrived(spaces, path, sending.accepted)) == set(sending.accepted)


def test_a_hung_primary_is_failed_over_within_the_timeouts(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, _), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        assert sending.send()
        spaces.primary.hang()
        sending.send_until(is_in(client, Availability.FAILED_OVER), timeout=0.3)
        started = time.monotonic()
        assert all(sending.send() for _ in range(5))
        assert time.monotonic() - started < 5
        spaces.primary.revive()
        until(is_in(client, Availability.HEALTHY))
        assert sending.send()


def test_with_both_namespaces_down_nothing_is_accepted(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, _), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        spaces.primary.kill()
        spaces.secondary.kill()
        sending.send_until(is_in(client, Availability.FAILED_OVER))
        assert not any(sending.send() for _ in range(3))
        assert sending.accepted == []


def test_a_deleted_entity_is_told_to_the_sender_instead_of_filling_the_backlog(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, _), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        spaces.primary.hang()
        sending.send_until(is_in(client, Availability.FAILED_OVER), timeout=0.3)
        spaces.primary.revive()
        with spaces.primary.administration() as administration:
            administration.delete_queue(path)
        until(is_in(client, Availability.REFUSING))
        with pytest.raises(ServiceBusError) as caught:
            sender.send_messages(ServiceBusMessage("x"))
        assert classify(caught.value) is FailureKind.NOT_FOUND


def test_a_backlog_queue_that_refuses_is_taken_out_and_the_send_succeeds(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with paired(spaces) as (client, events), client.get_queue_sender(path) as sender:
        with spaces.secondary.administration() as administration:
            closed = administration.get_queue(client.backlog_queues[0])
            closed.status = "SendDisabled"
            administration.update_queue(closed)
        try:
            spaces.primary.hang()
            sending = Sending(sender)
            sending.send_until(is_in(client, Availability.FAILED_OVER), timeout=0.3)
            others = [Sending(client.get_queue_sender(path)) for _ in range(2)]
            assert all(each.send() for each in others)
            assert [event.kind for event in events].count(EventKind.QUEUE_TAKEN_OUT) <= 1
        finally:
            with spaces.secondary.administration() as administration:
                closed.status = "Active"
                administration.update_queue(closed)


def test_a_flapping_primary_costs_no_accepted_message(spaces: Spaces) -> None:
    path = spaces.primary.create_queue(requires_duplicate_detection=True)
    with paired(spaces, enable_syphon=True) as (client, _), client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        stop = threading.Event()

        def flap() -> None:
            while not stop.wait(0.6):
                spaces.primary.hang()
                stop.wait(0.9)
                spaces.primary.revive()

        flapping = threading.Thread(target=flap)
        flapping.start()
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            sending.send(timeout=0.3)
        stop.set()
        flapping.join()
        until(is_in(client, Availability.HEALTHY))
        bodies = arrived(spaces, path, sending.accepted)
        assert set(sending.accepted) <= set(bodies)
        assert len(bodies) == len(set(bodies))


def test_messages_of_a_session_come_home_in_order_and_with_their_session(spaces: Spaces) -> None:
    path = spaces.primary.create_queue(requires_session=True)
    with paired(spaces, enable_syphon=True) as (client, _), client.get_queue_sender(path) as sender:
        sending = Sending(sender, session_id="s", time_to_live=timedelta(hours=1))
        spaces.primary.hang()
        sending.send_until(is_in(client, Availability.FAILED_OVER), timeout=0.3)
        assert all(sending.send() for _ in range(30))
        spaces.primary.revive()
        until(lambda: spaces.primary.count(path) >= len(sending.accepted))
        assert spaces.primary.take_all(path, session_id="s") == sending.accepted


def test_what_is_sent_to_a_topic_reaches_its_subscriptions_after_the_outage(spaces: Spaces) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with spaces.primary.administration() as administration:
        administration.create_topic(topic)
        administration.create_subscription(topic, "all")
    with (
        paired(spaces, enable_syphon=True, failover_interval=timedelta(0)) as (client, _),
        client.get_topic_sender(topic) as sender,
    ):
        spaces.primary.kill()
        sending = Sending(sender)
        assert sending.send()
        spaces.primary.revive()
        assert spaces.primary.take_subscription(topic, "all", count=1) == sending.accepted


def test_a_revoked_key_is_raised_and_never_fails_over(spaces: Spaces) -> None:
    head, _, tail = spaces.primary.connection_string.partition("SharedAccessKey=")
    revoked = f"{head}SharedAccessKey=cmV2b2tlZA==;{tail.partition(';')[2]}"
    path = spaces.primary.create_queue()
    with (
        paired(spaces, primary=revoked, failover_interval=timedelta(0)) as (client, events),
        client.get_queue_sender(path) as sender,
    ):
        with pytest.raises(ServiceBusError) as caught:
            sender.send_messages(ServiceBusMessage("x"), timeout=2)
        assert classify(caught.value) is FailureKind.UNAUTHORIZED
        assert client.state().entities[0].availability is Availability.HEALTHY
        assert events == []


def test_a_dead_store_makes_the_primary_busy_and_never_fails_over(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with (
        paired(spaces, failover_interval=timedelta(0)) as (client, _),
        client.get_queue_sender(path) as sender,
        spaces.primary.stores_down(),
    ):
        with pytest.raises(ServiceBusError) as caught:
            sender.send_messages(ServiceBusMessage("x"), timeout=5)
        assert classify(caught.value) is FailureKind.BUSY
        assert client.state().entities[0].availability is Availability.HEALTHY
