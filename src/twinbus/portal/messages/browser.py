"""Messages of a queue a page at a time: a place to start and a condition in, messages and the next place out. None are locked.

A twinbus namespace merges its fragments, the oldest first. A place is then a sequence number for each fragment, written as one short
text, so that a link to a page leads to the same page. Elsewhere it is one sequence number.
"""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error

from twinbus.amqp.errors import DecodeError
from twinbus.client.entity_extras import FragmentHead, next_positions
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, EntityNotFound, FilterError, NotImplementedHere
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.portal.messages.bodies import body_text
from twinbus.portal.messages.filters import Matches
from twinbus.portal.namespaces.bus import Bus

PAGE_SIZE = 50
SCAN_TIME_S = 0.8
"""A page is shown after this long, with what was found until then and a way to search on."""
SCANNED_MAX = 20_000
_number = Struct(">q")


@dataclass(frozen=True, slots=True)
class MessagePage:
    messages: Sequence[ReceivedMessage]
    next_place: str | None  # None: there are no more
    scanned: int  # how many were looked at
    failed: int = 0  # on how many the filter could not be evaluated


def write_place(positions: Mapping[int, int]) -> str:
    """Fragments whose position is unknown are from the beginning."""
    packed = b"".join(_number.pack(number) for _, number in sorted(positions.items()))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_place(text: str) -> dict[int, int]:
    """Raises ArgumentError for what is not a place."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        numbers = [number for (number,) in _number.iter_unpack(packed)]
    except (ValueError, error):
        raise ArgumentError("The address of this page is damaged. Start at the first page.") from None
    return {number >> SEQUENCE_BITS: number for number in numbers}


async def read_page(
    bus: Bus,
    path: str,
    place: str = "",
    *,
    matches: Matches | None = None,
    count_max: int = PAGE_SIZE,
    monotonic: Callable[[], float] = time.monotonic,
) -> MessagePage:
    """Up to `count_max` messages that match, from a place on."""
    positions = read_place(place)
    if matches is None:
        found, positions = await peek(bus, path, positions, count_max)
        return MessagePage(found, write_place(positions) if len(found) == count_max else None, len(found))
    chosen: list[ReceivedMessage] = []
    scanned = failed = 0
    until = monotonic() + SCAN_TIME_S
    while len(chosen) < count_max and scanned < SCANNED_MAX and (scanned == 0 or monotonic() < until):
        found, following = await peek(bus, path, positions, PEEK_COUNT_MAX)
        if not found:
            return MessagePage(chosen, None, scanned, failed)
        for index, message in enumerate(found):
            scanned += 1
            try:
                if matches(message):
                    chosen.append(message)
            except (FilterError, DecodeError):
                failed += 1
            if len(chosen) == count_max:
                following = next_positions(found[: index + 1], positions)
                break
        positions = following
    return MessagePage(chosen, write_place(positions), scanned, failed)


async def peek(
    bus: Bus, path: str, positions: Mapping[int, int], count_max: int
) -> tuple[list[ReceivedMessage], dict[int, int]]:
    namespace = await bus.amqp()
    if bus.is_twinbus is not False:
        try:
            found = await namespace.extras(path).peek_merged(count_max, positions)
            bus.is_twinbus = True
            return found, next_positions(found, positions)
        except NotImplementedHere:
            bus.is_twinbus = False
    first = max(positions.values(), default=0)
    found = await namespace.entity(path).peek(count_max, from_number=first)
    numbers = [message.sequence_number or 0 for message in found]
    return found, {0: max(numbers, default=first - 1) + 1}


async def read_one(bus: Bus, path: str, number: int) -> ReceivedMessage:
    """Raises EntityNotFound if it is gone."""
    namespace = await bus.amqp()
    found = await namespace.entity(path).peek(1, from_number=number)
    if not found or found[0].sequence_number != number:
        raise EntityNotFound(
            f"'{path}' has no message {number} any more. It was received, moved, removed, or has expired."
        )
    return found[0]


def place_at(heads: Sequence[FragmentHead], share: float) -> str:
    """Where about this share of the messages is behind: the same share of every fragment."""
    return write_place(
        {
            head.fragment: head.first_number + int((head.last_number + 1 - head.first_number) * share)
            for head in heads
            if head.is_available
        }
    )


def containing(text: str) -> Matches:
    """Messages with the text in an id, a name or value of a property, or the body; upper and lower case are the same."""
    wanted = text.casefold()

    def matches(message: ReceivedMessage) -> bool:
        found = message.properties
        fields = (found.message_id, found.group_id, found.subject, found.correlation_id, message.sequence_number)
        if any(wanted in str(field).casefold() for field in fields if field is not None):
            return True
        named = message.application_properties.items()
        if any(wanted in str(name).casefold() or wanted in str(value).casefold() for name, value in named):
            return True
        return wanted in body_text(message.body).casefold()

    return matches


def in_state(state: MessageState) -> Matches:
    return lambda message: message.state is state


def both(first: Matches | None, second: Matches | None) -> Matches | None:
    if first is None or second is None:
        return first or second
    return lambda message: first(message) and second(message)
