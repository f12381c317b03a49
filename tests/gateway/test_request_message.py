from uuid import UUID

import pytest

from twinbus.amqp.codec.sections import (
    DataBody,
    MessageProperties,
    Sections,
    ValueBody,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.types import Array, Int, Symbol, ULong
from twinbus.amqp.errors import DecodeError
from twinbus.errors import ArgumentError, MessageLockLost
from twinbus.gateway.nodes.request_message import (
    CBS_NAMES,
    MANAGEMENT_NAMES,
    VALUES_MAX,
    Arguments,
    Request,
    Response,
    encode_response,
    read_request,
)
from twinbus.model.message_limits import BATCH_COUNT_MAX


def request_with(body: object) -> Request:
    return Request(None, None, {"operation": "test"}, body)


def test_a_request_is_read_with_its_id_in_the_type_it_came_in() -> None:
    message_id = UUID(int=7)
    payload = encode_sections(
        Sections(
            properties=MessageProperties(message_id=message_id, reply_to="node"),
            application_properties={"operation": "peek"},
            body=ValueBody({"a": 1}),
        )
    )
    request = read_request(payload)
    assert (request.message_id, request.reply_to, request.operation, request.body) == (
        message_id,
        "node",
        "peek",
        {"a": 1},
    )


def test_a_request_without_properties_or_value_reads_as_empty() -> None:
    assert read_request(encode_sections(Sections(body=DataBody([b"x"])))) == Request(None, None, {}, None)


def test_a_request_holds_a_number_of_values_that_can_be_decoded_at_once() -> None:
    def request(lists: list[list[int]]) -> bytes:
        return encode_sections(Sections(body=ValueBody({"ranges": [[2**40] * 1_000, *lists]})))

    assert read_request(request([[1] * 30_000] * 2)).body is not None
    with pytest.raises(DecodeError, match=str(VALUES_MAX)):
        read_request(request([[1] * 30_000] * 3))


def test_a_request_that_schedules_as_many_messages_as_are_taken_together_is_read() -> None:
    entry = {"message-id": "m", "message": b"x", "session-id": "s", "partition-key": "s", "via-partition-key": "s"}
    body = {"messages": [entry] * BATCH_COUNT_MAX}
    assert read_request(encode_sections(Sections(body=ValueBody(body)))).body == body


@pytest.mark.parametrize("message_id", [UUID(int=7), "text", ULong(9), b"raw"])
def test_a_reply_correlates_with_the_request_in_the_same_type(message_id: object) -> None:
    sections = decode_sections(encode_response(Response.ok({}), message_id, MANAGEMENT_NAMES))
    assert sections.properties is not None
    assert sections.properties.correlation_id == message_id
    assert type(sections.properties.correlation_id) is type(message_id)


@pytest.mark.rule("A20.1")
def test_a_failed_management_request_names_its_condition_as_a_symbol() -> None:
    reply = decode_sections(encode_response(Response.failed(MessageLockLost("gone")), "1", MANAGEMENT_NAMES))
    assert reply.application_properties == {
        "statusCode": 410,
        "statusDescription": "gone",
        "errorCondition": "com.microsoft:message-lock-lost",
    }
    assert type(reply.application_properties["statusCode"]) is Int
    assert type(reply.application_properties["errorCondition"]) is Symbol


def test_a_cbs_reply_never_names_a_condition() -> None:
    reply = decode_sections(encode_response(Response(401, "no", None, "amqp:x"), "1", CBS_NAMES))
    assert reply.application_properties == {"status-code": 401, "status-description": "no"}


def test_an_argument_of_another_type_is_refused_by_name() -> None:
    arguments = Arguments.of(request_with({"count": "five", "names": Array([1]), "flag": True}))
    for read in (
        lambda: arguments.number("count"),
        lambda: arguments.number("missing"),
        lambda: arguments.number("flag"),
        lambda: arguments.text("flag"),
        lambda: arguments.binary("count"),
        lambda: arguments.mapping("count"),
        lambda: arguments.sequence("names", str, "strings", 10),
        lambda: arguments.sequence("missing", str, "strings", 10),
    ):
        with pytest.raises(ArgumentError):
            read()
    with pytest.raises(ArgumentError):
        Arguments.of(request_with(None))


def test_arrays_and_lists_both_serve_as_sequences_up_to_their_limit() -> None:
    arguments = Arguments.of(request_with({"array": Array([1, 2]), "list": [1, 2]}))
    assert arguments.sequence("array", int, "numbers", 2) == [1, 2]
    assert arguments.sequence("list", int, "numbers", 2) == [1, 2]
    with pytest.raises(ArgumentError, match="limit"):
        arguments.sequence("list", int, "numbers", 1)
