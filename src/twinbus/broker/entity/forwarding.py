"""Messages of one queue that are forwarded to another entity (contract A11).

    ready --take, lock for good--> sent to the target --durable there--> completed here
                                      |  missing, disabled, full,
                                      |  too large for it            --> transfer dead-letter queue
                                      |  the fifth hop               --> dead-letter queue
                                      '  cannot be reached now       --> free again after a pause, before which
                                         nothing else of the fragment is sent on

The message leaves here only when the target has it, so a crash in between forwards it twice: at least once. One run
of each fragment is under way at a time, which keeps their order: a second one could be written before the first where
the target is partitioned or slow.

A run ends when each of its messages has an end, and every path there leads through `_close` once: settled, moved, or
failed because the store of this fragment is lost. A path that missed it would leave the fragment busy for ever, and
one that went through it twice would start the next run beside this one. A fragment that is loaded again while a run of
before is still out has other locks, so that what the run settles is lost, and counts as ended.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.metering import meter_forwards
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import DeadLetterNote, Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import take
from twinbus.broker.fragment.settlement import settle_each
from twinbus.broker.outcomes import COMPLETE, RELEASE
from twinbus.broker.replies import SendReply
from twinbus.clock import NEVER, Millis
from twinbus.errors import EntityNotFound, MessageTooLarge, MessagingError
from twinbus.model import wire_names
from twinbus.model.content import with_annotations
from twinbus.model.dead_letter_reasons import HOP_COUNT_EXCEEDED, hop_count_text
from twinbus.model.hops import HOPS_MAX, hops_of, with_hops, without_hops
from twinbus.model.message import Message, read_content, sent_size
from twinbus.model.message_limits import HEADER_SIZE_MAX
from twinbus.store.changes import StoredMessage, SubQueue

RUN_MAX = 64
RETRY_PAUSE: Millis = 1_000


class Target(Protocol):
    """A queue or topic."""

    @property
    def settings(self) -> EntitySettings: ...

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None: ...


Find = Callable[[str], Target | None]


class Forwarder:
    """The way out of one sub-queue. Where it leads is looked up for every run, since descriptions change."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def pump(self, fragment: Fragment, now: Millis) -> None:
        """Send on what is ready, if the queue forwards and gives messages, and the last run has ended."""
        path = fragment.forwards_to
        if path is None or not may_begin(self, fragment) or not fragment.settings.can_receive:
            return
        messages = take(fragment, fragment.lane, RUN_MAX, now)
        if not messages:
            return
        deliveries = fragment.locks.lock(messages, NEVER)
        ForwardingRun(self, fragment, deliveries, now).send(self._find(path), path)

    def run_ended(self, fragment: Fragment, now: Millis) -> None:
        if fragment.is_available:
            self.pump(fragment, now)


class RunOwner(Protocol):
    def run_ended(self, fragment: Fragment, now: Millis) -> None:
        """The next one may begin."""
        ...


def may_begin(owner: RunOwner, fragment: Fragment) -> bool:
    """Whether the last run has ended, and there is time for another one. The owner is told when a closed gate opens."""
    broker = fragment.broker
    if not broker.may_forward or fragment.key in broker.forwarding:
        return False
    if not broker.forwarding_gate.is_open:
        broker.forwarding_gate.when_open(fragment.key, partial(owner.run_ended, fragment))
        return False
    return True


class ForwardingRun:
    """Messages of one fragment on their way to the target; takes the target's answers. Under way from when it is made."""

    def __init__(self, owner: RunOwner, fragment: Fragment, deliveries: list[TakenMessage], now: Millis) -> None:
        self._owner = owner
        self._fragment = fragment
        self._deliveries = deliveries
        self._now = now
        self._open_count = len(deliveries)
        self._sent: list[TakenMessage] = []
        self._messages: list[Message] = []  # as they were sent on
        self._waiting: list[bytes] = []
        fragment.broker.forwarding.add(fragment.key)

    def send(self, target: Target | None, path: str) -> None:
        tired = [
            delivery for delivery in self._deliveries if hops_of(delivery.message.enqueued_sequence_number) >= HOPS_MAX
        ]
        self._sent = [delivery for delivery in self._deliveries if delivery not in tired]
        self._set_aside_tired(tired)
        if target is None:
            for place in range(len(self._sent)):
                self.refused(place, EntityNotFound.at(path), self._now)
            return
        self._set_aside_large(target.settings)
        if self._sent:
            self._messages = [self._outgoing(delivery.message) for delivery in self._sent]
            origins = [_next_origin(delivery.message) for delivery in self._sent]
            target.send_each(self._messages, self._now, self, origins)

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        numbers_here = [self._sent[index].message.sequence_number for index in indexes]
        meter_forwards(self._fragment, [self._messages[index] for index in indexes], numbers_here, now)
        tokens = [self._sent[index].lock_token for index in indexes]
        settle_each(self._fragment, tokens, range(len(tokens)), COMPLETE, now, self)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        delivery = self._sent[index]
        if error.is_transient:
            self._wait(delivery, now)
        else:
            self._refuse(delivery, error, now)

    # Answers to settling here. A lock that is gone means that the store was lost: the message will come again.

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        self._close(len(indexes), now)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        self._close(1, now)

    def _set_aside_tired(self, tired: Sequence[TakenMessage]) -> None:
        text = hop_count_text(HOPS_MAX)
        for delivery in tired:
            target = self._fragment.dead_letters or self._fragment.transfer_dead_letters
            self._move(delivery, target, HOP_COUNT_EXCEEDED, text, self._now)

    def _set_aside_large(self, target: EntitySettings) -> None:
        """What the broker writes on messages on their way, such as why they are dead letters or where they are to go, does
        not make them too large: neither for a target that takes what this entity takes, nor for the one they were sent to."""
        size_max, here = target.message_size_max, self._fragment
        is_known_to_fit = here.settings.message_size_max <= size_max or here.sub_queue is SubQueue.TRANSFER
        allowance = HEADER_SIZE_MAX if is_known_to_fit else 0
        large = [each for each in self._sent if sent_size(each.message.content) > size_max + allowance]
        if large:
            self._sent = [each for each in self._sent if each not in large]
        for delivery in large:
            error = MessageTooLarge.at(target.path, sent_size(delivery.message.content), size_max)
            self._refuse(delivery, error, self._now)

    def _refuse(self, delivery: TakenMessage, error: MessagingError, now: Millis) -> None:
        self._move(delivery, self._fragment.transfer_dead_letters, type(error).__name__, str(error), now)

    def _move(
        self, delivery: TakenMessage, target: Fragment | None, reason: str, description: str, now: Millis
    ) -> None:
        assert target is not None, "whatever forwards has a transfer dead-letter queue"
        if not self._fragment.locks.drop([delivery.lock_token]):
            self._close(1, now)
            return
        decision = Decision(self._fragment)
        decision.move(delivery.message, target, DeadLetterNote(reason, description))
        decision.commit(partial(self._close, 1), lambda _, later: self._close(1, later))

    def _wait(self, delivery: TakenMessage, now: Millis) -> None:
        """All that wait are released together, or the first to be free would overtake those before it."""
        if not self._waiting:
            self._fragment.broker.wakeups.at(now + RETRY_PAUSE, self._release)
        self._waiting.append(delivery.lock_token)

    def _release(self, now: Millis) -> None:
        # Others of the run may be refused after this, and then wait again.
        waiting, self._waiting = self._waiting, []
        settle_each(self._fragment, waiting, range(len(waiting)), RELEASE, now, self)

    def _outgoing(self, message: StoredMessage) -> Message:
        content = message.content
        if self._fragment.sub_queue is SubQueue.DEAD_LETTER:
            # In lower case, as the service shows it: applications compare it with names that they know in that form.
            content = with_annotations(content, {wire_names.DEAD_LETTER_SOURCE: self._fragment.settings.path.lower()})
        elif self._fragment.sub_queue is SubQueue.TRANSFER:
            content = with_annotations(content, {wire_names.TRANSFER_DESTINATION: None})
        return read_content(content)

    def _close(self, count: int, now: Millis) -> None:
        self._open_count -= count
        if self._open_count == 0:
            self._fragment.broker.forwarding.discard(self._fragment.key)
            self._owner.run_ended(self._fragment, now)


def _next_origin(message: StoredMessage) -> int:
    number = without_hops(message.enqueued_sequence_number) or message.sequence_number
    return with_hops(number, hops_of(message.enqueued_sequence_number) + 1)
