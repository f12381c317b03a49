"""What a pump decides, pass by pass, with a transport that is told what to answer."""

from collections.abc import Callable
from typing import Any

import pytest

from twinbus.amqp.codec.sections import Sections, encode_sections
from twinbus.amqp.codec.types import Symbol, Timestamp
from twinbus.clock import Millis
from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    NotAllowed,
    QuotaExceeded,
    ServerBusy,
    Unauthorized,
)
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rewriting.restore import NotATransfer
from twinbus.pairing.stock.failures import Classifier, FailureKind, classify
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.broker_clock import LATE_PASSES_MAX
from twinbus.pairing.syphon.pump import BATCH_MAX, Pass, PoisonQuota, PoisonQuotaUsedUp, Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import (
    Abandon,
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    Receive,
    Request,
    SendAll,
    Taken,
    Transfer,
    Wait,
    taken_of,
)
from twinbus.testing.sim_clock import SimClock

LOCK: Millis = 60_000


class Bench:
    """A pump on a bench: messages to take, and a say in how each chunk is answered."""

    def __init__(
        self,
        refuse: Callable[[Chunk], Exception | None] = lambda _: None,
        per_second: float | None = None,
        poison_max: int | None = None,
        classifier: Classifier = classify,
    ) -> None:
        self.clock = SimClock()
        self.events: list[PairingEvent] = []
        self.quota = PoisonQuota(poison_max)
        self.pump = Pump(
            "backlog", classifier, RateCap(per_second), self.clock, self.events.append, poison_quota=self.quota
        )
        self.refuse = refuse
        self.ready: list[Taken] = []
        self.requests: list[Request] = []

    def put(
        self, number: int, path: str = "orders", key: str | None = None, size: int = 100, lock: Millis = LOCK
    ) -> None:
        content = Transfer(path, number, size, key, None)
        self.ready.append(Taken(None, number, self.clock.now() + lock, content))

    def do_pass(self) -> Pass:
        return run(self.pump.do_pass(900), self.perform)

    def perform(self, request: Request) -> Answer:
        self.requests.append(request)
        if isinstance(request, Receive):
            taken, self.ready = self.ready, []
            return taken
        if isinstance(request, SendAll):
            return [self.refuse(chunk) for chunk in request.chunks]
        if isinstance(request, Wait):
            self.clock.advance(request.duration)
        return None

    def sent(self) -> list[tuple[str, list[object]]]:
        return [
            (chunk.path, [transfer.message for transfer in chunk.transfers])
            for request in self.requests
            if isinstance(request, SendAll)
            for chunk in request.chunks
        ]

    def completed(self) -> list[int]:
        return [
            each.sequence_number for request in self.requests if isinstance(request, Complete) for each in request.taken
        ]

    def dead(self) -> list[DeadLetter]:
        return [request for request in self.requests if isinstance(request, DeadLetter)]


@pytest.mark.rule("B8.2")
def test_a_pass_takes_up_to_a_hundred_and_waits_for_fifteen_minutes() -> None:
    bench = Bench()
    steps = bench.pump.run()
    assert next(steps) == Receive(100, 900)


@pytest.mark.rule("B8.2")
def test_a_pass_sends_by_destination_in_order_and_then_completes() -> None:
    bench = Bench()
    for number, path in ((3, "bills"), (1, "orders"), (4, "orders"), (2, "orders")):
        bench.put(number, path)
    assert bench.do_pass()
    assert bench.sent() == [("orders", [1, 2, 4]), ("bills", [3])]
    assert sorted(bench.completed()) == [1, 2, 3, 4]


def test_a_chunk_stays_below_the_size_of_a_batch() -> None:
    bench = Bench()
    for number in range(5):
        bench.put(number, size=100 * 1024)
    bench.do_pass()
    assert [numbers for _, numbers in bench.sent()] == [[0, 1], [2, 3], [4]]


def test_a_destination_that_wants_one_key_a_batch_is_learned() -> None:
    def refuse(chunk: Chunk) -> Exception | None:
        return NotAllowed("one key") if len({each.key for each in chunk.transfers}) > 1 else None

    bench = Bench(refuse)
    for number, key in enumerate("aabba"):
        bench.put(number, key=key)
    bench.do_pass()
    assert [numbers for _, numbers in bench.sent()] == [[0, 1, 2, 3, 4], [0, 1], [2, 3], [4]]
    assert bench.completed() == [0, 1, 2, 3, 4]
    bench.requests.clear()
    bench.put(5, key="a")
    bench.put(6, key="b")
    bench.do_pass()
    assert [numbers for _, numbers in bench.sent()] == [[5], [6]]


@pytest.mark.rule("B8.4")
def test_a_message_that_is_too_large_is_dead_lettered_and_the_others_go_on() -> None:
    def refuse(chunk: Chunk) -> Exception | None:
        return MessageTooLarge("too large") if any(each.message == 1 for each in chunk.transfers) else None

    bench = Bench(refuse)
    for number in range(3):
        bench.put(number)
    assert bench.do_pass()
    assert bench.completed() == [0, 2]
    (dead,) = bench.dead()
    assert (dead.taken.sequence_number, dead.reason) == (1, "TransferRefused")
    assert "orders" in dead.description
    assert "too large" in dead.description


@pytest.mark.rule("B8.4")
def test_messages_for_an_entity_that_is_gone_are_dead_lettered_with_destination_and_reason() -> None:
    bench = Bench(lambda chunk: EntityNotFound.at(chunk.path))
    bench.put(1, "gone")
    bench.do_pass()
    (dead,) = bench.dead()
    assert dead.reason == "TransferDestinationNotFound"
    assert "gone" in dead.description


@pytest.mark.rule("B8.5")
def test_a_message_without_a_destination_is_dead_lettered_with_its_reason() -> None:
    bench = Bench()
    bench.ready.append(Taken(None, 1, bench.clock.now() + LOCK, NotATransfer("no x-ms-path")))
    assert bench.do_pass()
    (dead,) = bench.dead()
    assert (dead.reason, dead.description) == ("TransferPropertiesInvalid", "no x-ms-path")


@pytest.mark.rule("B8.3")
@pytest.mark.parametrize(
    "error",
    [
        ServerBusy("busy"),
        QuotaExceeded("full"),
        ConnectionError("down"),
        EntityDisabled("off"),
        Unauthorized("no key"),
    ],
)
def test_messages_for_a_destination_that_is_down_full_or_closed_are_left(error: Exception) -> None:
    bench = Bench(lambda chunk: error if chunk.path == "orders" else None)
    bench.put(1)
    bench.put(2, "bills")
    assert bench.do_pass()
    assert bench.completed() == [2]
    assert not bench.dead()
    assert not any(isinstance(request, Abandon) for request in bench.requests)
    assert EventKind.SYPHON_SKIPPED in [event.kind for event in bench.events]


@pytest.mark.rule("B8.7")
def test_nothing_overtakes_a_message_that_was_left() -> None:
    answers: list[Exception | None] = [ServerBusy("busy")]
    bench = Bench(lambda _: answers.pop() if answers else None)
    bench.put(1)
    bench.do_pass()
    bench.clock.advance(10_000)
    bench.put(2)
    bench.do_pass()
    assert bench.completed() == []
    bench.clock.advance(LOCK)
    bench.put(1)
    bench.put(2)
    bench.do_pass()
    assert bench.completed() == [1, 2]


@pytest.mark.rule("B8")
def test_a_left_message_that_somebody_else_moved_holds_nothing_up() -> None:
    answers: list[Exception | None] = [ServerBusy("busy")]
    bench = Bench(lambda _: answers.pop() if answers else None)
    bench.put(1)
    bench.do_pass()
    bench.clock.advance(LOCK + 2_000)
    bench.put(2)
    bench.do_pass()
    assert bench.completed() == [2]


@pytest.mark.rule("B8")
def test_a_down_destination_is_tried_again_after_a_second_and_then_ever_more_seldom() -> None:
    bench = Bench(lambda _: ServerBusy("busy"))
    tried_at: list[Millis] = []
    for step in range(4 * 60):
        bench.put(1)
        before = len(bench.sent())
        bench.do_pass()
        if len(bench.sent()) > before:
            tried_at.append(step)
        bench.clock.advance(1_000)
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 127]


def test_a_pass_that_only_met_what_was_left_before_is_not_repeated_at_once() -> None:
    bench = Bench(lambda _: ServerBusy("busy"))
    bench.put(1)
    assert bench.do_pass()
    bench.put(1)
    assert not bench.do_pass()


def test_a_receive_that_fails_is_repeated_after_a_wait() -> None:
    bench = Bench()

    def fail(request: Request) -> Answer:
        raise ConnectionError("down")

    assert not run(bench.pump.do_pass(900), fail)


@pytest.mark.rule("B8")
def test_nothing_is_sent_shortly_before_its_lock_ends() -> None:
    bench = Bench()
    bench.put(1)
    bench.clock.advance(LOCK - 500)
    bench.do_pass()
    assert bench.sent() == []
    assert bench.completed() == []


@pytest.mark.rule("B8.8")
def test_the_rate_cap_makes_a_burst_wait_for_the_one_before() -> None:
    bench = Bench(per_second=10)
    started = bench.clock.now()
    for _ in range(3):
        for number in range(20):
            bench.put(number)
        bench.do_pass()
    assert bench.clock.now() - started == 4_000


@pytest.mark.rule("B8")
def test_a_stop_gives_back_what_was_taken_and_not_moved() -> None:
    bench = Bench()
    bench.put(1)
    bench.pump.is_stopping = True
    bench.do_pass()
    assert any(isinstance(request, Abandon) for request in bench.requests)
    assert bench.sent() == []


def test_a_pass_says_whether_it_was_useful_or_the_queue_empty() -> None:
    bench = Bench()
    bench.put(1)
    assert bench.do_pass() is Pass.USEFUL
    assert bench.do_pass() is Pass.EMPTY


@pytest.mark.parametrize("path", ["gone", None])
def test_poison_beyond_the_quota_is_left_and_holds_up_what_comes_after_it(path: str | None) -> None:
    bench = Bench(lambda chunk: EntityNotFound.at(chunk.path) if chunk.path == "gone" else None, poison_max=2)
    for number in range(5):
        if path is None:
            bench.ready.append(Taken(None, number, bench.clock.now() + LOCK, NotATransfer("no x-ms-path")))
        else:
            bench.put(number, path)
    bench.put(9, "orders")
    bench.do_pass()
    assert [each.taken.sequence_number for each in bench.dead()] == [0, 1]
    assert bench.completed() == [9]
    assert bench.quota.is_used_up
    assert sum(isinstance(event.error, PoisonQuotaUsedUp) for event in bench.events) == 3
    assert bench.pump.memory.left_count() == (0 if path is None else 3)


def test_a_quota_that_is_just_reached_is_not_used_up() -> None:
    bench = Bench(lambda chunk: EntityNotFound.at(chunk.path), poison_max=1)
    bench.put(1)
    bench.do_pass()
    assert len(bench.dead()) == 1
    assert not bench.quota.is_used_up


def test_a_pump_with_the_memory_of_another_lets_nothing_overtake_what_that_one_left() -> None:
    first = Bench(lambda _: ServerBusy("busy"))
    first.put(1)
    first.do_pass()
    second = Bench()
    second.clock.advance(10_000)
    second.pump.memory = first.pump.memory
    second.put(2)
    second.put(3, "bills")
    second.do_pass()
    assert second.completed() == [3]


@pytest.mark.rule("B4.4", "B8")
@pytest.mark.parametrize("answer", [RuntimeError("of the application"), None, True])
def test_a_classifier_that_fails_or_returns_something_else_leaves_the_messages_and_ends_no_pump(answer: Any) -> None:
    def classifier(_: BaseException) -> FailureKind:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    bench = Bench(lambda _: ServerBusy("busy"), classifier=classifier)
    bench.put(1)
    bench.do_pass()
    assert bench.completed() == []
    assert not bench.dead()
    assert bench.pump.memory.left_count() == 1


@pytest.mark.rule("B8")
def test_one_poisonous_message_does_not_make_a_destination_get_its_messages_one_by_one_for_ever() -> None:
    def refuse(chunk: Chunk) -> Exception | None:
        return MessageTooLarge("too large") if any(each.message == 1 for each in chunk.transfers) else None

    bench = Bench(refuse)
    for number in range(4):
        bench.put(number)
    bench.do_pass()
    assert [dead.taken.sequence_number for dead in bench.dead()] == [1]
    bench.requests.clear()
    for number in range(4, 8):
        bench.put(number)
    bench.do_pass()
    assert bench.sent() == [("orders", [4, 5, 6, 7])]


NOT_UTF8 = bytes.fromhex("c1 07 02 a1 01 ff a1 01 61")
"""A map with a name that is no text. A broker that leaves such sections as they are accepts it."""


@pytest.mark.parametrize(
    ("section", "number", "locked_until"),
    [("00 53 74", 7, LOCK), ("00 53 72", 0, 0)],
    ids=["properties", "annotations"],
)
def test_a_message_that_nobody_can_read_is_no_transfer(section: str, number: int, locked_until: Millis) -> None:
    """It goes to the dead letters. A receive that failed for it would fail again and again, with all messages beside it."""
    annotations = {Symbol("x-opt-sequence-number"): 7, Symbol("x-opt-locked-until"): Timestamp(LOCK)}
    delivered = encode_sections(Sections(message_annotations=annotations)) if number else b""
    taken = taken_of("handle", delivered + bytes.fromhex(section) + NOT_UTF8)
    assert isinstance(taken.content, NotATransfer)
    assert "UTF-8" in str(taken.content)
    assert (taken.handle, taken.sequence_number, taken.locked_until) == ("handle", number, locked_until)


class OtherClock(Bench):
    """One queue with locks of a minute, by a broker whose clock is ahead of the pump's, or behind it."""

    def __init__(self, ahead: Millis) -> None:
        super().__init__()
        self.ahead = ahead
        self.free_at = dict.fromkeys(range(250), self.clock.now())

    def perform(self, request: Request) -> Answer:
        now = self.clock.now()
        if isinstance(request, Receive):
            numbers = [number for number, at in self.free_at.items() if at <= now][: request.count_max]
            self.free_at |= dict.fromkeys(numbers, now + LOCK)
            if not numbers:
                self.clock.advance(LOCK)
            until = now + self.ahead + LOCK
            return [Taken(None, number, until, Transfer("orders", number, 9, None, None)) for number in numbers]
        for each in request.taken if isinstance(request, Complete) else ():
            del self.free_at[each.sequence_number]
        return super().perform(request)

    def bring_home(self) -> Millis:
        began_at, steps = self.clock.now(), self.pump.run()
        request = next(steps)
        while self.free_at and self.clock.now() < began_at + 3_600_000:
            request = steps.send(self.perform(request))
        return self.clock.now() - began_at


@pytest.mark.rule("B8")
@pytest.mark.parametrize("ahead_s", [-86_400, -600, -58, -30, -1, 0, 30, 600, 86_400])
def test_messages_go_home_although_the_clock_of_the_broker_is_another(ahead_s: int) -> None:
    bench = OtherClock(ahead_s * 1000)
    assert bench.bring_home() < 15 * 60_000
    assert bench.completed() == list(range(250))


@pytest.mark.rule("B8")
@pytest.mark.parametrize("ahead_s", [-600, 600])
def test_messages_go_home_after_the_clock_of_the_broker_was_set(ahead_s: int) -> None:
    bench = OtherClock(0)
    bench.bring_home()
    for ahead in (ahead_s * 1000, 0):
        bench.ahead = ahead
        bench.free_at = dict.fromkeys(range(1000, 1100), bench.clock.now())
        assert bench.bring_home() < 15 * 60_000


@pytest.mark.rule("B8")
def test_the_shortest_locks_are_no_sign_of_another_clock() -> None:
    """A message is a moment on its way, so that nothing is left of five seconds but a little less."""
    bench = Bench()
    for number in range(2 * LATE_PASSES_MAX):
        bench.put(number, lock=4_990)
        bench.do_pass()
    assert bench.completed() == [*range(2 * LATE_PASSES_MAX)]
    bench.requests.clear()
    bench.put(99, lock=4_990)
    bench.clock.advance(4_500)
    bench.do_pass()
    assert bench.sent() == []
    assert bench.pump.memory.lock_duration == 4_990


@pytest.mark.rule("B8")
def test_a_clock_that_was_misjudged_is_forgotten_with_the_locks_that_were_measured_by_it() -> None:
    bench = Bench()
    for number in range(LATE_PASSES_MAX):
        bench.put(number, lock=500)
        bench.do_pass()
    bench.put(99, lock=4_990)
    bench.do_pass()
    assert bench.pump.memory.lock_duration == 4_990


@pytest.mark.rule("B8")
def test_a_message_that_waited_here_until_its_lock_was_over_is_not_sent() -> None:
    """It comes again, and would be sent twice."""
    bench = Bench()
    bench.put(1)
    bench.clock.advance(LOCK)
    bench.do_pass()
    assert bench.sent() == []


@pytest.mark.parametrize("per_second", [1.0, 10.0])
def test_a_cap_below_a_page_for_each_lock_slows_the_syphon_down_and_does_not_stop_it(per_second: float) -> None:
    """A page that waits for its slots until its locks have ended has used them up for nothing."""
    clock, cap, count, pump_count = SimClock(), RateCap(per_second), 300, 10
    free_at = [dict.fromkeys(range(count), clock.now()) for _ in range(pump_count)]
    sent: list[Millis] = []
    pumps = [Pump(f"backlog/{index}", classify, cap, clock, lambda _: None) for index in range(pump_count)]
    due: list[tuple[Millis, int, Request]] = []
    steps = [pump.run() for pump in pumps]
    for index, each in enumerate(steps):
        due.append((clock.now(), index, next(each)))

    def answer(index: int, request: Request) -> Answer:
        waiting, now = free_at[index], clock.now()
        if isinstance(request, Receive):
            numbers = [number for number, at in waiting.items() if at <= now][: request.count_max]
            waiting.update(dict.fromkeys(numbers, now + LOCK))
            return [Taken(None, number, now + LOCK, Transfer("orders", number, 9, None, None)) for number in numbers]
        if isinstance(request, SendAll):
            sent.extend(now for chunk in request.chunks for _ in chunk.taken)
            return [None for _ in request.chunks]
        for each in request.taken if isinstance(request, Complete | Abandon) else ():
            del waiting[each.sequence_number]
            if isinstance(request, Abandon):
                waiting[each.sequence_number] = now
        return None

    began_at = clock.now()
    while any(free_at) and clock.now() < began_at + 4_000_000:
        due.sort(key=lambda each: each[:2])
        at, index, request = due.pop(0)
        clock.advance(max(0, at - clock.now()))
        request = steps[index].send(answer(index, request))
        wait = request.duration if isinstance(request, Wait) else 1_000 if isinstance(request, Receive) else 0
        due.append((clock.now() + wait, index, request))
    allowed = per_second * (clock.now() - began_at) / 1000
    assert 0.8 * min(count * pump_count, allowed) <= len(sent) <= allowed + BATCH_MAX * pump_count
