"""DurableStore: a messaging store in a folder.

    commit -> journal segment (one write, one sync) -> return -> top layer of the overlay
    segment full -> sealed, a new one begins; in its own thread, a checkpoint writes the sealed layer to the tables, and
    then segment and layer are dropped

So a commit costs one sync of the disk however much it changes, messages that are removed soon after they arrive never
reach the tables, and memory holds only the facts of rows since the last checkpoints, not their contents. Opening a store
means reading the tables and replaying the segments that they do not hold yet.
"""

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from twinbus.clock import Millis
from twinbus.errors import ChangeRefused, StoreDamaged, StoreInUse, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.accepted_loss import go_on_without
from twinbus.store.change_rules import LastNumbers, check_changes
from twinbus.store.changes import Activated, Change, FragmentKey, StoredMessage
from twinbus.store.checkpoint_thread import CheckpointThread, StartTask, start_thread
from twinbus.store.damage import CheckedPage, Damage, RowsDamaged
from twinbus.store.fragment_view import FragmentView, HiddenFront, RowsBelow, sum_fragments
from twinbus.store.identity import StoreIdentity
from twinbus.store.journal import Segment, make_folder
from twinbus.store.journal_record import decode_changes, encode_changes
from twinbus.store.located_changes import LocatedChange, RowAltered
from twinbus.store.messaging_store import FragmentSummary, SessionSummary
from twinbus.store.overlay import Layer
from twinbus.store.recovery import recover_layers
from twinbus.store.store_limits import StoreLimits
from twinbus.store.table_check import check_rows, check_tables, damage_in, set_aside
from twinbus.store.tables import FILE_NAME, TablesFile, bring_home, connect, prepare, snapshot

LOCK_NAME = "lock"


class _Late(NamedTuple):
    """A commit that is in the journal and not in the top layer yet: a commit does not have to wait for the layer."""

    changes: list[LocatedChange]
    last_numbers: LastNumbers


class DurableStore:
    """See `MessagingStore`. Opening raises StoreInUse, StoreDamaged or StoreUnavailable.

    `start_task` runs checkpoints; a test passes its own to decide when they happen. `witness` is a file outside of the folder
    that knows whether there was a store (`identity`).
    """

    def __init__(
        self,
        folder: Path,
        limits: StoreLimits | None = None,
        start_task: StartTask = start_thread,
        witness: Path | None = None,
    ) -> None:
        self._folder = folder
        self._witness = witness
        self._limits = limits or StoreLimits()
        self._failure: str | None = None
        self._is_closed = False
        self._layers: list[Layer] = []  # bottom first; the last one takes commits
        self._last_numbers: LastNumbers = {}
        self._late: _Late | None = None
        self._fronts: dict[tuple[str, FragmentKey], HiddenFront] = {}
        self._reader: sqlite3.Connection | None = None
        self._checkpoints: CheckpointThread | None = None
        self._start_task = start_task
        self._lock = -1
        try:
            with self._failing():
                self._open()
        except BaseException:
            self._release()
            raise

    def _open(self) -> None:
        identity = StoreIdentity(self._folder, self._witness)
        if not identity.is_loss_accepted:
            identity.require()
        make_folder(self._folder)
        self._lock = lock_folder(self._folder)
        if identity.is_loss_accepted:
            go_on_without(self._folder)
        has_tables = (self._folder / FILE_NAME).exists()
        self._reader = connect(self._folder, self._limits.cache_bytes)
        prepare(self._reader, self._folder)
        bring_home(self._reader, self._folder)
        check_tables(self._reader, self._folder)
        with snapshot(self._reader) as tables:
            position = tables.position
            self._last_numbers = tables.last_numbers()
        is_new = not self._last_numbers and (identity.is_new or not has_tables)
        for layer, changes in recover_layers(self._folder, position, is_new=is_new):
            self._layers.append(layer)
            self._apply(changes)
            self._remember({key: overlay.last_number for key, overlay in layer.fragments.items()})
        file = TablesFile(self._folder)
        writer = connect(self._folder, self._limits.cache_bytes)
        self._checkpoints = CheckpointThread(writer, self._start_task, file.require)
        identity.keep()
        if len(self._layers) > 1:
            self._checkpoints.start(self._layers[0])

    def commit(self, changes: Sequence[Change]) -> None:
        with self._failing():
            body = b"".join(encode_changes(changes))
        self.commit_records([body])

    def commit_records(self, bodies: Sequence[bytes]) -> None:
        """Like `commit`, for changes that are already encoded."""
        with self._failing():
            body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
            if not body:
                return
            self._catch_up()
            self._make_room()
            segment = self._layers[-1].segment
            changes = list(decode_changes(body, segment.body_place))
            touched = check_changes(changes, self._last_numbers)
            segment.append(body)
            # A removed file still accepts writes, but nobody will ever find them. The lock file shows it for the folder.
            if os.fstat(self._lock).st_nlink == 0:
                raise StoreUnavailable(
                    f"{self._folder} was removed while in use. Restore the folder and reopen the store."
                )
            self._late = _Late(changes, touched)

    def catch_up(self) -> None:
        with self._failing():
            self._catch_up()

    def summaries(self) -> list[FragmentSummary]:
        with self._failing():
            self._catch_up()
            with snapshot(self._connection()) as tables:
                return sum_fragments(tables, self._layers_above(tables.position), self._last_numbers)

    def scan(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None = None,
    ) -> list[StoredMessage]:
        with self._view(fragment) as view:
            return view.scan(after, count_max, bytes_max, states, session_id)

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        with self._view(fragment) as view:
            return view.read(sequence_numbers, bytes_max)

    def due(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        with self._view(fragment) as view:
            return view.due(now, count_max, self._front("due", fragment, view))

    def expired(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        with self._view(fragment) as view:
            return view.expired(now, count_max, self._front("expired", fragment, view))

    def sessions(self, fragment: FragmentKey) -> list[SessionSummary]:
        with self._view(fragment) as view:
            return view.sessions()

    def session_state(self, fragment: FragmentKey, session_id: str) -> bytes | None:
        with self._view(fragment) as view:
            return view.session_state(session_id)

    def duplicates(self, fragment: FragmentKey) -> list[tuple[str, Millis]]:
        with self._view(fragment) as view:
            return view.duplicates()

    def damage(self) -> list[Damage]:
        with self._failing():
            return damage_in(self._connection())

    def check(self, after: int) -> CheckedPage:
        with self._failing():
            with snapshot(self._connection()):
                page = check_rows(self._connection(), after)
            if page.damaged:
                raise RowsDamaged("rows are damaged", page.damaged)
            return page

    def rest(self) -> None:
        """Start a checkpoint, so that rows that are gone do not keep their space while nothing happens."""
        with self._failing():
            self._catch_up()
            checkpoints = self._checkpoint_thread()
            if checkpoints.is_running:
                return
            self._drop_checkpointed()
            if self._layers[-1].fragments:
                self._start_checkpoint()
            else:
                checkpoints.tidy()

    def checkpoint(self) -> None:
        """Write everything committed to the tables, and wait for it."""
        with self._failing():
            self._catch_up()
            self._finish_checkpoint()
            if self._layers[-1].fragments:
                self._start_checkpoint()
                self._finish_checkpoint()

    def wait_for_checkpoint(self) -> None:
        """Wait for the checkpoint that is running, if any."""
        with self._failing():
            self._finish_checkpoint()

    def close(self) -> None:
        """Checkpoint first, so that the next opening has nothing to replay.

        A store that has failed leaves its journal as it is: everything committed is in it.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None:
                self.checkpoint()
        except StoreUnavailable:
            pass  # the journal holds what could not be written to the tables
        finally:
            self._release()

    def _catch_up(self) -> None:
        if self._late is not None:
            late, self._late = self._late, None
            self._apply(late.changes)
            self._remember(late.last_numbers)
            self._record_use()

    def _apply(self, changes: Sequence[LocatedChange]) -> None:
        """Apply changes to the top layer. Raises only if the tables cannot be read."""
        *below, top = self._layers
        with RowsBelow(self._connection(), below) as rows_below:
            if len(changes) > 1:
                rows_below.prepare(_rows_needed(changes, top))
            for change in changes:
                top.apply(change, self._last_numbers.get(change.fragment), rows_below.find)

    def _remember(self, last_numbers: LastNumbers) -> None:
        """Store the highest numbers, and forget fragments that do not exist anymore."""
        self._last_numbers.update(last_numbers)
        if None in last_numbers.values():
            for fragment in [fragment for fragment, last in last_numbers.items() if last is None]:
                del self._last_numbers[fragment]
                for kind in ("due", "expired"):
                    self._fronts.pop((kind, fragment), None)

    def _make_room(self) -> None:
        """Start a checkpoint once the top segment is full; wait if the sealed one below it is not checkpointed yet."""
        checkpoints = self._checkpoint_thread()
        self._drop_checkpointed()
        if self._is_full(1):
            if checkpoints.is_running and self._is_full(self._limits.backlog_factor):
                self._finish_checkpoint()
            if not checkpoints.is_running:
                self._start_checkpoint()
            else:
                checkpoints.hurry()

    def _is_full(self, factor: int) -> bool:
        top, limits = self._layers[-1], self._limits
        entries_max, bytes_max = limits.segment_entries_max, limits.segment_bytes_max
        if top.entry_count < factor * entries_max and top.segment.end < factor * bytes_max:
            return False
        if limits.budget is not None:
            # Half of it: the other half may be held by a segment that is being checkpointed.
            entries_left, bytes_left = limits.budget.left_by_others(id(self))
            entries_max, bytes_max = max(entries_max, entries_left // 2), max(bytes_max, bytes_left // 2)
        return top.entry_count >= factor * entries_max or top.segment.end >= factor * bytes_max

    def _record_use(self) -> None:
        if self._limits.budget is not None:
            entries = sum([layer.entry_count for layer in self._layers])
            self._limits.budget.record(id(self), entries, sum([layer.segment.end for layer in self._layers]))

    def _start_checkpoint(self) -> None:
        self._drop_checkpointed()
        sealed = self._layers[-1]
        fresh = Segment.create(self._folder, sealed.segment.number + 1, sealed.segment.next_sequence)
        self._layers.append(Layer(fresh))
        self._checkpoint_thread().start(sealed)

    def _finish_checkpoint(self) -> None:
        self._checkpoint_thread().wait()
        self._drop_checkpointed()

    def _drop_checkpointed(self) -> None:
        """Drop the layer whose checkpoint is done. Raises the error if it failed."""
        done = self._checkpoint_thread().take_result()
        if done is not None:
            self._layers.remove(done)
            done.segment.close()
            self._record_use()

    def _layers_above(self, position: int) -> list[Layer]:
        return [layer for layer in self._layers if layer.segment.number > position]

    def _front(self, kind: str, fragment: FragmentKey, view: FragmentView) -> HiddenFront:
        front = self._fronts.get((kind, fragment))
        if front is None or front.position != view.position:
            front = self._fronts[kind, fragment] = HiddenFront(view.position)
        return front

    @contextmanager
    def _view(self, fragment: FragmentKey) -> Iterator[FragmentView]:
        with self._failing():
            self._catch_up()
            with snapshot(self._connection(), fragment) as tables:
                yield FragmentView(tables, self._layers_above(tables.position), fragment)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn errors of the system into StoreUnavailable, and refuse all work from then on."""
        if self._is_closed or self._failure is not None:
            reason = self._failure or "it is closed"
            raise StoreUnavailable(f"store {self._folder} cannot be used: {reason}. Reopen it.")
        try:
            yield
        except ChangeRefused:
            raise
        except RowsDamaged as damaged:
            raise self._set_aside(damaged) from damaged
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            self._failure = str(error)
            if is_damage(error):
                raise StoreDamaged(f"the tables of {self._folder} are damaged: {error}. Restore the folder.") from error
            raise StoreUnavailable(
                f"store {self._folder} failed: {error}. Repair the disk and reopen the store."
            ) from error
        except BaseException as error:
            # Journal and overlay may differ now, and only the journal is right: recovery builds the overlay from it again.
            self._failure = str(error) or type(error).__name__
            raise

    def _set_aside(self, damaged: RowsDamaged) -> StoreUnavailable:
        """Move the rows out of the way. The store has to be opened again: others know rows and counts that are gone now."""
        assert self._reader is not None
        self._failure = f"{damaged}, and were set aside"
        if self._checkpoints is not None:
            self._checkpoints.wait()  # one writer at a time
        try:
            places = set_aside(self._reader, damaged.where)
        except sqlite3.Error as error:
            self._failure = f"{damaged}, and could not be set aside: {error}"
            return StoreDamaged(f"{self._folder / FILE_NAME}: {self._failure}. Restore the folder from a copy.")
        return StoreUnavailable(f"{self._folder}: {places[0]}. It was set aside; the store has to be opened again.")

    def _connection(self) -> sqlite3.Connection:
        assert self._reader is not None
        return self._reader

    def _checkpoint_thread(self) -> CheckpointThread:
        assert self._checkpoints is not None
        return self._checkpoints

    def _release(self) -> None:
        self._is_closed = True
        if self._limits.budget is not None:
            self._limits.budget.forget(id(self))
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._reader is not None:
            self._reader.close()
        for layer in self._layers:
            layer.segment.close()
        if self._lock >= 0:
            unlock_folder(self._lock)
            self._lock = -1


def is_damage(error: Exception) -> bool:
    """Whether an error of the system or of SQLite means that the tables are not what was written."""
    if isinstance(error, sqlite3.OperationalError):
        return "malformed" in str(error)
    # An error whose text quotes a damaged schema cannot be decoded.
    return isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError)


def lock_folder(folder: Path) -> int:
    """Raises StoreInUse."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(f"{folder} is open in another process. Stop that process, or use another folder.") from None
    return descriptor


def unlock_folder(lock: int) -> None:
    os.close(lock)


def _rows_needed(changes: Sequence[LocatedChange], top: Layer) -> dict[FragmentKey, list[int]]:
    """Rows below the top layer that changes depend on, where there are several of a fragment."""
    needed: dict[FragmentKey, list[int]] = {}
    for change in changes:
        if isinstance(change, Activated | RowAltered):
            number = change.scheduled_number if isinstance(change, Activated) else change.number
            overlay = top.fragments.get(change.fragment)
            if overlay is None or number not in overlay.rows:
                needed.setdefault(change.fragment, []).append(number)
    return {fragment: numbers for fragment, numbers in needed.items() if len(numbers) > 1}
