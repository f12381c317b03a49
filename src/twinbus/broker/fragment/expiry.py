"""Messages whose time to live is over (contract A14).

An active message ends when the sweep finds it or when it would be handed over, whichever is first; a locked one when
it is free again; a deferred one never, and neither does anything in a dead-letter queue, whose rows carry no end.
"""

from collections.abc import Sequence
from functools import partial

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import Millis
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
    if not fragment.agenda.start_expiring(now):
        return
    locked = [message for message, _ in fragment.locks.held.values()]
    held = frozenset([message.sequence_number for message in locked if message.expires_at <= now])
    read = ExpiredRows(fragment.key, now, SWEEP_COUNT_MAX, held, retry_at=now + RETRY_AFTER)
    fragment.broker.query(read, partial(_swept, fragment))


def _swept(fragment: Fragment, answer: Timely | FragmentUnavailable, now: Millis) -> None:
    if isinstance(answer, FragmentUnavailable):
        return
    rows, next_expiry = answer
    out_of_lane = fragment.out_of_lane()
    expired = [row for row in rows if row.sequence_number not in out_of_lane]
    if len(expired) < len(rows):
        next_expiry = min(next_expiry, now + RETRY_AFTER)
    fragment.agenda.stop_expiring(next_expiry)
    lanes = fragment.withdraw(expired)
    if expired:
        expire(fragment, expired)
    for lane in lanes:
        fragment.announce(lane, now)
    fragment.wake()
