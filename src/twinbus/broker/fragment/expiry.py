"""Messages whose time to live is over (contract A14).

An active message ends when the sweep finds it or when it would be handed over, whichever is first; a locked one when
it is free again; a deferred one never, and neither does anything in a dead-letter queue, whose rows carry no end.
"""

from collections.abc import Sequence
from functools import partial

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.withdrawal import withdraw
from twinbus.broker.operations.row_reads import read_some
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model.dead_letter_reasons import TTL_EXPIRED, TTL_EXPIRED_TEXT
from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.messaging_store import MessagingStore

SWEEP_COUNT_MAX = 256
# What is expired but locked is looked at again after this.
RETRY_AFTER: Millis = 1_000

Sweep = tuple[list[StoredMessage], Millis]


def expire(fragment: Fragment, messages: Sequence[StoredMessage]) -> None:
    """Remove messages that are in no lane any more, to the dead-letter queue where the entity says so."""
    decision = Decision(fragment)
    if fragment.settings.dead_letter_on_expiry and fragment.dead_letters is not None:
        for message in messages:
            decision.move(message, fragment.dead_letters, TTL_EXPIRED, TTL_EXPIRED_TEXT)
    else:
        decision.remove(messages)
    decision.commit()


def sweep(fragment: Fragment, now: Millis) -> None:
    """Ask the store for expired messages; they are looked at when the answer comes."""
    if fragment.is_expiring or fragment.next_expiry > now:
        return
    fragment.is_expiring = True
    fragment.next_expiry = NEVER
    locked = [message for message, _ in fragment.locks.held.values()]
    held = frozenset([message.sequence_number for message in locked if message.expires_at <= now])
    fragment.broker.query(partial(_expired_rows, fragment.key, now, held), lambda answer: _swept(fragment, now, answer))


def _expired_rows(key: FragmentKey, now: Millis, held: frozenset[int], store: MessagingStore) -> Sweep:
    """Some that nobody holds, and when to look again."""
    numbers, next_expiry = store.expired(key, now, SWEEP_COUNT_MAX + len(held))
    free = [number for number in numbers if number not in held]
    rows = read_some(store, key, free[:SWEEP_COUNT_MAX])
    if len(rows) < len(free):
        return rows, now
    return rows, min(next_expiry, now + RETRY_AFTER) if len(free) < len(numbers) else next_expiry


def _swept(fragment: Fragment, now: Millis, answer: Sweep | FragmentUnavailable) -> None:
    if isinstance(answer, FragmentUnavailable):
        return
    rows, next_expiry = answer
    fragment.is_expiring = False
    out_of_lane = fragment.out_of_lane()
    expired = [row for row in rows if row.sequence_number not in out_of_lane]
    if len(expired) < len(rows):
        next_expiry = min(next_expiry, now + RETRY_AFTER)
    lanes = withdraw(fragment, expired)
    if expired:
        expire(fragment, expired)
    for lane in lanes:
        fragment.announce(lane)
    fragment.next_expiry = min(fragment.next_expiry, next_expiry)
    fragment.wake()
