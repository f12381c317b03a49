"""Every operation of the official Python SDK with every claim: allowed, or refused with exactly the right error.

`test_python_access` has keys that are wrong or old; here every key is good and the question is what it is good for.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from tests.interop.running_server import RunningServer
from twinbus.client.administration import administration_client
from twinbus.model.descriptions import AuthorizationRule, Right

FAST: dict[str, Any] = {"retry_total": 0}
SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
RIGHTS = {SEND: frozenset({SEND}), LISTEN: frozenset({LISTEN}), MANAGE: frozenset(Right)}


class Keys(NamedTuple):
    """The clients of somebody who holds a key with one claim."""

    server: RunningServer
    client: ServiceBusClient
    administration: ServiceBusAdministrationClient


def keys_of(server: RunningServer, key_name: str) -> Keys:
    text = (
        f"Endpoint=sb://127.0.0.1:{server.server.amqp_port};SharedAccessKeyName={key_name};"
        f"SharedAccessKey={key_name}-key;UseDevelopmentEmulator=true"
    )
    administration = administration_client(text, f"http://127.0.0.1:{server.server.http_port}")
    return Keys(server, ServiceBusClient.from_connection_string(text, **FAST), administration)


@pytest.fixture(scope="module")
def entities(server: RunningServer) -> RunningServer:
    """A queue, a queue with message sessions and a topic; a namespace rule and a queue rule for each claim."""
    for right, rights in RIGHTS.items():
        key = f"{right.value}-key"
        server.server.catalog.set_namespace_rule(AuthorizationRule(right.value, key, key + "-2", rights))
    own = tuple(
        AuthorizationRule(f"own-{right.value}", f"own-{right.value}-key", "second", rights)
        for right, rights in RIGHTS.items()
    )
    server.create_queue("q", authorization_rules=own)
    server.create_queue("q/below")
    server.create_queue("talks", requires_session=True)
    server.create_topic("news", "all")
    return server


def send(keys: Keys) -> None:
    with keys.client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("a"))


def publish(keys: Keys) -> None:
    with keys.client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage("a"))


def schedule_and_cancel(keys: Keys) -> None:
    with keys.client.get_queue_sender("q") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("a"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(number)


def receive_renew_and_complete(keys: Keys) -> None:
    keys.server.put("q", "a")
    with keys.client.get_queue_receiver("q") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.renew_message_lock(message)
        receiver.complete_message(message)


def receive_from_subscription(keys: Keys) -> None:
    with keys.client.get_subscription_receiver("news", "all") as receiver:
        receiver.receive_messages(1, max_wait_time=0.1)


def receive_dead_letters(keys: Keys) -> None:
    with keys.client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        receiver.receive_messages(1, max_wait_time=0.1)


def peek(keys: Keys) -> None:
    with keys.client.get_queue_receiver("q") as receiver:
        receiver.peek_messages(1)


def receive_deferred(keys: Keys) -> None:
    with keys.client.get_queue_receiver("q") as receiver, pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages([2**40])


def use_session_state(keys: Keys) -> None:
    with keys.client.get_queue_receiver("talks", session_id="s") as receiver:
        receiver.session.set_state(b"x")
        assert receiver.session.get_state() == b"x"
        receiver.session.renew_lock()


def accept_next_session(keys: Keys) -> None:
    # A session of which nothing is left but its state is not the next one: even those who may ask wait in vain.
    with (
        pytest.raises(OperationTimeoutError),
        keys.client.get_queue_receiver("talks", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=0.2)


def get_queue(keys: Keys) -> None:
    assert keys.administration.get_queue("q").name == "q"


def list_queues(keys: Keys) -> None:
    assert [queue.name for queue in keys.administration.list_queues()]


def see_namespace(keys: Keys) -> None:
    keys.administration.get_namespace_properties()


def create_and_delete_queue(keys: Keys) -> None:
    keys.administration.create_queue("made")
    keys.administration.delete_queue("made")


def update_queue(keys: Keys) -> None:
    everything = administration_client(
        keys.server.connection_string, f"http://127.0.0.1:{keys.server.server.http_port}"
    )
    with everything:
        queue = everything.get_queue("talks")
    keys.administration.update_queue(queue)


def create_and_delete_subscription(keys: Keys) -> None:
    keys.administration.create_subscription("news", "made")
    keys.administration.delete_subscription("news", "made")


def create_list_and_delete_rules(keys: Keys) -> None:
    keys.administration.create_rule("news", "all", "made", filter=SqlRuleFilter("a = 1"))
    assert len(list(keys.administration.list_rules("news", "all"))) == 2
    keys.administration.delete_rule("news", "all", "made")


Operation = Callable[[Keys], None]

SENDING: list[Operation] = [send, publish, schedule_and_cancel]
LISTENING: list[Operation] = [
    receive_renew_and_complete,
    receive_from_subscription,
    receive_dead_letters,
    peek,
    receive_deferred,
    use_session_state,
    accept_next_session,
]
MANAGING: list[Operation] = [
    get_queue,
    list_queues,
    see_namespace,
    create_and_delete_queue,
    update_queue,
    create_and_delete_subscription,
    create_list_and_delete_rules,
]
NEEDED = {**dict.fromkeys(SENDING, SEND), **dict.fromkeys(LISTENING, LISTEN), **dict.fromkeys(MANAGING, MANAGE)}


@pytest.mark.parametrize("held", RIGHTS, ids=lambda right: right.value)
@pytest.mark.parametrize("operation", NEEDED, ids=lambda operation: operation.__name__)
def test_an_operation_needs_its_claim(entities: RunningServer, operation: Operation, held: Right) -> None:
    keys = keys_of(entities, held.value)
    needed = NEEDED[operation]
    with keys.client, keys.administration:
        if held in (needed, MANAGE):
            operation(keys)
        elif needed is MANAGE:
            with pytest.raises(ClientAuthenticationError) as refused:
                operation(keys)
            assert refused.value.status_code == 401
            assert "'Manage' claim is required" in str(refused.value)
        else:
            with pytest.raises(ServiceBusAuthorizationError) as denied:
                operation(keys)
            assert f"'{needed.value}' claim is required" in str(denied.value)


@pytest.mark.parametrize("held", RIGHTS, ids=lambda right: right.value)
def test_the_key_of_a_queue_is_good_for_that_queue_alone(entities: RunningServer, held: Right) -> None:
    keys = keys_of(entities, f"own-{held.value}")
    with keys.client, keys.administration:
        told: set[Any] = set()
        for path in ("q/below", "talks", "nothing"):
            denied: Any
            with (
                pytest.raises(ServiceBusAuthenticationError) as denied,
                keys.client.get_queue_sender(path) as sender,
            ):
                sender.send_messages(ServiceBusMessage("a"))
            # The SDK's own text omits what the server said.
            told.add(denied.value.inner_exception.status_description)
        assert len(told) == 1
        assert b"no such key" in told.pop()
        for elsewhere in (list_queues, see_namespace, create_and_delete_queue, update_queue):
            with pytest.raises(ClientAuthenticationError):
                elsewhere(keys)


def test_the_key_of_a_queue_that_manages_it_does_everything_there(entities: RunningServer) -> None:
    keys = keys_of(entities, "own-Manage")
    with keys.client, keys.administration:
        for operation in (send, schedule_and_cancel, receive_renew_and_complete, peek, receive_dead_letters, get_queue):
            operation(keys)


def test_an_open_link_outlives_its_key_and_a_new_one_does_not(entities: RunningServer) -> None:
    rule = AuthorizationRule("short", "short-key", "second", frozenset({SEND}))
    entities.server.catalog.set_namespace_rule(rule)
    keys = keys_of(entities, "short")
    with keys.client, keys.client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("a"))
        entities.server.catalog.remove_namespace_rule("short")
        sender.send_messages(ServiceBusMessage("b"))
        with pytest.raises(ServiceBusAuthenticationError), keys.client.get_queue_sender("q") as late:
            late.send_messages(ServiceBusMessage("c"))
