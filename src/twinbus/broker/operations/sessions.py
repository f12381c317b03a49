"""The states that applications keep with message sessions, and the list of sessions (contract A9)."""

from twinbus.broker.commands import (
    CountSessions,
    GetSessionState,
    ListSessions,
    SessionCount,
    SessionCounts,
    SetSessionState,
)
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import check_any_available
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.steps import Steps, commit, read_each, read_one
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, NotAllowed
from twinbus.store.changes import SessionStateSet
from twinbus.store.messaging_store import SessionSummary
from twinbus.store.reads import ReadSessions, ReadSessionState


def get_session_state(queue: AskedQueue, command: GetSessionState, now: Millis) -> Steps[bytes | None]:
    session_id = check_held(queue, command.session_id, now)
    fragment = queue.sessions().place(session_id)
    return (yield from read_one(fragment, ReadSessionState(fragment.key, session_id)))


def set_session_state(queue: AskedQueue, command: SetSessionState, now: Millis) -> Steps[None]:
    session_id = check_held(queue, command.session_id, now)
    fragment = queue.sessions().place(session_id)
    decision = Decision(fragment)
    decision.write(SessionStateSet(fragment.key, session_id, command.state, now))
    yield from commit(decision)


def check_held(queue: AskedQueue, session_id: str | None, now: Millis) -> str:
    """The session id, if somebody holds the session. Raises what keeps the command from being done otherwise."""
    if session_id is None:
        raise NotAllowed(f"'{queue.settings.path}' requires message sessions. Say which session is meant.")
    queue.sessions().check_held(session_id, now)
    return session_id


def list_sessions(queue: AskedQueue, command: ListSessions, now: Millis) -> Steps[list[str]]:
    found, _ = yield from _summaries(queue)
    names = [session.session_id for _, session in found if _is_listed(session, command)]
    # By name, so that pages fit together while sessions come and go.
    return sorted(names)[command.skip : command.skip + command.top]


def count_sessions(queue: AskedQueue, command: CountSessions, now: Millis) -> Steps[SessionCounts]:
    found, is_all = yield from _summaries(queue)
    counts = [
        SessionCount(session.session_id, session.active_count, _is_held(queue, fragment, session.session_id, now))
        for fragment, session in found
        if session.active_count
    ]
    counts.sort(key=lambda each: (-each.active, each.session_id))
    return SessionCounts(
        sessions=len(counts),
        held=sum([each.is_held for each in counts]),
        active=sum([each.active for each in counts]),
        page=counts[command.skip : command.skip + command.top],
        is_all=is_all,
    )


def _is_held(queue: AskedQueue, fragment: Fragment, session_id: str, now: Millis) -> bool:
    return queue.sessions().sessions_of(fragment).lock_of(session_id, now) is not None


def _summaries(queue: AskedQueue) -> Steps[tuple[list[tuple[Fragment, SessionSummary]], bool]]:
    """The message sessions with their fragments, and whether these are all fragments of the queue: unavailable ones are
    skipped. Raises if none is available."""
    queue.sessions()
    check_any_available(queue.fragments)
    asked = [fragment for fragment in queue.fragments if fragment.is_available]
    answers = yield from read_each([(fragment, ReadSessions(fragment.key)) for fragment in asked])
    heard = [
        (fragment, sessions)
        for fragment, sessions in zip(asked, answers, strict=True)
        if not isinstance(sessions, FragmentUnavailable)
    ]
    if not heard:
        raise asked[0].broker.unavailable()
    found = [(fragment, session) for fragment, sessions in heard for session in sessions]
    return found, len(heard) == len(queue.own_fragments)


def _is_listed(session: SessionSummary, command: ListSessions) -> bool:
    if command.updated_after is None:
        return True
    return session.state_updated_at is not None and session.state_updated_at > command.updated_after
