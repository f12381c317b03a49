"""Messages going out of one fragment to a receiver, locked or removed (protocol.md 6, 6.2)."""

from collections.abc import Callable

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.fragment.expiry import expire
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.lane import Lane
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import Removed, StoredMessage


def take(fragment: Fragment, lane: Lane, count_max: int, now: Millis) -> list[StoredMessage]:
    """The next messages of a lane that have not expired. They are in no lane then: lock or remove them."""
    taken = lane.take(count_max)
    if fragment.has_expiring:
        expired = [message for message in taken if message.expires_at <= now]
        if expired:
            expire(fragment, expired)
            taken = [message for message in taken if message.expires_at > now]
    fragment.refill(lane)
    return taken


def take_and_lock(fragment: Fragment, lane: Lane, count_max: int, now: Millis) -> list[TakenMessage]:
    """For peek-lock. The clock of the lock runs from here."""
    messages = take(fragment, lane, count_max, now)
    if not messages:
        return []
    deliveries = fragment.locks.lock(messages, now + fragment.settings.lock_duration)
    fragment.wake()
    return deliveries


def take_and_delete(
    fragment: Fragment,
    lane: Lane,
    count_max: int,
    now: Millis,
    deliver: Callable[[list[TakenMessage]], None],
    failed: Callable[[int], None],
) -> int:
    """For receive-and-delete: handed over once the removal is durable, so never twice. Returns how many are under way.

    Who leaves meanwhile has taken them all the same, and they are gone: that is what the mode says. Putting them back
    would give them new numbers behind messages that came later.
    """
    messages = take(fragment, lane, count_max, now)
    if messages:
        delete(fragment, messages, deliver, lambda _: failed(len(messages)))
    return len(messages)


def delete(
    fragment: Fragment,
    messages: list[StoredMessage],
    deliver: Callable[[list[TakenMessage]], None],
    failed: Callable[[FragmentUnavailable], None],
) -> None:
    numbers = [message.sequence_number for message in messages]
    fragment.count_rows(messages, -1)
    fragment.change(
        numbers,
        [Removed(fragment.key, numbers)],
        lambda: deliver([TakenMessage(message, b"", 0) for message in messages]),
        failed,
    )
