"""Where a time is in a fragment: a range of numbers and a time in, the first number at or behind the time out.

Within a fragment numbers and enqueued times rise together, so it is a search by halves, one message a request and
without bodies. Not in a dead-letter queue: its messages keep their times and get numbers as they come.
"""

from twinbus.client.received_message import ReceivedMessage
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.pipeline.source.entity_access import ALL_STATES, EntityAccess


async def first_at(access: EntityAccess, first: int, end: int, time: Millis) -> int:
    """The lowest number in the range from which on no message was enqueued before the time; `end` if all were."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        found = await _next_time(access, middle, high)
        if found is None or found[1] >= time:
            high = middle
        else:
            low = found[0] + 1
    return low


def enqueued_at(message: ReceivedMessage) -> Millis:
    return message.annotations.get(wire_names.ENQUEUED_TIME) or 0


async def _next_time(access: EntityAccess, first: int, end: int) -> tuple[int, Millis] | None:
    """The number and the time of the first message there."""
    following: int | None = first
    while following is not None:
        page = await access.page(following, end, 1, ALL_STATES, with_bodies=False)
        for message in page.messages:
            return message.sequence_number or 0, enqueued_at(message)
        following = page.next_number
    return None
