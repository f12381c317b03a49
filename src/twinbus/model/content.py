"""The content of a stored message: its sections, packed so that a delivery can be assembled from slices of it.

prefix            sizes and counts of what follows (26 bytes)
header            a whole section with delivery-count 0: a first delivery uses it as it is
delivery entries  the sender's delivery annotations, keys and values without the map around them
entries           the sender's message annotations, in the same way
properties        a whole section, always present: every stored message has a message id
application       a whole section, or nothing
rest              body and footer, byte for byte as they arrived

Annotations are stored as entries and not as sections because the broker adds its own to the same map on the way out
(`twinbus.model.delivery`).
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import (
    encode_descriptor,
    encode_joined_map,
    encode_list,
    encode_symbol,
    encode_value,
)
from twinbus.amqp.codec.layout import skip_value
from twinbus.amqp.codec.sections import APPLICATION_PROPERTIES, PROPERTIES, MessageProperties, decode_properties
from twinbus.amqp.codec.types import Value
from twinbus.amqp.errors import DecodeError
from twinbus.errors import ArgumentError

PREFIX = Struct(">BBIIIIII")
LAYOUT = 1
"""First byte of every content, so that a different layout can be recognized."""

DESCRIPTOR_SIZE = 3
FIELD_NAMES = tuple(field.name for field in fields(MessageProperties))


class Parts(NamedTuple):
    """A content cut into its parts. Counts are of map elements: two per entry."""

    header: bytes
    delivery_count: int
    delivery_entries: bytes
    entry_count: int
    entries: bytes
    properties: bytes
    application: bytes
    rest: bytes


def unpack(content: bytes) -> Parts:
    layout, header, delivery_count, entry_count, delivery_size, size, properties, application = PREFIX.unpack_from(
        content
    )
    assert layout == LAYOUT
    delivery_at = PREFIX.size + header
    entries_at = delivery_at + delivery_size
    properties_at = entries_at + size
    application_at = properties_at + properties
    rest_at = application_at + application
    return Parts(
        content[PREFIX.size : delivery_at],
        delivery_count,
        content[delivery_at:entries_at],
        entry_count,
        content[entries_at:properties_at],
        content[properties_at:application_at],
        content[application_at:rest_at],
        content[rest_at:],
    )


def pack(parts: Parts) -> bytes:
    header, delivery_count, delivery_entries, entry_count, entries, properties, application, rest = parts
    prefix = PREFIX.pack(
        LAYOUT,
        len(header),
        delivery_count,
        entry_count,
        len(delivery_entries),
        len(entries),
        len(properties),
        len(application),
    )
    return b"".join((prefix, header, delivery_entries, entries, properties, application, rest))


def without_body(content: bytes) -> bytes:
    """And without what follows the body."""
    _, header, _, _, delivery_size, size, properties, application = PREFIX.unpack_from(content)
    return content[: PREFIX.size + header + delivery_size + size + properties + application]


def properties(content: bytes) -> MessageProperties:
    """The properties section, decoded. A malformed field reads as if it were not set."""
    _, header, _, _, delivery_size, size, _, _ = PREFIX.unpack_from(content)
    pos = PREFIX.size + header + delivery_size + size
    try:
        return decode_properties(decode_value(content, pos + DESCRIPTOR_SIZE)[0])
    except DecodeError:
        return MessageProperties(*[_value_or_none(element) for _, element in _elements(unpack(content).properties)])


def application_properties(content: bytes) -> dict[str, Value]:
    """The application properties by name, without those whose value is malformed: no filter could compare it."""
    _, header, _, _, delivery_size, size, properties, application = PREFIX.unpack_from(content)
    if not application:
        return {}
    pos = PREFIX.size + header + delivery_size + size + properties
    try:
        values, _ = decode_value(content, pos + DESCRIPTOR_SIZE)
        return values  # type: ignore[no-any-return]  # names are strings: checked when the message arrived
    except DecodeError:
        return _readable(content[pos : pos + application])


class NewProperties:
    """Application properties that any number of messages get. Encoded once: there may be thousands of both."""

    __slots__ = ("entries", "names")

    def __init__(self, values: Mapping[str, object]) -> None:
        self.names = values.keys()
        self.entries = b"".join([encode_value(str(name)) + encode_value(value) for name, value in values.items()])


class PropertyPlaces:
    """Where the application properties of a content are, by name. Looked up once for any number of changes."""

    __slots__ = ("_places", "_section")

    def __init__(self, content: bytes) -> None:
        self._section = unpack(content).application
        self._places = {name: (start, end) for name, start, _, end in _named_entries(self._section)}

    def without(self, names: Iterable[str]) -> tuple[bytes, int]:
        """The entries of all others, byte for byte, and the count of their elements."""
        if not self._section:
            return b"", 0
        section = self._section
        count, pos = compound_start(section, DESCRIPTOR_SIZE)
        pieces: list[bytes] = []
        for start, end in sorted([self._places[name] for name in names if name in self._places]):
            pieces.append(section[pos:start])
            pos = end
            count -= 2
        return b"".join((*pieces, section[pos:])), count


def with_application_properties(
    content: bytes, new: NewProperties, removed: Collection[str] = (), places: PropertyPlaces | None = None
) -> bytes:
    """The content with `new` set and `removed` removed; all other application properties stay byte for byte.

    `places`: of this content, for a caller that changes it more than once.
    """
    entries, count = (places or PropertyPlaces(content)).without({*new.names, *removed})
    application = encode_joined_map(entries + new.entries, count + 2 * len(new.names))
    return pack(unpack(content)._replace(application=encode_descriptor(APPLICATION_PROPERTIES) + application))


def with_properties(content: bytes, changes: Mapping[str, Value]) -> bytes:
    """The content with these fields of the properties section set, or cleared by None.

    Fields have their names in `MessageProperties`; all others stay byte for byte. The message id cannot be cleared.
    """
    if changes.get("message_id", True) in (None, ""):
        raise ArgumentError("A stored message needs a message id. Set it to a text instead of clearing it.")
    parts = unpack(content)
    elements = [part for _, part in _elements(parts.properties)]
    elements += [encode_value(None)] * (len(FIELD_NAMES) - len(elements))
    for name, value in changes.items():
        elements[FIELD_NAMES.index(name)] = encode_value(value)
    return pack(parts._replace(properties=encode_descriptor(PROPERTIES) + encode_list(elements)))


def annotation(content: bytes, name: str) -> Value:
    """The value of one message annotation; None if it is not set."""
    entries = unpack(content).entries
    wanted = name.encode()
    pos = 0
    while pos < len(entries):
        value_at = skip_value(entries, pos)
        if _name_of(entries[pos:value_at]) == wanted:
            return decode_value(entries, value_at)[0]
        pos = skip_value(entries, value_at)
    return None


def with_annotations(content: bytes, changes: Mapping[str, Value]) -> bytes:
    """The content with these message annotations set, or removed by None; all others stay byte for byte."""
    _, header, delivery_count, count, delivery_size, size, properties, application = PREFIX.unpack_from(content)
    entries_at = PREFIX.size + header + delivery_size
    properties_at = entries_at + size
    entries = content[entries_at:properties_at]
    if not any(name.encode() in entries for name in changes):
        # Mostly there is nothing to replace.
        added = [_entry(name, value) for name, value in changes.items() if value is not None]
        size += sum(map(len, added))
        prefix = PREFIX.pack(
            LAYOUT, header, delivery_count, count + 2 * len(added), delivery_size, size, properties, application
        )
        return b"".join((prefix, content[PREFIX.size : properties_at], *added, memoryview(content)[properties_at:]))
    parts = unpack(content)
    replaced = {name.encode() for name in changes}
    elements: list[bytes] = []
    pos = 0
    while pos < len(parts.entries):
        value_at = skip_value(parts.entries, pos)
        end = skip_value(parts.entries, value_at)
        if _name_of(parts.entries[pos:value_at]) not in replaced:
            elements += (parts.entries[pos:value_at], parts.entries[value_at:end])
        pos = end
    for name, value in changes.items():
        if value is not None:
            elements += (encode_symbol(name), encode_value(value))
    return pack(parts._replace(entry_count=len(elements), entries=b"".join(elements)))


def _entry(name: str, value: Value) -> bytes:
    return _text_entry(name, value) if type(value) is str else encode_symbol(name) + encode_value(value)


@lru_cache(maxsize=64)
def _text_entry(name: str, value: str) -> bytes:
    """The owner of a claim is written to thousands of messages."""
    return encode_symbol(name) + encode_value(value)


def compound_start(data: bytes, pos: int) -> tuple[int, int]:
    """Count of the elements of the list or map at `pos`, and the position of the first."""
    code = data[pos]
    if code == 0x45:
        return 0, pos + 1
    if code in (0xC0, 0xC1):
        return data[pos + 2], pos + 3
    return int.from_bytes(data[pos + 5 : pos + 9], "big"), pos + 9


def _readable(section: bytes) -> dict[str, Value]:
    values = {}
    for name, _, value_at, _ in _named_entries(section):
        with suppress(DecodeError):
            values[name] = decode_value(section, value_at)[0]
    return values


def _value_or_none(element: bytes) -> Value:
    with suppress(DecodeError):
        return decode_value(element, 0)[0]
    return None


def _elements(section: bytes) -> list[tuple[int, bytes]]:
    """Position and bytes of each element of the list or map in a section."""
    if not section:
        return []
    count, pos = compound_start(section, DESCRIPTOR_SIZE)
    elements = []
    for _ in range(count):
        end = skip_value(section, pos)
        elements.append((pos, section[pos:end]))
        pos = end
    return elements


def _named_entries(section: bytes) -> list[tuple[str, int, int, int]]:
    """For each entry of an application properties section: its name, and where key, value and next entry start."""
    elements = _elements(section)
    entries = []
    for (start, key), (value_at, value) in zip(elements[::2], elements[1::2], strict=True):
        text = _name_of(key) or b""
        entries.append((text.decode(errors="replace"), start, value_at, value_at + len(value)))
    return entries


def _name_of(key: bytes) -> bytes | None:
    """Of an encoded symbol or string, in its short or long form; None for a key of another type."""
    form = key[0]
    if form == 0xA3 or form == 0xA1:
        return key[2:]
    return key[5:] if form == 0xB3 or form == 0xB1 else None
