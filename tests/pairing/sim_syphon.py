"""Backlog queues and syphons of the simulated world: a pump that is moved pass by pass, or request by request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinbus.clock import Millis
from twinbus.errors import MessageLockLost
from twinbus.model.paths import path_key
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.stock.failures import classify
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.pump import Pass, Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import (
    Abandon,
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    GiveBackLeft,
    LookInto,
    Receive,
    Request,
    SendAll,
    Taken,
    Transfer,
    Wait,
)

if TYPE_CHECKING:
    from tests.pairing.world import World

LOCK: Millis = 60_000
SEND_TIMEOUT_S = 30.0


@dataclass(eq=False)
class Waiting:
    number: int
    transfer: Transfer
    enqueued_at: Millis
    locked_until: Millis = 0
    lock_count: int = 0

    @property
    def token(self) -> bytes:
        return self.lock_count.to_bytes(4)


@dataclass
class BacklogQueue:
    """Each may be in a messaging store of its own, which may be down."""

    is_full: bool = False
    is_down: bool = False
    waiting: list[Waiting] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    last_number: int = 0

    def add(self, transfer: Transfer, now: Millis) -> None:
        self.last_number += 1
        self.waiting.append(Waiting(self.last_number, transfer, now))

    def lock(self, count_max: int, now: Millis) -> list[Taken]:
        free = [each for each in self.waiting if each.locked_until <= now][:count_max]
        for each in free:
            each.locked_until = now + LOCK
            each.lock_count += 1
        return [
            Taken((each, each.lock_count), each.number, each.locked_until, each.transfer, each.enqueued_at, each.token)
            for each in free
        ]

    def unlock(self, tokens: Mapping[int, bytes], now: Millis) -> None:
        """All of them, or none."""
        locked = {each.number: each for each in self.waiting if each.locked_until > now}
        if any(number not in locked or locked[number].token != token for number, token in tokens.items()):
            raise MessageLockLost("the lock has ended")
        for number in tokens:
            locked[number].locked_until = 0

    def look(self, index: int, survey: Survey, count_max: int) -> None:
        if len(self.waiting) > count_max:
            survey.unseen_from[index] = self.waiting[count_max - 1].enqueued_at
        for each in self.waiting[:count_max]:
            stage = each.transfer.stage.number if each.transfer.stage else 0
            path, session_id = path_key(each.transfer.path), each.transfer.session_id
            survey.add(index, path, session_id, each.number, stage, each.enqueued_at)

    def held(self, taken: Taken, now: Millis) -> Waiting | None:
        """The message, if the lock that it was taken with still holds."""
        assert isinstance(taken.handle, tuple)
        waiting, lock_count = taken.handle
        assert isinstance(waiting, Waiting)
        return waiting if waiting.lock_count == lock_count and waiting.locked_until > now else None


class SimSyphon:
    """One pump of a syphon process. `step` does one request, so that others act in between and a crash hits anywhere."""

    def __init__(self, world: "World", queue: str) -> None:
        self.world = world
        self.queue = world.queues[queue]
        self._path = queue
        self._start()

    def _start(self) -> None:
        self.pump = Pump(self._path, classify, RateCap(None), self.world.clock, self.world.events.append)
        self._steps = self.pump.run()
        self._request = next(self._steps)
        self._idle_until: Millis = 0
        self.under_way: set[str] = set()
        """Sent to its destination, and the backlog queue has not been told yet."""

    def do_pass(self) -> Pass:
        """A whole pass at once. For tests that do not use `step`."""
        return run(self.pump.do_pass(0), self.perform)

    def step(self) -> None:
        if self.world.clock.at < self._idle_until:
            return
        try:
            answer = self.perform(self._request)
        except Exception as error:
            self._request = self._steps.throw(error)
        else:
            self._request = self._steps.send(answer)
        if isinstance(self._request, Wait):
            self._idle_until = self.world.clock.at + self._request.duration

    def crash(self) -> None:
        """The process dies and another takes its place. What was sent and not completed comes again."""
        for each in self.under_way:
            self.world.auditor.answer_lost(each)
        self._steps.close()
        self._start()

    def perform(self, request: Request) -> Answer:
        secondary = self.world.secondary
        if isinstance(request, SendAll):
            return [self._send(chunk) for chunk in request.chunks]
        if isinstance(request, LookInto):
            secondary.reach(SEND_TIMEOUT_S)
            other, survey = self.world.queues[request.queue], Survey(0)
            _check_up(other)
            other.look(0, survey, self.world.surveyed_max)
            return survey
        if isinstance(request, Receive):
            secondary.reach(SEND_TIMEOUT_S)
            _check_up(self.queue)
            return self._receive(request.count_max)
        if isinstance(request, Complete | DeadLetter | Abandon):
            self._settle(request)
        if isinstance(request, GiveBackLeft):
            secondary.reach(SEND_TIMEOUT_S)
            _check_up(self.queue)
            self.queue.unlock(request.tokens, self.world.clock.at)
            if secondary.loses_reply():
                raise ConnectionError("reply lost")
        return None

    def _receive(self, count_max: int) -> list[Taken]:
        assert not self.under_way, "a pass sent messages and settled them not"
        taken = self.queue.lock(count_max, self.world.clock.at)
        for each in taken:
            # Another syphon was slower than its lock.
            if any(_id(each) in syphon.under_way for syphon in self.world.syphons):
                self.world.auditor.answer_lost(_id(each))
        return taken

    def _settle(self, request: Complete | DeadLetter | Abandon) -> None:
        secondary, now = self.world.secondary, self.world.clock.at
        taken = [request.taken] if isinstance(request, DeadLetter) else request.taken
        try:
            secondary.reach(SEND_TIMEOUT_S)
            _check_up(self.queue)
        except Exception:
            self._come_again(taken)
            raise
        held = [each for each in taken if self.queue.held(each, now) is not None]
        for each in held:
            self._settle_one(request, each)
        self.under_way -= {_id(each) for each in held}
        if len(held) < len(taken):
            self._come_again([each for each in taken if each not in held])
            raise MessageLockLost("the lock has ended")
        if secondary.loses_reply():
            raise ConnectionError("reply lost")

    def _settle_one(self, request: Complete | DeadLetter | Abandon, taken: Taken) -> None:
        waiting = self.queue.held(taken, self.world.clock.at)
        assert waiting is not None
        if isinstance(request, Abandon):
            waiting.locked_until = 0
            return
        self.queue.waiting.remove(waiting)
        if isinstance(request, DeadLetter):
            self.queue.dead.append(_id(taken))

    def _come_again(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            self.world.auditor.answer_lost(_id(each))
            self.under_way.discard(_id(each))

    def _send(self, chunk: Chunk) -> Exception | None:
        ids = [str(each.message) for each in chunk.transfers]
        # A syphon that was held up for longer than its locks sends what another may have taken meanwhile.
        late = [each for each in chunk.taken if self.queue.held(each, self.world.clock.at) is None]
        for each in late:
            self.world.auditor.answer_lost(_id(each))
        try:
            for transfer in chunk.transfers:
                self.world.entities[chunk.path].check_fragment(transfer.key)
            self.world.arrive(chunk.path, ids, SEND_TIMEOUT_S)
        except Exception as error:
            return error
        self.under_way.update(ids)
        return None


def _check_up(queue: BacklogQueue) -> None:
    if queue.is_down:
        raise ConnectionError("its messaging store is down")


def _id(taken: Taken) -> str:
    assert isinstance(taken.content, Transfer)
    return str(taken.content.message)
