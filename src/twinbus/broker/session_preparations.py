"""Lists of message sessions that are being prepared: one step of a list at a time, for all who wait for it.

A store prepares the list of very many sessions in steps (`store.layers.session_lists`). If everybody who wants it asked for a step,
a commit would wait behind all of those.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import FragmentKey
from twinbus.store.reads import PrepareSessions

Done = Callable[[FragmentUnavailable | None, Millis], None]


class SessionPreparations:
    """Of one messaging store, which `query` asks."""

    def __init__(self, query: Callable[[PrepareSessions, Callable[[Any, Millis], None]], None]) -> None:
        self._query = query
        self._waiting: dict[FragmentKey, list[Done]] = {}

    def wait_for(self, fragment: FragmentKey, done: Done) -> None:
        """`done` is called when the list is there, or cannot be."""
        if fragment in self._waiting:
            self._waiting[fragment].append(done)
        else:
            self._waiting[fragment] = [done]
            self._ask(fragment)

    def _ask(self, fragment: FragmentKey) -> None:
        self._query(PrepareSessions(fragment), partial(self._answered, fragment))

    def _answered(self, fragment: FragmentKey, is_there: bool | FragmentUnavailable, now: Millis) -> None:
        if is_there is False:
            self._ask(fragment)
            return
        error = is_there if isinstance(is_there, FragmentUnavailable) else None
        for done in self._waiting.pop(fragment):
            tell(done, error, now)
