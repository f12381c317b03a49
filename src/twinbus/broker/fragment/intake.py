"""Messages coming in: what was sent becomes new rows of one fragment (contract A10, A13, A14, A18).

A ping proves that the store works and is nothing else: it gets a number, is written and removed in one commit, and so
is never in any lane. A duplicate is dropped and gets the answer of the others.
"""

from collections.abc import Sequence
from itertools import repeat

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.duplicates import KEYS_MAX, DuplicateHistory, duplicate_key
from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import NEVER, Millis
from twinbus.errors import QuotaExceeded, ServerBusy
from twinbus.model.hops import without_hops
from twinbus.model.message import Message
from twinbus.model.partition_key import pinning_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import DuplicatesSeen, StoredMessage, SubQueue

DROPPED = 0
"""In place of the sequence number of a duplicate."""


def check_size(fragment: Fragment, taken_bytes: int, size_bytes: int) -> None:
    """Refuse what does not fit. A run is refused as a whole: it is small beside the limit."""
    limit = fragment.settings.size_max_bytes
    if taken_bytes + size_bytes > limit:
        raise QuotaExceeded(
            f"'{fragment.settings.path}' is full: {taken_bytes} of {limit} bytes are taken. "
            "Receive messages, or give it a larger size."
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
    if fragment.duplicates is not None:
        check_history(fragment, len(messages))
    check_size(fragment, fragment.taken_bytes, sum([len(message.content) for message in messages]))


def expiry_of(now: Millis, time_to_live: Millis | None, default: Millis) -> Millis:
    """The entity's default is a ceiling."""
    if time_to_live is None or time_to_live > default:
        time_to_live = default
    return NEVER if time_to_live >= NEVER - now else now + time_to_live


def stage(
    decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None = None
) -> list[int]:
    """Enqueue them, and return their sequence numbers; all of them, or what `check_room` raises before anything is
    decided. `origins`: their numbers at the first point of submission."""
    fragment = decision.fragment
    check_room(fragment, messages)
    fresh = None
    if fragment.duplicates is not None:
        fresh = take_fresh(decision, fragment.duplicates, messages, now)
    if fresh is None and origins is None and not fragment.settings.requires_session:
        unusual = [
            one for one in messages if one.scheduled_at is not None or one.time_to_live is not None or one.is_ping
        ]
        if not unusual:
            return _stage_plain(decision, messages, now)
    intake = _Intake(fragment, len(messages) if fresh is None else sum(fresh), now)
    numbers = []
    for place, message in enumerate(messages):
        if fresh is not None and not fresh[place]:
            numbers.append(DROPPED)
            continue
        numbers.append(intake.add(message, 0 if origins is None else origins[place]))
    decision.enqueue(intake.active, intake.scheduled, intake.pings)
    return numbers


def _stage_plain(decision: Decision, messages: Sequence[Message], now: Millis) -> list[int]:
    """Messages that are active at once and have no time to live, session or history: rows that differ in number and content."""
    fragment, count = decision.fragment, len(messages)
    first = fragment.tally.take_numbers(count)
    numbers = list(range(first, first + count))
    expires_at = expiry_of(now, None, _default_time_to_live(fragment))
    contents = [message.content for message in messages]
    decision.enqueue(list(map(StoredMessage, numbers, contents, repeat(now), repeat(expires_at))))
    return numbers


def _default_time_to_live(fragment: Fragment) -> Millis:
    # What an entity only passes on was acknowledged, and its time to live counts at the destination.
    return NEVER if fragment.sub_queue is SubQueue.TRANSFER else fragment.settings.default_time_to_live


def take_fresh(decision: Decision, history: DuplicateHistory, messages: Sequence[Message], now: Millis) -> list[bool]:
    """Which of them are not duplicates; those are known from now on."""
    fresh, keys = find_fresh(decision.fragment, history, messages, now)
    remember(decision, history, keys, now)
    return fresh


def find_fresh(
    fragment: Fragment, history: DuplicateHistory, messages: Sequence[Message], now: Millis
) -> tuple[list[bool], list[str]]:
    """Which of them are not duplicates, neither of an earlier one nor of each other; and the keys to `remember`. A ping
    has none."""
    settings = fragment.settings
    fresh: list[bool] = []
    keys: dict[str, None] = {}
    for message in messages:
        if message.is_ping:
            fresh.append(True)
            continue
        pin = None
        if settings.is_partitioned:
            pin = pinning_key(
                message.session_id, message.partition_key, message.message_id, True, settings.has_sessions
            )
        key = duplicate_key(message.message_id, pin)
        is_fresh = key not in keys and not history.is_known(key, now)
        fresh.append(is_fresh)
        if is_fresh:
            keys[key] = None
    return fresh, list(keys)


def remember(decision: Decision, history: DuplicateHistory, keys: Sequence[str], now: Millis) -> None:
    end = now + decision.fragment.settings.duplicate_window
    for key in keys:
        history.add(key, end)
    if keys:
        decision.write(DuplicatesSeen(decision.fragment.key, [(key, end) for key in keys]))


class _Intake:
    """Rows of one run of `count` messages on their way into one fragment."""

    __slots__ = ("_now", "_number", "_settings", "_ttl_default", "active", "pings", "scheduled")

    def __init__(self, fragment: Fragment, count: int, now: Millis) -> None:
        self._settings = fragment.settings
        self._ttl_default = _default_time_to_live(fragment)
        self._now = now
        self._number = fragment.tally.take_numbers(count) - 1
        self.active: list[StoredMessage] = []
        self.scheduled: list[StoredMessage] = []
        self.pings: list[StoredMessage] = []

    def add(self, message: Message, origin: int) -> int:
        settings, now, content = self._settings, self._now, message.content
        self._number = number = self._number + 1
        session_id = message.session_id if settings.requires_session else None
        if origin and settings.forward_to is None:
            origin = without_hops(origin)
        due_at = message.scheduled_at
        if due_at is not None and due_at > now and not message.is_ping:
            # Its time to live counts from when it becomes active.
            expires_at = expiry_of(due_at, message.time_to_live, self._ttl_default)
            self.scheduled.append(
                StoredMessage(number, content, now, expires_at, MessageState.SCHEDULED, due_at, 0, session_id, origin)
            )
            return number
        expires_at = expiry_of(now, message.time_to_live, self._ttl_default)
        row = StoredMessage(number, content, now, expires_at, MessageState.ACTIVE, 0, 0, session_id, origin)
        if message.is_ping:
            self.pings.append(row)
        else:
            self.active.append(row)
        return number
