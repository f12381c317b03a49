"""Two real namespaces and the outages they can have: what was accepted is delivered, waiting or dead-lettered."""

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess, until
from tests.pairing.relay_thread import RelayThread
from tests.pairing.trial import BACKLOG_QUEUE_COUNT, Trial, is_in
from twinbus.pairing import Availability, EventKind, FailureKind, classify
from twinbus.pairing.backlog.queues import backlog_queue_path

TIMEOUT_S = 10
"""Of a send that does not say otherwise: what waits for a hung primary takes at least as long."""


@pytest.mark.rule("B2.1")
def test_on_a_good_day_messages_go_to_the_primary_unchanged(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender:
        assert trial.send(sender)
        assert trial.send(sender, 3)
        batch = sender.create_message_batch()
        (message,) = trial.messages(1)
        batch.add_message(message)
        sender.send_messages(batch)
        trial.concluded([message], None)
    assert trial.audit().delivered == ["m0", "m1", "m2", "m3", "m4"]
    assert trial.events == []


@pytest.mark.rule("B2.1")
def test_on_a_good_day_the_primary_gets_the_very_message_that_the_stock_sender_sends(spaces: Spaces) -> None:
    message = ServiceBusMessage(
        b"\x00body",
        message_id="m",
        session_id="s",
        subject="label",
        correlation_id="c",
        application_properties={"text": "t", "number": 5, "id": uuid.UUID(int=7)},
        scheduled_enqueue_time_utc=datetime(2099, 1, 1, tzinfo=UTC),
    )
    trial, stock = Trial(spaces), spaces.primary.create_queue()
    with trial.paired() as client, trial.sender(client) as sender:
        sender.send_messages(message)
        with client.primary.get_queue_sender(stock) as plain:
            plain.send_messages(message)
    assert spaces.primary.first_message(trial.path) == spaces.primary.first_message(stock)


@pytest.mark.rule("B5.5", "B3", "B7", "B11")
def test_a_killed_primary_costs_no_accepted_message(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender:
        assert trial.send(sender)
        spaces.primary.kill()
        trial.fail_over(client, sender, timeout=10)
        assert all(trial.send(sender, 1 + number % 3) for number in range(20))
        spaces.primary.revive()
        until(is_in(client, Availability.HEALTHY))
        assert trial.send(sender)
        kinds = trial.kinds()
        assert kinds.index(EventKind.TIMER_STARTED) < kinds.index(EventKind.FAILED_OVER)
        assert kinds.index(EventKind.FAILED_OVER) < kinds.index(EventKind.BACKLOG_SEND)
        assert kinds.count(EventKind.RECOVERED) == 1
    trial.bring_home()
    assert trial.audit().waiting == []


@pytest.mark.rule("B3", "B5")
def test_threads_that_share_a_sender_meet_the_outage_together_and_lose_nothing(spaces: Spaces) -> None:
    trial = Trial(spaces)
    stop = threading.Event()
    with trial.paired(failover_interval=timedelta(0)) as client, trial.sender(client) as sender:

        def send_on() -> None:
            while not stop.is_set():
                trial.send(sender)

        threads = [threading.Thread(target=send_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: spaces.primary.count(trial.path) > 20)
        spaces.primary.kill()
        until(lambda: trial.kinds().count(EventKind.BACKLOG_SEND) > 20)
        spaces.primary.revive()
        until(is_in(client, Availability.HEALTHY))
        stop.set()
        for thread in threads:
            thread.join()
    trial.bring_home()
    ledger = trial.audit(may_repeat=True)
    assert ledger.waiting == []
    assert trial.kinds().count(EventKind.FAILED_OVER) == trial.kinds().count(EventKind.RECOVERED)


@pytest.mark.rule("B4", "B5")
def test_a_hung_primary_is_failed_over_within_the_timeouts(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender:
        assert trial.send(sender)
        spaces.primary.hang()
        trial.fail_over(client, sender)
        started = time.monotonic()
        assert all(trial.send(sender) for _ in range(5))
        assert time.monotonic() - started < TIMEOUT_S
        spaces.primary.revive()
        until(is_in(client, Availability.HEALTHY))
        assert trial.send(sender)
    assert len(trial.audit().waiting) >= 5


@pytest.mark.rule("B4", "B7")
def test_traffic_into_a_black_hole_is_failed_over_and_comes_back(spaces: Spaces) -> None:
    """Neither side of a connection hears that nothing arrives any more, and new connections are taken too."""
    trial = Trial(spaces)
    with RelayThread(spaces.primary.amqp_port) as relay:
        by_relay = spaces.primary.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")
        with trial.paired(by_relay) as client, trial.sender(client) as sender:
            assert trial.send(sender)
            relay.hold()
            trial.fail_over(client, sender)
            assert all(trial.send(sender) for _ in range(5))
            relay.pass_on()
            until(is_in(client, Availability.HEALTHY))
            assert trial.send(sender)
    trial.bring_home()
    assert trial.audit().waiting == []


@pytest.mark.rule("B4.1")
def test_refused_connections_are_failed_over(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with RelayThread(spaces.primary.amqp_port) as relay:
        by_relay = spaces.primary.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")
        with trial.paired(by_relay) as client, trial.sender(client) as sender:
            assert trial.send(sender)
            relay.refuse()
            trial.fail_over(client, sender, timeout=10)
            assert all(trial.send(sender) for _ in range(5))
    assert len(trial.audit().waiting) >= 5


@pytest.mark.rule("B5.4")
def test_with_both_namespaces_down_the_caller_gets_the_error(spaces: Spaces) -> None:
    """What a hung secondary had in its socket may be there later: nobody was told that it is."""
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender:
        spaces.primary.hang()
        spaces.secondary.hang()
        trial.fail_over(client, sender)
        assert not any(trial.send(sender, timeout=0.3) for _ in range(3))
        spaces.secondary.revive()
        spaces.primary.revive()
    trial.bring_home()
    trial.audit(may_repeat=True)


@pytest.mark.rule("B7", "B8")
def test_a_deleted_entity_is_raised_to_the_sender_and_its_backlog_dead_lettered(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender:
        spaces.primary.hang()
        trial.fail_over(client, sender)
        assert all(trial.send(sender) for _ in range(3))
        spaces.primary.revive()
        with spaces.primary.administration() as administration:
            administration.delete_queue(trial.path)
        until(is_in(client, Availability.REFUSING))
        assert not trial.send(sender)
        assert trial.last_failure is FailureKind.NOT_FOUND
    trial.bring_home()
    assert len(trial.audit(is_gone=True).dead_lettered) >= 3


@pytest.mark.rule("B5.3")
def test_a_full_backlog_queue_is_taken_out_and_another_takes_its_messages(spaces: Spaces, tmp_path: Path) -> None:
    """The secondary's megabytes have 100 bytes, so a queue of 1024 of them is full for real after 100 KB."""
    secondary = NamespaceProcess(tmp_path, "small", megabyte=100)
    try:
        trial = Trial(spaces, secondary=secondary)
        full = backlog_queue_path(trial.primary_name, 0)
        with secondary.administration() as administration:
            administration.create_queue(full, max_size_in_megabytes=1024)
        secondary.fill(full)
        with trial.paired(failover_interval=timedelta(0)) as client:
            spaces.primary.hang()
            trial.fail_over(client, trial.sender(client))
            taken_out = trial.send_until_taken_out(client)
            assert taken_out.queue == full
            assert taken_out.error is not None
            assert classify(taken_out.error) is FailureKind.QUOTA
            spaces.primary.revive()
        trial.bring_home()
        assert trial.audit().waiting == []
    finally:
        secondary.kill()


@pytest.mark.rule("B5")
def test_a_backlog_queue_in_a_dead_store_is_taken_out_and_another_takes_its_messages(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired(failover_interval=timedelta(0)) as client:
        spaces.primary.hang()
        trial.fail_over(client, trial.sender(client))
        with spaces.secondary.stores_down(0):
            trial.send_until_taken_out(client)
        spaces.primary.revive()
    trial.bring_home()
    assert trial.audit().waiting == []


@pytest.mark.rule("B4.2")
def test_a_dead_store_is_an_outage_of_its_entities_and_of_no_others(spaces: Spaces) -> None:
    """Queues made one after the other live in different stores: one of the two fails over, and one notices nothing."""
    trials = [Trial(spaces), Trial(spaces)]
    with trials[0].paired(failover_interval=timedelta(0)) as client:
        senders = [trial.sender(client) for trial in trials]
        with spaces.primary.stores_down(0):
            sent = [trial.send(sender, timeout=5) for trial, sender in zip(trials, senders, strict=True)]
            assert sent == [True, True]
            states = {state.path: state.availability for state in client.state().entities}
            assert sorted(states.values(), key=str) == sorted([Availability.FAILED_OVER, Availability.HEALTHY], key=str)
        (failed_over,) = [path for path, state in states.items() if state is Availability.FAILED_OVER]
        client.mark_healthy(failed_over)
        for trial, sender in zip(trials, senders, strict=True):
            until(partial(trial.send, sender))
    assert sorted(len(trial.audit().waiting) for trial in trials) == [0, 1]


@pytest.mark.rule("B5", "B8")
def test_a_flapping_primary_costs_no_accepted_message_and_repeats_none(spaces: Spaces) -> None:
    trial = Trial(spaces, requires_duplicate_detection=True)
    with trial.paired(enable_syphon=True) as client, trial.sender(client) as sender:
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
            trial.send(sender, timeout=0.3)
        stop.set()
        flapping.join()
        until(is_in(client, Availability.HEALTHY))
        until(lambda: not trial.waiting())
    trial.audit()


@pytest.mark.rule("B8.7", "B6")
def test_messages_of_a_session_come_home_in_order_and_with_their_session(spaces: Spaces) -> None:
    trial = Trial(spaces, requires_session=True)
    session: dict[str, Any] = {"session_id": "s", "time_to_live": timedelta(hours=1)}
    with trial.paired(failover_interval=timedelta(0)) as client, trial.sender(client) as sender:
        spaces.primary.hang()
        assert not trial.send(sender, timeout=0.3, **session)
        assert all(trial.send(sender, **session) for _ in range(30))
        spaces.primary.revive()
    trial.bring_home()
    delivered = [int(name[1:]) for name in trial.audit(may_repeat=True).delivered]
    assert delivered[-30:] == sorted(delivered[-30:])
    assert len(spaces.primary.take_all(trial.path, session_id="s")) == len(delivered)


@pytest.mark.rule("B8.7", "B5")
def test_a_message_session_is_in_order_though_its_backlog_queue_was_lost_in_the_middle(spaces: Spaces) -> None:
    """Each of the two queues is in a store of its own: the session moves from the lost one to the other."""
    trial = Trial(spaces, requires_session=True)
    with trial.paired(failover_interval=timedelta(0)) as client, trial.sender(client) as sender:
        spaces.primary.kill()
        for store in (0, 1, 0):
            with spaces.secondary.stores_down(store):
                assert all(trial.send(sender, timeout=30, session_id="s") for _ in range(5))
        used = {event.queue for event in trial.events if event.kind is EventKind.BACKLOG_SEND}
        assert len(used) == BACKLOG_QUEUE_COUNT
        spaces.primary.revive()
    trial.bring_home()
    trial.audit(may_repeat=True)
    arrived = spaces.primary.take_all(trial.path, "s")
    assert list(dict.fromkeys(arrived)) == [f"m{number}" for number in range(15)]


@pytest.mark.rule("B5", "B8")
def test_what_is_sent_to_a_topic_reaches_its_subscriptions_after_the_outage(spaces: Spaces) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with spaces.primary.administration() as administration:
        administration.create_topic(topic)
        administration.create_subscription(topic, "all")
    trial = Trial(spaces, path=topic)
    with (
        trial.paired(failover_interval=timedelta(0)) as client,
        client.get_topic_sender(topic) as sender,
    ):
        spaces.primary.hang()
        trial.fail_over(client, sender)
        assert trial.send(sender)
        spaces.primary.revive()
    trial.bring_home()
    assert "m1" in [name for name, _ in spaces.primary.peek(f"{topic}/Subscriptions/all")]


@pytest.mark.rule("B4")
def test_a_key_revoked_on_an_open_link_is_raised_and_fills_no_backlog(spaces: Spaces) -> None:
    """The cut connection is an outage, and starts the timer; what comes after it is none."""
    trial = Trial(spaces)
    name = f"app{uuid.uuid4().hex[:8]}"
    own_key = spaces.primary.make_key(name)
    with trial.paired(own_key, failover_interval=timedelta(minutes=1)) as client:
        sender = trial.sender(client)
        assert trial.send(sender)
        spaces.primary.revoke_key(name)
        until(lambda: not trial.send(sender, timeout=2) and trial.last_failure is FailureKind.UNAUTHORIZED)
        assert EventKind.FAILED_OVER not in trial.kinds()
    ledger = trial.audit()
    assert (ledger.delivered, ledger.waiting) == (["m0"], [])


@pytest.mark.rule("B7")
def test_a_key_revoked_during_the_outage_is_raised_to_the_sender_instead_of_filling_the_backlog(spaces: Spaces) -> None:
    trial = Trial(spaces)
    name = f"app{uuid.uuid4().hex[:8]}"
    own_key = spaces.primary.make_key(name)
    with RelayThread(spaces.primary.amqp_port) as relay:
        endpoint = f"Endpoint=sb://127.0.0.1:{relay.port}"
        by_relay = ";".join([endpoint, *own_key.split(";")[1:]])
        with trial.paired(by_relay) as client, trial.sender(client) as sender:
            assert trial.send(sender)
            relay.hold()
            trial.fail_over(client, sender)
            assert trial.send(sender)
            spaces.primary.revoke_key(name)
            relay.pass_on()
            until(is_in(client, Availability.REFUSING))
            assert not trial.send(sender)
            assert trial.last_failure is FailureKind.UNAUTHORIZED
    assert len(trial.audit(may_repeat=True).waiting) >= 1


@pytest.mark.rule("B8.7")
def test_a_message_session_is_in_order_through_an_outage_and_its_end(spaces: Spaces) -> None:
    """While it sends without a pause: after the heal it goes on through the backlog, and then directly again."""
    trial, sent = Trial(spaces, requires_session=True), list[str]()
    with trial.paired(enable_syphon=True) as client, trial.sender(client) as sender:

        def send() -> None:
            (message,) = trial.messages(1, session_id="s")
            try:
                sender.send_messages(message, timeout=5)
            except ServiceBusError as error:
                trial.concluded([message], error)
            else:
                trial.concluded([message], None)
                sent.append(str(message.message_id))

        def send_until(condition: Callable[[], bool]) -> None:
            def has_come() -> bool:
                send()
                return condition()

            until(has_come)

        send()
        spaces.primary.kill()
        send_until(lambda: len(sent) > 20)
        spaces.primary.revive()
        send_until(is_in(client, Availability.CATCHING_UP))
        send_until(is_in(client, Availability.HEALTHY))
        send()
        assert EventKind.CAUGHT_UP in trial.kinds()
    assert trial.waiting() == trial.dead() == []
    assert spaces.primary.take_all(trial.path, "s") == sent
