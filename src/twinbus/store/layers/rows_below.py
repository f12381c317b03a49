"""Rows below the top layer, for changes that depend on what a row was."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TypeAlias

from twinbus.store.changes import ActivatedTogether, FragmentKey
from twinbus.store.layers.fragment_view import TABLES, FragmentView
from twinbus.store.layers.located_changes import LocatedChange, Row, RowAltered, RowsAltered
from twinbus.store.layers.overlay import Layer
from twinbus.store.medium import Snapshot, Tables

KnownRows: TypeAlias = dict[FragmentKey, dict[int, Row | None]]
"""By number; None for what does not exist."""


def rows_seen(fragment: FragmentKey, found: Sequence[tuple[int, int, Row]]) -> KnownRows:
    """Rows of the tables that somebody has just asked about, who is likely to change them next: they need not be read again.

    What no layer knows stays as it is until the next commit, and what the top layer says goes first.
    """
    return {fragment: {number: row for number, level, row in found if level == TABLES}}


class RowsBelow:
    """Most commits only add and remove rows, so the snapshot of the tables is taken with the first `find`."""

    def __init__(self, tables: Tables, layers: Sequence[Layer], known: KnownRows) -> None:
        self._tables = tables
        self._layers = layers
        self._snapshot: Snapshot | None = None
        self._exit: ExitStack | None = None  # while there is a snapshot
        self._views: dict[FragmentKey, FragmentView] = {}
        self._known = known

    def prepare(self, wanted: Mapping[FragmentKey, Sequence[int]]) -> None:
        """These will be asked for: read them together."""
        for fragment, numbers in wanted.items():
            known = self._known.setdefault(fragment, {})
            unseen = [number for number in numbers if number not in known]
            known.update(dict.fromkeys(unseen))
            for found in self._view(fragment).find_all(unseen) if unseen else ():
                known[found.number] = found.row

    def find(self, fragment: FragmentKey, number: int) -> Row | None:
        known = self._known.get(fragment)
        if known is not None and number in known:
            return known[number]
        found = self._view(fragment).find(number)
        return None if found is None else found.row

    def _view(self, fragment: FragmentKey) -> FragmentView:
        if fragment not in self._views:
            self._views[fragment] = self._made_view(fragment)
        return self._views[fragment]

    def _made_view(self, fragment: FragmentKey) -> FragmentView:
        if self._snapshot is None:
            self._exit = ExitStack()
            self._snapshot = self._exit.enter_context(self._tables.snapshot())
        position = self._snapshot.position
        layers = [layer for layer in self._layers if layer.segment.number > position]
        return FragmentView(self._snapshot.of(fragment), layers, fragment)

    def __enter__(self) -> "RowsBelow":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exit is not None:
            self._exit.close()


def rows_needed(changes: Sequence[LocatedChange], top: Layer) -> dict[FragmentKey, list[int]]:
    """Rows below the top layer that changes depend on, where there are several of a fragment."""
    needed: dict[FragmentKey, list[int]] = {}
    for change in changes:
        if isinstance(change, ActivatedTogether | RowAltered | RowsAltered):
            overlay = top.fragments.get(change.fragment)
            known = {} if overlay is None else overlay.rows
            missing = [number for number in _numbers_before(change) if number not in known]
            needed.setdefault(change.fragment, []).extend(missing)
    return needed and {fragment: numbers for fragment, numbers in needed.items() if len(numbers) > 1}


def _numbers_before(change: ActivatedTogether | RowAltered | RowsAltered) -> Sequence[int]:
    match change:
        case ActivatedTogether(scheduled_numbers=numbers) | RowsAltered(numbers=numbers):
            return numbers
        case RowAltered(number=number):
            return [number]
