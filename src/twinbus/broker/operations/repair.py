"""Repairing messages where they lie: those of one fragment that match are moved to where they belong, or removed.

    read some rows > those that match and nobody holds > what the action makes of them > one commit > read some more

Each message is in one place at every moment, whatever fails. Dead letters lie in the store of the fragment that they came
from, so the way home is one commit. So is the way to another queue that has a fragment for the message in the same store. Any
other entity may lie elsewhere: then the message goes, again in one commit, to the transfer sub-queue of its own entity, which
sends it on as auto-forwarding does, at least once. Nothing is received for it, so no delivery count rises, and whoever repairs
may stop at any time and go on later: what has been repaired is gone from here.

A message that comes home is what it was before it became a dead letter: without the reason, with the delivery count it had,
and with its time to live from now on. Duplicate detection has no say in it, for it is the same message. At any other entity
it arrives as if sent, and where duplicates are detected it would be dropped without a word if its id is known there; so it
needs a new one.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from twinbus.broker.commands import (
    PREVIEWS_MAX,
    REFUSALS_MAX,
    REPAIRED_NUMBERS_MAX,
    PreviewPage,
    PreviewRepair,
    Refusal,
    Repair,
    RepairPage,
    RepairPreview,
)
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import fragment_of_numbers
from twinbus.broker.fragment.intake import check_size, expiry_of
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.steps import Steps, commit, read_timed
from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError, FilterError, MessagingError, NotAllowed, ServerBusy
from twinbus.model import wire_names
from twinbus.model.content import NewProperties, with_annotations, with_application_properties
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.hops import without_hops
from twinbus.model.message import Message, is_front_too_large, read_content, sent_size
from twinbus.model.partition_key import candidates, pinning_key
from twinbus.model.paths import path_key
from twinbus.model.rules.actions import CompiledAction
from twinbus.model.rules.compiled import compile_lone_action, compile_test
from twinbus.model.rules.evaluation import Test
from twinbus.model.rules.view import FilterView
from twinbus.store.changes import StoredMessage, SubQueue
from twinbus.store.reads import ReadNumbers, Rows, Scan, unexpired

STEP_COUNT_MAX = 200
STEP_BYTES_MAX = 1024 * 1024
PREVIEW_BYTES_MAX = 1024 * 1024
"""A single message is never too large."""
WAITING_MAX = 10_000
"""Messages that may wait in a fragment of the transfer sub-queue before more are moved there."""

_REASONS = (wire_names.DEAD_LETTER_REASON, wire_names.DEAD_LETTER_DESCRIPTION)


def repair(queue: AskedQueue, command: Repair, now: Millis) -> Steps[RepairPage]:
    fragment, work = _begin(queue, command)
    done = _Done()
    next_number: int | None = command.first
    while next_number is not None and done.examined_count < command.count_max:
        try:
            rows, later, following = yield from _some(
                fragment, command, next_number, command.count_max - done.examined_count
            )
            step = yield from _repair_some(fragment, work, rows, later)
        except MessagingError:
            # What was repaired before has to be known; whoever asks for the rest gets the error.
            if not done.numbers:
                raise
            break
        done.add(step)
        next_number = following
    return RepairPage(
        done.numbers,
        done.examined_count,
        done.held_count,
        len(done.refusals),
        done.refusals[:REFUSALS_MAX],
        next_number,
    )


def preview(queue: AskedQueue, command: PreviewRepair, now: Millis) -> Steps[PreviewPage]:
    wanted = command.repair
    fragment, work = _begin(queue, wanted)
    previews: list[RepairPreview] = []
    examined_count = size_bytes = 0
    is_full = False
    next_number: int | None = wanted.first
    count_max = min(command.count_max, PREVIEWS_MAX)
    while next_number is not None and not is_full and examined_count < wanted.count_max:
        rows, later, next_number = yield from _some(fragment, wanted, next_number, wanted.count_max - examined_count)
        for row in rows:
            if is_full:
                next_number = row.sequence_number
                break
            examined_count += 1
            found = work.preview(fragment, row, later)
            if found is not None:
                previews.append(found)
                size_bytes += len(row.content) + (0 if found.after is None else len(found.after.content))
                is_full = len(previews) >= count_max or size_bytes >= PREVIEW_BYTES_MAX
    return PreviewPage(previews, examined_count, next_number)


@dataclass(slots=True)
class _Done:
    """By one command so far, or by one step of it."""

    numbers: list[int] = field(default_factory=list)
    examined_count: int = 0
    held_count: int = 0
    refusals: list[Refusal] = field(default_factory=list)

    def add(self, step: "_Done") -> None:
        self.numbers += step.numbers
        self.examined_count += step.examined_count
        self.held_count += step.held_count
        self.refusals += step.refusals


def _begin(queue: AskedQueue, command: Repair) -> tuple[Fragment, "_Work"]:
    if command.last < command.first or (command.numbers is not None and not command.numbers):
        raise ArgumentError("There is nothing to repair: the last sequence number must not be below the first.")
    if command.numbers is not None and len(command.numbers) > REPAIRED_NUMBERS_MAX:
        raise ArgumentError(f"Name at most {REPAIRED_NUMBERS_MAX} sequence numbers at a time.")
    fragment = fragment_of_numbers(queue.fragments, [command.first, command.last, *(command.numbers or ())])
    return fragment, _Work.of(queue, fragment, command)


def _some(fragment: Fragment, command: Repair, first: int, count_max: int) -> Steps[tuple[Rows, Millis, int | None]]:
    """Rows from a number on, when they were read, and where to go on."""
    count_max = min(count_max, STEP_COUNT_MAX)
    if command.numbers is not None:
        numbers = sorted({number for number in command.numbers if number >= first})
        rows, now = yield from read_timed(fragment, ReadNumbers(fragment.key, numbers[:count_max], STEP_BYTES_MAX))
        # Those behind the last one were not read if they are too large, or do not exist.
        read_count = bisect_right(numbers, rows[-1].sequence_number) if rows else count_max
        following = numbers[read_count] if len(numbers) > read_count else None
        return [row for row in rows if row.state in command.states], now, following
    scan = Scan(fragment.key, first - 1, count_max, STEP_BYTES_MAX, command.states)
    rows, now = yield from read_timed(fragment, scan)
    last = rows[-1].sequence_number if rows else command.last
    if last >= command.last:
        return [row for row in rows if row.sequence_number <= command.last], now, None
    return rows, now, last + 1


def _repair_some(fragment: Fragment, work: "_Work", rows: Rows, now: Millis) -> Steps[_Done]:
    done = _Done(examined_count=len(rows))
    taken = fragment.out_of_lane(rows) | fragment.locks.deferred
    moves: list[_Move] = []
    for row in rows:
        try:
            view = FilterView(row.content, row.sequence_number, row.enqueued_at)
            if not unexpired([row], now) or not work.matches(view):
                continue
            if row.sequence_number in taken or (fragment.sessions is not None and fragment.sessions.is_held(row, now)):
                done.held_count += 1
                continue
            moves.append(work.move(fragment, row, view, now))
        except MessagingError as error:
            done.refusals.append(Refusal(row.sequence_number, str(error)))
    if not moves:
        return done
    work.check_targets(fragment, moves)
    repaired = [move.row for move in moves]
    numbers = [row.sequence_number for row in repaired]
    withdrawn = fragment.withdraw(repaired)
    decision = Decision(fragment)
    decision.remove(repaired)
    for move in moves:
        if move.target is not None:
            decision.put(move.target, move.outcome)
    yield from commit(decision, withdrawn)
    done.numbers = numbers
    return done


@dataclass(frozen=True, slots=True)
class _Move:
    row: StoredMessage
    target: Fragment | None  # None: it is removed
    outcome: StoredMessage


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done with each message."""

    command: Repair
    test: Test | None
    action: CompiledAction | None
    owner: EntitySettings
    home: Fragment | None  # where messages go that stay with their entity
    transfers: Fragment
    destination: EntitySettings | None  # of another entity; None: they go home
    taking: EntitySettings | None  # of whichever takes them; None: they are removed
    near: Sequence[Fragment]  # those of the destination, if it is a queue that can take messages in the same commit
    is_dead_letter: bool

    @classmethod
    def of(cls, queue: AskedQueue, fragment: Fragment, command: Repair) -> "_Work":
        """Raises ArgumentError for a repair that makes no sense, and EntityNotFound or EntityDisabled of its destination."""
        test = None if command.filter is None else compile_test(command.filter)
        action = None if command.action is None else compile_lone_action(command.action)
        ways, path = queue.ways_out, command.destination
        is_dead_letter = fragment.sub_queue is not SubQueue.MAIN
        home = None if ways.home is None else ways.home[fragment.index]
        destination = taking = None
        if not command.removes:
            if path is not None and (home is None or path_key(path) != path_key(queue.settings.path)):
                destination = queue.settings_of(path)
                if destination is queue.settings and not is_dead_letter:
                    raise ArgumentError(f"'{path}' is where the messages are. Name another destination.")
            elif home is None:
                raise ArgumentError("Name a destination: only dead letters have a place where they came from.")
            taking = destination or queue.settings
            taking.check_can_send()
        elif path is not None or action is not None:
            raise ArgumentError("What is removed has no destination and no action. Leave both out, or do not remove.")
        transfers = ways.transfers[fragment.index]
        near = () if destination is None else _near(queue.fragments_of(destination.path), destination)
        return cls(command, test, action, ways.owner, home, transfers, destination, taking, near, is_dead_letter)

    def matches(self, view: FilterView) -> bool:
        """Raises FilterError."""
        return self.test is None or bool(self.test(view))

    def preview(self, fragment: Fragment, row: StoredMessage, now: Millis) -> RepairPreview | None:
        try:
            view = FilterView(row.content, row.sequence_number, row.enqueued_at)
            if not unexpired([row], now) or not self.matches(view):
                return None
            move = self.move(fragment, row, view, now)
        except MessagingError as error:
            return RepairPreview(row, None, str(error))
        return RepairPreview(row, None if move.target is None else move.outcome, None)

    def move(self, fragment: Fragment, row: StoredMessage, view: FilterView, now: Millis) -> _Move:
        """Raises the MessagingError because of which the message has to stay."""
        if self.command.removes:
            return _Move(row, None, row)
        removed = _REASONS if self.is_dead_letter else ()
        if self.action is not None:
            content = self.action.apply(view, removed)
        else:
            content = with_application_properties(row.content, NewProperties({}), removed)
        if is_front_too_large(content):
            raise FilterError("The action makes the properties of the message too large. Let it set less.")
        message = read_content(content)
        if self.destination is not None:
            target = self._landing(fragment, message, self.destination, now)
            if target is None:
                return self._transfer(row, message, self.destination)
            return _Move(row, target, _arriving(target.settings, row, message, now))
        assert self.home is not None
        if not self._is_of_fragment(fragment, message):
            return self._transfer(row, message, self._moved_by_key(fragment))
        return _Move(row, self.home, self._home_row(self.home.settings, row, message, now))

    def check_targets(self, fragment: Fragment, moves: Sequence[_Move]) -> None:
        """Raises if the entity or one of the fragments that they go to cannot take them now."""
        if self.taking is not None:
            self.taking.check_can_send()
        sizes: dict[int, int] = {}
        targets = {id(move.target): move.target for move in moves if move.target is not None}
        for move in moves:
            sizes[id(move.target)] = sizes.get(id(move.target), 0) + len(move.outcome.content)
        for key, target in targets.items():
            refusal = target.refusal
            if refusal is not None:
                raise refusal
            if target is not self.home:
                check_size(target, target.taken_bytes, sizes[key])
            if target is self.transfers and target.tally.active_count >= WAITING_MAX:
                raise ServerBusy(
                    f"{target.tally.active_count} messages of '{self.owner.path}' wait to be sent to another entity. "
                    "Try again later."
                )

    def _is_of_fragment(self, fragment: Fragment, message: Message) -> bool:
        """Whether its keys, which the action may have changed, are still those of the fragment."""
        owner = self.owner
        if not owner.is_partitioned or self.action is None:
            return True
        key = pinning_key(
            message.session_id,
            message.partition_key,
            message.message_id,
            owner.duplicate_window > 0,
            owner.has_sessions,
        )
        return key is None or candidates(key, FRAGMENT_COUNT, 0) == [fragment.index]

    def _moved_by_key(self, fragment: Fragment) -> EntitySettings:
        assert self.home is not None
        if self.home.settings is not self.owner:
            raise NotAllowed(
                "The action gives the message another key, which belongs to another fragment of its topic. Keep the key, or "
                "name a destination."
            )
        return self.owner

    def _home_row(self, settings: EntitySettings, row: StoredMessage, message: Message, now: Millis) -> StoredMessage:
        if settings.requires_session and message.session_id is None:
            raise NotAllowed(f"'{settings.path}' requires message sessions. Set sys.SessionId in the action.")
        ceiling = min(settings.default_time_to_live, self.owner.default_time_to_live)
        return StoredMessage(
            0,
            message.content,
            now,
            expiry_of(now, message.time_to_live, ceiling),
            delivery_count=0 if self.command.resets_delivery_count else row.delivery_count,
            session_id=message.session_id if settings.requires_session else None,
            enqueued_sequence_number=_origin(row),
        )

    def _landing(
        self, fragment: Fragment, message: Message, destination: EntitySettings, now: Millis
    ) -> Fragment | None:
        """The fragment of the destination that takes the message in the same commit; None if there is none."""
        is_later = message.scheduled_at is not None and message.scheduled_at > now
        if not self.near or is_later or sent_size(message.content) > destination.message_size_max:
            return None
        if destination.requires_session and message.session_id is None:
            return None
        key = pinning_key(
            message.session_id, message.partition_key, message.message_id, False, destination.has_sessions
        )
        count = len(self.near)
        # Those of the same index first, so that fragments fill alike.
        ordered = sorted(candidates(key, count, 0), key=lambda place: (place - fragment.index) % count)
        return next((self.near[place] for place in ordered if self.near[place].broker is fragment.broker), None)

    def _transfer(self, row: StoredMessage, message: Message, destination: EntitySettings) -> _Move:
        if destination.duplicate_window and read_content(row.content).message_id == message.message_id:
            raise NotAllowed(
                f"'{destination.path}' detects duplicates, and drops a message whose id it knows. Give it a new one with the "
                "action: SET sys.MessageId = newid()"
            )
        content = with_annotations(message.content, {wire_names.TRANSFER_DESTINATION: destination.path})
        outcome = StoredMessage(0, content, row.enqueued_at, NEVER, enqueued_sequence_number=_origin(row))
        return _Move(row, self.transfers, outcome)


def _near(fragments: Sequence[Fragment], destination: EntitySettings) -> Sequence[Fragment]:
    """None of a queue that forwards or detects duplicates: there a message has to arrive as if sent."""
    return () if destination.forward_to is not None or destination.duplicate_window else fragments


def _arriving(destination: EntitySettings, row: StoredMessage, message: Message, now: Millis) -> StoredMessage:
    destination.last_used_at = now
    return StoredMessage(
        0,
        message.content,
        now,
        expiry_of(now, message.time_to_live, destination.default_time_to_live),
        session_id=message.session_id if destination.requires_session else None,
        enqueued_sequence_number=_origin(row),
    )


def _origin(row: StoredMessage) -> int:
    """Its number at the first point of submission. The hops that it made since then are forgiven, as for one sent anew."""
    return without_hops(row.enqueued_sequence_number) or row.sequence_number
