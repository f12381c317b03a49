"""Moving dead letters, as one Spark task does it: numbers of messages in, what became of each of them out.

    receive -> chosen? --yes--> copy -> send -> acknowledged -> complete
                      '--no---> stays locked until the end, then abandoned

A message can be received by its number only if it is deferred, so all are received and the chosen ones are picked out.
One whose copy was acknowledged but which could not be removed is remembered: the next round removes it and does not
send it again. A crash in between sends it again, with the same id as before; a destination that detects duplicates drops
that second copy. It must not drop the first: there copies have ids of their own (`is_renaming`), or the message would be
acknowledged, dropped because of its original, and removed.

When nothing more comes, what was chosen may be gone, or locked: by somebody else, or by a round that lost its
connection. So it is looked for before it is given up.

A task that Spark repeats does not know what the attempt before it did: that one is lost with its report. It moves what it
finds, and says that it was repeated.
"""

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from twinbus.amqp.codec.types import Long
from twinbus.amqp.errors import DecodeError
from twinbus.client.entity_node import EntityNode
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.clock import NEVER, Clock, Millis
from twinbus.errors import MessagingError, NotAllowed, OperationTimeout
from twinbus.model import wire_names
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.replay.copies import copy_of
from twinbus.pipeline.sink.send_rate import SendRate
from twinbus.pipeline.source.access.entity_access import ALL_STATES, Wanted, enqueued_at
from twinbus.pipeline.source.access.plain_access import PlainAccess
from twinbus.pipeline.source.ranges import Range, RangeSet, by_fragment, count, runs

PAGE_COUNT = 500
HELD_MAX = 20_000
"""Messages that stay and wait to be abandoned; more are left to their locks, which end by themselves."""
ABANDON_COUNT = 500
WAIT_S = 1.0
"""A dead-letter queue that delivers nothing for this long is taken to be empty."""


class StillLocked(MessagingError):
    """Messages that are there and do not come, since somebody holds them."""

    is_transient = True


@dataclass(frozen=True, slots=True)
class MovePlan:
    """`sent` are those whose copies were acknowledged before; they are only removed. Both do not overlap.

    `is_renaming`: copies get ids of their own. It has to be true where the destination detects duplicates.
    """

    connection: ConnectionOptions
    path: str
    destination: str
    chosen: Sequence[Range]
    sent: Sequence[Range] = ()
    is_renaming: bool = False
    newest: Millis = NEVER
    """When the last one of them was enqueued. What is younger and has one of their numbers is a message of an entity that was
    deleted and created again meanwhile."""
    rate: float | None = None
    budget_s: float = 30.0
    stop_file: str | None = None
    """The task ends early when this file appears; see `stop_request`."""


@dataclass(slots=True)
class MoveReport:
    """Sequence numbers by what became of them. `sent`: the copy is there, and the original as well."""

    path: str
    moved: list[Range] = field(default_factory=list)
    sent: list[Range] = field(default_factory=list)
    refused: list[Range] = field(default_factory=list)
    error: str | None = None
    is_transient: bool = False
    is_drained: bool = False
    is_repeated: bool = False
    """Another attempt at this task may have moved messages, and nobody got its report."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "MoveReport":
        fields = json.loads(text)
        for name in ("moved", "sent", "refused"):
            fields[name] = [(first, end) for first, end in fields[name]]
        return cls(**fields)


def run_move(plan: MovePlan, clock: Clock, attempt: int = 0) -> MoveReport:
    """Never raises for what the namespaces do: that is in the report, beside what was moved before it. `attempt` counts from 0."""
    return asyncio.run(_move(plan, clock, attempt))


async def _move(plan: MovePlan, clock: Clock, attempt: int) -> MoveReport:
    report = MoveReport(plan.path, sent=list(plan.sent), is_repeated=attempt > 0)
    timeout_s = plan.connection.operation_timeout_s
    mover: _Mover | None = None
    try:
        async with await plan.connection.connect() as namespace:
            mover = await _Mover.open(plan, namespace, clock)
            report.is_drained = await mover.run()
    except MessagingError as failure:
        report.error, report.is_transient = str(failure), failure.is_transient
    except TimeoutError:
        report.error, report.is_transient = f"'{plan.destination}' did not answer within {timeout_s:g} s.", True
    if mover is not None:
        report.moved, report.sent, report.refused = runs(mover.moved), runs(mover.sent), runs(mover.refused)
        report.error = report.error or mover.refusal
    return report


class _Mover:
    def __init__(
        self, plan: MovePlan, access: PlainAccess, node: EntityNode, receiver: Receiver, sender: Sender, clock: Clock
    ) -> None:
        self._plan = plan
        self._access = access
        self._node = node
        self._receiver = receiver
        self._sender = sender
        self._clock = clock
        self._chosen = RangeSet(plan.chosen)
        self._left = count(plan.chosen) + count(plan.sent)
        self._pace = None if plan.rate is None else SendRate(plan.rate)
        self._held: deque[ReceivedMessage] = deque(maxlen=HELD_MAX)
        self._sends_batches = True
        self.moved: set[int] = set()
        self.sent = numbers_in(plan.sent)
        self.refused: set[int] = set()
        self.refusal: str | None = None

    @classmethod
    async def open(cls, plan: MovePlan, namespace: Namespace, clock: Clock) -> "_Mover":
        receiver = await namespace.receiver(plan.path, credit=2 * PAGE_COUNT)
        sender = await namespace.sender(plan.destination)
        access = PlainAccess(namespace, plan.path)
        return cls(plan, access, namespace.entity(plan.path), receiver, sender, clock)

    async def run(self) -> bool:
        """Until all is done, the time is over or the job is to stop; true where nothing more came."""
        deadline = time.monotonic() + self._plan.budget_s
        try:
            while self._left > 0 and not self._is_over(deadline):
                page = await self._receiver.receive(PAGE_COUNT, WAIT_S)
                if not page:
                    await self._require_gone()
                    return True
                await self._take(page, deadline)
            return False
        finally:
            await self._give_back()

    def _is_over(self, deadline: float) -> bool:
        stop_file = self._plan.stop_file
        return time.monotonic() >= deadline or (stop_file is not None and os.path.exists(stop_file))

    async def _require_gone(self) -> None:
        """Raises StillLocked where one of those that did not come is there."""
        left = (numbers_in(self._plan.chosen) | self.sent) - self.moved - self.refused
        for ranges in by_fragment(runs(left)).values():
            following: int | None = ranges[0][0]
            while following is not None:
                page = await self._access.page(Wanted(following, ranges[-1][1], PAGE_COUNT, ALL_STATES))
                if any(message.sequence_number in left and not self._is_later(message) for message in page.messages()):
                    raise StillLocked(
                        f"Selected messages of '{self._plan.path}' are locked by other receivers: they are moved when the locks end."
                    )
                following = page.next_number

    async def _take(self, page: Sequence[ReceivedMessage], deadline: float) -> None:
        chosen: deque[tuple[ReceivedMessage, bytes]] = deque()
        done: list[ReceivedMessage] = []
        for message in page:
            number = message.sequence_number or 0
            if self._is_later(message):
                self._hold(message)
            elif number in self.sent:
                done.append(message)
            elif number in self._chosen and number not in self.refused:
                copy = self._copy(message)
                if copy is not None:
                    chosen.append((message, copy))
            else:
                self._hold(message)
        await self._remove(done)
        await self._move(chosen, deadline)

    def _is_later(self, message: ReceivedMessage) -> bool:
        return enqueued_at(message) > self._plan.newest

    async def _move(self, chosen: deque[tuple[ReceivedMessage, bytes]], deadline: float) -> None:
        """As many together as the rate allows; those whose turn does not come in time stay."""
        together = PAGE_COUNT if self._pace is None else self._pace.count_max
        try:
            while chosen and not self._is_over(deadline):
                piece = [chosen.popleft() for _ in range(min(together, len(chosen)))]
                await self._remove(await self._send(piece))
        finally:
            for message, _ in chosen:
                self._hold(message)

    def _copy(self, message: ReceivedMessage) -> bytes | None:
        try:
            return copy_of(message.payload, self._clock.now(), self._plan.path if self._plan.is_renaming else None)
        except DecodeError as wrong:
            self._refuse(message, f"It cannot be read: {wrong}")
            return None

    async def _send(self, chosen: Sequence[tuple[ReceivedMessage, bytes]]) -> list[ReceivedMessage]:
        """Those that are acknowledged. Raises what may pass, once the others are settled."""
        if self._pace is not None:
            await asyncio.sleep(self._pace.wait_s(len(chosen), time.monotonic()))
        async with asyncio.timeout(self._plan.connection.operation_timeout_s):
            outcomes = await self._outcomes([copy for _, copy in chosen])
        acknowledged: list[ReceivedMessage] = []
        passing: MessagingError | None = None
        for (message, _), outcome in zip(chosen, outcomes, strict=True):
            if outcome is None:
                acknowledged.append(message)
                self.sent.add(message.sequence_number or 0)
            elif outcome.is_transient:
                self._hold(message)
                passing = outcome
            else:
                self._refuse(message, str(outcome))
        if passing is not None:
            await self._remove(acknowledged)
            raise passing
        return acknowledged

    async def _outcomes(self, copies: Sequence[bytes]) -> list[MessagingError | None]:
        if not self._sends_batches:
            return await self._sender.send(copies)
        outcomes = await self._sender.send_batches(copies)
        again = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, NotAllowed)]
        if again and len(copies) > 1:
            # A partitioned entity that detects duplicates takes messages without a key one by one only.
            for place, outcome in zip(again, await self._sender.send([copies[each] for each in again]), strict=True):
                outcomes[place] = outcome
            self._sends_batches = any(outcomes[place] is not None for place in again)
        return outcomes

    async def _remove(self, done: Sequence[ReceivedMessage]) -> None:
        """What cannot be removed stays among those that are sent: its lock was lost, and it comes again."""
        if not done:
            return
        timeout_s = self._plan.connection.operation_timeout_s
        try:
            outcomes = await asyncio.wait_for(self._receiver.complete(done), timeout_s)
        except TimeoutError:
            raise OperationTimeout(f"'{self._plan.path}' did not answer within {timeout_s:g} s.") from None
        for message, outcome in zip(done, outcomes, strict=True):
            if outcome is None:
                number = message.sequence_number or 0
                self.moved.add(number)
                self.sent.discard(number)
                self._left -= 1

    def _refuse(self, message: ReceivedMessage, why: str) -> None:
        self.refused.add(message.sequence_number or 0)
        self.refusal = f"'{self._plan.destination}': {why}"
        self._left -= 1
        self._hold(message)

    def _hold(self, message: ReceivedMessage) -> None:
        """It does not count against the credit any more; its number and its lock are all that is kept of it."""
        number = Long(message.sequence_number or 0)
        stand_in = encode_message(annotations={wire_names.SEQUENCE_NUMBER: number})
        self._held.append(ReceivedMessage(stand_in, message.delivery_tag))
        self._receiver.forget([message])

    async def _give_back(self) -> None:
        held = list(self._held)
        with suppress(MessagingError):  # a lock that is lost already, or a namespace that is gone
            for start in range(0, len(held), ABANDON_COUNT):
                await self._node.abandon(held[start : start + ABANDON_COUNT])
            await self._receiver.close()


def numbers_in(ranges: Iterable[Range]) -> set[int]:
    return {number for first, end in ranges for number in range(first, end)}
