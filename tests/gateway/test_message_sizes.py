"""How large messages and batches may be: what links announce, what is accepted, and what is refused."""

from pathlib import Path

import pytest

from tests.gateway.control_link import Control, answers, condition
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, Rejected, TransactionalState
from twinbus.amqp.codec.sections import DataBody, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Long, Symbol
from twinbus.amqp.events import Dispositions
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message_limits import BATCH_COUNT_MAX, BATCH_SIZE_MAX, MESSAGE_SIZE_CEILING, MESSAGE_SIZE_MAX
from twinbus.model.wire_names import BATCH_FORMAT, TRANSFER_DESTINATION_ADDRESS
from twinbus.testing.simulation import Answer

TOO_LARGE = "amqp:link:message-size-exceeded"
BATCH_SIZE = "com.microsoft:max-message-batch-size"
LARGE_KB = 2_048
LARGE = LARGE_KB * 1024
ENVELOPE = MessageProperties(message_id="m" * 128, group_id="s" * 128)
SECTION, SMALL_SECTION = 8, 5


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("usual"))
    front.sim.queue(QueueDescription("large", max_message_size_kb=LARGE_KB))
    front.sim.queue(QueueDescription("largest", max_message_size_kb=MESSAGE_SIZE_CEILING // 1024))
    front.sim.topic(TopicDescription("news", max_message_size_kb=LARGE_KB))
    front.sim.subscription(SubscriptionDescription("news", "talks", requires_session=True))
    return front


def message(size: int) -> bytes:
    """An encoded message of exactly this size."""
    encoded = payload("x" * size)
    return payload("x" * (2 * size - len(encoded)))


def batch(*messages: bytes) -> bytes:
    return encode_sections(Sections(properties=ENVELOPE, body=DataBody(list(messages))))


def outcome(client: Client, sender: OutgoingLink, sent: bytes, message_format: int = 0) -> tuple[str, str] | None:
    """None if it is accepted, or the condition and the text of its refusal."""
    sender.transfer(sent, b"1", message_format=message_format)
    client.run()
    (answer,) = client.take(Dispositions)
    if answer.state == ACCEPTED:
        return None
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    return answer.state.error.condition, answer.state.error.description or ""


@pytest.mark.parametrize(
    ("address", "size", "batch_size"),
    [
        ("usual", MESSAGE_SIZE_MAX, MESSAGE_SIZE_MAX),
        ("large", LARGE, BATCH_SIZE_MAX),
        ("news", LARGE, BATCH_SIZE_MAX),
        ("largest", MESSAGE_SIZE_CEILING, BATCH_SIZE_MAX),
    ],
)
def test_a_link_announces_the_sizes_of_its_entity(front: Front, address: str, size: int, batch_size: int) -> None:
    sender = front.client().sender(address)
    announced = sender.properties[BATCH_SIZE]
    assert (sender.attach.max_message_size, announced, type(announced)) == (size, batch_size, Long)


@pytest.mark.parametrize(("address", "size"), [("usual", MESSAGE_SIZE_MAX), ("large", LARGE), ("news", LARGE)])
def test_a_message_may_have_the_size_of_its_entity_and_no_byte_more(front: Front, address: str, size: int) -> None:
    client = front.client()
    sender = client.sender(address)
    assert outcome(client, sender, message(size)) is None
    for excess in (1, 100_000):
        found, text = outcome(client, sender, message(size + excess)) or ("", "")
        assert (found, f"'{address}'" in text, f"at most {size} bytes" in text) == (TOO_LARGE, True, True)


def test_a_message_in_a_transaction_may_have_the_size_of_its_entity_and_no_byte_more(front: Front) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("usual")
    txn_id = control.declare()
    for excess, refusal in ((0, None), (1, TOO_LARGE)):
        sender.transfer(message(MESSAGE_SIZE_MAX + excess), b"1", state=TransactionalState(txn_id=txn_id))
        client.run()
        assert [condition(state) for state in answers(client)] == [refusal]
    traffic = front.traffic.of("usual")
    assert (traffic.messages_in, traffic.refused) == (1, 1)


def test_a_link_sent_via_another_entity_has_the_smaller_limit_of_both(front: Front) -> None:
    for via, destination in (("large", "usual"), ("usual", "large")):
        sender = front.client().sender(via, {Symbol(TRANSFER_DESTINATION_ADDRESS): destination})
        assert sender.attach.max_message_size == MESSAGE_SIZE_MAX


def test_a_smaller_limit_holds_at_once_and_a_larger_one_from_the_next_link_on(front: Front) -> None:
    client = front.client()
    large, usual = client.sender("large"), client.sender("usual")
    for changed in (QueueDescription("large"), QueueDescription("usual", max_message_size_kb=LARGE_KB)):
        front.sim.entities.update(changed, front.sim.now, Answer[None]())
    client.run()
    assert (outcome(client, large, message(MESSAGE_SIZE_MAX + 1)) or ("",))[0] == TOO_LARGE
    assert (outcome(client, usual, message(MESSAGE_SIZE_MAX + 1)) or ("",))[0] == TOO_LARGE
    assert outcome(client, client.sender("usual"), message(MESSAGE_SIZE_MAX + 1)) is None


def test_the_envelope_of_a_batch_does_not_count(front: Front) -> None:
    client = front.client()
    sender = client.sender("usual")
    half = MESSAGE_SIZE_MAX // 2 - SECTION
    assert outcome(client, sender, batch(message(half), message(half)), BATCH_FORMAT) is None
    found, text = outcome(client, sender, batch(message(half), message(half + 1)), BATCH_FORMAT) or ("", "")
    assert (found, f"batches of at most {MESSAGE_SIZE_MAX} bytes" in text) == (TOO_LARGE, True)


def test_small_messages_of_a_batch_count_with_the_five_bytes_of_their_sections(front: Front) -> None:
    client = front.client()
    sender = client.sender("usual")
    small = message(MESSAGE_SIZE_MAX // 1024 - SMALL_SECTION)
    assert outcome(client, sender, batch(*[small] * 1024), BATCH_FORMAT) is None
    assert (outcome(client, sender, batch(*[small] * 1025), BATCH_FORMAT) or ("",))[0] == TOO_LARGE


def test_a_batch_of_several_messages_has_at_most_one_megabyte(front: Front) -> None:
    client = front.client()
    sender = client.sender("large")
    half = BATCH_SIZE_MAX // 2 - SECTION
    assert outcome(client, sender, batch(message(half), message(half)), BATCH_FORMAT) is None
    found, text = outcome(client, sender, batch(message(half), message(half + 1)), BATCH_FORMAT) or ("", "")
    assert (found, f"batches of at most {BATCH_SIZE_MAX} bytes" in text) == (TOO_LARGE, True)


def test_a_batch_of_one_may_be_as_large_as_a_message(front: Front) -> None:
    client = front.client()
    sender = client.sender("large")
    assert outcome(client, sender, batch(message(LARGE)), BATCH_FORMAT) is None
    assert (outcome(client, sender, batch(message(LARGE + 1)), BATCH_FORMAT) or ("",))[0] == TOO_LARGE


def test_a_batch_has_a_number_of_messages_that_can_be_taken_at_once(front: Front) -> None:
    client = front.client()
    sender = client.sender("usual")
    tiny = payload("")
    assert outcome(client, sender, batch(*[tiny] * BATCH_COUNT_MAX), BATCH_FORMAT) is None
    condition, text = outcome(client, sender, batch(*[tiny] * (BATCH_COUNT_MAX + 1)), BATCH_FORMAT) or ("", "")
    assert (condition, f"more than {BATCH_COUNT_MAX} messages" in text) == (TOO_LARGE, True)


def test_a_batch_in_a_transaction_counts_as_any_other(front: Front) -> None:
    client = front.client()
    sender = client.sender("usual")
    transaction = TransactionalState(txn_id=b"none")
    sender.transfer(batch(message(MESSAGE_SIZE_MAX)), b"1", message_format=BATCH_FORMAT, state=transaction)
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "amqp:transaction:unknown-id"


def test_a_message_is_scheduled_up_to_the_size_of_its_entity(front: Front) -> None:
    node = front.client().node("large/$management")
    for size, status in ((LARGE, 200), (LARGE + 1, 403)):
        entry = {"message-id": "m", "message": message(size)}
        reply = node.ask("com.microsoft:schedule-message", {"messages": [entry]})
        assert (reply.application_properties or {})["statusCode"] == status


def test_a_session_state_may_have_the_size_of_a_message_of_the_topic(front: Front) -> None:
    client = front.client()
    address = "news/Subscriptions/talks"
    client.receiver(address, session_filter={Symbol("com.microsoft:session-filter"): "s"})
    node = client.node(f"{address}/$management")

    def status(size: int) -> object:
        state = {"session-id": "s", "session-state": bytes(size)}
        return (node.ask("com.microsoft:set-session-state", state).application_properties or {})["statusCode"]

    assert (status(LARGE), status(LARGE + 1)) == (200, 403)
    front.sim.entities.update(TopicDescription("news"), front.sim.now, Answer[None]())
    front.sim.run()
    assert status(LARGE) == 403


def test_a_request_that_is_too_large_is_rejected_with_its_limit_and_one_that_is_settled_gets_no_answer(
    front: Front,
) -> None:
    client = front.client()
    requests = client.node("usual/$management").requests
    size_max = requests.attach.max_message_size
    assert size_max is not None
    found, text = outcome(client, requests, message(size_max + 1)) or ("", "")
    assert (found, f"limit is {size_max}" in text) == (TOO_LARGE, True)
    requests.transfer(message(size_max + 1), b"2", settled=True)
    client.run()
    assert client.take(Dispositions) == []
