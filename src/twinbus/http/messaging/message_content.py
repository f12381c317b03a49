"""Messages of the REST API: HTTP headers and bodies in, AMQP payloads out; deliveries in, headers and bodies out.

    one message     body as it is; Content-Type; BrokerProperties; every other header that is not HTTP's own is a
                    custom property
    a batch         [{"Body": "text", "BrokerProperties": {...}, "UserProperties": {...}}, ...]
                    as application/vnd.microsoft.servicebus.json; "IsBodyBase64": true for bodies that are not text

What is sent here is received over AMQP, and the other way round: the payload is that of an AMQP sender.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from twinbus.amqp.codec.sections import (
    Body,
    DataBody,
    MessageProperties,
    Sections,
    SequenceBody,
    ValueBody,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.types import Symbol, Value
from twinbus.amqp.errors import DecodeError
from twinbus.broker.consumer import TakenMessage
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.http.messaging.broker_properties import (
    apply_broker_properties,
    read_broker_properties,
    write_broker_properties,
)
from twinbus.http.messaging.header_values import (
    as_json,
    checked_text,
    read_header_value,
    read_json,
    read_json_value,
    write_header_value,
)
from twinbus.model.content import application_properties, properties, unpack
from twinbus.model.message_limits import BATCH_COUNT_MAX

BATCH_CONTENT_TYPE = "application/vnd.microsoft.servicebus.json"
TIMEOUT_MAX_S = 60
PROPERTY_COUNT_MAX = 1_000
BROKER_PROPERTIES = "BrokerProperties"

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# Headers about the request or the connection, not about the message.
HTTP_OWN = """
accept accept-charset accept-encoding accept-language authorization brokerproperties cache-control connection
content-encoding content-language content-length content-location content-md5 content-range content-type cookie date dnt
etag expect expires forwarded from host if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive
last-modified location max-forwards origin pragma proxy-authenticate proxy-authorization proxy-connection range referer
server servicebusdlqsupplementaryauthorization servicebussupplementaryauthorization set-cookie te trailer
transfer-encoding upgrade user-agent vary via warning www-authenticate x-ms-client-request-id x-ms-date
x-ms-retrypolicy x-ms-version
"""
NOT_PROPERTIES = frozenset(HTTP_OWN.split())

Headers = Sequence[tuple[str, str]]


class HttpMessage(NamedTuple):
    """A message on its way out over HTTP."""

    headers: list[tuple[str, str]]
    body: bytes


def payload_of_request(headers: Headers, body: bytes, now: Millis) -> bytes:
    """One message. Raises ArgumentError where a header makes no sense."""
    content_type = _header(headers, "content-type")
    sections = Sections(
        properties=MessageProperties(content_type=Symbol(content_type) if content_type else None),
        application_properties=_custom_properties(headers),
        body=DataBody([body]),
    )
    apply_broker_properties(read_broker_properties(_header(headers, BROKER_PROPERTIES)), sections, now)
    return encode_sections(sections)


def payloads_of_batch(body: bytes, now: Millis) -> Iterator[bytes]:
    """The messages of a batch, at least one; each is encoded when it is asked for."""
    given = read_json(body, "The body of a batch")
    if not isinstance(given, list) or not given:
        raise ArgumentError("The body of a batch has to be a JSON array with at least one message.")
    if len(given) > BATCH_COUNT_MAX:
        raise ArgumentError(f"The batch has {len(given)} messages. Send at most {BATCH_COUNT_MAX} at once.")
    return (_payload_of_element(element, now) for element in given)


def is_batch(headers: Headers) -> bool:
    content_type = _header(headers, "content-type") or ""
    return content_type.partition(";")[0].strip().casefold() == BATCH_CONTENT_TYPE


def read_timeout(text: str | None) -> int:
    """Seconds. A longer time than the service waits is shortened, not refused: the client asks again anyway."""
    if text is None:
        return TIMEOUT_MAX_S
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ArgumentError(f"'timeout' has to be a whole number of seconds, at most {TIMEOUT_MAX_S}.")
    return min(int(text), TIMEOUT_MAX_S)


def _payload_of_element(element: object, now: Millis) -> bytes:
    if not isinstance(element, dict) or not isinstance(text := element.get("Body", ""), str):
        raise ArgumentError('Each message of a batch has to be a JSON object with a string as "Body".')
    content_type = element.get("ContentType")
    if content_type is not None and (not isinstance(content_type, str) or not content_type.isascii()):
        raise ArgumentError("The ContentType of a message has to be a string of ASCII characters.")
    sections = Sections(
        properties=MessageProperties(content_type=Symbol(content_type) if content_type else None),
        application_properties=_user_properties(element.get("UserProperties")),
        body=DataBody([_body_of_element(text, is_base64=element.get("IsBodyBase64") is True)]),
    )
    apply_broker_properties(element.get("BrokerProperties") or {}, sections, now)
    return encode_sections(sections)


def _body_of_element(text: str, *, is_base64: bool) -> bytes:
    if not is_base64:
        return checked_text(text, "Body").encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError("A Body with IsBodyBase64 has to be valid base64.") from None


def _user_properties(given: object) -> dict[str, Value] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ArgumentError("UserProperties has to be a JSON object.")
    _check_count(len(given))
    return {checked_text(name, name): read_json_value(value, name) for name, value in given.items()} or None


def _custom_properties(headers: Headers) -> dict[str, Value] | None:
    found: dict[str, Value] = {}
    for name, text in headers:
        if name.casefold() not in NOT_PROPERTIES:
            if name in found:
                raise ArgumentError(f"The request has the header '{name[:64]}' twice. Send each custom property once.")
            found[name] = read_header_value(text)
    _check_count(len(found))
    return found or None


def _check_count(count: int) -> None:
    if count > PROPERTY_COUNT_MAX:
        raise ArgumentError(f"The message has {count} custom properties. Send at most {PROPERTY_COUNT_MAX}.")


def _header(headers: Headers, wanted: str) -> str | None:
    wanted = wanted.casefold()
    return next((text for name, text in headers if name.casefold() == wanted), None)


def http_message(delivery: TakenMessage) -> HttpMessage:
    """What a receiver gets. Custom properties whose names HTTP cannot carry, or uses itself, are omitted."""
    content = delivery.message.content
    headers = [(BROKER_PROPERTIES, json.dumps(write_broker_properties(delivery), separators=(",", ":")))]
    content_type = properties(content).content_type
    if isinstance(content_type, str) and content_type.isascii() and content_type.isprintable():
        headers.append(("Content-Type", str(content_type)))
    headers += _property_headers(application_properties(content).items())
    return HttpMessage(headers, _body_of_content(content))


def _property_headers(values: Iterable[tuple[str, Value]]) -> list[tuple[str, str]]:
    return [
        (name, write_header_value(value))
        for name, value in values
        if TOKEN.fullmatch(name) and name.casefold() not in NOT_PROPERTIES
    ]


def _body_of_content(content: bytes) -> bytes:
    rest = unpack(content).rest
    try:
        return _body_bytes(decode_sections(rest).body)
    except DecodeError:
        # Bodies are stored unread. One that is malformed goes out as it came in.
        return rest


def _body_bytes(body: Body | None) -> bytes:
    match body:
        case DataBody(parts):
            return b"".join(parts)
        case ValueBody(bytes() as data):
            return data
        case ValueBody(str() as text):
            return text.encode()
        case ValueBody(value):
            return json.dumps(as_json(value)).encode()
        case SequenceBody(rows):
            return json.dumps([as_json(row) for row in rows]).encode()
    return b""
