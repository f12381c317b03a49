"""The states that applications keep with message sessions, and the list of sessions (contract A9)."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

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
from twinbus.broker.operations.steps import Steps, commit, prepare_each, read_each, read_one
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, NotAllowed
from twinbus.store.changes import SessionStateSet
from twinbus.store.reads import BusiestSessions, Read, ReadSessionState, SessionNames

T = TypeVar("T")


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
    # By name, so that pages fit together while sessions come and go.
    asked = _asked(queue)
    yield from prepare_each(asked)
    skip = command.skip if len(asked) == 1 else 0
    wanted = partial(
        SessionNames, updated_after=command.updated_after, skip=skip, top=command.skip + command.top - skip
    )
    found = yield from _of_each([(fragment, wanted(fragment.key)) for fragment in asked])
    names = sorted([name for _, names in found for name in names])
    return names[command.skip - skip : command.skip - skip + command.top]


def count_sessions(queue: AskedQueue, command: CountSessions, now: Millis) -> Steps[SessionCounts]:
    asked, desk, end = _asked(queue), queue.sessions(), command.skip + command.top
    yield from prepare_each(asked)
    reads = [
        (fragment, BusiestSessions(fragment.key, end, desk.sessions_of(fragment).held_keys())) for fragment in asked
    ]
    found = yield from _of_each(reads)
    busiest = sorted(
        [(-active, session_id, fragment) for fragment, totals in found for session_id, active in totals.busiest],
        key=lambda each: each[:2],
    )
    return SessionCounts(
        sessions=sum([totals.session_count for _, totals in found]),
        held=sum([_held_count(queue, fragment, totals.asked, now) for fragment, totals in found]),
        active=sum([totals.active_count for _, totals in found]),
        page=[
            SessionCount(session_id, -active, _held_count(queue, fragment, [session_id], now) > 0)
            for active, session_id, fragment in busiest[command.skip : end]
        ],
        is_all=len(found) == len(queue.own_fragments),
    )


def _held_count(queue: AskedQueue, fragment: Fragment, session_ids: Sequence[str], now: Millis) -> int:
    sessions = queue.sessions().sessions_of(fragment)
    return sum([sessions.lock_of(session_id, now) is not None for session_id in session_ids])


def _asked(queue: AskedQueue) -> list[Fragment]:
    """The fragments that can be asked; raises if there is none."""
    queue.sessions()
    check_any_available(queue.fragments)
    return [fragment for fragment in queue.fragments if fragment.is_available]


def _of_each(reads: Sequence[tuple[Fragment, Read[T]]]) -> Steps[list[tuple[Fragment, T]]]:
    """The answers with their fragments, of those that have not become unavailable meanwhile; raises if all have."""
    answers = yield from read_each(reads)
    heard = [
        (fragment, answer)
        for (fragment, _), answer in zip(reads, answers, strict=True)
        if not isinstance(answer, FragmentUnavailable)
    ]
    if not heard:
        raise reads[0][0].broker.unavailable()
    return heard
