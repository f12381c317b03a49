"""Messages whose time to live is over (contract A14).

An active message ends when the sweep finds it or when it would be handed over, whichever is first; a locked one when
it is free again; a deferred one never, and neither does anything in a dead-letter queue, whose rows carry no end.
"""

from collections.abc import Sequence

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.withdrawal import withdraw
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model.dead_letter_reasons import TTL_EXPIRED, TTL_EXPIRED_TEXT
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ExpiredRows, Timely

SWEEP_COUNT_MAX = 256
# What is expired but locked is looked at again after this.
RETRY_AFTER: Millis = 1_000


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
    read = ExpiredRows(fragment.key, now, SWEEP_COUNT_MAX, held, retry_at=now + RETRY_AFTER)
    fragment.broker.query(read, lambda answer: _swept(fragment, now, answer))


def _swept(fragment: Fragment, now: Millis, answer: Timely | FragmentUnavailable) -> None:
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
