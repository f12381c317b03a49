"""What a pump does with messages that it left, once their destination may be tried again: a queue with locks, and a clock that
moves only while somebody waits."""

from collections.abc import Callable

import pytest

from tests.pairing.test_pump import LOCK, Bench
from twinbus.clock import Millis
from twinbus.errors import EntityNotFound, MessageLockLost, ServerBusy
from twinbus.pairing.events import EventKind
from twinbus.pairing.syphon.transport import (
    Abandon,
    Answer,
    Chunk,
    Complete,
    GiveBackLeft,
    Receive,
    Request,
    Taken,
    Transfer,
)

STEPS_MAX = 1_000
HOUR: Millis = 60 * 60 * 1000


class Backlog(Bench):
    """One backlog queue. Destinations in `down` are busy, those in `gone` do not exist."""

    def __init__(self, poison_max: int | None = None) -> None:
        super().__init__(self._refusal, poison_max=poison_max)
        self.down: set[str] = set()
        self.gone: set[str] = set()
        self.keeps_locks = False
        self.on_send: Callable[[], None] = lambda: None
        self.waiting: dict[int, str] = {}
        self.locks: dict[int, tuple[bytes, Millis]] = {}
        self.delivery_counts: dict[int, int] = {}
        self.given_back: list[list[int]] = []
        self.receive_count = 0
        self._steps = self.pump.run()
        self._request: Request | None = None

    def add(self, *numbers: int, path: str = "orders") -> None:
        self.waiting |= dict.fromkeys(numbers, path)

    def hand_over(self) -> "Backlog":
        """Another pump takes the place of this one and is given its memory, and the queue."""
        other = Backlog()
        other.clock = self.clock
        other.pump._clock = self.clock
        other.pump.memory = self.pump.memory
        other.waiting, other.locks, other.down = self.waiting, self.locks, self.down
        return other

    def run_until(self, condition: Callable[[], bool], within: Millis = 10 * 60_000) -> Millis:
        """How long it took. Ends at the time even if the condition does not hold."""
        began_at = self.clock.now()
        for _ in range(STEPS_MAX):
            if condition() or self.clock.now() - began_at > within:
                return self.clock.now() - began_at
            if self._request is None:
                self._request = next(self._steps)
            try:
                answer = self.perform(self._request)
            except Exception as error:
                self._request = self._steps.throw(error)
            else:
                self._request = self._steps.send(answer)
        raise AssertionError("The pump turns in a circle.")

    def fail_once(self) -> None:
        """Until all that waits is left."""
        self.run_until(lambda: self.pump.memory.left_count() == len(self.waiting))
        assert self.completed() == []

    def perform(self, request: Request) -> Answer:
        now = self.clock.now()
        if isinstance(request, Receive):
            return self._receive(request)
        if isinstance(request, GiveBackLeft):
            self.given_back.append(sorted(request.tokens))
            if self.keeps_locks:
                raise ConnectionError("its messaging store is down")
            if any(self.locks.get(number) != (token, self._until(number)) for number, token in request.tokens.items()):
                raise MessageLockLost("gone")
            assert all(self._until(number) > now for number in request.tokens)
            for number in request.tokens:
                del self.locks[number]
        if isinstance(request, Abandon | Complete):
            for each in request.taken:
                del self.locks[each.sequence_number]
        if isinstance(request, Complete):
            for each in request.taken:
                del self.waiting[each.sequence_number]
        answer = super().perform(request)
        self.on_send()
        return answer

    def _until(self, number: int) -> Millis:
        return self.locks[number][1]

    def _receive(self, request: Receive) -> Answer:
        self.receive_count += 1
        ends = self.clock.now() + int(request.wait_s * 1000)
        while not (free := [each for each in sorted(self.waiting) if self._is_free(each)]):
            if self.clock.now() >= ends:
                return []
            self.clock.advance(min(100, ends - self.clock.now()))
        taken: list[Taken] = []
        for number in free[: request.count_max]:
            count = self.delivery_counts[number] = self.delivery_counts.get(number, 0) + 1
            self.locks[number] = (count.to_bytes(16), self.clock.now() + LOCK)
            content = Transfer(self.waiting[number], number, 100, None, None)
            taken.append(Taken(None, number, self._until(number), content, token=self.locks[number][0]))
        return taken

    def _is_free(self, number: int) -> bool:
        return number not in self.locks or self._until(number) <= self.clock.now()

    def _refusal(self, chunk: Chunk) -> Exception | None:
        if chunk.path in self.gone:
            return EntityNotFound.at(chunk.path)
        return ServerBusy("busy") if chunk.path in self.down else None


def down_since(pause: Millis) -> Backlog:
    """250 messages were left, and their destination is to be tried only after this pause."""
    backlog = Backlog()
    backlog.add(*range(250))
    backlog.down.add("orders")
    backlog.fail_once()
    destination = backlog.pump.memory.destination("orders")
    destination.paused_until, destination.retry_after = backlog.clock.now() + pause, 2 * pause
    return backlog


@pytest.mark.rule("B8", "B8.7")
def test_what_was_left_comes_home_in_order_as_soon_as_somebody_knows_that_its_destination_works() -> None:
    backlog = down_since(64_000)
    backlog.add(250)
    backlog.down.clear()
    backlog.pump.destination_recovered("orders")
    assert backlog.run_until(lambda: not backlog.waiting) < 3_000
    assert backlog.completed() == list(range(251))
    assert max(backlog.delivery_counts.values()) == 2


@pytest.mark.rule("B8", "B8.7")
def test_a_destination_is_tried_with_its_first_messages_and_then_gets_all_of_them() -> None:
    backlog = down_since(8_000)
    backlog.down.clear()
    assert 8_000 <= backlog.run_until(lambda: not backlog.waiting) < 11_000
    assert backlog.given_back == [list(range(100)), list(range(100, 250))]
    assert backlog.completed() == list(range(250))


@pytest.mark.rule("B8")
def test_a_destination_that_stays_down_is_tried_at_growing_intervals_and_costs_its_later_messages_no_delivery() -> None:
    backlog = Backlog()
    backlog.add(*range(102))
    backlog.down.add("orders")
    began_at, tried_at = backlog.clock.now(), list[Millis]()

    def note() -> None:
        if len(backlog.sent()) > len(tried_at):
            tried_at.append(backlog.clock.now() - began_at)

    backlog.on_send = note
    backlog.run_until(lambda: len(tried_at) == 5)
    assert [round(at / 1000) for at in tried_at] == [0, 1, 3, 7, 15]
    assert backlog.delivery_counts[100] == backlog.delivery_counts[101] == 1


@pytest.mark.rule("B8")
def test_an_hour_of_outage_costs_few_receives() -> None:
    backlog = Backlog()
    backlog.add(1)
    backlog.down.add("orders")
    backlog.run_until(lambda: False, within=HOUR)
    assert backlog.receive_count < 60


@pytest.mark.rule("B8")
def test_only_what_was_left_for_the_destination_that_works_again_is_given_back() -> None:
    backlog = Backlog()
    backlog.add(1, 3)
    backlog.add(2, 4, path="bills")
    backlog.down |= {"orders", "bills"}
    backlog.fail_once()
    for path in ("orders", "bills"):
        destination = backlog.pump.memory.destination(path)
        destination.paused_until, destination.retry_after = backlog.clock.now() + 30_000, 60_000
    backlog.down.remove("bills")
    backlog.pump.destination_recovered("bills")
    backlog.run_until(lambda: len(backlog.completed()) == 2, within=3_000)
    assert backlog.completed() == [2, 4]
    assert backlog.given_back == [[2, 4]]


@pytest.mark.rule("B8")
def test_a_recovery_in_the_middle_of_a_pass_is_felt_after_it() -> None:
    """The send that is under way may have failed before it, and the pump cannot know."""
    backlog = Backlog()
    backlog.add(*range(3))
    backlog.down.add("orders")

    def recover() -> None:
        if backlog.sent():
            backlog.down.clear()
            backlog.pump.destination_recovered("orders")

    backlog.on_send = recover
    assert backlog.run_until(lambda: not backlog.waiting) < 5_000
    assert backlog.completed() == [0, 1, 2]


@pytest.mark.rule("B8", "B8.7")
def test_what_cannot_be_given_back_comes_in_order_when_its_lock_ends() -> None:
    backlog = down_since(2_000)
    backlog.keeps_locks = True
    backlog.down.clear()
    backlog.pump.destination_recovered("orders")
    assert backlog.run_until(lambda: not backlog.waiting) < LOCK + 1_000
    assert backlog.completed() == list(range(250))
    assert backlog.given_back == [list(range(250))]
    (event,) = [each for each in backlog.events if isinstance(each.error, ConnectionError)]
    assert (event.kind, event.count) == (EventKind.SYPHON_SKIPPED, 250)


@pytest.mark.rule("B8")
def test_locks_that_have_ended_or_are_about_to_are_not_given_back() -> None:
    backlog = down_since(2_000)
    backlog.down.clear()
    backlog.clock.advance(LOCK - 900)
    backlog.pump.destination_recovered("orders")
    backlog.run_until(lambda: not backlog.waiting)
    assert backlog.given_back == []
    assert backlog.completed() == list(range(250))


@pytest.mark.rule("B8", "B8.7")
def test_a_pump_gives_back_what_the_one_before_it_left() -> None:
    first = down_since(8_000)
    first.down.clear()
    second = first.hand_over()
    assert second.run_until(lambda: not second.waiting) < 11_000
    assert second.completed() == list(range(250))


@pytest.mark.rule("B8")
def test_poison_beyond_the_quota_is_not_given_back() -> None:
    backlog = Backlog(poison_max=0)
    backlog.add(1, path="gone")
    backlog.gone.add("gone")
    backlog.run_until(lambda: bool(backlog.pump.memory.left_count()))
    backlog.pump.destination_recovered("gone")
    backlog.run_until(lambda: backlog.delivery_counts[1] == 2)
    assert backlog.given_back == []


def test_what_is_remembered_of_a_message_that_was_left_has_none_of_its_content() -> None:
    backlog = down_since(8_000)
    (destination,) = backlog.pump.memory.destinations.values()
    assert destination.left[7].token == backlog.locks[7][0]
    assert not hasattr(destination.left[7], "__dict__")
    assert {type(value) for value in (destination.left[7].until, destination.left[7].token)} == {int, bytes}
