"""What an application does with the Python SDK, in the words that all its versions from 7.6 on understand.

A script for the Python of an environment that has one of these versions; nothing of ours is installed there. Prints the
name of every scenario with "passed" or a traceback, and ends with 1 if one failed.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

PREFIX = os.environ["TWINBUS_PREFIX"]
AUTHORITY = os.environ["TWINBUS_AUTHORITY"]
TLS = os.environ["TWINBUS_TLS"]
HOST = os.environ["TWINBUS_TLS_HOST"]
PORT = os.environ["TWINBUS_TLS_PORT"]
TRANSPORT = os.environ["TWINBUS_TRANSPORT"]

if TRANSPORT == "uamqp":
    # It knows one port and one list of authorities. Who uses it listens at that port and adds to that list.
    import certifi
    import uamqp

    uamqp.constants.DEFAULT_AMQPS_PORT = int(PORT)
    certifi.where = lambda: AUTHORITY

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode  # noqa: E402
from azure.servicebus.exceptions import ServiceBusError  # noqa: E402
from azure.servicebus.management import (  # noqa: E402
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

TRANSPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tcp": (os.environ["TWINBUS_PLAIN"], {}),
    "tls": (TLS, {"connection_verify": AUTHORITY}),
    "wss": (TLS, {"connection_verify": AUTHORITY, "custom_endpoint_address": f"sb://{HOST}:{PORT}"}),
    "uamqp": (TLS.replace(f":{PORT}", ""), {}),
}
WAIT_S = 10

administration = ServiceBusAdministrationClient.from_connection_string(TLS)


def new_client() -> ServiceBusClient:
    connection_string, options = TRANSPORTS[TRANSPORT]
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0, **options)


def new_queue(name: str, **properties: Any) -> str:
    full_name = f"{PREFIX}/{name}"
    administration.create_queue(full_name, **properties)
    return full_name


def take(receiver: Any, count: int) -> list[Any]:
    """So many messages; fewer if they do not come in time."""
    taken: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count and time.monotonic() < deadline:
        taken += receiver.receive_messages(count - len(taken), max_wait_time=1)
    assert len(taken) == count, f"{len(taken)} of {count} messages came"
    return taken


def take_one(receiver: Any) -> Any:
    return take(receiver, 1)[0]


def send_and_receive(client: ServiceBusClient) -> None:
    queue = new_queue("plain")
    message = ServiceBusMessage(
        "one",
        message_id="id-1",
        subject="subject",
        correlation_id="correlation",
        content_type="text/plain",
        time_to_live=timedelta(hours=1),
        application_properties={"text": "value", "number": 7, "yes": True},
    )
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(message)
        sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("four"))
        sender.send_messages(batch)
        taken = take(receiver, 4)
        assert [str(one) for one in taken] == ["one", "two", "three", "four"]
        first = taken[0]
        assert (first.message_id, first.subject, first.correlation_id) == ("id-1", "subject", "correlation")
        assert (first.content_type, first.time_to_live) == ("text/plain", timedelta(hours=1))
        assert first.application_properties == {b"text": b"value", b"number": 7, b"yes": True}
        assert [one.sequence_number for one in taken] == [1, 2, 3, 4]
        for one in taken:
            receiver.complete_message(one)
    assert administration.get_queue_runtime_properties(queue).total_message_count == 0


def large_message(client: ServiceBusClient) -> None:
    queue = new_queue("large")
    receiver = client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    with client.get_queue_sender(queue) as sender, receiver:
        sender.send_messages(ServiceBusMessage("x" * 200_000))
        assert str(take_one(receiver)) == "x" * 200_000


def abandon_and_dead_letter(client: ServiceBusClient) -> None:
    queue = new_queue("abandoned")
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("again"))
        receiver.abandon_message(take_one(receiver))
        again = take_one(receiver)
        assert again.delivery_count == 1
        receiver.dead_letter_message(again, reason="wrong", error_description="it was wrong")
    with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        letter = take_one(dead)
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("wrong", "it was wrong")
        dead.complete_message(letter)


def defer(client: ServiceBusClient) -> None:
    queue = new_queue("deferred")
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("later"))
        message = take_one(receiver)
        receiver.defer_message(message)
        (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
        assert str(deferred) == "later"
        receiver.complete_message(deferred)


def peek_and_renew_lock(client: ServiceBusClient) -> None:
    queue = new_queue("peeked", lock_duration=timedelta(seconds=30))
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        assert [str(message) for message in receiver.peek_messages(5)] == ["one", "two"]
        message = take_one(receiver)
        before = message.locked_until_utc
        time.sleep(0.05)
        assert receiver.renew_message_lock(message) > before
        receiver.complete_message(message)
        receiver.complete_message(take_one(receiver))


def sessions(client: ServiceBusClient) -> None:
    queue = new_queue("sessions", requires_session=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id="s1") for text in ("one", "two")])
        sender.send_messages(ServiceBusMessage("other", session_id="s2"))
    with client.get_queue_receiver(queue, session_id="s1") as receiver:
        receiver.session.set_state("half way")
        assert receiver.session.get_state() == b"half way"
        before = receiver.session.locked_until_utc
        assert before is not None
        time.sleep(0.05)
        assert receiver.session.renew_lock() > before
        taken = take(receiver, 2)
        assert [(str(message), message.session_id) for message in taken] == [("one", "s1"), ("two", "s1")]
        for message in taken:
            receiver.complete_message(message)


def schedule_and_cancel(client: ServiceBusClient) -> None:
    queue = new_queue("scheduled")
    now = datetime.now(UTC)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        later = [ServiceBusMessage("cancelled"), ServiceBusMessage("cancelled too")]
        numbers = sender.schedule_messages(later, now + timedelta(hours=1))
        assert len(set(numbers)) == 2
        assert [str(message) for message in receiver.peek_messages(5)] == ["cancelled", "cancelled too"]
        sender.cancel_scheduled_messages(numbers)
        sender.schedule_messages(ServiceBusMessage("kept"), now + timedelta(seconds=1))
        message = take_one(receiver)
        assert str(message) == "kept"
        receiver.complete_message(message)
        assert receiver.peek_messages(5) == []


def topic_with_rules(client: ServiceBusClient) -> None:
    topic = f"{PREFIX}/topic"
    administration.create_topic(topic)
    rules: dict[str, CorrelationRuleFilter | SqlRuleFilter] = {
        "red": CorrelationRuleFilter(label="red"),
        "large": SqlRuleFilter("size > 10"),
    }
    for name, rule_filter in rules.items():
        administration.create_subscription(topic, name)
        administration.delete_rule(topic, name, "$Default")
        action = SqlRuleAction("SET seen = 'yes'")
        administration.create_rule(topic, name, "only", filter=rule_filter, action=action)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("one", subject="red", application_properties={"size": 1}))
        sender.send_messages(ServiceBusMessage("two", subject="blue", application_properties={"size": 11}))
    for name, text in (("red", "one"), ("large", "two")):
        with client.get_subscription_receiver(topic, name) as receiver:
            message = take_one(receiver)
            assert (str(message), message.application_properties[b"seen"]) == (text, b"yes")
            receiver.complete_message(message)
            assert receiver.peek_messages(5) == []


def refusals(client: ServiceBusClient) -> None:
    def refused(queue: str) -> str:
        try:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("lost"))
        except ServiceBusError as error:
            return str(error)
        raise AssertionError(f"the queue {queue} took a message")

    refused(f"{PREFIX}/missing")
    assert "session" in refused(new_queue("only-sessions", requires_session=True))


SCENARIOS: tuple[Callable[[ServiceBusClient], None], ...] = (
    send_and_receive,
    large_message,
    abandon_and_dead_letter,
    defer,
    peek_and_renew_lock,
    sessions,
    schedule_and_cancel,
    topic_with_rules,
    refusals,
)


def outcome(scenario: Callable[[ServiceBusClient], None]) -> str:
    try:
        with administration, new_client() as client:
            scenario(client)
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    # All at once: the SDK sleeps for most of the time, and a second whenever it closes a connection. In processes, because
    # uamqp mixes up what threads do.
    with ProcessPoolExecutor(len(SCENARIOS)) as processes:
        failures = list(processes.map(outcome, SCENARIOS))
    for scenario, failure in zip(SCENARIOS, failures, strict=True):
        print(scenario.__name__, failure or "passed", flush=True)
    sys.exit(any(failures))
