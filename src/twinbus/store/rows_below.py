"""Rows under the top layer, for changes that build on what a row was: one snapshot per commit, if any."""

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from twinbus.store.changes import FragmentKey
from twinbus.store.fragment_view import FragmentView
from twinbus.store.located_changes import Row
from twinbus.store.overlay import Layer
from twinbus.store.tables import Snapshot, snapshot


class RowsBelow:
    """Most commits only add and remove: the tables are not touched before the first `find`."""

    def __init__(self, connection: sqlite3.Connection, layers: Sequence[Layer]) -> None:
        self._connection = connection
        self._layers = layers
        self._tables: Snapshot | None = None
        self._views: dict[FragmentKey, FragmentView] = {}
        self._exit = ExitStack()

    def find(self, fragment: FragmentKey, number: int) -> Row | None:
        if fragment not in self._views:
            self._views[fragment] = self._view(fragment)
        found = self._views[fragment].find(number)
        return None if found is None else found.row

    def _view(self, fragment: FragmentKey) -> FragmentView:
        if self._tables is None:
            self._tables = self._exit.enter_context(snapshot(self._connection))
        position = self._tables.position
        layers = [layer for layer in self._layers if layer.segment.number > position]
        return FragmentView(self._tables.of(fragment), layers, fragment)

    def __enter__(self) -> "RowsBelow":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()
