"""A message sent to a topic becomes one row for every copy its subscriptions take (contract A15, A16).

All copies lie in the store of the topic's own fragment, so they are one commit. The topic's fragment numbers what is
sent to it and holds what is scheduled; of the rest it remembers the last number only, as a row that is removed in the
commit that writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twinbus.broker.entity.metering import meter_copies
from twinbus.broker.entity.topic_room import TopicRoom
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision, dead_letter_row
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import without_hops
from twinbus.broker.fragment.intake import DROPPED, expiry_of, take_fresh
from twinbus.clock import Millis
from twinbus.errors import FilterError
from twinbus.model.dead_letter_reasons import (
    FILTER_FAILED,
    HEADER_SIZE_EXCEEDED,
    HEADER_SIZE_EXCEEDED_TEXT,
    SESSION_ID_IS_NULL,
    SESSION_ID_IS_NULL_TEXT,
)
from twinbus.model.message import Message, is_front_too_large, read_content
from twinbus.model.rules.index import Copy, RuleIndex
from twinbus.model.rules.view import FilterView
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey, StoredMessage


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
    fan_out = FanOut(rules, room, decision, sum(fresh), now)
    numbers = []
    for place, message in enumerate(messages):
        if fresh[place]:
            numbers.append(fan_out.add(message, 0 if origins is None else origins[place]))
        else:
            numbers.append(DROPPED)
    fan_out.decide()
    return numbers


class FanOut:
    """One run of `count` messages on its way through one fragment of a topic."""

    def __init__(
        self, rules: RuleIndex[Subscriber], room: TopicRoom, decision: Decision, count: int, now: Millis
    ) -> None:
        self._rules = rules
        self._room = room
        self._decision = decision
        self._fragment = decision.fragment
        self._now = now
        self._number = self._last_written = self._fragment.tally.take_numbers(count) - 1
        self._scheduled: list[StoredMessage] = []
        self._copies: dict[FragmentKey, _Copies] = {}

    def add(self, message: Message, origin: int) -> int:
        """Returns the topic's number for it."""
        self._number = number = self._number + 1
        if message.scheduled_at is not None and message.scheduled_at > self._now:
            self._schedule(message, number, message.scheduled_at, origin)
        elif not message.is_ping:
            self._publish(message, number, origin or number)
        return number

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
            # Every action starts from the message as it was sent.
            view = FilterView(message.content, view.sequence_number, view.enqueued_at)
            changed = copy.action.apply(view)
            if is_front_too_large(changed):
                self._too_large(copy.subscription, message, origin)
                return
            message = read_content(changed)
        subscriber = copy.subscription
        fragment = subscriber.fragment(self._fragment.index)
        row = self._row(message, subscriber.settings, origin)
        if subscriber.settings.requires_session and message.session_id is None:
            self._dead_letter(fragment, row, SESSION_ID_IS_NULL, SESSION_ID_IS_NULL_TEXT)
        else:
            self._put(fragment, row)

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
        self._put(fragment.dead_letters, dead_letter_row(row, reason, description))

    def _put(self, fragment: Fragment, row: StoredMessage) -> None:
        copies = self._copies.get(fragment.key)
        if copies is None:
            copies = self._copies[fragment.key] = _Copies(fragment)
        copies.add(row)
        self._decision.put(fragment, row)

    def decide(self) -> None:
        """All messages have been added."""
        if self._fragment.broker.leaving:
            # Their copies are not made: see `Decision`.
            self._copies = {key: each for key, each in self._copies.items() if not each.fragment.is_leaving}
        passing: list[StoredMessage] = []
        if self._number > self._last_written:
            passing.append(StoredMessage(self._number, b"", self._now, self._now))
        self._decision.enqueue([], self._scheduled, passing)
        scheduled_bytes = sum([len(row.content) for row in self._scheduled])
        self._room.copied(self._fragment, scheduled_bytes + sum([each.size_bytes for each in self._copies.values()]))
        self._decision.when_durable(self._meter)

    def _meter(self, now: Millis) -> None:
        for copies in self._copies.values():
            meter_copies(copies.fragment, copies.count, copies.size_bytes, now)


@dataclass(slots=True)
class _Copies:
    """For one fragment."""

    fragment: Fragment
    count: int = 0
    size_bytes: int = 0

    def add(self, row: StoredMessage) -> None:
        self.count += 1
        self.size_bytes += len(row.content)
