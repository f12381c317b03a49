"""Reads the messages of one sender: payload in, `Message` out, like `read_message`, but faster if messages are alike.

Senders repeat themselves: apart from the message id, everything before the body of a message is often the same as in the
previous message. Then everything that was read from that one holds for this one:

    before                    | id | after                         | size | content
    header … properties: size |    | other fields … body: its form |

So the front of a message is remembered as the bytes before the id and those after it, up to the size of a single data
section. For a sender that does not repeat itself, a new front is remembered less and less often.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct

from twinbus.amqp.codec.section_bounds import section_bounds
from twinbus.amqp.codec.sections import DATA
from twinbus.model.content import DESCRIPTOR_SIZE
from twinbus.model.identity import ID_LENGTH_MAX
from twinbus.model.message import Message, read_message

PATIENCE_MAX = 64
VIEW_SIZE_MIN = 8 * 1024
_STRING8, _BINARY32 = 0xA1, 0xB0
_LIST8, _LIST32 = 0xC0, 0xD0
_U32 = Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class _Front:
    before: bytes
    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, int]]  # what is before the id, it, after it, size of the data
    end: int  # of what is unpacked
    after: bytes
    kept_at: int  # from here on, the content to store is the payload itself
    stored: bytes  # what is stored before that
    facts: Message  # of the remembered message, without its content


class MessageReader:
    __slots__ = ("_front", "_new_id", "_patience", "_unlike_count")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._front: _Front | None = None
        self._unlike_count = 0  # messages in a row that differ from the remembered one
        self._patience = 1  # after this many of them, another front is remembered

    def read(self, payload: bytes) -> Message:
        """Returns and raises what `read_message` does."""
        front = self._front
        if front is not None and len(payload) >= front.end:
            before, message_id, after, size = front.unpack(payload)
            if (
                before == front.before
                and after == front.after
                and size == len(payload) - front.end
                # An id that may not be UTF-8 is left to `read_message`, which refuses it; ASCII is always valid.
                and message_id.isascii()
            ):
                self._unlike_count = 0
                stored, kept_at, facts = front.stored, front.kept_at, front.facts
                # A small slice is cheaper than a view of it.
                is_small = len(payload) < VIEW_SIZE_MIN
                return Message(
                    stored + payload[kept_at:] if is_small else b"".join((stored, memoryview(payload)[kept_at:])),
                    message_id.decode(),
                    facts.session_id,
                    facts.partition_key,
                    facts.via_partition_key,
                    facts.time_to_live,
                    facts.scheduled_at,
                    facts.is_ping,
                )
        message = read_message(payload, self._new_id)
        self._unlike_count += 1
        if self._unlike_count >= self._patience:
            self._unlike_count = 0
            self._patience = min(2 * self._patience, PATIENCE_MAX)
            self._front = _front_of(payload, message)
        return message


def _ends_as_it_says(payload: bytes, size_at: int, *, is_long: bool) -> bool:
    """Whether the data section whose size is at `size_at` ends with the payload, which is a whole message."""
    data_at, size = (size_at + 4, int(_U32(payload, size_at)[0])) if is_long else (size_at + 1, payload[size_at])
    return data_at + size == len(payload)


def _front_of(payload: bytes, message: Message) -> _Front | None:
    """The front of a message; None if it is not of the kind that can be recognized."""
    bounds = section_bounds(payload)
    if bounds is None:
        return None
    _, _, _, properties_at, application_at, rest_at = bounds
    form = payload[properties_at + DESCRIPTOR_SIZE] if application_at > properties_at else 0
    if form not in (_LIST8, _LIST32) or len(payload) < rest_at + 5:
        return None
    field_at = properties_at + DESCRIPTOR_SIZE + (3 if form == _LIST8 else 9)
    id_at = field_at + 2
    id_size = payload[field_at + 1]
    is_usual = payload[field_at] == _STRING8 and 0 < id_size <= ID_LENGTH_MAX
    if not is_usual or payload[rest_at + 2] != DATA:
        return None
    size_at = rest_at + 4
    is_long = payload[rest_at + 3] == _BINARY32
    stored_size = len(message.content) - (len(payload) - properties_at)
    is_kept = message.content[stored_size:] == payload[properties_at:]
    if not is_kept or not _ends_as_it_says(payload, size_at, is_long=is_long):
        return None
    after = payload[id_at + id_size : size_at]
    shape = Struct(f">{id_at}s{id_size}s{len(after)}s{'I' if is_long else 'B'}")
    return _Front(
        payload[:id_at],
        shape.unpack_from,
        shape.size,
        after,
        properties_at,
        message.content[:stored_size],
        replace(message, content=b""),
    )
