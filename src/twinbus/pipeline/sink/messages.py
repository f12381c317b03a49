"""Rows as messages: Arrow batches in, encoded messages with their destinations and keys out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.amqp.types import Timestamp, Value
from twinbus.client.message import SCHEDULED_TIME, encode_message
from twinbus.clock import Clock
from twinbus.errors import MessagingError
from twinbus.model.header import TIME_TO_LIVE_MAX
from twinbus.pipeline.property_values import property_value
from twinbus.pipeline.sink.message_ids import TaskPlace, message_id

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

_MICROS_PER_MILLI = 1_000
_ARGUMENTS = {
    "messageId": "message_id",
    "sessionId": "session_id",
    "partitionKey": "partition_key",
    "correlationId": "correlation_id",
    "subject": "subject",
    "to": "to",
    "replyTo": "reply_to",
    "replyToSessionId": "reply_to_session_id",
    "contentType": "content_type",
}


class RowError(MessagingError):
    """A row makes no message."""


class Outgoing(NamedTuple):
    entity: str
    key: str | None
    """Messages of one key and entity keep their order."""
    payload: bytes


class MessageMaker:
    """For one task: it numbers the rows as they come."""

    def __init__(
        self,
        places: Mapping[str, int],
        target: str | None,
        task: TaskPlace,
        clock: Clock,
        *,
        has_text_properties: bool = False,
        needs_ids: bool = False,
    ) -> None:
        """`needs_ids`: a row without a message id is an error."""
        self._places = places
        self._target = target
        self._task = task
        self._clock = clock
        self._read_property: Callable[[str], Value] = str if has_text_properties else property_value
        self._needs_ids = needs_ids
        self._row = 0

    def messages(self, batch: "RecordBatch") -> Iterator[Outgoing]:
        """Raises RowError, MessagingError."""
        columns = {name: _values(name, batch.column(place)) for name, place in self._places.items()}
        bodies = columns.pop("body")
        entities = columns.pop("entity", None) if self._target is None else None
        columns.pop("entity", None)
        names = tuple(columns)
        # A DataFrame may have no column but the body.
        rows = zip(*columns.values(), strict=True) if columns else iter([()] * len(bodies))
        for index, (body, values) in enumerate(zip(bodies, rows, strict=True)):
            entity = self._target if entities is None else entities[index]
            if not entity:
                raise RowError(f"{self._here()}: the column 'entity' is empty. Say for each row where it goes.")
            try:
                yield self._outgoing(entity, body, names, values)
            except MessagingError as wrong:
                raise RowError(f"{self._here()}, for '{entity}': {wrong}") from None
            self._row += 1

    def _outgoing(self, entity: str, body: Any, names: Sequence[str], values: Sequence[Any]) -> Outgoing:
        given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        arguments: dict[str, Any] = {
            argument: given[name] for name, argument in _ARGUMENTS.items() if given.get(name) is not None
        }
        if "message_id" not in arguments:
            if self._needs_ids:
                raise RowError("it has no messageId, which idempotent = true asks for.")
            arguments["message_id"] = message_id(self._task, self._row, body, values)
        if "properties" in given:
            read = self._read_property
            pairs = given["properties"]
            arguments["application_properties"] = {name: None if text is None else read(text) for name, text in pairs}
        if "scheduledEnqueueTime" in given:
            moment = Timestamp(given["scheduledEnqueueTime"] // _MICROS_PER_MILLI)
            arguments["annotations"] = {SCHEDULED_TIME: moment}
        if "timeToLive" in given:
            arguments["time_to_live"] = timedelta(milliseconds=given["timeToLive"])
            if given["timeToLive"] > TIME_TO_LIVE_MAX:
                arguments["created_at"] = datetime.fromtimestamp(self._clock.now() / 1000, UTC)
        key = arguments.get("session_id") or arguments.get("partition_key")
        return Outgoing(entity, key, encode_message(body, **arguments))

    def _here(self) -> str:
        return f"Row {self._row} of input partition {self._task.input_partition}"


def _values(name: str, column: "Array") -> list[Any]:
    """Times in microseconds, lives in milliseconds, maps as pairs; the rest as Python has it."""
    import pyarrow

    if name == "scheduledEnqueueTime":
        column = column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.int64())
    elif name == "timeToLive" and pyarrow.types.is_duration(column.type):
        column = column.cast(pyarrow.duration("us")).cast(pyarrow.int64())
        return [None if micros is None else micros // _MICROS_PER_MILLI for micros in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values
