"""What is decided about rows of one fragment, as one commit of its store: the only way in which rows change.

    remove, alter, free, activate   rows that exist, and are in no lane: they were taken, withdrawn, or were never in one
    enqueue                         new rows of this fragment
    put, move                       new rows of other fragments in the same store: copies and dead letters
    copy                            the same new rows for one of many fragments
    write                           what is kept beside the rows: session states, keys of duplicate detection

The fragment's counts and numbers follow every call at once; lanes get what is new or free again when the store has
it. A fragment's dead letters and the subscriptions of a topic's fragment lie in its store, so that a move or a copy is
in the same commit, and a message is never in both places or in neither.

Between the first call and `commit` nothing else may decide about the same fragments: numbers are committed in the
order in which they are taken. All of it runs in one call from outside, so nothing else can.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.message_broker import Effect, Failed
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import NEVER, Millis
from twinbus.model import dead_letter_reasons, wire_names
from twinbus.model.content import NewProperties, with_annotations, with_application_properties
from twinbus.model.hops import hops_of, with_hops, without_hops
from twinbus.model.message import is_front_too_large
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Change,
    Copied,
    Enqueued,
    FragmentKey,
    Removed,
    SharedRows,
    StoredMessage,
    session_runs,
)
from twinbus.store.reads import DueUnread, UnreadRows

ANNOUNCED_TOGETHER = 25
"""Fragments whose receivers learn of new copies in one step."""

_by_number = attrgetter("sequence_number")


class Decision:
    __slots__ = (
        "_added",
        "_added_bytes",
        "_altered",
        "_changes",
        "_copied",
        "_effect",
        "_elsewhere",
        "_first_numbers",
        "_freed",
        "_let_go",
        "_removed",
        "_then",
        "fragment",
    )

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self._changes: list[Change] = []
        self._removed: list[int] = []
        self._altered: list[int] = []
        self._freed: list[StoredMessage] = []
        self._added: list[StoredMessage] = []  # active from now on, and behind all others of their lane
        self._added_bytes = 0
        self._elsewhere: dict[FragmentKey, tuple[Fragment, list[StoredMessage]]] = {}
        self._copied: list[tuple[Fragment, SharedRows]] = []
        self._first_numbers: list[int] = []
        self._effect: Effect | None = None
        self._then: Effect | None = None
        self._let_go: Effect | None = None

    # Rows that exist

    def remove(self, messages: Sequence[StoredMessage]) -> None:
        numbers = [message.sequence_number for message in messages]
        self._removed += numbers
        self.fragment.tally.remove(messages)
        self.fragment.locks.forget_deferred(numbers)

    def remove_active(self, messages: Sequence[StoredMessage]) -> None:
        """As `remove`, of messages that are all active."""
        self._removed += [message.sequence_number for message in messages]
        self.fragment.tally.remove_active(messages)

    def remove_unread(self, rows: UnreadRows) -> None:
        """As `remove`, of deferred messages."""
        self._removed += rows.numbers
        self.fragment.tally.remove_deferred(len(rows.numbers), sum(rows.sizes))
        self.fragment.locks.forget_deferred(rows.numbers)

    def claim_unread(self, rows: UnreadRows, owner: int) -> None:
        """Active messages are deferred from now on, and known by the number of their owner, 0 for none."""
        fragment, numbers = self.fragment, rows.numbers
        fragment.tally.defer(len(numbers))
        self._altered += numbers
        self._changes.append(AlteredTogether(fragment.key, numbers, MessageState.DEFERRED, owner))

    def alter(
        self,
        message: StoredMessage,
        state: MessageState,
        *,
        due_at: Millis = 0,
        properties: NewProperties | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> bool:
        """A new state, the delivery count the message has by now, and new values of properties and annotations.

        False where those make the message too large: then it is dead-lettered instead, as it was.
        """
        fragment = self.fragment
        content = None
        if properties is not None:
            content = with_application_properties(message.content, properties)
        if annotations:
            content = with_annotations(content or message.content, annotations)
        if content is not None and is_front_too_large(content):
            if fragment.dead_letters is not None:
                self.move(message, fragment.dead_letters, HEADER_SIZE_EXCEEDED)
                return False
            content = None  # a dead letter has nowhere to go, and keeps what it has
        number = message.sequence_number
        if content is not None:
            fragment.tally.resize(message, content)
            message.content = content
        if state is not message.state:
            fragment.tally.change_state(message.state, state)
            message.state = state
        message.due_at = due_at
        if state is MessageState.SCHEDULED:
            fragment.agenda.will_be_due(due_at)
        if fragment.locks.deferred:
            fragment.locks.forget_deferred((number,))
        self._altered.append(number)
        self._changes.append(
            Altered(fragment.key, number, state, message.delivery_count, due_at, message.expires_at, content)
        )
        return True

    def free(self, message: StoredMessage) -> None:
        """It goes back into its lane, to its old place, when the commit is durable."""
        self._freed.append(message)

    def activate(self, row: StoredMessage, now: Millis) -> None:
        """A scheduled row is due: one that was put off keeps its number and place, another is as if sent now."""
        if self.fragment.is_put_off(row):
            self.alter(row, MessageState.ACTIVE)
            self.free(row)
            return
        fragment, scheduled_number = self.fragment, row.sequence_number
        fragment.tally.change_state(row.state, MessageState.ACTIVE)
        if row.expires_at < NEVER:
            # The time to live counts from now; the row has it from the time it was due.
            row.expires_at += now - row.due_at
            fragment.agenda.will_expire(row.expires_at)
        row.sequence_number, row.enqueued_at = fragment.tally.take_numbers(1), now
        row.state, row.due_at = MessageState.ACTIVE, 0
        self._altered.append(scheduled_number)
        self._changes.append(Activated(fragment.key, scheduled_number, row.sequence_number, now, row.expires_at))
        self._added.append(row)
        self._added_bytes += len(row.content)

    def activate_unread(self, due: DueUnread, now: Millis) -> None:
        """As `activate`, of rows that were sent with a schedule: their content stays in the store until somebody takes them."""
        fragment, count = self.fragment, len(due.numbers)
        # The time to live counts from now.
        expiries = [now + life if life < NEVER else NEVER for life in due.lives]
        first_number = fragment.tally.activate(count)
        fragment.agenda.will_expire(min(expiries))
        self._altered += due.numbers
        self._changes.append(ActivatedTogether(fragment.key, due.numbers, first_number, now, expiries))
        sessions = session_runs(due.session_ids) if fragment.sessions is not None else []

        def announce(now: Millis) -> None:
            fragment.admit_unread(count, first_number, sessions)
            fragment.announce_unread(sessions, now)

        self.when_durable(announce)

    # New rows

    def enqueue(
        self,
        active: list[StoredMessage],
        scheduled: Sequence[StoredMessage] = (),
        passing: Sequence[StoredMessage] = (),
    ) -> None:
        """Rows with new numbers of this fragment. Those that pass are written and removed in the same commit: they
        prove that the store works, or keep the last number, and are never in a lane."""
        fragment, rows = self.fragment, active
        if active:
            self._added += active
            self._added_bytes += fragment.tally.add_active(active)
            fragment.agenda.add_active(active)
        if scheduled:
            fragment.tally.add_scheduled(scheduled)
            fragment.agenda.add_scheduled(scheduled)
        if scheduled or passing:
            rows = sorted([*active, *scheduled, *passing], key=_by_number)
        if rows:
            self._changes.append(Enqueued(fragment.key, rows))
        if passing:
            self._changes.append(Removed(fragment.key, [row.sequence_number for row in passing]))

    def put(self, target: Fragment, row: StoredMessage) -> None:
        """An active row for another fragment of the same store, which numbers it at the commit."""
        self._elsewhere.setdefault(target.key, (target, []))[1].append(row)

    def copy(self, target: Fragment, rows: SharedRows) -> None:
        """Active rows for another fragment of the same store, which numbers them at the commit. Those who take from it learn
        of them a little later: there may be thousands of such fragments."""
        self._copied.append((target, rows))

    def move(self, message: StoredMessage, target: Fragment, note: "DeadLetterNote") -> None:
        """To a dead-letter queue: a new number there, which remembers the old one, and no more expiry."""
        self.remove((message,))
        row = dead_letter_row(message, note)
        if target.forwards_to is None:
            row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)
        self.put(target, row)

    # Beside the rows

    def write(self, change: Change) -> None:
        """A change that concerns no row."""
        self._changes.append(change)

    def when_durable(self, effect: Effect) -> None:
        """Called before the effect that `commit` is given: for those who add to a decision and do not commit it."""
        assert self._then is None
        self._then = effect

    def commit(self, effect: Effect | None = None, failed: Failed | None = None, *, is_awaited: bool = True) -> None:
        """Ask the store for all of it. `effect` is called when it is durable, `failed` if that is not known."""
        fragment, numbers = self.fragment, self._removed
        # Before what is new: a row may leave a fragment and be copied in the same commit.
        changes: list[Change] = [Removed(fragment.key, numbers)] if numbers else []
        if not self._changes and not self._elsewhere and not self._copied:
            # Completing, the hot path: no lane gets anything, so there is nothing to do before the effect.
            fragment.commit(numbers, changes, effect, failed, is_awaited=is_awaited)
            return
        changes += self._changes
        if self._altered:
            numbers = numbers + self._altered
        if self._elsewhere:
            self._number_elsewhere(changes)
        if self._copied:
            self._number_copied(changes)
        if self._freed and fragment.sessions is not None:
            self._let_go = fragment.hold_back(self._freed)
        self._effect = effect
        fragment.commit(numbers, changes, self._take_effect, failed)

    def _number_elsewhere(self, changes: list[Change]) -> None:
        # A subscription that is being deleted takes no more copies, in its store or in memory. It may even be gone since they
        # were chosen, and a store that is given rows of a fragment which it does not have is taken to be broken.
        for key in [key for key, (target, _) in self._elsewhere.items() if not target.is_loaded]:
            del self._elsewhere[key]
        for target, rows in self._elsewhere.values():
            for number, row in enumerate(rows, target.tally.take_numbers(len(rows))):
                row.sequence_number = number
            target.tally.add_active(rows)
            target.agenda.add_active(rows)
            changes.append(Enqueued(target.key, rows))

    def _number_copied(self, changes: list[Change]) -> None:
        self._copied = [each for each in self._copied if each[0].is_loaded]  # as above
        for target, rows in self._copied:
            first_number = target.tally.add_copies(rows)
            target.agenda.will_expire(rows.next_expiry)
            self._first_numbers.append(first_number)
            changes.append(Copied(target.key, first_number, rows))

    def _announce_copied(self) -> LongSteps:
        now = yield
        for place, (target, rows) in enumerate(self._copied):
            target.announce_copies(rows, now)
            if place % ANNOUNCED_TOGETHER == ANNOUNCED_TOGETHER - 1:
                now = yield

    def _take_effect(self, now: Millis) -> None:
        fragment = self.fragment
        if self._copied:
            for (target, shared), first_number in zip(self._copied, self._first_numbers, strict=True):
                target.admit_copies(shared, first_number)
            fragment.broker.long_work.add(self._announce_copied())
        for target, rows in self._elsewhere.values():
            target.admit(rows, sum([len(row.content) for row in rows]), now)
            target.wake()
        if self._added:
            fragment.admit(self._added, self._added_bytes, now)
        if self._freed:
            fragment.put_back(self._freed, now)
            if self._let_go is not None:
                self._let_go(now)
        fragment.wake()
        if self._then is not None:
            self._then(now)
        if self._effect is not None:
            self._effect(now)


class DeadLetterNote:
    """What is written on any number of dead letters: why they are dead letters, and what their receiver sets."""

    __slots__ = ("everything", "reasons")

    def __init__(self, reason: object, description: object, properties: Mapping[str, object] | None = None) -> None:
        given = ((wire_names.DEAD_LETTER_REASON, reason), (wire_names.DEAD_LETTER_DESCRIPTION, description))
        reasons = {name: value for name, value in given if value is not None}
        self.reasons = NewProperties(reasons)
        self.everything = NewProperties({**properties, **reasons}) if properties else self.reasons

    def written_on(self, content: bytes) -> bytes:
        noted = with_application_properties(content, self.everything) if self.everything.names else content
        if self.everything is not self.reasons and is_front_too_large(noted):
            # Why it is here matters more than what its receiver noted on it.
            return with_application_properties(content, self.reasons)
        return noted


HEADER_SIZE_EXCEEDED = DeadLetterNote(
    dead_letter_reasons.HEADER_SIZE_EXCEEDED, dead_letter_reasons.HEADER_SIZE_EXCEEDED_TEXT
)
TTL_EXPIRED = DeadLetterNote(dead_letter_reasons.TTL_EXPIRED, dead_letter_reasons.TTL_EXPIRED_TEXT)


def dead_letter_row(message: StoredMessage, note: DeadLetterNote) -> StoredMessage:
    return StoredMessage(
        sequence_number=0,
        content=note.written_on(message.content),
        enqueued_at=message.enqueued_at,
        expires_at=NEVER,
        delivery_count=message.delivery_count,
        session_id=message.session_id,
        enqueued_sequence_number=_first_number(message),
    )


def _first_number(message: StoredMessage) -> int:
    """The number at the first point of submission, with the hops since then."""
    origin = message.enqueued_sequence_number
    return with_hops(without_hops(origin) or message.sequence_number, hops_of(origin))
