"""Short ways to write rows and commits in the contract tests."""

from twinbus.clock import NEVER, Millis
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Change, Enqueued, FragmentCreated, StoredMessage, fragment_key
from twinbus.store.messaging_store import MessagingStore

ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED
EVERY_STATE = frozenset(MessageState)
HERE = fragment_key(1, 0)
ELSEWHERE = fragment_key(2, 0)
THIRD_INDEX = fragment_key(1, 3)
NOON: Millis = 1_700_000_000_000
UNLIMITED = 1 << 40


def row(
    number: int,
    content: bytes = b"content",
    *,
    state: MessageState = ACTIVE,
    due_at: Millis = 0,
    expires_at: Millis = NEVER,
    delivery_count: int = 0,
    session_id: str | None = None,
    enqueued_sequence_number: int = 0,
) -> StoredMessage:
    return StoredMessage(
        number, content, NOON, expires_at, state, due_at, delivery_count, session_id, enqueued_sequence_number
    )


def holding(store: MessagingStore, *rows: StoredMessage) -> MessagingStore:
    changes: list[Change] = [FragmentCreated(HERE), FragmentCreated(ELSEWHERE)]
    store.commit([*changes, Enqueued(HERE, list(rows))])
    return store


def everything(store: MessagingStore) -> list[StoredMessage]:
    return store.scan(HERE, 0, 1_000_000, UNLIMITED, EVERY_STATE)


def numbers(rows: list[StoredMessage]) -> list[int]:
    return [row.sequence_number for row in rows]
