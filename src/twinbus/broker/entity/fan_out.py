"""A message sent to a topic becomes one row for every copy its subscriptions take (contract A15, A16).

All copies lie in the store of the topic's own fragment, so they are one commit. The topic's fragment numbers what is
sent to it and holds what is scheduled; of the rest it remembers the last number only, as a row that is removed in the
commit that writes it.
"""

from collections.abc import Sequence
from typing import Protocol

from twinbus.broker.entity.metering import meter_copies
from twinbus.broker.entity.topic_room import TopicRoom
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import dead_letter_row
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import without_hops
from twinbus.broker.fragment.intake import DROPPED, Staged, expiry_of, take_fresh
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
from twinbus.store.changes import Change, Enqueued, Removed, StoredMessage


class Subscriber(Protocol):
    """A subscription, as far as copies for it are concerned."""

    settings: EntitySettings

    def fragment(self, index: int) -> Fragment: ...

    def __hash__(self) -> int: ...


def stage(
    rules: RuleIndex[Subscriber],
    room: TopicRoom,
    fragment: Fragment,
    messages: Sequence[Message],
    now: Millis,
    origins: Sequence[int] | None = None,
) -> Staged:
    """Copies of all of them, or what `TopicRoom.check` raises."""
    room.check(fragment, messages)
    changes: list[Change] = []
    fresh = [True] * len(messages)
    if fragment.duplicates is not None:
        fresh = take_fresh(fragment, fragment.duplicates, messages, now, changes)
    fan_out = FanOut(rules, room, fragment, now)
    numbers = []
    for place, message in enumerate(messages):
        if fresh[place]:
            numbers.append(fan_out.add(message, 0 if origins is None else origins[place]))
        else:
            numbers.append(DROPPED)
    return Staged(fan_out.changes() + changes, numbers, fan_out.take_effect)


class FanOut:
    """One run of messages on its way through one fragment of a topic."""

    def __init__(self, rules: RuleIndex[Subscriber], room: TopicRoom, fragment: Fragment, now: Millis) -> None:
        self._rules = rules
        self._room = room
        self._fragment = fragment
        self._now = now
        self._scheduled: list[StoredMessage] = []
        self._copies: dict[int, tuple[Fragment, list[StoredMessage]]] = {}
        self._last_written = fragment.last_number

    def add(self, message: Message, origin: int) -> int:
        """Returns the topic's number for it."""
        fragment, now = self._fragment, self._now
        fragment.last_number = number = fragment.last_number + 1
        if message.scheduled_at is not None and message.scheduled_at > now:
            self._schedule(message, number, message.scheduled_at, origin)
        elif not message.is_ping:
            self._publish(message, number, origin or number)
        return number

    def _schedule(self, message: Message, number: int, due_at: Millis, origin: int) -> None:
        fragment = self._fragment
        expires_at = expiry_of(due_at, message.time_to_live, fragment.settings.default_time_to_live)
        row = StoredMessage(
            number,
            message.content,
            self._now,
            expires_at,
            MessageState.SCHEDULED,
            due_at,
            enqueued_sequence_number=origin,
        )
        fragment.count_rows([row])
        fragment.next_due = min(fragment.next_due, due_at)
        self._scheduled.append(row)
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
            fragment.will_expire(row.expires_at)
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
        self._copies.setdefault(fragment.key, (fragment, []))[1].append(row)

    def changes(self) -> list[Change]:
        own = self._fragment
        if own.broker.leaving:
            self._copies = {key: copies for key, copies in self._copies.items() if not copies[0].is_leaving}
        rows = list(self._scheduled)
        changes: list[Change] = []
        if own.last_number > self._last_written:
            rows.append(StoredMessage(own.last_number, b"", self._now, self._now))
        if rows:
            changes.append(Enqueued(own.key, rows))
        if own.last_number > self._last_written:
            changes.append(Removed(own.key, [own.last_number]))
        changes += [fragment.number_rows(copies) for fragment, copies in self._copies.values()]
        written = [row for change in changes if isinstance(change, Enqueued) for row in change.messages]
        self._room.copied(own, sum([len(row.content) for row in written]))
        return changes

    def take_effect(self) -> None:
        for fragment, copies in self._copies.values():
            size = sum([len(copy.content) for copy in copies])
            fragment.admit(copies, size)
            meter_copies(fragment, len(copies), size)
            fragment.wake()
        self._fragment.wake()
