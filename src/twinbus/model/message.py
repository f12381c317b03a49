"""An incoming message: payload in, routing facts and the content to store out.

Only the facts that the broker needs are read: the header's time to live, three annotations, message id and group id. The
body and everything else are copied as bytes. Sections may come in any order and with any form of descriptor; those that
are not in the standard order and form are rewritten first, because SDKs can read nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import error

from twinbus.amqp.codec.layout import skip_value
from twinbus.amqp.codec.section_bounds import ordered_sections
from twinbus.amqp.codec.sections import DATA, FOOTER, TooManySections
from twinbus.amqp.errors import DecodeError
from twinbus.clock import Millis
from twinbus.errors import MessageTooLarge
from twinbus.model.annotations import NO_ANNOTATIONS, check_entries, read_annotations, with_net_decimals
from twinbus.model.content import DESCRIPTOR_SIZE, LAYOUT, PREFIX, compound_start
from twinbus.model.header import NO_HEADER, read_header
from twinbus.model.identity import is_ping, lifetime, read_identity, with_message_id
from twinbus.model.message_limits import (
    BATCH_COUNT_MAX,
    BATCH_SIZE_MAX,
    HEADER_SIZE_MAX,
    PROPERTY_SIZE_MAX,
    TIME_TO_LIVE_MAX,
)

"""message-format of a transfer whose data sections are whole messages."""

_pack_prefix = PREFIX.pack
_NO_HEADER: tuple[bytes, Millis | None] = (NO_HEADER, None)


@dataclass(slots=True)
class Message:
    """An incoming message: the facts that decide where it goes, and what is stored."""

    content: bytes
    message_id: str
    session_id: str | None
    partition_key: str | None
    via_partition_key: str | None
    time_to_live: Millis | None
    scheduled_at: Millis | None
    is_ping: bool


def read_message(payload: bytes, new_id: Callable[[], str]) -> Message:
    """The message of one transfer. `new_id` generates the id of a message that has none.

    DecodeError if the payload is not a message, ArgumentError or MessageTooLarge if it exceeds a limit.
    """
    try:
        return _read(payload, new_id)
    except (IndexError, error):
        raise DecodeError(f"a section extends beyond the end of the message ({len(payload)} bytes)") from None
    except UnicodeDecodeError:
        raise DecodeError("an id or key of the message is not UTF-8") from None


def split_batch(payload: bytes) -> list[bytes]:
    """The payloads of the messages in a transfer in the batch format. Properties of the envelope itself are ignored.

    MessageTooLarge if there are more than `BATCH_COUNT_MAX`: all of them are read, checked and stored at once.
    """
    try:
        payload, bounds = ordered_sections(payload, BATCH_COUNT_MAX)
    except TooManySections:
        raise MessageTooLarge(
            f"The batch has more than {BATCH_COUNT_MAX} messages. Send at most {BATCH_COUNT_MAX} at once."
        ) from None
    payloads = []
    pos = bounds[-1]
    while pos < len(payload):
        code, form = payload[pos + 2], payload[pos + 3]
        if code == FOOTER:
            break
        if code != DATA:
            raise DecodeError("a batch holds its messages in data sections only")
        # `section_bounds` has checked that each is a binary and ends where it says.
        start = pos + (5 if form == 0xA0 else 8)
        pos = start + (payload[pos + 4] if form == 0xA0 else int.from_bytes(payload[pos + 4 : start], "big"))
        payloads.append(payload[start:pos])
    return payloads


def check_batch_size(path: str, payloads: Sequence[bytes], size_max: int) -> None:
    """Raises MessageTooLarge. What counts is the data sections, as in the arithmetic of every SDK: what they put before them,
    taken from the first message, is counted by some and not by others."""
    if len(payloads) == 1:
        # As large as a message that comes alone: SDKs send any list as a batch.
        if len(payloads[0]) > size_max:
            raise MessageTooLarge.at(path, len(payloads[0]), size_max)
        return
    size_max = min(size_max, BATCH_SIZE_MAX)
    size = sum([len(payload) + (5 if len(payload) < 256 else 8) for payload in payloads])
    if size > size_max:
        raise MessageTooLarge(
            f"The batch has {size} bytes; '{path}' takes batches of at most {size_max} bytes. Send fewer messages at once."
        )


def read_content(content: bytes) -> Message:
    """The message, read from its stored content."""
    _, header_size, _, entry_count, delivery_size, size, properties_size, _ = PREFIX.unpack_from(content)
    delivery_at = PREFIX.size + header_size
    entries_at = delivery_at + delivery_size
    properties_at = entries_at + size
    fields_at, end = properties_at + DESCRIPTOR_SIZE, properties_at + properties_size
    _, time_to_live = read_header(content[PREFIX.size + DESCRIPTOR_SIZE : delivery_at])
    _, _, partition_key, via_partition_key, scheduled_at = read_annotations(
        content, entries_at, properties_at, entry_count
    )
    message_id, session_id = read_identity(content, fields_at, end)
    assert message_id is not None
    if time_to_live == TIME_TO_LIVE_MAX:
        time_to_live = lifetime(content, fields_at) or time_to_live
    return Message(
        content,
        message_id,
        session_id,
        partition_key,
        via_partition_key,
        time_to_live,
        scheduled_at,
        is_ping(content, fields_at, end),
    )


def message_id_of(content: bytes) -> str:
    """The id of a stored message, which always has one."""
    _, header_size, _, _, delivery_size, size, properties_size, _ = PREFIX.unpack_from(content)
    properties_at = PREFIX.size + header_size + delivery_size + size
    message_id, _ = read_identity(content, properties_at + DESCRIPTOR_SIZE, properties_at + properties_size)
    assert message_id is not None
    return message_id


def sent_size(content: bytes) -> int:
    """About what a stored message takes on the wire."""
    return len(content) - PREFIX.size


def is_front_too_large(content: bytes) -> bool:
    """Whether additions to a stored message made everything before its body larger than a sender may send."""
    _, header, _, _, delivery, entries, properties_size, application = PREFIX.unpack_from(content)
    size: int = header + delivery + entries + properties_size + application
    return size > HEADER_SIZE_MAX


def _read(data: bytes, new_id: Callable[[], str]) -> Message:
    data, bounds = ordered_sections(data)
    header_at, delivery_at, annotations_at, properties_at, application_at, rest_at = bounds
    if rest_at > PROPERTY_SIZE_MAX:
        _check_sizes(data, bounds)
    header, time_to_live = _NO_HEADER
    if delivery_at > header_at:
        header, time_to_live = read_header(data[header_at + 3 : delivery_at])
    delivery = annotations = NO_ANNOTATIONS
    if annotations_at > delivery_at:
        count, pos = compound_start(data, delivery_at + 3)
        delivery = read_annotations(data, pos, annotations_at, count)
    if properties_at > annotations_at:
        count, pos = compound_start(data, annotations_at + 3)
        annotations = read_annotations(data, pos, properties_at, count)
    if rest_at > application_at:
        count, pos = compound_start(data, application_at + 3)
        if check_entries(data, pos, rest_at, count):
            data = with_net_decimals(data, pos, rest_at)
    message_id = session_id = None
    pings = False
    if application_at > properties_at:
        message_id, session_id = read_identity(data, properties_at + 3, application_at)
        pings = is_ping(data, properties_at + 3, application_at)
        if time_to_live == TIME_TO_LIVE_MAX:
            time_to_live = lifetime(data, properties_at + 3) or time_to_live
    section = b""
    kept_at = properties_at
    if message_id is None:
        section, message_id = with_message_id(data[properties_at:application_at], new_id)
        kept_at = application_at
    entries, entry_count, partition_key, via_partition_key, scheduled_at = annotations
    delivery_entries, delivery_count, _, _, _ = delivery
    prefix = _pack_prefix(
        LAYOUT,
        len(header),
        delivery_count,
        entry_count,
        len(delivery_entries),
        len(entries),
        len(section) + application_at - kept_at,
        rest_at - application_at,
    )
    return Message(
        b"".join((prefix, header, delivery_entries, entries, section, memoryview(data)[kept_at:])),
        message_id,
        session_id,
        partition_key,
        via_partition_key,
        time_to_live,
        scheduled_at,
        pings,
    )


def _check_sizes(data: bytes, bounds: tuple[int, ...]) -> None:
    """Only for a message with much before its body: an ordinary one cannot exceed these limits."""
    if bounds[-1] > HEADER_SIZE_MAX:
        raise MessageTooLarge(
            f"Header, annotations and properties take {bounds[-1]} bytes; reduce them to {HEADER_SIZE_MAX}."
        )
    for start, end in pairwise(bounds):
        if end - start <= PROPERTY_SIZE_MAX:
            continue
        # Not as many elements as it says it has, which may be four billion.
        _, pos = compound_start(data, start + DESCRIPTOR_SIZE)
        while pos < end:
            element_end = skip_value(data, pos)
            if element_end - pos > PROPERTY_SIZE_MAX:
                raise MessageTooLarge(f"A property takes {element_end - pos} bytes; reduce it to {PROPERTY_SIZE_MAX}.")
            pos = element_end
