"""Messages going out of one fragment to a receiver, locked or removed."""

from collections.abc import Callable

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.fragment.upkeep import expire
from twinbus.broker.message_broker import Failed
from twinbus.clock import Millis
from twinbus.store.changes import StoredMessage


def take(fragment: Fragment, lane: Lane, count_max: int, now: Millis) -> list[StoredMessage]:
    """The next messages of a lane that have not expired. They are in no lane then: lock or remove them."""
    taken = lane.take(count_max)
    if not fragment.broker.may_hand_over():
        return []  # the broker is lost with its next tick, and reads them again when it has the lease
    if fragment.agenda.has_expiring:
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
    failed: Callable[[int, Millis], None],
) -> int:
    """For receive-and-delete: handed over once the removal is durable, so never twice. Returns how many are under way.

    A receiver that leaves meanwhile has taken them all the same, and they are gone: that is what the mode says. Putting
    them back would give them new numbers behind messages that came later.
    """
    messages = take(fragment, lane, count_max, now)
    if messages:
        delete(fragment, messages, deliver, lambda _, later: failed(len(messages), later))
    return len(messages)


def delete(
    fragment: Fragment,
    messages: list[StoredMessage],
    deliver: Callable[[list[TakenMessage]], None],
    failed: Failed,
) -> None:
    decision = Decision(fragment)
    decision.remove(messages)
    decision.commit(lambda _: deliver([TakenMessage(message, b"", 0) for message in messages]), failed)
