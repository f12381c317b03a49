"""An independent witness of what a simulation did: it knows the promises and nothing of how they are kept.

It records what was accepted, delivered and settled, and reports what must never happen:

* A message that was acknowledged is lost.
* A message whose completion was acknowledged is handed over again.
* Within a message session a message overtakes an earlier one.
* A message with a key is there twice; where duplicates are detected, any message is.
* A message without a key is there twice though no store failed while it was sent; or three times, whatever happened.
* A message without a key is refused because the entity is full while a fragment has room for it.
* A scheduled message comes before its time, or any message after its end.
* A transaction happens in part: a message that it sends is there, in whatever entity, and another one is not, or what it
  completes is still there.
* A deletion in one message session takes a message of another one.
* Over several nodes: a message or a message session is locked at two of them, or a store takes a commit of a node that has lost it.
* Between two paired namespaces: an accepted message is neither delivered nor waiting nor dead-lettered.

A message whose send or settlement failed may or may not be there: the store may have done it without reporting it. So the
auditor holds against the broker only what is certain.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from twinbus.clock import NEVER, Millis


class Fate(Enum):
    PENDING = "sent, no answer yet"
    ACCEPTED = "acknowledged: it must be there"
    UNKNOWN = "the send or the completion failed, or it may have been deleted: it may be there"
    COMPLETED = "its completion was acknowledged"


@dataclass(slots=True)
class _Record:
    is_pinned: bool
    session_id: str | None
    fate: Fate = Fate.PENDING
    due_at: Millis = 0
    time_to_live: Millis = NEVER
    sent_at: Millis = 0
    accepted_at: Millis = NEVER
    may_repeat: bool = False
    numbers: set[int] = field(default_factory=set)
    """Under which it was handed over."""
    completed_count: int = 0

    @property
    def copies_max(self) -> int:
        return 2 if self.may_repeat and not self.is_pinned else 1

    def may_have_ended(self, now: Millis) -> bool:
        return now - self.sent_at >= self.time_to_live

    def must_have_ended(self, now: Millis) -> bool:
        return self.accepted_at < NEVER and now - self.accepted_at >= self.time_to_live


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the messages of paired senders are, by message id: one entry for each copy."""

    delivered: Sequence[str]
    waiting: Sequence[str] = ()
    dead_lettered: Sequence[str] = ()


@dataclass(slots=True)
class _Bundle:
    """What a transaction does together."""

    sent: Sequence[str]
    completed: frozenset[int]
    came_again: set[int] = field(default_factory=set)
    """What it completes and was handed over after the commit was asked for: then the commit cannot have happened."""


@dataclass(slots=True)
class Auditor:
    records: dict[str, _Record] = field(default_factory=dict)
    completed_numbers: set[int] = field(default_factory=set)
    sessions: dict[str, list[str]] = field(default_factory=dict)
    """Message ids of each session in the order they were sent."""
    detects_duplicates: bool = False
    bundles: list[_Bundle] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    """Of stores that have had another owner."""
    limits_copies: bool = False
    """Every message is sent once, to one entity that does not get it by forwarding."""

    def sent(
        self,
        message_id: str,
        session_id: str | None,
        *,
        is_pinned: bool,
        due_at: Millis = 0,
        time_to_live: Millis = NEVER,
        now: Millis = 0,
    ) -> None:
        assert message_id not in self.records
        record = _Record(is_pinned, session_id, due_at=due_at, time_to_live=time_to_live, sent_at=now)
        self.records[message_id] = record
        if session_id is not None:
            self.sessions.setdefault(session_id, []).append(message_id)

    def accepted(self, message_id: str, now: Millis = NEVER) -> None:
        record = self.records[message_id]
        record.accepted_at = min(record.accepted_at, now)
        # It can have been handed over and completed before its sender reads the answer.
        if record.fate is Fate.PENDING:
            record.fate = Fate.ACCEPTED

    def accepted_again(self, message_id: str) -> None:
        """A message that was sent before: whatever became of the first send, it is there now unless it was taken."""
        record = self.records[message_id]
        if record.fate is Fate.UNKNOWN and not record.numbers:
            record.fate = Fate.ACCEPTED
            if record.session_id is not None:
                # Its place in the session may be that of either send.
                self.sessions[record.session_id].remove(message_id)
                record.session_id = None

    def refused(self, message_id: str) -> None:
        if self.records[message_id].fate is Fate.PENDING:
            self.records[message_id].fate = Fate.UNKNOWN

    def refused_as_full(self, message_ids: Sequence[str], *, has_room: bool) -> None:
        """`has_room`: whether a fragment has room for certain for all of these, which were sent together."""
        is_pinned = any(self.records[name].is_pinned for name in message_ids)
        assert is_pinned or not has_room, f"{message_ids[0]} was refused though a fragment has room"

    def delivered(self, message_id: str, number: int, now: Millis = 0) -> None:
        assert message_id in self.records, f"{message_id} was never sent"
        assert number not in self.completed_numbers, f"{message_id}, number {number}, was completed and came again"
        for bundle in self.bundles:
            if number in bundle.completed:
                bundle.came_again.add(number)
        record = self.records[message_id]
        record.numbers.add(number)
        assert len(record.numbers) == 1 or not self.detects_duplicates, f"{message_id} came under two numbers"
        if self.limits_copies:
            assert len(record.numbers) <= record.copies_max, f"{message_id} came under {len(record.numbers)} numbers"
        if now:
            assert now >= record.due_at, f"{message_id} came before its time"
            assert not record.must_have_ended(now), f"{message_id} came after its end"

    def delivered_in_session(self, message_id: str, excused: set[str], now: Millis = 0) -> None:
        """`excused`: earlier messages that need not come first, because the receiver holds them or set them aside."""
        session_id = self.records[message_id].session_id
        assert session_id is not None
        for earlier in self.sessions.get(session_id, ()):
            if earlier == message_id:
                return
            record = self.records[earlier]
            is_due = record.fate is Fate.ACCEPTED and not record.may_have_ended(now)
            assert not is_due or earlier in excused, f"{message_id} overtook {earlier} in {session_id}"

    def completed(self, message_id: str, number: int) -> None:
        record = self.records[message_id]
        record.completed_count += number not in self.completed_numbers
        self.completed_numbers.add(number)
        record.fate = Fate.COMPLETED

    def completion_failed(self, message_id: str) -> None:
        if self.records[message_id].fate is not Fate.COMPLETED:
            self.records[message_id].fate = Fate.UNKNOWN

    def committed_together(self, sent: Sequence[str], completed: Iterable[int]) -> None:
        """The commit of a transaction was asked for: names of what it sends, numbers of what it completes. However it is answered,
        and whether or not the process lives to answer it, all of it happens or nothing."""
        self.bundles.append(_Bundle(list(sent), frozenset(completed)))

    def check_together(self, seen: Collection[str], left: Collection[int]) -> None:
        """At rest. `seen`: whatever was handed over or is there, in all entities; `left`: numbers in the queue that messages
        were completed in."""
        for bundle in self.bundles:
            happened = [name in seen for name in bundle.sent]
            assert all(happened) or not any(happened), f"a part of a transaction happened: {bundle.sent}"
            if any(happened):
                both = bundle.came_again | bundle.completed.intersection(left)
                assert not both, f"{bundle.sent} were sent, and {sorted(both)} not completed"

    def deletes_in_session(self, session_id: str) -> None:
        """Messages of this session that were sent before may be gone from now on; all others must stay."""
        for name in self.sessions.get(session_id, ()):
            record = self.records[name]
            if record.fate in (Fate.PENDING, Fate.ACCEPTED):
                record.fate = Fate.UNKNOWN

    def check_rest(self, message_ids: Iterable[str], now: Millis = 0) -> None:
        """Check what is left when everything has healed: all that must be there, and nothing that must not."""
        left = Counter(message_ids)
        must = {
            name
            for name, record in self.records.items()
            if record.fate is Fate.ACCEPTED and not record.may_have_ended(now)
        }
        assert must <= left.keys(), f"lost: {sorted(must - left.keys())[:5]}"
        for name, count in left.items():
            record = self.records[name]
            if self.limits_copies:
                copies = count + record.completed_count
                assert copies <= record.copies_max, f"there were {copies} copies of {name}"
            if record.is_pinned or self.detects_duplicates:
                assert count == 1, f"{name} is there {count} times"
                assert record.fate is not Fate.COMPLETED, f"{name} was completed and is still there"

    def held(self, by_owner: Mapping[int, Collection[Hashable]]) -> None:
        """What is locked at each node at this moment: lock tokens, message sessions."""
        owners: dict[Hashable, int] = {}
        for owner, held in by_owner.items():
            for each in held:
                assert owners.setdefault(each, owner) == owner, f"{each!r} is held at {owners[each]} and {owner}"

    def fenced(self, store: int, epoch: int) -> None:
        """From now on the store has another owner."""
        assert epoch > self.epochs.get(store, 0)
        self.epochs[store] = epoch

    def wrote(self, store: int, epoch: int) -> None:
        """The store took a commit of its owner in this epoch."""
        now = self.epochs.get(store, 0)
        assert epoch == now, f"store {store} took a commit of epoch {epoch} in epoch {now}"

    def answer_lost(self, message_id: str) -> None:
        """A store failed while it did something with this message, and may have done it: a repeat is allowed."""
        self.records[message_id].may_repeat = True

    def check_ledger(self, ledger: Ledger, *, may_repeat: bool = False) -> None:
        """accepted = delivered + waiting + dead-lettered, and nothing that was never sent is anywhere.

        An extra copy of a message is allowed if an answer was lost, or for all messages with `may_repeat`; but where
        duplicates are detected, none is delivered twice.
        """
        delivered = Counter(ledger.delivered)
        copies = delivered + Counter(ledger.waiting) + Counter(ledger.dead_lettered)
        accepted = {name for name, record in self.records.items() if record.fate is Fate.ACCEPTED}
        lost, unknown = accepted - copies.keys(), copies.keys() - self.records.keys()
        assert not lost, f"lost: {sorted(lost)[:5]}"
        assert not unknown, f"never sent: {sorted(unknown)[:5]}"
        if self.detects_duplicates:
            repeated = [name for name, count in delivered.items() if count > 1]
        else:
            excused = {name for name, record in self.records.items() if may_repeat or record.may_repeat}
            repeated = [name for name, count in copies.items() if count > 1 and name not in excused]
        assert not repeated, f"repeated: {sorted(repeated)[:5]}"
