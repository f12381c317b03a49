"""Messages coming in: what was sent becomes rows of one fragment, not yet durable (contract A10, A13, A14, A18).

A ping proves that the store works and is nothing else: it gets a number, is written and removed in one commit, and so
is never in any lane. A duplicate is left out and gets the answer of the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twinbus.broker.fragment.duplicates import KEYS_MAX, DuplicateHistory, duplicate_key
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import without_hops
from twinbus.clock import NEVER, Millis
from twinbus.errors import QuotaExceeded, ServerBusy
from twinbus.model.message import Message
from twinbus.model.partition_key import pinning_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Change, DuplicatesSeen, Enqueued, Removed, StoredMessage

DROPPED = 0
"""In place of the sequence number of a duplicate."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What to commit, the numbers given, and what to do once it is durable."""

    changes: list[Change]
    numbers: list[int]
    take_effect: Callable[[], None]


def check_size(fragment: Fragment, taken_bytes: int, size_bytes: int) -> None:
    """Refuse what does not fit. A run is refused as a whole: it is small beside the limit."""
    limit = fragment.settings.size_max_bytes
    if taken_bytes + size_bytes > limit:
        raise QuotaExceeded(
            f"'{fragment.settings.path}' is full: {taken_bytes} of {limit} bytes are taken. "
            "Receive messages from it, or create it anew with a larger size."
        )


def check_history(fragment: Fragment, message_count: int) -> None:
    history = fragment.duplicates
    if history is not None and len(history) + message_count > KEYS_MAX:
        raise ServerBusy(
            f"'{fragment.settings.path}' took {len(history)} messages within its duplicate detection window, which is as "
            "many as it remembers in one place. Try again later, make the window shorter, or partition the entity."
        )


def check_room(fragment: Fragment, messages: Sequence[Message]) -> None:
    """Raises QuotaExceeded or ServerBusy if `stage` would."""
    check_history(fragment, len(messages))
    check_size(fragment, fragment.taken_bytes, sum([len(message.content) for message in messages]))


def expiry_of(now: Millis, time_to_live: Millis | None, default: Millis) -> Millis:
    """The entity's default is a ceiling."""
    if time_to_live is None or time_to_live > default:
        time_to_live = default
    return NEVER if time_to_live >= NEVER - now else now + time_to_live


def stage(fragment: Fragment, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None = None) -> Staged:
    """Make rows of them, all or what `check_room` raises. `origins`: their numbers at the first point of submission."""
    check_room(fragment, messages)
    fresh = [True] * len(messages)
    changes: list[Change] = []
    if fragment.duplicates is not None:
        fresh = take_fresh(fragment, fragment.duplicates, messages, now, changes)
    intake = _Intake(fragment, now)
    numbers = []
    for position, message in enumerate(messages):
        if not fresh[position]:
            numbers.append(DROPPED)
            continue
        numbers.append(intake.add(message, 0 if origins is None else origins[position]))
    return Staged(intake.changes() + changes, numbers, intake.take_effect)


def take_fresh(
    fragment: Fragment,
    history: DuplicateHistory,
    messages: Sequence[Message],
    now: Millis,
    changes: list[Change],
) -> list[bool]:
    """Which of them are no duplicates; those are known from now on."""
    settings = fragment.settings
    end = now + settings.duplicate_window
    fresh: list[bool] = []
    seen: list[tuple[str, Millis]] = []
    for message in messages:
        pin = None
        if settings.is_partitioned:
            pin = pinning_key(message.session_id, message.partition_key, message.message_id, True)
        key = duplicate_key(message.message_id, pin)
        is_fresh = message.is_ping or not history.is_known(key, now)
        if is_fresh and not message.is_ping:
            history.add(key, end)
            seen.append((key, end))
        fresh.append(is_fresh)
    if seen:
        changes.append(DuplicatesSeen(fragment.key, seen))
    return fresh


class _Intake:
    """Rows of one run of messages on their way into one fragment."""

    def __init__(self, fragment: Fragment, now: Millis) -> None:
        self._fragment = fragment
        self._now = now
        self._rows: list[StoredMessage] = []
        self._active: list[StoredMessage] = []
        self._active_bytes = 0
        self._pings: list[int] = []

    def add(self, message: Message, origin: int) -> int:
        fragment, now, content = self._fragment, self._now, message.content
        settings = fragment.settings
        fragment.last_number = number = fragment.last_number + 1
        session_id = message.session_id if settings.requires_session else None
        if origin and settings.forward_to is None:
            origin = without_hops(origin)
        due_at = message.scheduled_at
        if due_at is not None and due_at > now and not message.is_ping:
            # Its time to live counts from when it becomes active.
            expires_at = expiry_of(due_at, message.time_to_live, settings.default_time_to_live)
            row = StoredMessage(number, content, now, expires_at, MessageState.SCHEDULED, due_at, 0, session_id, origin)
            fragment.scheduled_count += 1
            fragment.next_due = min(fragment.next_due, due_at)
        else:
            expires_at = expiry_of(now, message.time_to_live, settings.default_time_to_live)
            row = StoredMessage(number, content, now, expires_at, MessageState.ACTIVE, 0, 0, session_id, origin)
            if message.is_ping:
                self._rows.append(row)
                self._pings.append(number)
                return number
            fragment.active_count += 1
            if expires_at < NEVER:
                fragment.will_expire(expires_at)
            self._active.append(row)
            self._active_bytes += len(content)
        fragment.size_bytes += len(content)
        self._rows.append(row)
        return number

    def changes(self) -> list[Change]:
        changes: list[Change] = [Enqueued(self._fragment.key, self._rows)] if self._rows else []
        if self._pings:
            changes.append(Removed(self._fragment.key, self._pings))
        return changes

    def take_effect(self) -> None:
        if self._active:
            self._fragment.admit(self._active, self._active_bytes)
        self._fragment.wake()
