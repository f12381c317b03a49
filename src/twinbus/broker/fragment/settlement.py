"""What settling does, and what happens to messages that are not settled in time (contract A5, A15).

Complete    the row is removed
Abandon     delivery count + 1, back to its place, at once or when it is due; at the limit to the dead-letter queue
lock ended  as Abandon
Release     back to its place, nothing written
Defer       state deferred
DeadLetter  moved to the dead-letter queue
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from twinbus.broker.consumer import SessionLock
from twinbus.broker.fragment.decision import DeadLetterNote, Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.reading_again import read_again
from twinbus.broker.held_contents import unread_content
from twinbus.broker.message_broker import Effect, Failed
from twinbus.broker.outcomes import DELAY_MAX, Abandon, Complete, DeadLetter, Defer, Outcome, Release
from twinbus.broker.replies import UNAWAITED, SettleReply
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import Millis
from twinbus.errors import (
    ArgumentError,
    FragmentUnavailable,
    MessageLockLost,
    MessageTooLarge,
    MessagingError,
    NotAllowed,
    SessionLockLost,
)
from twinbus.model.content import NewProperties
from twinbus.model.dead_letter_reasons import MAX_DELIVERY_COUNT_EXCEEDED, max_delivery_count_text
from twinbus.model.descriptions import DAY
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

NOT_WRITTEN = (Complete, Release)
"""Outcomes that write nothing of a message again."""
REWRITTEN_BYTES_MAX = 128 << 20
"""Contents, with what the outcome adds to them, that are written again in one commit where that cannot be cut: a tenth of a second for
everybody. A single message never is too large."""
SETTLED_TOGETHER, WRITTEN_TOGETHER, WRITTEN_BYTES_TOGETHER = 10_000, 1_000, 16 << 20
"""Messages that are settled in one step, if their rows are removed or nothing is written; and otherwise, or so many bytes of them."""
FAILED_DELIVERY = Abandon()
ENDED_COUNT_MAX = 1_000
ENDED_BYTES_MAX = 16 << 20
"""Of messages whose locks end in one step: with their contents, where those have to be read again, and some milliseconds."""


def settle_each(
    fragment: Fragment,
    tokens: Sequence[bytes],
    indexes: Sequence[int],
    outcome: Outcome,
    now: Millis,
    reply: SettleReply,
    session: SessionLock | None = None,
) -> None:
    """Settle what is still locked; `indexes` are the caller's numbers for the tokens, `session` is what it holds.

    So many that everybody else would notice are settled in steps, except those of a message session: whoever gives that back next
    means all of them.
    """
    added = added_bytes(outcome)
    if fragment.sessions is None:
        together = _count_together(fragment, tokens, outcome, added)
        if len(tokens) > together:
            fragment.broker.long_work.add(_settle_rest(fragment, tokens, indexes, outcome, added, reply, together))
            tokens, indexes = tokens[:together], indexes[:together]
    elif not isinstance(outcome, NOT_WRITTEN):
        count = _fitting_count(fragment, tokens, added, REWRITTEN_BYTES_MAX)
        for index in indexes[count:]:
            reply.failed(index, _too_much(), now)
        tokens, indexes = tokens[:count], indexes[:count]
    _settle_some(fragment, tokens, indexes, outcome, now, reply, session)


def _settle_rest(
    fragment: Fragment,
    tokens: Sequence[bytes],
    indexes: Sequence[int],
    outcome: Outcome,
    added: int,
    reply: SettleReply,
    start: int,
) -> LongSteps:
    while start < len(tokens):
        now = yield
        some = slice(start, start + _count_together(fragment, tokens[start:], outcome, added))
        _settle_some(fragment, tokens[some], indexes[some], outcome, now, reply, None)
        start = some.stop


def _count_together(fragment: Fragment, tokens: Sequence[bytes], outcome: Outcome, added: int) -> int:
    """How many of the first are settled in one step."""
    if isinstance(outcome, NOT_WRITTEN):
        return SETTLED_TOGETHER
    return _fitting_count(fragment, tokens[:WRITTEN_TOGETHER], added, WRITTEN_BYTES_TOGETHER)


def _settle_some(
    fragment: Fragment,
    tokens: Sequence[bytes],
    indexes: Sequence[int],
    outcome: Outcome,
    now: Millis,
    reply: SettleReply,
    session: SessionLock | None,
) -> None:
    refusal = refusal_of(fragment, outcome, now)
    if refusal is not None:
        for index in indexes:
            reply.failed(index, refusal, now)
        return
    sessions = fragment.sessions
    messages, lost, busy = fragment.locks.settle(tokens, now, None if sessions is None else sessions.is_held)
    good = indexes
    if lost or busy:
        bad = {*lost, *busy}
        good = [index for place, index in enumerate(indexes) if place not in bad]
    for place in lost:
        reply.failed(indexes[place], lock_lost(fragment, session, now), now)
    for place in busy:
        reply.failed(indexes[place], in_transaction(), now)

    def failed(error: FragmentUnavailable, later: Millis) -> None:
        for index in good:
            reply.failed(index, error, later)

    if messages:
        is_awaited = reply is not UNAWAITED
        apply(fragment, messages, outcome, now, partial(reply.settled, good), failed, is_awaited=is_awaited)


def settle_all(
    fragment: Fragment,
    tokens: Sequence[bytes],
    outcome: Outcome,
    now: Millis,
    effect: Effect,
    failed: Callable[[MessagingError, Millis], None],
    session: SessionLock | None = None,
) -> None:
    """Settle all of them in one commit, or none."""
    error = refusal_of(fragment, outcome, now) or check_live(fragment, tokens, now, session)
    if error is None and fragment.locks.is_any_enlisted(tokens):
        error = in_transaction()
    if error is None and not isinstance(outcome, NOT_WRITTEN):
        error = check_size(len(tokens), written_bytes([fragment.locks.held[token][0] for token in tokens], outcome))
    if error is not None:
        failed(error, now)
        return
    apply(fragment, fragment.locks.drop(tokens), outcome, now, effect, failed)


def _fitting_count(fragment: Fragment, tokens: Sequence[bytes], added: int, bytes_max: int) -> int:
    """How many of them can be written again together; those behind stay locked, and can be settled next."""
    held, size = fragment.locks.held, 0
    for place, token in enumerate(tokens):
        found = held.get(token)
        size += 0 if found is None else len(found[0].content) + added
        if size > bytes_max and place:
            return place
    return len(tokens)


def added_bytes(outcome: Outcome) -> int:
    """What it adds to every message, about."""
    match outcome:
        case Abandon(properties) | Defer(properties):
            return len(NewProperties(properties).entries) if properties else 0
        case DeadLetter(reason, description, properties):
            return len(DeadLetterNote(reason, description, properties).everything.entries)
    return 0


def written_bytes(messages: Sequence[StoredMessage], outcome: Outcome) -> int:
    """What is written again if it is applied to them."""
    if isinstance(outcome, NOT_WRITTEN):
        return 0
    return sum([len(message.content) for message in messages]) + added_bytes(outcome) * len(messages)


def check_size(count: int, size_bytes: int) -> MessageTooLarge | None:
    """The error, if so many messages cannot be written again in one commit."""
    return _too_much() if count > 1 and size_bytes > REWRITTEN_BYTES_MAX else None


def _too_much() -> MessageTooLarge:
    return MessageTooLarge(f"These messages have more than {REWRITTEN_BYTES_MAX} bytes. Settle fewer at once.")


def check_live(
    fragment: Fragment, tokens: Sequence[bytes], now: Millis, session: SessionLock | None = None
) -> MessagingError | None:
    """The error, if one of the locks is gone."""
    if fragment.broker.is_given_away and not fragment.is_loaded:
        return fragment.broker.unavailable()
    locks, sessions = fragment.locks, fragment.sessions
    for token in tokens:
        if not locks.is_live(token, now):
            return lock_lost(fragment, session, now)
        if sessions is not None and not sessions.is_held(locks.held[token][0], now):
            return lock_lost(fragment, session, now)
    return None


def refusal_of(fragment: Fragment, outcome: Outcome, now: Millis) -> MessagingError | None:
    if fragment.broker.is_given_away and not (fragment.is_loaded and isinstance(outcome, Release)):
        # Not even looked for: of what cannot be written the lock goes with the store.
        return fragment.broker.unavailable()
    if isinstance(outcome, Abandon) and outcome.hidden_until(now) > now + DELAY_MAX:
        return ArgumentError(f"An abandoned message can be hidden for {DELAY_MAX // DAY} days at most.")
    if isinstance(outcome, DeadLetter) and fragment.dead_letters is None:
        return NotAllowed("A message in a dead-letter queue cannot be dead-lettered again. Complete or abandon it.")
    return None


def lock_lost(fragment: Fragment, session: SessionLock | None = None, now: Millis = 0) -> MessagingError:
    """Why a message cannot be settled. Whoever still holds its message session, `session`, has lost that message alone."""
    if fragment.sessions is not None and not (session is not None and session.is_held and session.locked_until > now):
        return session_lost()
    return MessageLockLost(
        "The lock on the message is gone: it ended, or the message was settled before. Receive the message again."
    )


def session_lost() -> SessionLockLost:
    return SessionLockLost("The lock on the message session is gone. Accept the session again.")


def in_transaction() -> MessagingError:
    return NotAllowed("The message is being settled in a transaction. Commit that, or roll it back first.")


def apply(
    fragment: Fragment,
    messages: list[StoredMessage],
    outcome: Outcome,
    now: Millis,
    effect: Effect | None,
    failed: Failed | None = None,
    *,
    is_awaited: bool = True,
) -> None:
    """Apply it to messages that are no longer locked. `is_awaited`: somebody waits for the effect, besides receivers for what
    they may get again."""
    unread = needed_contents(fragment, messages, outcome)
    if unread:
        let_in = fragment.keep_out([message.sequence_number for message in messages])
        let_go = None if fragment.sessions is None else fragment.hold_back(messages)

        def found(later: Millis) -> None:
            apply(fragment, messages, outcome, later, effect, failed)
            let_in()
            if let_go is not None:
                let_go(later)

        read_again(fragment, unread, found, failed or _ignore)
        return
    match outcome:
        case Complete():
            decision = Decision(fragment)
            if fragment.locks.deferred:
                decision.remove(messages)
            else:
                decision.remove_active(messages)
            decision.commit(effect, failed, is_awaited=is_awaited)
        case Release():
            release(fragment, messages, now)
            if effect is not None:
                effect(now)
        case Abandon(properties):
            _give_back(fragment, messages, properties, outcome.hidden_until(now), effect, failed)
        case Defer(properties):
            decision, new = Decision(fragment), NewProperties(properties) if properties else None
            for message in messages:
                claim = message.due_at if message.state is MessageState.DEFERRED else 0
                decision.alter(message, MessageState.DEFERRED, due_at=claim, properties=new)
            decision.commit(effect, failed)
        case DeadLetter(reason, description, properties):
            assert fragment.dead_letters is not None
            decision, note = Decision(fragment), DeadLetterNote(reason, description, properties)
            for message in messages:
                decision.move(message, fragment.dead_letters, note)
            decision.commit(effect, failed)


def release(fragment: Fragment, messages: Sequence[StoredMessage], now: Millis) -> None:
    fragment.locks.forget_deferred([message.sequence_number for message in messages])
    fragment.put_back([message for message in messages if message.state is MessageState.ACTIVE], now)


def needed_contents(fragment: Fragment, messages: Sequence[StoredMessage], outcome: Outcome) -> list[StoredMessage]:
    """The messages whose contents were left to the store and have to be read again before the outcome can be applied."""
    if isinstance(outcome, NOT_WRITTEN) or (isinstance(outcome, Defer) and not outcome.properties):
        return []
    unread = [message for message in messages if unread_content(message) is not None]
    if isinstance(outcome, Abandon) and not outcome.properties:
        return [message for message in unread if _is_last_delivery(fragment, message)]
    return unread


def _is_last_delivery(fragment: Fragment, message: StoredMessage) -> bool:
    """Whether it becomes a dead letter if this delivery fails."""
    return fragment.dead_letters is not None and message.delivery_count + 1 >= fragment.settings.max_delivery_count


def _ignore(error: FragmentUnavailable, now: Millis) -> None:
    """Nobody waits: with its store the fragment forgets what it had decided."""


def expire_locks(fragment: Fragment, now: Millis) -> None:
    """A million may end at once. What is left is due at once, and so has its turn after everybody else."""
    messages = fragment.locks.take_expired(now, ENDED_COUNT_MAX, ENDED_BYTES_MAX)
    if messages:
        fail_delivery(fragment, messages, now)


def fail_delivery(fragment: Fragment, messages: list[StoredMessage], now: Millis) -> None:
    """As if they had been abandoned: their locks have ended, and nobody waits for an answer."""
    apply(fragment, messages, FAILED_DELIVERY, now, None)


def fail_deliveries(fragment: Fragment, messages: list[StoredMessage], now: Millis) -> None:
    """As `fail_delivery`, of any number: those of a message session end together."""
    pieces = list(_pieces(messages))
    fail_delivery(fragment, pieces[0], now)
    if len(pieces) > 1:
        waiting = [(piece, fragment.keep_out([message.sequence_number for message in piece])) for piece in pieces[1:]]
        fragment.broker.long_work.add(_fail_in_steps(fragment, waiting))


def _pieces(messages: Sequence[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """As much of them as ends in one step, and at least one."""
    piece: list[StoredMessage] = []
    size_bytes = 0
    for message in messages:
        if len(piece) == ENDED_COUNT_MAX or (piece and size_bytes >= ENDED_BYTES_MAX):
            yield piece
            piece, size_bytes = [], 0
        piece.append(message)
        size_bytes += len(message.content)
    yield piece


def _fail_in_steps(fragment: Fragment, pieces: list[tuple[list[StoredMessage], Callable[[], None]]]) -> LongSteps:
    locks = fragment.locks
    for messages, let_in in pieces:
        now = yield
        if fragment.locks is not locks:
            return  # the store was lost, and everything is free
        _fail_kept_out(fragment, messages, let_in, now)


def _fail_kept_out(fragment: Fragment, messages: list[StoredMessage], let_in: Callable[[], None], now: Millis) -> None:
    """Contents are read while they are still kept out: whoever waits for these waits until their change has been asked for."""

    def found(later: Millis) -> None:
        fail_delivery(fragment, messages, later)
        let_in()

    unread = needed_contents(fragment, messages, FAILED_DELIVERY)
    if unread:
        read_again(fragment, unread, found, _ignore)
    else:
        found(now)


def _give_back(
    fragment: Fragment,
    messages: Sequence[StoredMessage],
    properties: Mapping[str, object] | None,
    due_at: Millis,
    effect: Effect | None,
    failed: Failed | None,
) -> None:
    """A delivery failed. A deferred message stays deferred; an active one with `due_at` hides until then. A dead letter keeps
    the count that it came with: it has nowhere else to go."""
    decision, new = Decision(fragment), NewProperties(properties) if properties else None
    notes: dict[int, DeadLetterNote] = {}  # by delivery count, which they tell
    for message in messages:
        is_last = _is_last_delivery(fragment, message)
        if fragment.dead_letters is not None:
            message.delivery_count += 1
        if fragment.dead_letters is not None and is_last:
            count = message.delivery_count
            if count not in notes:
                text = max_delivery_count_text(count, fragment.settings.max_delivery_count)
                notes[count] = DeadLetterNote(MAX_DELIVERY_COUNT_EXCEEDED, text, properties)
            decision.move(message, fragment.dead_letters, notes[count])
        elif message.state is MessageState.DEFERRED:
            decision.alter(message, MessageState.DEFERRED, due_at=message.due_at, properties=new)
        elif due_at:
            decision.alter(message, MessageState.SCHEDULED, due_at=due_at, properties=new)
        elif decision.alter(message, MessageState.ACTIVE, properties=new):
            decision.free(message)
    decision.commit(effect, failed)
