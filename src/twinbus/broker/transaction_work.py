"""What a transaction is to do at its commit: remembered, checked again, and done as one commit of one messaging store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.fan_out import ReadyCopies
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.placement import Placement
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.settlement import (
    added_bytes,
    apply,
    check_live,
    check_size,
    needed_contents,
    session_lost,
)
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import Millis
from twinbus.model.message import Message
from twinbus.store.changes import SessionStateSet, StoredMessage
from twinbus.store.reads import Rows


class Settlement(NamedTuple):
    fragment: Fragment
    tokens: list[bytes]
    outcome: Outcome
    written_bytes: int  # again

    def messages(self) -> list[StoredMessage]:
        """Those that are still locked."""
        held = self.fragment.locks.held
        return [held[token][0] for token in self.tokens if token in held]


class SessionState(NamedTuple):
    queue: MessageQueue
    fragment: Fragment
    lock: SessionLock  # that allowed it
    state: bytes | None


class Cancellation(NamedTuple):
    """Of scheduled messages."""

    fragment: Fragment
    numbers: list[int]


@dataclass(slots=True)
class TransactionWork:
    """Everything concerns one fragment of one entity, and those of its sub-queues and subscriptions with the same index."""

    sends: dict[Placement, list[Message]] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    states: list[SessionState] = field(default_factory=list)
    cancellations: list[Cancellation] = field(default_factory=list)
    size_bytes: int = 0  # of the messages, states and properties that it holds in memory
    _copies: dict[Placement, ReadyCopies] = field(default_factory=dict)  # of what is sent

    def add_sends(self, placement: Placement, messages: Sequence[Message]) -> None:
        self.sends.setdefault(placement, []).extend(messages)
        self.size_bytes += sum([len(message.content) for message in messages])

    def add_state(self, state: SessionState) -> None:
        self.states.append(state)
        self.size_bytes += len(state.state or b"")

    def check_written_with(self, settlement: Settlement) -> None:
        """Raises MessageTooLarge if the commit would write too much again if this belonged to it."""
        written = [each for each in (*self.settlements, settlement) if each.written_bytes]
        count = sum([len(each.tokens) for each in written])
        error = check_size(count, sum([each.written_bytes for each in written]))
        if error is not None:
            raise error

    def add_settlement(self, settlement: Settlement) -> None:
        self.settlements.append(settlement)
        self.size_bytes += added_bytes(settlement.outcome)

    def unread_settlement(self) -> Settlement | None:
        """One whose messages have contents that were left to the store, and are needed at the commit."""
        for each in self.settlements:
            if needed_contents(each.fragment, each.messages(), each.outcome):
                return each
        return None

    @property
    def cancelled_numbers(self) -> list[int]:
        return [number for each in self.cancellations for number in each.numbers]

    def forget(self) -> None:
        for fragment, tokens, _, _ in self.settlements:
            fragment.locks.dismiss(tokens)

    def check_room(self, placement: Placement, index: int, messages: Sequence[Message] = ()) -> None:
        """Raises the reason if the fragment cannot take these and what is sent there already."""
        fragment = placement.fragments[index]
        refusal = fragment.refusal
        if refusal is not None:
            raise refusal
        placement.check_room(fragment, [*self._sent_to(placement), *messages])

    def _sent_to(self, placement: Placement) -> list[Message]:
        """What goes into the same sub-queue: ways to several destinations share that of the entity they go via."""
        return [
            message
            for other, messages in self.sends.items()
            if other.fragments is placement.fragments
            for message in messages
        ]

    def waits_for(self, index: int) -> Placement | None:
        """In whose line the commit has to wait for its turn, if it would overtake something there or needs steps itself."""
        for placement, messages in self.sends.items():
            if placement.is_busy(index) or _takes_steps(placement, messages):
                return placement
        return None

    def copy_in_steps(self, index: int, now: Millis) -> LongSteps:
        """What would take too long at the commit: a topic's copies. Its line is waited in meanwhile. Raises what `check` does."""
        self.check(index, now)
        for placement, messages in self.sends.items():
            if _takes_steps(placement, messages):
                decision = Decision(placement.fragments[index])
                self._copies[placement] = yield from placement.copy_in_steps(decision, messages, now)

    def check(self, index: int, now: Millis) -> None:
        """What was good when it was asked for may be so no longer."""
        for fragment, tokens, _, _ in self.settlements:
            lost = check_live(fragment, tokens, now)
            if lost is not None:
                raise lost
        for each in self.states:
            if each.queue.sessions().check_held(each.lock.session_id, now) is not each.lock:
                # Somebody else holds the session by now.
                raise session_lost()
        for placement in self.sends:
            placement.check_open()
            self.check_room(placement, index)
        for copies in self._copies.values():
            copies.check()

    def carry_out(self, index: int, cancelled: Rows, now: Millis, reply: Reply[None]) -> None:
        """As one commit; nothing of it can be refused any more. `cancelled`: the rows that the cancellations name."""
        parts = [placement.fragments[index] for placement in self.sends]
        parts += [each.fragment for each in self.settlements] + [each.fragment for each in self.states]
        parts += [each.fragment for each in self.cancellations]
        with parts[0].broker.joined(lambda _: reply(None), lambda error, _: reply(error)):
            for placement, messages in self.sends.items():
                copies = self._copies.get(placement)
                decision = Decision(placement.fragments[index]) if copies is None else copies.decision
                if copies is None:
                    placement.stage(decision, messages, now, None)
                else:
                    copies.decide()
                decision.commit()
            for fragment, tokens, outcome, _ in self.settlements:
                apply(fragment, fragment.locks.drop(tokens), outcome, now, None)
            for _, fragment, lock, state in self.states:
                decision = Decision(fragment)
                decision.write(SessionStateSet(fragment.key, lock.session_id, state, now))
                decision.commit()
            if cancelled:
                decision = Decision(self.cancellations[0].fragment)
                decision.remove(cancelled)
                decision.commit()


def _takes_steps(placement: Placement, messages: Sequence[Message]) -> bool:
    return placement.takes_steps and placement.is_long(len(messages))
