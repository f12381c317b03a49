"""Rows as messages: Arrow batches in, encoded messages with their destinations and keys out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.client.message import SCHEDULED_TIME, encode_message
from twinbus.clock import Clock, Millis
from twinbus.errors import ArgumentError, MessagingError
from twinbus.model.message_limits import DATE_MAX, TIME_TO_LIVE_MAX
from twinbus.model.paths import check_entity_path
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
"""Columns of text, and the arguments that they are for."""
_OTHERS = ("properties", "scheduledEnqueueTime", "timeToLive")


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
        self._checked = set() if target is None else {target}
        self._texts = [name for name in _ARGUMENTS if name in places]
        self._others = [name for name in _OTHERS if name in places]
        self._arguments = [_ARGUMENTS[name] for name in self._texts]

    def messages(self, batch: "RecordBatch") -> Iterator[Outgoing]:
        """Raises RowError."""
        bodies = _values("body", batch.column(self._places["body"]))
        columns = [_values(name, batch.column(self._places[name])) for name in (*self._texts, *self._others)]
        entities: Iterable[str | None] = repeat(self._target, len(bodies))
        if self._target is None:
            entities = _values("entity", batch.column(self._places["entity"]))
        # A DataFrame may have no column but the body.
        rows: Iterable[Sequence[Any]] = zip(*columns, strict=True) if columns else repeat((), len(bodies))
        for entity, body, values in zip(entities, bodies, rows, strict=True):
            if entity is None or entity not in self._checked:
                entity = self._checked_path(entity)
            try:
                yield self._outgoing(entity, body, values)
            except MessagingError as wrong:
                raise RowError(f"{self._here()}, for '{entity}': {wrong}") from None
            self._row += 1

    def _checked_path(self, entity: str | None) -> str:
        """Sent to any other node, `$management` say, a message would be acknowledged and gone."""
        if not entity:
            raise RowError(f"{self._here()}: the column 'entity' is empty. Name a destination in each row.")
        try:
            check_entity_path(entity, "queue or topic")
        except ArgumentError as wrong:
            raise RowError(f"{self._here()}: {wrong}") from None
        self._checked.add(entity)
        return entity

    def _outgoing(self, entity: str, body: Any, values: Sequence[Any]) -> Outgoing:
        # Only the texts: the names of the others have no argument of the same value.
        arguments = {name: value for name, value in zip(self._arguments, values, strict=False) if value is not None}
        if not arguments.get("message_id"):
            if self._needs_ids:
                raise RowError("it has no messageId, which idempotent = true requires.")
            arguments["message_id"] = message_id(self._task, self._row, body, values)
        if self._others:
            self._add_others(arguments, dict(zip(self._others, values[len(self._texts) :], strict=True)))
        key = arguments.get("session_id") or arguments.get("partition_key")
        return Outgoing(entity, key, encode_message(body, **arguments))

    def _add_others(self, arguments: dict[str, Any], given: Mapping[str, Any]) -> None:
        properties, due, life = (given.get(name) for name in _OTHERS)
        if properties is not None:
            read = self._read_property
            arguments["application_properties"] = {
                name: None if text is None else read(text) for name, text in properties
            }
        if due is not None:
            arguments["annotations"] = {SCHEDULED_TIME: Timestamp(due // _MICROS_PER_MILLI)}
        if life is not None:
            self._add_life(arguments, life)

    def _add_life(self, arguments: dict[str, Any], life: Millis) -> None:
        if life <= 0:
            raise RowError(
                f"a timeToLive of {life} ms ends before the message is sent. Use null for the entity's default."
            )
        if life > TIME_TO_LIVE_MAX:
            now = self._clock.now()
            life = min(life, DATE_MAX - now)
            arguments["created_at"] = datetime.fromtimestamp(now / 1000, UTC)
        arguments["time_to_live"] = timedelta(milliseconds=life)

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
