"""Receiving deferred messages by their sequence numbers (protocol.md 9)."""

from collections.abc import Sequence

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import delete
from twinbus.broker.fragment.message_sessions import MessageSessions
from twinbus.broker.fragment.settlement import lock_lost
from twinbus.broker.operations.browse import read_deferred
from twinbus.broker.replies import Reply
from twinbus.errors import MessagingError
from twinbus.store.changes import StoredMessage


def receive_deferred(
    fragment: Fragment,
    numbers: Sequence[int],
    mode: ReceiveMode,
    session: tuple[MessageSessions, str] | None,
    reply: Reply[list[TakenMessage]],
) -> None:
    """All of them, locked or removed, or MessageNotFound. Those of a session are locked as long as it is held."""

    def found(rows: list[StoredMessage] | MessagingError) -> None:
        if isinstance(rows, MessagingError):
            reply(rows)
        elif mode is ReceiveMode.RECEIVE_AND_DELETE:
            delete(fragment, rows, reply, reply)
        else:
            reply(_lock(fragment, rows, session))

    read_deferred(fragment, numbers, session[1] if session is not None else None, found)


def _lock(
    fragment: Fragment, rows: list[StoredMessage], session: tuple[MessageSessions, str] | None
) -> list[TakenMessage] | MessagingError:
    now = fragment.broker.clock.now()
    if session is None:
        deliveries = fragment.locks.lock(rows, now + fragment.settings.lock_duration)
        fragment.wake()
    else:
        sessions, session_id = session
        lock = sessions.lock_of(session_id, now)
        if lock is None:
            return lock_lost(fragment)
        deliveries = sessions.lock(lock, rows)
    fragment.deferred_locked.update([row.sequence_number for row in rows])
    return deliveries
