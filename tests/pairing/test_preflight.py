from itertools import islice
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from twinbus.model.message_limits import HEADER_SIZE_MAX
from twinbus.pairing.rewriting.preflight import PairedMessageBatch, ReservedPropertyError, as_messages, check
from twinbus.pairing.rewriting.transfer import RESERVED_NAMES

LIMIT = 256 * 1024


@pytest.mark.rule("B6.3")
@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_user_property_with_a_reserved_name_is_refused(name: str) -> None:
    for key in (name, name.encode()):
        with pytest.raises(ReservedPropertyError, match=name):
            check(ServiceBusMessage("x", application_properties={key: "mine"}), "orders", LIMIT)


@pytest.mark.rule("B6.4")
def test_a_message_that_passes_the_limit_only_once_rewritten_is_refused() -> None:
    path = "a" * 260
    session_id = "s" * 128
    body = b"x" * (LIMIT - 500)
    with pytest.raises(MessageSizeExceededError, match="rewritten"):
        check(ServiceBusMessage(body, session_id=session_id), path, LIMIT)
    check(ServiceBusMessage(body[:-400], session_id=session_id), path, LIMIT)


def test_a_small_body_with_large_properties_still_passes() -> None:
    check(ServiceBusMessage("x", application_properties={"big": "x" * 30_000}), "orders", LIMIT)


@pytest.mark.rule("B6.4")
@pytest.mark.parametrize("length", [1, 50, 500])
def test_properties_that_pass_the_limit_only_once_rewritten_are_refused_whatever_they_consist_of(length: int) -> None:
    """A little below the limit, and hardly anything of it in values."""
    size = length + 2 + 2  # a name with its code and length, and a small whole number
    names = (f"{number:x}".rjust(length, "n") for number in range(16**4))
    properties: Any = dict.fromkeys(islice(names, (HEADER_SIZE_MAX - 100) // size), 7)
    with pytest.raises(MessageSizeExceededError, match="rewritten"):
        check(ServiceBusMessage("x", application_properties=properties), "p" * 200, LIMIT)


@pytest.mark.rule("B6")
def test_value_and_sequence_bodies_are_measured_too() -> None:
    with pytest.raises(MessageSizeExceededError):
        check(AmqpAnnotatedMessage(value_body=["x" * LIMIT]), "orders", LIMIT)
    with pytest.raises(MessageSizeExceededError):
        check(AmqpAnnotatedMessage(sequence_body=[["x" * LIMIT]]), "orders", LIMIT)
    check(AmqpAnnotatedMessage(value_body={"a": 1}), "orders", LIMIT)


def test_a_check_leaves_the_message_as_it_was() -> None:
    message = ServiceBusMessage(b"x" * (LIMIT - 5000), session_id="s", application_properties={"a": 1})
    check(message, "orders", LIMIT)
    assert message.session_id == "s"
    assert message.application_properties == {"a": 1}


@pytest.mark.rule("B6")
def test_a_batch_checks_each_message_as_it_is_added() -> None:
    batch = PairedMessageBatch("orders", LIMIT, LIMIT)
    with pytest.raises(ReservedPropertyError):
        batch.add_message(ServiceBusMessage("x", application_properties={"x-ms-path": "elsewhere"}))
    assert len(batch) == len(batch.messages) == 0


def test_mappings_and_one_time_iterables_become_messages() -> None:
    made = as_messages({"body": b"x", "session_id": "s"} for _ in range(2))
    assert isinstance(made, list)
    assert [each.session_id for each in made if isinstance(each, ServiceBusMessage)] == ["s", "s"]
    with pytest.raises(TypeError):
        as_messages(5)


@pytest.mark.parametrize(
    "given", ["hello", b"hello", ["hello"], [[ServiceBusMessage("x")]], [PairedMessageBatch("o", 9, 9)]]
)
def test_what_is_no_message_is_refused_with_what_could_be_sent(given: object) -> None:
    with pytest.raises(TypeError, match="can be sent"):
        as_messages(given)


@pytest.mark.rule("B6.4")
def test_properties_that_pass_their_limit_only_once_rewritten_are_refused() -> None:
    """All before the body may take 64 KB: on a good day these do not, and what is set aside would be too much."""
    path, session_id = "a" * 260, "s" * 128
    most: dict[str | bytes, Any] = {"one": "x" * 32_000, "two": "x" * 32_000, "three": "x" * 1_200}
    with pytest.raises(MessageSizeExceededError, match="properties"):
        check(ServiceBusMessage("x", session_id=session_id, application_properties=most), path, LIMIT)
    less: dict[str | bytes, Any] = {**most, "three": "x" * 200}
    check(ServiceBusMessage("x", session_id=session_id, application_properties=less), path, LIMIT)
