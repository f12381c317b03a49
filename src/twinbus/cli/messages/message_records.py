"""Messages as commands print them: a message of the official client or of ours in, a record or a table out."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from twinbus.cli.output import Output
from twinbus.model import wire_names

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

    from twinbus.client.received_message import ReceivedMessage

BODY_SHOWN_MAX = 60
COLUMNS = ("sequence_number", "message_id", "session_id", "enqueued_at", "delivery_count", "state", "body")
REASON = "dead_letter_reason"


def record_of(message: "ServiceBusReceivedMessage") -> dict[str, Any]:
    return {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "subject": message.subject,
        "enqueued_at": message.enqueued_time_utc,
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_reason": message.dead_letter_reason,
        "properties": _properties(message.application_properties or {}),
        "body": _body(message),
    }


def record_of_received(message: "ReceivedMessage") -> dict[str, Any]:
    """The same fields of a message that our own client read."""
    properties = _properties(message.application_properties)
    return {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "subject": message.subject,
        "enqueued_at": message.enqueued_at,
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_reason": properties.get(wire_names.DEAD_LETTER_REASON),
        "properties": properties,
        "body": str(_decoded(message.body)),
    }


def _body(message: "ServiceBusReceivedMessage") -> str:
    from azure.servicebus.amqp import AmqpMessageBodyType

    # str() of an official client's message raises if its bytes are not UTF-8.
    is_bytes = message.body_type is AmqpMessageBodyType.DATA
    return b"".join(message.body).decode(errors="replace") if is_bytes else str(message)


def show(output: Output, records: list[dict[str, Any]]) -> None:
    if output.as_json:
        output.table(COLUMNS, records)
        return
    if not records:
        output.done("There are no messages.")
        return
    columns = COLUMNS if not any(record[REASON] for record in records) else (*COLUMNS[:-1], REASON, COLUMNS[-1])
    output.table(columns, [record | {"body": _short(record["body"])} for record in records])


def show_taken(output: Output, records: list[dict[str, Any]]) -> None:
    """Which are nowhere else any more: if there is no room for the output, they are among the errors."""
    try:
        show(output, records)
        print(end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        with redirect_stdout(sys.stderr):
            show(Output(as_json=True), records)
        raise


def counted(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _properties(given: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(_decoded(name)): _decoded(value) for name, value in given.items()}


def _decoded(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _short(body: str) -> str:
    line = " ".join(body.split())
    return line if len(line) <= BODY_SHOWN_MAX else line[: BODY_SHOWN_MAX - 1] + "…"
