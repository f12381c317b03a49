"""A received message of the SDK in, the original as the SDK can send it out.

The SDK's decoder forgets some AMQP types: every text arrives as bytes, every integer and
timestamp as int. The original types are restored where they are certain; bytes inside value and
sequence bodies are taken for text where they are valid UTF-8.
"""

from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties

from twinbus.model import wire_names
from twinbus.model.received_payload import BROKER_ANNOTATIONS, BROKER_DELIVERY_ANNOTATIONS
from twinbus.pairing.restore import NotATransfer, take_millis, take_path, take_text
from twinbus.pairing.syphon.transport import Transfer
from twinbus.pairing.transfer import RESERVED_NAMES

INT_MAX = 2**31 - 1
PROPERTIES_SIZE_GUESS = 2048


def transfer_of(received: ServiceBusReceivedMessage) -> Transfer | NotATransfer:
    raw = received.raw_amqp_message
    aside = {_text(name): _typed(value) for name, value in (raw.application_properties or {}).items()}
    try:
        path = take_path(aside)
        session_id = take_text(aside, wire_names.TRANSFER_SESSION_ID)
        time_to_live, scheduled_at = (
            _millis(aside, wire_names.TRANSFER_TIME_TO_LIVE),
            _millis(aside, wire_names.TRANSFER_SCHEDULED_ENQUEUE_TIME),
        )
    except NotATransfer as error:
        return error
    annotations = _named(raw.annotations, BROKER_ANNOTATIONS)
    if scheduled_at is not None:
        annotations[wire_names.SCHEDULED_ENQUEUE_TIME] = {"TYPE": "TIMESTAMP", "VALUE": scheduled_at}
    message = _same_body(raw)
    message.header = _header(raw.header, time_to_live)
    message.properties = _properties(raw.properties, session_id)
    kept: dict[str | bytes, Any] = {name: value for name, value in aside.items() if name not in RESERVED_NAMES}
    message.application_properties = kept or None
    message.annotations = annotations or None
    message.footer = raw.footer
    message.delivery_annotations = _named(raw.delivery_annotations, BROKER_DELIVERY_ANNOTATIONS) or None
    return Transfer(path, message, _size(received), session_id, received.partition_key)


def _header(header: AmqpMessageHeader | None, time_to_live: int | None) -> AmqpMessageHeader:
    made = AmqpMessageHeader(time_to_live=time_to_live)
    if header is not None:
        made.durable, made.priority, made.first_acquirer = header.durable, header.priority, header.first_acquirer
    return made


def _properties(properties: AmqpMessageProperties | None, session_id: str | None) -> AmqpMessageProperties:
    made = AmqpMessageProperties() if properties is None else AmqpMessageProperties(**dict(properties.items()))
    # Ids are the fields that may be text or bytes: the others are what their field says.
    made.message_id, made.correlation_id = _typed(made.message_id), _typed(made.correlation_id)
    made.group_id = session_id
    return made


def _named(entries: dict[Any, Any] | None, without: frozenset[str]) -> dict[str | bytes, Any]:
    named = {_text(name): _typed(value) for name, value in (entries or {}).items()}
    return {name: value for name, value in named.items() if name not in without}


def _same_body(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    if raw.body_type == AmqpMessageBodyType.DATA:
        return AmqpAnnotatedMessage(data_body=list(raw.body))
    if raw.body_type == AmqpMessageBodyType.SEQUENCE:
        return AmqpAnnotatedMessage(sequence_body=[_typed(row) for row in raw.body])
    return AmqpAnnotatedMessage(value_body=_typed(raw.body))


def _typed(value: Any) -> Any:
    """In the form that makes the SDK write the likely original type."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, int) and not isinstance(value, bool) and not -INT_MAX - 1 <= value <= INT_MAX:
        return {"TYPE": "LONG", "VALUE": value}
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if isinstance(value, dict):
        return {_typed(name): _typed(each) for name, each in value.items()}
    return value


def _millis(aside: dict[str, Any], name: str) -> int | None:
    value = aside.get(name)
    return take_millis({name: value["VALUE"]} if isinstance(value, dict) else aside, name)


def _size(received: ServiceBusReceivedMessage) -> int:
    body = received.body
    if received.body_type == AmqpMessageBodyType.DATA:
        return PROPERTIES_SIZE_GUESS + sum(len(part) for part in body)
    return PROPERTIES_SIZE_GUESS + len(str(received))


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
