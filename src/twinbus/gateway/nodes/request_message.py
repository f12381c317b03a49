"""Requests to `$cbs` and `$management` nodes and the replies to them: message bytes in and out.

A request is a message whose application properties name the operation and whose body is one AMQP value. The reply's
correlation id is the request's message id, in the same AMQP type: the SDKs match them by type and value.
"""

from dataclasses import dataclass
from typing import TypeVar

from twinbus.amqp.codec.layout import has_more_values
from twinbus.amqp.codec.sections import MessageProperties, Sections, ValueBody, decode_sections, encode_sections
from twinbus.amqp.codec.types import Array, Int, Symbol, Value
from twinbus.amqp.errors import DecodeError
from twinbus.amqp.session import Session
from twinbus.errors import ArgumentError, MessagingError

T = TypeVar("T")

VALUES_MAX = 65_536
"""In a request, with those in lists and maps. A request of a megabyte could hold some millions, half a second of work; one that
schedules as many messages as are taken together has fifty thousand."""
UNCOUNTED_SIZE_MAX = 64 * 1024
"""A request of this size is not counted: it cannot hold many more."""


@dataclass(frozen=True, slots=True)
class Request:
    message_id: Value
    reply_to: str | None
    properties: dict[str, Value]
    body: Value
    txn_id: bytes | None = None  # of the transaction that it is part of
    session: Session | None = None  # the AMQP session it came on

    @property
    def operation(self) -> str:
        return text_of(self.properties.get("operation"))


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    description: str
    body: Value = None
    condition: str | None = None

    @classmethod
    def ok(cls, body: dict[str, Value] | None = None) -> "Response":
        return cls(200, "OK", {} if body is None else body)

    @classmethod
    def failed(cls, error: MessagingError) -> "Response":
        return cls(error.status, str(error), None, error.condition)


@dataclass(frozen=True, slots=True)
class ReplyNames:
    """The names of a node's reply fields."""

    status: str
    description: str
    condition: str | None  # None: the node's replies carry none


CBS_NAMES = ReplyNames("status-code", "status-description", None)
MANAGEMENT_NAMES = ReplyNames("statusCode", "statusDescription", "errorCondition")


def text_of(value: Value) -> str:
    """The text, if the client sent text of any AMQP type; "" for anything else."""
    return str(value) if isinstance(value, str) else ""


def read_request(payload: bytes) -> Request:
    """Raises DecodeError for bytes that are not a message, or too many values; missing sections read as empty."""
    if len(payload) > UNCOUNTED_SIZE_MAX and has_more_values(payload, VALUES_MAX):
        raise DecodeError(f"the request holds more than {VALUES_MAX} values; ask for less at once")
    sections = decode_sections(payload)
    properties = sections.properties or MessageProperties()
    return Request(
        message_id=properties.message_id,
        reply_to=text_of(properties.reply_to) or None,
        properties={str(name): value for name, value in (sections.application_properties or {}).items()},
        body=sections.body.value if isinstance(sections.body, ValueBody) else None,
    )


def encode_response(response: Response, correlation_id: Value, names: ReplyNames) -> bytes:
    properties: dict[str, Value] = {names.status: Int(response.status), names.description: response.description}
    if names.condition is not None and response.condition is not None:
        properties[names.condition] = Symbol(response.condition)
    return encode_sections(
        Sections(
            properties=MessageProperties(correlation_id=correlation_id),
            application_properties=properties,
            body=ValueBody(response.body),
        )
    )


@dataclass(frozen=True, slots=True)
class Arguments:
    """The map in the body of a request. Every reader raises ArgumentError that names the field."""

    fields: dict[str, Value]

    @classmethod
    def of(cls, request: Request) -> "Arguments":
        if not isinstance(request.body, dict):
            raise ArgumentError(f"The body of '{request.operation}' has to be a map.")
        return cls({str(name): value for name, value in request.body.items()})

    def text(self, name: str) -> str:
        return _of_type(name, self.fields.get(name), str, "a string")

    def optional_text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value is None else _of_type(name, value, str, "a string")

    def number(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool):
            raise ArgumentError(f"'{name}' must be a number.")
        return int(_of_type(name, value, int, "a number"))

    def count(self, name: str, count_max: int, default: int | None = None) -> int:
        """How many the client asks for: at least one, and no more than one answer holds."""
        return min(max(self.number(name, default), 1), count_max)

    def is_set(self, name: str) -> bool:
        """A boolean; false if it is omitted."""
        value = self.fields.get(name)
        return False if value is None else _of_type(name, value, bool, "a boolean")

    def binary(self, name: str) -> bytes | None:
        value = self.fields.get(name)
        return None if value is None else _of_type(name, value, bytes, "binary")

    def values(self, name: str) -> list[Value]:
        """What an array or a list holds; clients use either. Empty for anything else."""
        value = self.fields.get(name)
        values = value.values if isinstance(value, Array) else value
        return values if isinstance(values, list) else []

    def sequence(self, name: str, item: type[T], what: str, count_max: int) -> list[T]:
        values = self.values(name)
        if not values:
            raise ArgumentError(f"'{name}' must be an array with at least one element.")
        if len(values) > count_max:
            raise ArgumentError(f"'{name}' has {len(values)} elements; the limit for one request is {count_max}.")
        return [_of_type(name, value, item, what) for value in values]

    def mapping(self, name: str) -> dict[str, Value]:
        value = self.fields.get(name)
        return {} if value is None else {str(key): item for key, item in _of_type(name, value, dict, "a map").items()}


def _of_type(name: str, value: Value, kind: type[T], what: str) -> T:
    if not isinstance(value, kind):
        raise ArgumentError(f"'{name}' must be {what}.")
    return value
