"""Transactions: sends and settlements on one entity that happen together or not at all (contract A7).

    open --commit--> under way --the store has it--> over
     |  '--commit: a lock is gone, no room, the store failed--> over, with the error
     '--rollback, or two minutes after the first operation----> over

An operation is checked and remembered when it is asked for, and done at the commit. All of them concern one fragment,
so they are one commit to one messaging store, and a crash leaves all of them or none. Until then

* a message that was sent is nowhere and has no number, and whether it is a duplicate is not asked;
* a message that was settled stays locked, and nobody else can settle it. Its lock keeps its clock: it may be renewed,
  and where it ends first, the message comes again as it always does, and the commit fails as the settlement would have.

So a rollback has nothing to undo: it forgets, and the locks live on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.placement import Placement
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import fragment_of_tokens
from twinbus.broker.fragment.settlement import apply, check_live, in_transaction, refusal_of
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.wakeups import Deadlines
from twinbus.clock import NEVER, Millis
from twinbus.errors import (
    MessagingError,
    NotAllowed,
    QuotaExceeded,
    TransactionTimeout,
    TransactionUnknown,
)
from twinbus.meter.operation import NO_FRAGMENT
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.message import Message, read_content
from twinbus.model.partition_key import candidates, pinning_key

MESSAGES_MAX = 100
DURATION_MAX: Millis = 120_000


class _Settlement(NamedTuple):
    fragment: Fragment
    tokens: list[bytes]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Place:
    """The one fragment of the one entity that everything in a transaction concerns."""

    settings: EntitySettings
    index: int
    key: str | None  # None: an ordinary entity, whose one fragment takes all keys


class FragmentTransaction:
    """Lives on the loop thread. Operations raise what is wrong with them, and are then no part of it."""

    def __init__(self) -> None:
        self._place: _Place | None = None
        self._sends: dict[Placement, list[Message]] = {}
        self._settlements: list[_Settlement] = []
        self._deadline: Millis = NEVER
        self._deadlines: Deadlines | None = None
        self._fault: MessagingError | None = None  # why it is over
        self.message_count = 0
        self.size_bytes = 0  # of what it holds in memory until it is over

    @property
    def fragment(self) -> int:
        """Which of its entity's it is about, once it has an operation."""
        return NO_FRAGMENT if self._place is None else self._place.index

    # Operations

    def send(self, placement: Placement, messages: Sequence[Message], now: Millis) -> None:
        """All of them or none."""
        self._check_open(now)
        placement.settings.last_used_at = now
        messages = placement.prepare(messages)
        placement.settings.check_can_send()
        keys = {placement.key_of(message) for message in messages}
        if not keys:
            return
        place = self._place_of(placement.settings, keys)
        _check_room(placement, place.index, [*self._sent_to(placement), *messages])
        self._enlist(place, placement.fragments[place.index], len(messages), now)
        self._sends.setdefault(placement, []).extend(messages)
        self.size_bytes += sum([len(message.content) for message in messages])

    def settle(self, queue: MessageQueue, tokens: Sequence[bytes], outcome: Outcome, now: Millis) -> None:
        """All of them or none."""
        self._check_open(now)
        fragment = fragment_of_tokens(queue.fragments, tokens)
        error = refusal_of(fragment, outcome) or check_live(fragment, tokens, now)
        if error is not None:
            raise error
        if fragment.locks.is_any_enlisted(tokens):
            raise in_transaction()
        chosen = list(dict.fromkeys(tokens))
        place = self._place_of(queue.settings, {_key_behind(fragment, token) for token in chosen}, fragment.index)
        self._enlist(place, fragment, len(chosen), now)
        fragment.locks.enlist(chosen)
        self._settlements.append(_Settlement(fragment, chosen, outcome))

    def doom(self, error: MessagingError) -> None:
        """An operation was refused and its sender does not learn of it, so the transaction cannot be committed."""
        if self._fault is None:
            self._end(error)

    # Discharge

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        """Replies None when everything is durable. After an error it is rolled back; after FragmentUnavailable it
        may have been committed all the same, as with every change to a store that fails meanwhile."""
        try:
            self._check_open(now)
            self._check_again(now)
        except MessagingError as error:
            self.rollback()
            reply(error)
            return
        sends, settlements, place = self._sends, self._settlements, self._place
        self.rollback()
        if place is None:
            reply(None)
        else:
            _commit(sends, settlements, place.index, now, reply)

    def rollback(self) -> None:
        """Forget everything; allowed even if it is over already."""
        self._end(self._fault or TransactionUnknown("The transaction is over. Declare another one."))

    def _end(self, fault: MessagingError) -> None:
        self._fault = fault
        if self._deadlines is not None:
            self._deadlines.discard(self._time_out)
        for fragment, tokens, _ in self._settlements:
            fragment.locks.dismiss(tokens)
        self._sends, self._settlements, self._place = {}, [], None
        self.size_bytes = 0

    # Rules

    def _check_open(self, now: Millis) -> None:
        self._time_out(now)
        if self._fault is not None:
            raise self._fault

    def _time_out(self, now: Millis) -> None:
        if self._fault is None and now >= self._deadline:
            minutes = DURATION_MAX // 60_000
            self._end(
                TransactionTimeout(
                    f"The transaction was open for {minutes} minutes, which is the limit, and was rolled back. "
                    "Do the same in a new one."
                )
            )

    def _check_again(self, now: Millis) -> None:
        """What was good when it was asked for may be so no longer."""
        for fragment, tokens, _ in self._settlements:
            lost = check_live(fragment, tokens, now)
            if lost is not None:
                raise lost
        for placement in self._sends:
            assert self._place is not None
            placement.settings.check_can_send()
            _check_room(placement, self._place.index, self._sent_to(placement))

    def _sent_to(self, placement: Placement) -> list[Message]:
        """What goes into the same sub-queue: links to several destinations share the one of the queue they go via."""
        return [
            message
            for other, messages in self._sends.items()
            if other.fragments is placement.fragments
            for message in messages
        ]

    def _enlist(self, place: _Place, fragment: Fragment, count: int, now: Millis) -> None:
        if self.message_count + count > MESSAGES_MAX:
            raise QuotaExceeded(
                f"A transaction holds at most {MESSAGES_MAX} messages, sent and settled ones together. "
                "Commit it, and continue in another one."
            )
        self.message_count += count
        if self._place is None:
            self._place = place
            self._deadline = now + DURATION_MAX
            self._deadlines = fragment.broker.transaction_deadlines
            self._deadlines.add(self._deadline, self._time_out)

    def _place_of(self, settings: EntitySettings, keys: set[str | None], index: int | None = None) -> _Place:
        """Where these messages belong. Raises NotAllowed if that is not where the transaction is.

        `index`: the fragment they lie in, for those that lie somewhere.
        """
        here = self._place
        if here is not None and here.settings is not settings:
            raise NotAllowed(
                f"A transaction stays within one entity: this one is on '{here.settings.path}' and cannot reach "
                f"'{settings.path}'. Send via '{here.settings.path}', or use two transactions."
            )
        if not settings.is_partitioned:
            return _Place(settings, 0, None)
        if None in keys:
            raise NotAllowed(
                f"'{settings.path}' is partitioned: every message of a transaction there needs a session id or a "
                "partition key (a via-partition-key if it is sent via it), and all of them the same one."
            )
        key = next(iter(keys))
        assert key is not None
        place = _Place(settings, candidates(key, FRAGMENT_COUNT, 0)[0] if index is None else index, key)
        if len(keys) > 1 or (here is not None and here != place):
            raise NotAllowed(
                f"'{settings.path}' is partitioned: all messages of a transaction there must have the same session id "
                "or partition key. Use one transaction for each key."
            )
        return place


def _check_room(placement: Placement, index: int, messages: Sequence[Message]) -> None:
    fragment = placement.fragments[index]
    refusal = fragment.refusal
    if refusal is not None:
        raise refusal
    placement.check_room(fragment, messages)


def _key_behind(fragment: Fragment, token: bytes) -> str | None:
    """The key of a locked message, where that is of interest."""
    settings = fragment.settings
    if not settings.is_partitioned:
        return None
    message = read_content(fragment.locks.held[token][0].content)
    return pinning_key(
        message.session_id,
        message.partition_key,
        message.message_id,
        settings.duplicate_window > 0,
        settings.has_sessions,
    )


def _commit(
    sends: dict[Placement, list[Message]],
    settlements: Sequence[_Settlement],
    index: int,
    now: Millis,
    reply: Reply[None],
) -> None:
    """Do it all; nothing of it can be refused any more."""
    fragments = [placement.fragments[index] for placement in sends] + [each.fragment for each in settlements]
    broker = fragments[0].broker
    with broker.joined(lambda _: reply(None), lambda error, _: reply(error)):
        for placement, messages in sends.items():
            decision = Decision(placement.fragments[index])
            placement.stage(decision, messages, now, None)
            decision.commit()
        for fragment, tokens, outcome in settlements:
            apply(fragment, fragment.locks.drop(tokens), outcome, now, None)
