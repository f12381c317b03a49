"""Locks on their way to the next owner of their store, as frames: one or more for each fragment that has any.

Times travel as what is left of them, since clocks of machines differ: a lock ends a little later than it was promised, never sooner.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.broker.held_contents import unread, unread_content
from twinbus.broker.moved_locks import MovedLocks, MovedSession
from twinbus.clock import NEVER, Millis
from twinbus.cluster.lines import values
from twinbus.cluster.lines.columns import ColumnReader, ColumnWriter, read_taken, write_taken
from twinbus.cluster.lines.holders import Holder
from twinbus.store.changes import FragmentKey, StoredMessage

MESSAGES_TOGETHER = 10_000


class MovedFrame(NamedTuple):
    store: int
    epoch: int  # under which the locks were given
    place: int  # of this frame among all of the store
    total: int
    key: FragmentKey
    locks: MovedLocks
    holders: list[Holder]  # of its message sessions


def encode_moved(
    store: int,
    epoch: int,
    moved: Mapping[FragmentKey, MovedLocks],
    holders: Mapping[SessionLock, Holder],
    now: Millis,
) -> list[bytes]:
    pieces = [(key, piece) for key, locks in moved.items() for piece in _pieces(locks)]
    return [
        _encode((store, epoch, place, len(pieces), key), locks, holders, now)
        for place, (key, locks) in enumerate(pieces)
    ]


def _pieces(locks: MovedLocks) -> Iterator[MovedLocks]:
    yield MovedLocks(locks.messages[:MESSAGES_TOGETHER], locks.sessions)
    for start in range(MESSAGES_TOGETHER, len(locks.messages), MESSAGES_TOGETHER):
        yield MovedLocks(locks.messages[start : start + MESSAGES_TOGETHER], [])


def _encode(head: tuple[int, ...], locks: MovedLocks, holders: Mapping[SessionLock, Holder], now: Millis) -> bytes:
    writer = ColumnWriter()
    sessions = [
        (
            *holders[lock],
            lock.session_id,
            lock.fragment_index,
            now - lock.locked_at,
            lock.locked_until - now,
            lock.token,
            tokens,
        )
        for lock, tokens in locks.sessions
    ]
    writer.blob(values.encode((*head, sessions, len(locks.messages))))
    rows = [each.message for each in locks.messages]
    contents = [unread_content(row) for row in rows]
    writer.integers([len(row.content) for row in rows])
    writer.texts([None if each is None else each.key for each in contents])
    if rows:
        write_taken(
            writer, [TakenMessage(_empty(row), token, _left(until, now)) for row, token, until in locks.messages]
        )
    return writer.done()


def _empty(row: StoredMessage) -> StoredMessage:
    return replace(row, content=b"")


def _left(until: Millis, now: Millis) -> Millis:
    return NEVER if until == NEVER else until - now


def decode_moved(payload: bytes, now: Millis) -> MovedFrame:
    """Raises LineBroken."""
    reader = ColumnReader(payload)
    store, epoch, place, total, key, sessions, message_count = values.decode(reader.blob())
    sizes, keys = reader.integers(message_count), reader.texts(message_count)
    taken = read_taken(reader) if message_count else []
    reader.end()
    messages = [
        TakenMessage(_unread(each.message, size, of_key), each.lock_token, _until(each.locked_until, now))
        for each, size, of_key in zip(taken, sizes, keys, strict=True)
    ]
    moved = [_session(facts, now) for facts in sessions]
    locks = MovedLocks(messages, [session for session, _ in moved])
    return MovedFrame(store, epoch, place, total, key, locks, [holder for _, holder in moved])


def _unread(row: StoredMessage, size: int, key: str | None) -> StoredMessage:
    return replace(row, content=cast(bytes, unread(size, key)))


def _until(left: Millis, now: Millis) -> Millis:
    return NEVER if left == NEVER else now + left


def _session(facts: Sequence[Any], now: Millis) -> tuple[MovedSession, Holder]:
    node, number, session_id, index, age, left, token, tokens = facts
    lock = SessionLock(session_id, index, now - age, now + left, token)
    return MovedSession(lock, tokens), Holder(node, number)
