"""The state that applications keep with a message session, and the list of sessions (contract A9, protocol.md 9)."""

from collections.abc import Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import SessionStateSet
from twinbus.store.messaging_store import SessionSummary
from twinbus.store.reads import ListSessions, ReadSessionState


def read_state(fragment: Fragment, session_id: str, reply: Reply[bytes | None]) -> None:
    fragment.broker.query(ReadSessionState(fragment.key, session_id), reply)


def write_state(fragment: Fragment, session_id: str, state: bytes | None, now: Millis, reply: Reply[None]) -> None:
    """None forgets the state; an empty one is a state."""
    fragment.change([], [SessionStateSet(fragment.key, session_id, state, now)], lambda: reply(None), reply)


class SessionList:
    """Names of sessions of all fragments, collected for one request. Fragments that are ill are left out; if all of them
    are, the request fails."""

    def __init__(self, updated_after: Millis | None, skip: int, top: int, reply: Reply[list[str]]) -> None:
        self._updated_after = updated_after
        self._skip = skip
        self._top = top
        self._reply = reply
        self._names: list[str] = []
        self._open_count = 0
        self._is_heard = False
        self._lost: FragmentUnavailable | None = None  # only while no fragment has answered

    def collect(self, fragments: Sequence[Fragment]) -> None:
        asked = [fragment for fragment in fragments if fragment.is_available]
        self._open_count = len(asked)
        if not asked:
            self._reply(fragments[0].broker.unavailable())
        for fragment in asked:
            fragment.broker.query(ListSessions(fragment.key), self._add)

    def _add(self, sessions: list[SessionSummary] | FragmentUnavailable) -> None:
        if isinstance(sessions, list):
            self._names += [session.session_id for session in sessions if self._is_wanted(session)]
            self._lost = None
            self._is_heard = True
        elif not self._is_heard:
            self._lost = sessions
        self._open_count -= 1
        if self._open_count == 0 and self._lost is not None:
            self._reply(self._lost)
        elif self._open_count == 0:
            # By name, so that pages fit together while sessions come and go.
            self._reply(sorted(self._names)[self._skip : self._skip + self._top])

    def _is_wanted(self, session: SessionSummary) -> bool:
        if self._updated_after is None:
            return True
        return session.state_updated_at is not None and session.state_updated_at > self._updated_after
