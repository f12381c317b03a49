"""A message sent to a topic becomes one row for every copy its subscriptions take (contract A15, A16).

All copies lie in the store of the topic's own fragment, so they are one commit. The topic's fragment numbers what is
sent to it and holds what is scheduled; of the rest it remembers the last number only, as a row that is removed in the
commit that writes it.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias

from twinbus.broker.entity.metering import meter_copies
from twinbus.broker.entity.topic_room import TopicRoom
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import DeadLetterNote, Decision, dead_letter_row
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.intake import DROPPED, expiry_of, find_fresh, remember, take_fresh
from twinbus.broker.fragment.tally import Tally
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import Millis
from twinbus.errors import FilterError
from twinbus.model.dead_letter_reasons import (
    FILTER_FAILED,
    HEADER_SIZE_EXCEEDED,
    HEADER_SIZE_EXCEEDED_TEXT,
    SESSION_ID_IS_NULL,
    SESSION_ID_IS_NULL_TEXT,
)
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.hops import without_hops
from twinbus.model.message import Message, is_front_too_large, read_content
from twinbus.model.partition_key import candidates
from twinbus.model.rules.index import Copy, RuleIndex
from twinbus.model.rules.view import FilterView
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey, SharedRows, StoredMessage


class Subscriber(Protocol):
    """A subscription, as far as copies for it are concerned."""

    settings: EntitySettings

    def fragment(self, index: int) -> Fragment: ...

    def __hash__(self) -> int: ...


def stage(
    rules: RuleIndex[Subscriber],
    room: TopicRoom,
    decision: Decision,
    messages: Sequence[Message],
    now: Millis,
    origins: Sequence[int] | None = None,
) -> list[int]:
    """Copies of all of them, or what `TopicRoom.check` raises before anything is decided; returns the topic's numbers."""
    fragment = decision.fragment
    room.check(fragment, messages)
    fresh = [True] * len(messages)
    if fragment.duplicates is not None:
        fresh = take_fresh(decision, fragment.duplicates, messages, now)
    first_number = fragment.tally.take_numbers(sum(fresh))
    fan_out = at_once(room, messages)(rules, room, decision, first_number, now)
    numbers = []
    for place, message in enumerate(messages):
        if fresh[place]:
            numbers.append(fan_out.add(message, 0 if origins is None else origins[place]))
        else:
            numbers.append(DROPPED)
    fan_out.decide()
    return numbers


def at_once(room: TopicRoom, messages: Sequence[Message]) -> "type[FanOut]":
    """What makes the copies of these in one step."""
    return SharedFanOut if room.copied_at_most(messages) > SHARED_BYTES_MIN else FanOut


def copy_in_steps(
    rules: RuleIndex[Subscriber],
    room: TopicRoom,
    decision: Decision,
    messages: Sequence[Message],
    now: Millis,
    origins: Sequence[int] | None = None,
) -> Generator[None, Millis, "ReadyCopies"]:
    """As `stage`, for many copies, and up to the decision: nothing else is staged in the fragment before that is made."""
    fragment = decision.fragment
    tally, first_number = fragment.tally, fragment.tally.last_number + 1
    room.check_taken(fragment, messages)
    fresh, keys = [True] * len(messages), list[str]()
    if fragment.duplicates is not None:
        fresh, keys = find_fresh(fragment, fragment.duplicates, messages, now)
    fan_out = LargeFanOut(rules, room, decision, first_number, now)
    numbers = []
    for place, message in enumerate(messages):
        if not fresh[place]:
            numbers.append(DROPPED)
            continue
        numbers.append((yield from fan_out.add_in_steps(message, 0 if origins is None else origins[place])))
    yield from fan_out.share()
    return ReadyCopies(fan_out, decision, tally, first_number, numbers, keys, now)


def copy_due_in_steps(
    rules: RuleIndex[Subscriber],
    room: TopicRoom,
    decision: Decision,
    messages: Sequence[Message],
    now: Millis,
    origins: Sequence[int],
) -> Generator[None, Millis, "ReadyCopies"]:
    """As `copy_in_steps`, of scheduled messages that are due: there was room for them when they were sent, and they are no duplicates."""
    tally, first_number = decision.fragment.tally, decision.fragment.tally.last_number + 1
    fan_out = DueFanOut(rules, room, decision, first_number, now)
    numbers = []
    for message, origin in zip(messages, origins, strict=True):
        numbers.append((yield from fan_out.add_in_steps(message, origin)))
    yield from fan_out.share()
    return ReadyCopies(fan_out, decision, tally, first_number, numbers, (), now)


@dataclass(frozen=True, slots=True)
class ReadyCopies:
    """Of a run of messages, about which nothing is decided yet."""

    fan_out: "LargeFanOut"
    decision: Decision
    tally: Tally
    first_number: int
    numbers: list[int]
    keys: Sequence[str]  # of duplicate detection
    begun_at: Millis

    def check(self) -> None:
        """Raises FragmentUnavailable if the store was lost since they were begun."""
        fragment = self.decision.fragment
        if fragment.tally is not self.tally or not fragment.is_available:
            raise fragment.broker.unavailable()

    def decide(self) -> list[int]:
        """In the call in which they were checked. Returns the topic's numbers."""
        history = self.decision.fragment.duplicates
        if history is not None:
            remember(self.decision, history, self.keys, self.begun_at)
        taken_number = self.tally.take_numbers(len(self.numbers) - self.numbers.count(DROPPED))
        assert taken_number == self.first_number, "nothing else was staged"
        self.fan_out.decide()
        return self.numbers


class FanOut:
    """One run of messages on its way through one fragment of a topic, which numbers them from `first_number` on."""

    def __init__(
        self, rules: RuleIndex[Subscriber], room: TopicRoom, decision: Decision, first_number: int, now: Millis
    ) -> None:
        self._rules = rules
        self._room = room
        self._decision = decision
        self._fragment = decision.fragment
        self._now = now
        self._number = self._last_written = first_number - 1
        self._scheduled: list[StoredMessage] = []
        self._copies: dict[FragmentKey, _Copies] = {}

    def add(self, message: Message, origin: int) -> int:
        """Returns the topic's number for it."""
        if self._is_due(message, origin):
            self._publish(message, self._number, origin or self._number)
        return self._number

    def _is_due(self, message: Message, origin: int) -> bool:
        """Numbers it. Whether it is to be published: now, and at all."""
        self._number = number = self._number + 1
        if message.scheduled_at is not None and message.scheduled_at > self._now:
            self._schedule(message, number, message.scheduled_at, origin)
            return False
        return not message.is_ping

    def _schedule(self, message: Message, number: int, due_at: Millis, origin: int) -> None:
        expires_at = expiry_of(due_at, message.time_to_live, self._fragment.settings.default_time_to_live)
        self._scheduled.append(
            StoredMessage(
                number,
                message.content,
                self._now,
                expires_at,
                MessageState.SCHEDULED,
                due_at,
                enqueued_sequence_number=origin,
            )
        )
        self._last_written = number

    def _publish(self, message: Message, number: int, origin: int) -> None:
        view = FilterView(message.content, number, self._now)
        matches = self._rules.match(view)
        for copy in matches.copies:
            try:
                self._copy(copy, message, view, origin)
            except FilterError as error:
                self._report(copy.subscription, message, origin, error)
        for failure in matches.failures:
            self._report(failure.subscription, message, origin, failure.error)

    def _copy(self, copy: Copy[Subscriber], message: Message, view: FilterView, origin: int) -> None:
        if copy.action is not None:
            changed = copy.action.apply(view)
            if is_front_too_large(changed):
                self._too_large(copy.subscription, message, origin)
                return
            message = read_content(changed)
            self._check_session(message, copy.subscription.settings)
        subscriber = copy.subscription
        fragment = subscriber.fragment(self._fragment.index)
        row = self._row(message, subscriber.settings, origin)
        if subscriber.settings.requires_session and message.session_id is None:
            self._dead_letter(fragment, row, SESSION_ID_IS_NULL, SESSION_ID_IS_NULL_TEXT)
        else:
            self._put(fragment, row)

    def _check_session(self, message: Message, settings: EntitySettings) -> None:
        """A message session is in one fragment, where its id is looked for, and a copy stays in that of its message."""
        session_id = message.session_id
        if session_id is None or not (settings.is_partitioned and settings.requires_session):
            return
        if candidates(session_id, FRAGMENT_COUNT, 0) != [self._fragment.index]:
            raise FilterError(
                f"The action sets the session id to '{session_id}', which belongs to another fragment of the partitioned topic. "
                "Send messages with that id as their session id or partition key."
            )

    def _too_large(self, subscriber: Subscriber, message: Message, origin: int) -> None:
        row = self._row(message, subscriber.settings, origin)
        fragment = subscriber.fragment(self._fragment.index)
        self._dead_letter(fragment, row, HEADER_SIZE_EXCEEDED, HEADER_SIZE_EXCEEDED_TEXT)

    def _report(self, subscriber: Subscriber, message: Message, origin: int, error: FilterError) -> None:
        if subscriber.settings.dead_letter_on_filter_error:
            row = self._row(message, subscriber.settings, origin)
            self._dead_letter(subscriber.fragment(self._fragment.index), row, FILTER_FAILED, str(error))

    def _row(self, message: Message, settings: EntitySettings, origin: int) -> StoredMessage:
        ceiling = min(settings.default_time_to_live, self._fragment.settings.default_time_to_live)
        return StoredMessage(
            0,
            message.content,
            self._now,
            expiry_of(self._now, message.time_to_live, ceiling),
            session_id=message.session_id if settings.requires_session else None,
            enqueued_sequence_number=origin if settings.forward_to is not None else without_hops(origin),
        )

    def _dead_letter(self, fragment: Fragment, row: StoredMessage, reason: str, description: str) -> None:
        assert fragment.dead_letters is not None
        self._put(fragment.dead_letters, dead_letter_row(row, DeadLetterNote(reason, description)))

    def _put(self, fragment: Fragment, row: StoredMessage) -> None:
        self._counted(fragment).add(1, len(row.content))
        self._decision.put(fragment, row)

    def _counted(self, fragment: Fragment) -> "_Copies":
        copies = self._copies.get(fragment.key)
        if copies is None:
            copies = self._copies[fragment.key] = _Copies(fragment)
        return copies

    def decide(self) -> None:
        """All messages have been added."""
        # Of subscriptions that are being deleted or are gone: their copies are not made, see `Decision`.
        for key in [key for key, each in self._copies.items() if not each.fragment.is_loaded]:
            del self._copies[key]
        passing: list[StoredMessage] = []
        if self._number > self._last_written:
            passing.append(StoredMessage(self._number, b"", self._now, self._now))
        self._decision.enqueue([], self._scheduled, passing)
        scheduled_bytes = sum([len(row.content) for row in self._scheduled])
        self._room.copied(self._fragment, scheduled_bytes + sum([each.size_bytes for each in self._copies.values()]))
        # Not a method of this, which has the decision: only the collector would free both, with all of their rows.
        self._decision.when_durable(partial(_meter, self._copies.values()))


@dataclass(slots=True)
class _Copies:
    """For one fragment."""

    fragment: Fragment
    count: int = 0
    size_bytes: int = 0

    def add(self, count: int, size_bytes: int) -> None:
        self.count += count
        self.size_bytes += size_bytes


def _meter(copied: "Iterable[_Copies]", now: Millis) -> None:
    for copies in copied:
        meter_copies(copies.fragment, copies.count, copies.size_bytes, now)


SHARED_BYTES_MIN = 8 << 20
"""Copies that are made at once share what is written of them if they have more than this together: it might not fit on a disk that
fills up, and the store would be lost for those who could make room."""
STEP_COPIES = 4_000
STEP_SHAPED = 20_000
"""Of a large fan-out, in one step: some milliseconds."""
SHARED_TOGETHER = 4_000
"""Rows that are written as one: a subscription whose actions make a hundred thousand gets them in several parts."""
MESSAGE_COST = 20
ACTION_COST = 20
"""Of a message that nobody takes, and of a copy with an action, in plain copies."""
FILTERS_PER_COPY, BYTES_PER_COPY = 3, 2_000
"""Filters that are evaluated, and bytes that an action writes again, in the time of a plain copy."""


def cost_of_message(rules: RuleIndex[Subscriber], subscription_count: int) -> int:
    """At most, in plain copies: if all filters have to be evaluated, and all of them match."""
    return subscription_count + rules.scanned_count // FILTERS_PER_COPY + rules.acting_count * ACTION_COST


_Kind: TypeAlias = tuple[Millis, bool, bool]
"""What the row of a plain copy depends on, beside the message: the ceiling of its life, whether the subscription has message
sessions, and whether it forwards."""


@dataclass(slots=True)
class _Share:
    """What one subscription takes of a large fan-out."""

    fragment: Fragment
    kind: _Kind
    requires_session: bool
    rows: list[StoredMessage] = field(default_factory=list)


class LargeFanOut(FanOut):
    """Many copies: subscriptions that are alike share the rows of plain copies, and those that take the same messages share
    what is written of them. Their rows stay in the store until somebody takes them."""

    def __init__(
        self, rules: RuleIndex[Subscriber], room: TopicRoom, decision: Decision, first_number: int, now: Millis
    ) -> None:
        super().__init__(rules, room, decision, first_number, now)
        self._shares: dict[Subscriber, _Share] = {}
        self._shares_by_key: dict[FragmentKey, _Share] = {}
        self._work = 0
        self._copied_bytes = 0

    def add_in_steps(self, message: Message, origin: int) -> Generator[None, Millis, int]:
        """As `add`. A step ends behind a message, or between two copies of it."""
        if self._is_due(message, origin):
            yield from self._publish_in_steps(message, self._number, origin or self._number)
        return self._number

    def _is_step_done(self) -> bool:
        if self._work < STEP_COPIES:
            return False
        self._work = 0
        return True

    def share(self) -> LongSteps:
        """After the last message."""
        shared: dict[tuple[int, ...], SharedRows] = {}
        work = 0
        for share in self._shares.values():
            for start in range(0, len(share.rows), SHARED_TOGETHER):
                part = share.rows[start : start + SHARED_TOGETHER]
                rows = shared.setdefault(tuple(map(id, part)), SharedRows(part))
                rows.measure()
                self._decision.copy(share.fragment, rows)
                self._counted(share.fragment).add(len(rows), rows.size_bytes)
                work += len(rows)
                if work >= STEP_SHAPED:
                    work = 0
                    yield

    def _publish(self, message: Message, number: int, origin: int) -> None:
        for _ in self._publish_in_steps(message, number, origin):
            pass

    def _publish_in_steps(self, message: Message, number: int, origin: int) -> LongSteps:
        view = FilterView(message.content, number, self._now)
        matches = self._rules.match(view)
        cost_of_action = ACTION_COST + len(message.content) // BYTES_PER_COPY
        self._work += MESSAGE_COST + self._rules.scanned_count // FILTERS_PER_COPY + len(matches.copies)
        self._copied_bytes += len(matches.copies) * len(message.content)
        self._check_copied(self._copied_bytes)
        shares, has_session = self._shares, message.session_id is not None
        rows: dict[_Kind, StoredMessage] = {}
        for copy in matches.copies:
            share = shares.get(copy.subscription) or self._share_of(copy.subscription)
            if copy.action is None and (has_session or not share.requires_session):
                row = rows.get(share.kind)
                if row is None:
                    row = rows[share.kind] = self._row(message, copy.subscription.settings, origin)
                share.rows.append(row)
                continue
            self._work += cost_of_action
            try:
                self._copy(copy, message, view, origin)
            except FilterError as error:
                self._report(copy.subscription, message, origin, error)
            if self._is_step_done():
                yield
        for failure in matches.failures:
            self._report(failure.subscription, message, origin, failure.error)
        if self._is_step_done():
            yield

    def _check_copied(self, size_bytes: int) -> None:
        self._room.check_copied(size_bytes)

    def _put(self, fragment: Fragment, row: StoredMessage) -> None:
        share = self._shares_by_key.get(fragment.key)
        if share is not None:
            share.rows.append(row)
        else:
            super()._put(fragment, row)

    def _share_of(self, subscriber: Subscriber) -> _Share:
        settings, fragment = subscriber.settings, subscriber.fragment(self._fragment.index)
        ceiling = min(settings.default_time_to_live, self._fragment.settings.default_time_to_live)
        kind = (ceiling, settings.requires_session, settings.forward_to is not None)
        share = _Share(fragment, kind, settings.requires_session)
        self._shares[subscriber] = self._shares_by_key[fragment.key] = share
        return share


class DueFanOut(LargeFanOut):
    """Of messages that are taken however large their copies are: it was asked before, or when they were scheduled."""

    def _check_copied(self, size_bytes: int) -> None:
        """Nobody is there any more who could be refused."""


class SharedFanOut(DueFanOut):
    """In one step."""

    def decide(self) -> None:
        if self._copied_bytes > SHARED_BYTES_MIN:
            for _ in self.share():
                pass
        else:
            # Few of those who might have taken them did.
            for share in self._shares.values():
                for row in share.rows:
                    FanOut._put(self, share.fragment, replace(row))
        super().decide()
