"""DurableStore: a messaging store on a medium, such as a folder (`twinbus.store.medium`).

    commit -> journal segment (one write, one sync) -> return -> top layer of the overlay
    segment full -> sealed, a new one begins; when that one is half full, a checkpoint writes what is left of the sealed layer
    to the tables, in its own thread and giving way to commits (`layers/pace`), and then segment and layer are dropped

So a commit costs one sync however much it changes, messages that are removed while they are in the journal never
reach the tables, and memory holds only the facts of rows since the last checkpoints, not their contents. Opening a store
means reading the tables and replaying the segments that they do not hold yet.
"""

from collections import ChainMap, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType

from twinbus.clock import Millis
from twinbus.errors import ChangeRefused, StoreDamaged, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.change_rules import LastNumbers, check_changes
from twinbus.store.changes import Change, FragmentKey, StoredMessage
from twinbus.store.damage import CheckedPage, Damage, RowsDamaged
from twinbus.store.journal_record import decode_changes, encode_changes
from twinbus.store.layers.checkpoint_thread import CheckpointThread, StartTask, start_thread
from twinbus.store.layers.fragment_view import FragmentView, facts_of, sum_fragments
from twinbus.store.layers.hidden_fronts import HiddenFront, HiddenFronts, TimesOf
from twinbus.store.layers.located_changes import SIZE, LocatedChange, RowsAdded
from twinbus.store.layers.overlay import FragmentOverlay, Layer
from twinbus.store.layers.pace import CommitTraffic
from twinbus.store.layers.recovery import recover_layers
from twinbus.store.layers.rows_below import KnownRows, RowsBelow, rows_needed, rows_seen
from twinbus.store.layers.session_lists import Making, SessionLists
from twinbus.store.medium import Body, Medium, Tables
from twinbus.store.messaging_store import FragmentSummary, RowFacts, SessionList, SessionSummary
from twinbus.store.room import Room, RoomLeft
from twinbus.store.store_limits import StoreLimits
from twinbus.store.transfer import skip_numbers

CHECKPOINT_AT = 0.5
"""How full the top segment is when a checkpoint of the sealed one starts."""
HURRY_AT = 0.75
"""And when it gives way to commits no longer."""


JOINED_SIZE_MAX = 16 * 1024
"""Bodies of this size on average are joined before they are written; to copy larger ones costs more than to write them in pieces."""
PIECES_MAX = 500
"""The system takes about a thousand in one call."""


CHANGES_AT_ONCE = 50
ROWS_PER_STEP = 20_000
"""Of a commit with more changes than that: some milliseconds, after which others get their turn."""


class _Late:
    """A commit that is in the journal and not in the top layer yet: a commit does not have to wait for the layer."""

    __slots__ = ("_applied_count", "_changes", "is_long", "last_numbers")

    def __init__(self, changes: list[LocatedChange], last_numbers: LastNumbers) -> None:
        self._changes = changes
        self.last_numbers = last_numbers
        self._applied_count = 0
        self.is_long = len(changes) > CHANGES_AT_ONCE and self._end_of_step() < len(changes)

    def take_step(self) -> list[LocatedChange]:
        """What to apply next: all of it, unless that is very much."""
        begin = self._applied_count
        self._applied_count = self._end_of_step() if self.is_long else len(self._changes)
        return self._changes[begin : self._applied_count]

    def _end_of_step(self) -> int:
        rows, end = 0, self._applied_count
        while end < len(self._changes) and rows < ROWS_PER_STEP:
            change = self._changes[end]
            rows += len(change.numbers) if isinstance(change, RowsAdded) else 1
            end += 1
        return end

    @property
    def is_applied(self) -> bool:
        return self._applied_count == len(self._changes)


class _Failing:
    """Around everything that is asked of a store: turns errors of the system into StoreUnavailable, after which the store refuses all
    work. A class and not a generator, because a commit of one message is inside it twice. One for each call: if the store kept it,
    each would hold the other, and all that a closed store had in memory would stay until the collector comes, which is seldom."""

    __slots__ = ("_store",)

    def __init__(self, store: "DurableStore") -> None:
        self._store = store

    def __enter__(self) -> None:
        store = self._store
        if store._is_closed or store._failure is not None:
            raise store._unusable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, ChangeRefused):
            failure = self._store._failed(error)
            if failure is not None:
                raise failure from error


class DurableStore:
    """See `MessagingStore`. Opening raises StoreInUse, StoreDamaged or StoreUnavailable.

    `start_task` runs checkpoints; a test passes its own to decide when they happen.
    """

    def __init__(self, medium: Medium, limits: StoreLimits | None = None, start_task: StartTask = start_thread) -> None:
        self._medium = medium
        self._limits = limits or StoreLimits()
        self._failure: str | None = None
        self._is_closed = False
        self._layers: list[Layer] = []  # bottom first; the last one takes commits
        self._last_numbers: LastNumbers = {}
        self._late: deque[_Late] = deque()
        self._is_overfull = False  # the next commit has to wait for the checkpoint
        self._room = Room()
        self._fronts = HiddenFronts()
        self._seen: KnownRows = {}
        self._session_lists = SessionLists()
        self._opened_tables: Tables | None = None
        self._checkpoints: CheckpointThread | None = None
        self._start_task = start_task
        self._traffic = self._limits.traffic or CommitTraffic()
        try:
            with _Failing(self):
                self._open()
        except BaseException:
            self._release()
            raise

    def _open(self) -> None:
        self._medium.hold()
        self._opened_tables = tables = self._medium.tables(self._limits.cache_bytes)
        with tables.snapshot() as snapshot:
            position = snapshot.position
            self._last_numbers = snapshot.last_numbers()
        is_new = not self._last_numbers and self._medium.is_new
        for layer, changes in recover_layers(self._medium, position, is_new=is_new):
            self._layers.append(layer)
            self._apply(changes)
            self._remember({key: overlay.last_number for key, overlay in layer.fragments.items()})
        room = self._room
        room.look(self._medium.space())
        self._checkpoints = CheckpointThread(
            tables, self._start_task, self._traffic, self._medium.is_lack_of_space, lambda: room.left < RoomLeft.ENOUGH
        )
        if self._medium.are_numbers_lost():
            skip_numbers(self)
        self._medium.keep()
        if len(self._layers) > 1:
            self._start_checkpoint()

    def commit(self, changes: Sequence[Change]) -> None:
        with _Failing(self):
            body = b"".join(encode_changes(changes))
        self.commit_records([body])

    def commit_records(self, bodies: Sequence[Body]) -> None:
        """Like `commit`, for changes that are already encoded. Nobody looks at the bodies any more once it returns."""
        self._traffic.began(id(self))
        try:
            self._commit_records(bodies)
        finally:
            self._traffic.ended(id(self))

    def _commit_records(self, bodies: Sequence[Body]) -> None:
        with _Failing(self):
            size = sum(map(len, bodies))
            if not size:
                return
            if len(bodies) > 1 and (size < JOINED_SIZE_MAX * len(bodies) or len(bodies) > PIECES_MAX):
                bodies = [b"".join(bodies)]
            known = self._known_numbers()
            if self._is_overfull:
                self._finish_checkpoint()
                self._make_room()
            segment = self._layers[-1].segment
            changes: list[LocatedChange] = []
            place = segment.body_place
            for body in bodies:
                changes += decode_changes(body, place)
                place += len(body)
            touched = check_changes(changes, known)
            segment.append(bodies)
            self._medium.committed(segment.next_sequence - 1)
            self._late.append(_Late(changes, touched))

    def _known_numbers(self) -> Mapping[FragmentKey, int | None]:
        """For the next commit. It need not wait until one before it is applied, if that is a very long one."""
        if self._late:
            self._apply_step()
            # Behind one long commit others wait, but not behind two: no segment is sealed meanwhile, and a read waits for all of them.
            if self._is_overfull or sum([late.is_long for late in self._late]) != 1:
                self._catch_up()
        if self._late:
            return ChainMap(*[late.last_numbers for late in reversed(self._late)], self._last_numbers)
        return self._last_numbers

    @property
    def next_sequence(self) -> int:
        """Of the next commit: while it stays the same, so does everything in the store."""
        return self._layers[-1].segment.next_sequence

    def is_pressed(self) -> bool:
        """Half of what may be written during a checkpoint is: the rest is for those who write little."""
        if self._is_closed or self._failure is not None or self._checkpoints is None:
            return False
        return self._checkpoints.is_running and self._is_full((1 + self._limits.backlog_factor) / 2)

    def room_left(self) -> RoomLeft:
        if self._is_closed or self._failure is not None or self._checkpoints is None:
            return RoomLeft.ENOUGH
        self._room.look(self._medium.space())
        return RoomLeft.NONE if self._checkpoints.is_out_of_space else self._room.left

    def catch_up(self) -> bool:
        with _Failing(self):
            if self._late:
                self._apply_step()
            return bool(self._late)

    def summaries(self) -> list[FragmentSummary]:
        with _Failing(self):
            self._catch_up()
            with self._tables().snapshot() as tables:
                return sum_fragments(tables, self._layers_above(tables.position), self._last_numbers)

    def scan(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None = None,
        last: int | None = None,
    ) -> list[StoredMessage]:
        with self._view(fragment) as view:
            return view.scan(after, count_max, bytes_max, states, session_id, last)

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        with self._view(fragment) as view:
            return view.read(sequence_numbers, bytes_max)

    def facts(self, fragment: FragmentKey, sequence_numbers: Sequence[int]) -> RowFacts:
        with self._view(fragment) as view:
            found = view.find_all(sequence_numbers)
        self._seen = rows_seen(fragment, found)
        return facts_of(found)

    def facts_after(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        states: Collection[MessageState],
        last: int | None = None,
    ) -> RowFacts:
        with self._view(fragment) as view:
            found = view.find_after(after, count_max, states, last)
        self._seen = rows_seen(fragment, found)
        return facts_of(found)

    def due(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        with self._view(fragment) as view:
            return view.due(now, count_max, self._front(FragmentOverlay.due, fragment, view))

    def expired(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        with self._view(fragment) as view:
            return view.expired(now, count_max, self._front(FragmentOverlay.mortal, fragment, view))

    def sessions(self, fragment: FragmentKey) -> list[SessionSummary]:
        with self._view(fragment) as view:
            return view.sessions()

    def prepare_session_list(self, fragment: FragmentKey) -> bool:
        with _Failing(self):
            self._catch_up()
            return self._session_lists.prepare(fragment, self.next_sequence, partial(self._session_steps, fragment))

    def session_list(self, fragment: FragmentKey) -> SessionList:
        with _Failing(self):
            self._catch_up()
            return self._session_lists.get(fragment, self.next_sequence, partial(self._session_steps, fragment))

    def _session_steps(self, fragment: FragmentKey) -> Making[list[SessionSummary]]:
        """Of everything as it is when this begins."""
        with self._tables().frozen(fragment) as tables:
            *sealed, top = self._layers_above(tables.position)
            view = FragmentView(tables, [*sealed, top.frozen(fragment)], fragment)
            return (yield from view.session_steps())

    def session_state(self, fragment: FragmentKey, session_id: str) -> bytes | None:
        with self._view(fragment) as view:
            return view.session_state(session_id)

    def duplicates(self, fragment: FragmentKey) -> list[tuple[str, Millis]]:
        with self._view(fragment) as view:
            return view.duplicates()

    def kept_in(self) -> str:
        with _Failing(self):
            return self._medium.kept_in()

    def epoch(self) -> int:
        return self._medium.epoch

    def damage(self) -> list[Damage]:
        with _Failing(self):
            return self._tables().damage()

    def check(self, after: int) -> CheckedPage:
        with _Failing(self):
            page = self._tables().check(after)
            if page.damaged:
                raise RowsDamaged("rows are damaged", page.damaged)
            return page

    def rest(self) -> bool:
        """Start a checkpoint, so that rows that are gone do not keep their space while nothing happens, or while there is no room. The
        next rest lets go of what it has written, in memory and on the disk, or finds that it has failed, before somebody has to
        wait for that."""
        self._session_lists.forget_all()
        with _Failing(self):
            self._catch_up()
            checkpoints = self._checkpoint_thread()
            if checkpoints.is_running:
                return True
            self._drop_checkpointed()
            if self.room_left() < RoomLeft.ENOUGH:
                self._medium.give_back()
            if self._room.fits_segment():
                self._seal()
            if len(self._layers) > 1 and self._start_checkpoint():
                return True
            checkpoints.tidy()
            return False

    def checkpoint(self) -> None:
        """Write everything committed to the tables, and wait for it."""
        with _Failing(self):
            self._catch_up()
            self._finish_checkpoint()
            is_sealed = self._seal()
            while len(self._layers) > 1 and self._start_checkpoint():
                self._finish_checkpoint()
                if self._checkpoint_thread().is_out_of_space:
                    break
        if len(self._layers) > 1 or not is_sealed:
            raise StoreUnavailable(f"There is no space for a checkpoint of {self._medium}. Free some space.")

    def wait_for_checkpoint(self) -> None:
        """Wait for the checkpoint that is running, if any."""
        with _Failing(self):
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
        while self._late:
            self._apply_step()

    def _apply_step(self) -> None:
        late = self._late[0]
        self._apply(late.take_step())
        if late.is_applied:
            self._late.popleft()
            self._remember(late.last_numbers)
            if not self._late:
                self._record_use()
                self._make_room()

    def _apply(self, changes: Sequence[LocatedChange]) -> None:
        """Apply changes to the top layer. Raises only if the tables cannot be read."""
        *below, top = self._layers
        seen, self._seen = self._seen, {}
        with RowsBelow(self._tables(), below, seen) as rows_below:
            if needed := rows_needed(changes, top):
                rows_below.prepare(needed)
            for change in changes:
                top.apply(change, self._last_numbers.get(change.fragment), rows_below.find)

    def _remember(self, last_numbers: LastNumbers) -> None:
        """Store the highest numbers, and forget fragments that do not exist anymore."""
        self._last_numbers.update(last_numbers)
        if None in last_numbers.values():
            for fragment in [fragment for fragment, last in last_numbers.items() if last is None]:
                del self._last_numbers[fragment]
                self._fronts.forget(fragment)
                self._session_lists.forget(fragment)

    def _make_room(self) -> None:
        """After a commit, so that none waits for it: seal the top segment once it is full, if the sealed one below it has
        reached the tables.

        A checkpoint waits until the top is half full again: most of what is sealed may have been received by then. One for which
        there was no space waits for the next rest. Without space for a segment the top one goes on: what removes messages finds
        room in it, and a store that fails because it cannot begin another one would make those who receive begin again.
        """
        checkpoints = self._checkpoint_thread()
        # Asked before the result is taken: if it ended between the two and did not count as running, the next one would start over
        # a result that nobody has taken.
        is_running = checkpoints.is_running
        self._drop_checkpointed()
        if checkpoints.is_out_of_space and not is_running:
            self._is_overfull = False
            return
        if len(self._layers) > 1 and not is_running and self._is_full(CHECKPOINT_AT):
            self._start_checkpoint()
            is_running = checkpoints.is_running
        if is_running:
            if self._is_full(HURRY_AT):
                checkpoints.hurry()
        elif self._is_full(1) and self._room.fits_segment():
            self._drop_checkpointed()
            checkpoints.is_out_of_space = not self._seal()
        self._is_overfull = is_running and self._is_full(self._limits.backlog_factor)

    def _is_full(self, factor: float) -> bool:
        top, limits, room = self._layers[-1], self._limits, self._room
        entries_max: float = limits.segment_entries_max
        bytes_max = room.segment_bytes_max(limits.segment_bytes_max)
        if top.entry_count < factor * entries_max and top.segment.end < factor * bytes_max:
            return False
        if limits.budget is not None:
            # Half of it: the other half may be held by a segment that is being checkpointed.
            entries_left, bytes_left = limits.budget.left_by_others(id(self), room.journal_bytes_max)
            entries_max, bytes_max = max(entries_max, entries_left // 2), max(bytes_max, bytes_left // 2)
        return top.entry_count >= factor * entries_max or top.segment.end >= factor * bytes_max

    def _record_use(self) -> None:
        if self._limits.budget is not None:
            entries = sum([layer.entry_count for layer in self._layers])
            self._limits.budget.record(id(self), entries, sum([layer.segment.end for layer in self._layers]))

    def _seal(self) -> bool:
        """Begin a new segment, unless nothing is in the top one. False if the disk has no space for it, or takes no more files: the top
        one goes on."""
        top = self._layers[-1]
        if top.fragments:
            number = top.segment.number + 1
            try:
                fresh = self._medium.create_segment(number, top.segment.next_sequence)
            except OSError as error:
                # If it has its name already, nothing more may be appended before it.
                if not self._medium.is_lack_of_space(error) or number in self._medium.segment_numbers():
                    raise
                return False
            self._layers.append(Layer(fresh))
        return True

    def _start_checkpoint(self) -> bool:
        """Of everything that is sealed, as far as there is space for it; whether it was started. Rows that are gone by now are left
        out; what removed them is in a later segment, and synced, so after a crash they are gone as well."""
        fitting: list[Layer] = []
        row_count = content_bytes = 0
        for level, layer in enumerate(self._layers[:-1]):
            thinned = layer.thinned(self._layers[level + 1 :])
            sizes = [row[SIZE] for overlay in thinned.fragments.values() for row in overlay.rows.values()]
            row_count, content_bytes = row_count + len(sizes), content_bytes + sum(sizes)
            if not self._room.fits_checkpoint(row_count, content_bytes):
                break
            fitting.append(thinned)
        checkpoints = self._checkpoint_thread()
        if fitting:
            checkpoints.start(fitting)
        else:
            checkpoints.is_out_of_space = True
        return bool(fitting)

    def _finish_checkpoint(self) -> None:
        self._checkpoint_thread().wait()
        self._drop_checkpointed()

    def _drop_checkpointed(self) -> None:
        """Drop the layers whose checkpoint is done. Raises the error if it failed."""
        written = self._checkpoint_thread().take_result()
        if written:
            done = {layer.segment.number for layer in written}
            self._fronts.written(max(done), self._layers)
            # If the next lines are not reached, recovery deletes the segments: the tables hold their numbers.
            dropped = [layer for layer in self._layers if layer.segment.number in done]
            self._layers = [layer for layer in self._layers if layer.segment.number not in done]
            for layer in dropped:
                layer.segment.retire()
                layer.segment.close()
            self._record_use()

    def _layers_above(self, position: int) -> list[Layer]:
        return [layer for layer in self._layers if layer.segment.number > position]

    def _front(self, times_of: TimesOf, fragment: FragmentKey, view: FragmentView) -> HiddenFront:
        if fragment not in self._last_numbers:
            return HiddenFront(view.position)  # nobody would forget it
        return self._fronts.get(times_of, fragment, view.position, self._layers)

    @contextmanager
    def _view(self, fragment: FragmentKey) -> Iterator[FragmentView]:
        with _Failing(self):
            self._catch_up()
            with self._tables().snapshot(fragment) as tables:
                yield FragmentView(tables, self._layers_above(tables.position), fragment)

    def _unusable(self) -> StoreUnavailable:
        reason = self._failure or "it is closed"
        return StoreUnavailable(f"store {self._medium} cannot be used: {reason}. Reopen it.")

    def _failed(self, error: BaseException) -> Exception | None:
        """Refuse all work from now on. Returns what to raise in its place, if anything."""
        if isinstance(error, RowsDamaged):
            return self._set_aside(error)
        # Journal and overlay may differ now, and only the journal is right: recovery builds the overlay from it again.
        self._failure = str(error) or type(error).__name__
        return self._medium.failure(error) if isinstance(error, Exception) else None

    def _set_aside(self, damaged: RowsDamaged) -> StoreUnavailable:
        """Move the rows out of the way. The store has to be opened again: others know rows and counts that are gone now."""
        self._failure = f"{damaged}, and were set aside"
        if self._checkpoints is not None:
            self._checkpoints.wait()  # one writer at a time
        try:
            done = self._tables().set_aside(damaged)
        except StoreDamaged as error:
            self._failure = str(error)
            return error
        return StoreUnavailable(f"{done}; the store has to be opened again.")

    def _tables(self) -> Tables:
        assert self._opened_tables is not None
        return self._opened_tables

    def _checkpoint_thread(self) -> CheckpointThread:
        assert self._checkpoints is not None
        return self._checkpoints

    def _release(self) -> None:
        self._is_closed = True
        if self._limits.budget is not None:
            self._limits.budget.forget(id(self))
        with ExitStack() as steps:  # the last one first, and all of them: somebody else may be waiting for the medium
            steps.callback(self._medium.release)
            if self._opened_tables is not None:
                steps.callback(self._opened_tables.close)
            for layer in self._layers:
                steps.callback(layer.segment.close)
            if self._checkpoints is not None:
                steps.callback(self._checkpoints.wait)
            steps.callback(self._session_lists.forget_all)
