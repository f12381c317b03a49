"""A served store over a real thread. The loop is a queue that the test drains itself, so nothing sleeps."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from twinbus.errors import RequestRefused, StoreDamaged, StoreUnavailable
from twinbus.server.stores import served_store, worker
from twinbus.server.stores.served_store import FULL_FAULT, REQUESTS_MAX, Opening, ServedStore, StoreCondition
from twinbus.server.stores.threads import ThreadLine, commit_changes
from twinbus.server.stores.worker import DAMAGED_PAUSE_S, EVENTS_TOGETHER_MAX, REOPEN_PAUSE_S, StoreWorker
from twinbus.store.changes import Change, Enqueued, FragmentCreated, FragmentKey, StoredMessage
from twinbus.store.damage import Damage
from twinbus.store.messaging_store import SessionList, SessionSummary
from twinbus.store.reads import SessionNames
from twinbus.store.room import RoomLeft

WAIT_S = 60.0


class Recorder:
    """A messaging store that keeps nothing but the commits; a test can make it hold, fail or break."""

    def __init__(self) -> None:
        self.commits: list[list[Change]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_at_gate = threading.Event()
        self.is_behind = threading.Event()
        self.catch_up_gate = threading.Event()
        self.catch_up_gate.set()
        self.fails = False
        self.fails_late = False
        self.breaks = False
        self.is_damaged = False
        self.opened = 0
        self.closed = 0
        self.rested = threading.Event()
        self.rests: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.rests_left = 0
        self.steps_left = 0
        self.set_aside: list[Damage] = []
        self.presses = False
        self.room = RoomLeft.ENOUGH
        self.is_silent = False

    def open(self) -> Any:
        if self.is_damaged:
            raise StoreDamaged("the disk is scratched")
        if self.fails:
            raise StoreUnavailable("the disk is gone")
        if self.breaks:
            raise ZeroDivisionError
        self.opened += 1
        return self

    def commit(self, changes: Sequence[Change]) -> None:
        self.is_at_gate.set()
        assert self.gate.wait(WAIT_S)
        if self.fails:
            raise StoreUnavailable("the disk is gone")
        self.commits.append(list(changes))

    def catch_up(self) -> bool:
        self.is_behind.set()
        assert self.catch_up_gate.wait(WAIT_S)
        if self.fails_late:
            raise StoreUnavailable("the tables are gone")
        self.steps_left = max(self.steps_left - 1, 0)
        return self.steps_left > 0

    def rest(self) -> bool:
        self.rested.set()
        self.rests.put(None)
        self.rests_left -= 1
        return self.rests_left > 0

    def is_pressed(self) -> bool:
        return self.presses

    def room_left(self) -> RoomLeft:
        return self.room

    def epoch(self) -> int:
        return 0

    def kept_in(self) -> str:
        if self.is_silent:
            self.is_silent = False
            raise StoreUnavailable("the database went away")
        return "memory"

    def damage(self) -> list[Damage]:
        return self.set_aside

    def session_list(self, _: FragmentKey) -> SessionList:
        """One for each change that was committed: what a query sees."""
        if self.breaks:
            raise ZeroDivisionError
        return SessionList.of(
            [SessionSummary(str(number), 0, 0, None) for number in range(sum(map(len, self.commits)))]
        )

    def close(self) -> None:
        self.closed += 1
        if self.breaks:
            raise ZeroDivisionError


class Loop:
    """Stands for the event loop: it runs what threads hand over when the test says so."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[Callable[..., None], tuple[object, ...]]] = queue.Queue()

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        self.calls.put((function, arguments))

    def step(self) -> None:
        """Word that the store is being opened is no step: something follows it."""
        arguments: tuple[object, ...] = ([Opening()],)
        while arguments == ([Opening()],):
            function, arguments = self.calls.get(timeout=WAIT_S)
            function(*arguments)


class World:
    def __init__(self) -> None:
        self.loop, self.store, self.seen = Loop(), Recorder(), list[Any]()
        self.port = ServedStore(
            3,
            on_lost=lambda _, error: self.seen.append(f"lost: {error}"),
            on_returned=lambda _: self.seen.append("returned"),
        )
        line = ThreadLine(self.loop.call, self.port.told)
        self.port.connect(line, self.loop.call)
        self.worker = threading.Thread(target=StoreWorker(3, self.store.open, commit_changes, line).run)

    def commit(self, number: int) -> None:
        self.port.commit([FragmentCreated(number)], lambda result: self.seen.append((number, result)))

    def count(self) -> None:
        """Ask how many changes were committed."""

        def answered(names: list[str] | StoreUnavailable) -> None:
            self.seen.append(len(names) if isinstance(names, list) else str(names))

        self.port.query(SessionNames(1, None, 0, 1_000), answered)

    @property
    def answers(self) -> list[tuple[int, Any]]:
        return [item for item in self.seen if isinstance(item, tuple)]

    def step(self) -> None:
        self.loop.step()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.worker.start()
    world.step()
    assert world.seen.pop() == "returned"
    yield world
    world.store.gate.set()
    world.store.catch_up_gate.set()
    world.port.stop()
    world.worker.join(WAIT_S)
    assert not world.worker.is_alive()


def test_commits_that_wait_while_another_is_written_become_one(world: World) -> None:
    world.store.gate.clear()
    world.commit(1)
    for number in range(2, 12):
        world.commit(number)
    world.store.gate.set()
    while len(world.seen) < 11:
        world.step()
    assert [number for number, _ in world.seen] == list(range(1, 12))
    assert len(world.store.commits) <= 2
    assert world.port.condition is StoreCondition.UP


def test_a_commit_is_answered_before_the_store_catches_up(world: World) -> None:
    world.store.is_behind.clear()
    world.store.catch_up_gate.clear()
    world.commit(1)
    world.step()
    assert world.seen == [(1, None)]
    assert world.store.is_behind.wait(WAIT_S)


def test_a_store_that_is_behind_goes_on_by_itself_and_serves_others_in_between(world: World) -> None:
    world.store.steps_left = 1_000_000
    for number in (1, 2):
        world.commit(number)
        world.step()
    assert 0 < world.store.steps_left < 1_000_000
    assert not world.store.rested.is_set()
    world.store.steps_left = 2
    world.commit(3)
    world.step()
    while world.store.steps_left:
        assert world.worker.is_alive()
    assert world.answers == [(1, None), (2, None), (3, None)]


def test_a_store_that_fails_to_catch_up_is_lost_and_what_it_acknowledged_is_not(world: World) -> None:
    world.store.fails_late = True
    world.commit(1)
    while len(world.seen) < 2:
        world.step()
    assert world.seen == [(1, None), "lost: the tables are gone"]
    assert world.store.closed == 1


def test_a_query_sees_every_commit_asked_for_before_it_and_none_after(world: World) -> None:
    world.store.gate.clear()
    world.commit(1)
    world.count()
    world.commit(2)
    world.store.gate.set()
    while len(world.seen) < 3:
        world.step()
    assert world.seen == [(1, None), 1, (2, None)]


def test_answers_to_many_queries_are_not_kept_until_the_last_one_is_there(world: World) -> None:
    """Each may have a megabyte, and there may be thousands."""
    world.store.gate.clear()
    world.commit(0)
    assert world.store.is_at_gate.wait(WAIT_S)
    for _ in range(100):
        world.count()
    world.store.gate.set()
    steps = 0
    while len(world.seen) < 101:
        world.step()
        steps += 1
    assert world.seen == [(0, None), *[1] * 100]
    assert steps > 100 // EVENTS_TOGETHER_MAX


def test_a_damaged_store_is_not_opened_again_every_second(world: World) -> None:
    """Each try reads all of it, and takes time from the stores that work."""
    worker = StoreWorker(4, world.store.open, commit_changes, ThreadLine(world.loop.call, lambda _: None))
    worker._up()
    world.store.fails = True
    worker._open()
    worker._loss_told()
    assert 0.0 < (worker._wait_to_open() or 0.0) <= REOPEN_PAUSE_S
    world.store.is_damaged = True
    worker._open()
    worker._loss_told()
    assert (worker._wait_to_open() or 0.0) > DAMAGED_PAUSE_S / 2
    worker._up()
    assert worker._wait_to_open() == 0.0


def test_why_a_store_is_lost_is_what_kept_it_from_opening_the_last_time(world: World) -> None:
    """A disk that failed, and then is found to have damaged what was on it."""
    lost = list[str]()
    port = ServedStore(4, on_lost=lambda _, error: lost.append(str(error)), on_returned=lambda _: None)
    line = ThreadLine(world.loop.call, port.told)
    port.connect(line, world.loop.call)
    worker = StoreWorker(4, world.store.open, commit_changes, line)
    world.store.fails = True
    worker._open()
    world.step()
    worker._open()
    world.store.is_damaged = True
    worker._open()
    world.step()
    assert lost == ["the disk is gone", "the disk is scratched"], "once each"
    assert port.reported_fault == "the disk is scratched"


def test_a_store_that_fails_is_closed_and_everything_waiting_fails(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    while len(world.seen) < 2:
        world.step()
    assert world.seen[0] == "lost: the disk is gone"
    assert isinstance(world.seen[1][1], StoreUnavailable)
    assert world.store.closed == 1
    assert world.port.condition is StoreCondition.LOST


def test_a_lost_store_is_reopened_by_itself(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    world.step()
    world.store.fails = False
    world.port.up()  # ends the pause before the next try
    world.step()
    assert world.seen[-1] == "returned"
    assert world.store.opened == 2


def test_a_lost_store_takes_nothing_before_its_broker_knows_of_the_loss(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    lost = world.loop.calls.get(timeout=WAIT_S)  # the loop is busy: the news waits
    world.store.fails = False
    world.port.up()
    world.commit(2)  # meant for the store as it was before the loss
    refused = world.loop.calls.get(timeout=WAIT_S)
    assert world.store.opened == 1
    lost[0](*lost[1])
    refused[0](*refused[1])
    world.step()
    assert [type(result) for _, result in world.answers] == [StoreUnavailable] * 2
    assert world.seen[-1] == "returned"
    assert world.store.commits == []


def test_a_store_switched_off_refuses_until_it_is_switched_on(world: World) -> None:
    world.port.down()
    world.step()
    assert world.seen == ["lost: messaging store 3 is switched off"]
    assert world.port.condition is StoreCondition.DOWN
    world.commit(1)
    world.step()
    assert isinstance(world.seen[-1][1], StoreUnavailable)
    world.port.up()
    world.step()
    world.commit(2)
    world.step()
    assert world.seen[-2:] == ["returned", (2, None)]


def test_a_query_that_breaks_costs_the_store_and_not_the_thread(world: World) -> None:
    world.store.breaks = True
    world.count()
    while len(world.seen) < 2:
        world.step()
    assert "ZeroDivisionError" in world.seen[0]
    world.store.breaks = False
    world.port.up()
    world.step()
    world.commit(1)
    world.step()
    assert world.seen[-1] == (1, None)


def test_a_store_that_breaks_when_it_is_closed_and_opened_costs_its_run_and_not_the_thread(world: World) -> None:
    world.store.breaks = True
    world.port.down()
    world.step()
    world.port.up()
    world.step()
    assert world.port.condition is StoreCondition.LOST
    assert "ZeroDivisionError" in world.port.fault
    world.store.breaks = False
    world.port.up()
    world.step()
    assert world.seen[-1] == "returned"


def test_slowness_ends_at_once_and_keeps_the_order_of_what_waits(world: World) -> None:
    world.port.slow(60.0)
    for number in range(1, 20):
        world.commit(number)
        world.count()
    world.port.slow(0.0)
    while len(world.seen) < 38:
        world.step()
    assert world.seen == [seen for number in range(1, 20) for seen in ((number, None), number)]


def test_stopping_finishes_what_waits_and_closes_the_store(world: World) -> None:
    world.store.gate.clear()
    for number in range(1, 4):
        world.commit(number)
    world.port.stop()
    world.store.gate.set()
    world.worker.join(WAIT_S)
    assert not world.worker.is_alive()
    while len(world.seen) < 3:
        world.step()
    assert [result for _, result in world.seen] == [None, None, None]
    assert world.store.closed == 1


def test_what_a_store_that_hangs_cannot_take_any_more_fails(world: World) -> None:
    world.store.gate.clear()
    for _ in range(REQUESTS_MAX):
        world.port.commit([FragmentCreated(1)], lambda _: None)
    world.commit(REQUESTS_MAX)
    world.step()
    assert isinstance(world.seen[-1][1], StoreUnavailable)


def test_a_store_that_refused_requests_and_goes_on_is_there_again_when_nobody_waits(world: World) -> None:
    world.store.gate.clear()
    world.port.commit([FragmentCreated(1)], lambda _: None)
    assert world.store.is_at_gate.wait(WAIT_S)
    for _ in range(REQUESTS_MAX - 1):
        world.port.commit([FragmentCreated(1)], lambda _: None)
    world.commit(1)
    world.step()
    world.store.gate.set()
    world.step()  # the first is answered, and there is room again
    world.commit(2)
    while "returned" not in world.seen:
        world.step()
    assert [type(result) for _, result in world.answers] == [RequestRefused] * 2
    world.commit(3)
    world.step()
    assert world.seen[-1] == (3, None)


def test_what_waits_for_a_store_that_hangs_is_bounded_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_store, "BYTES_MAX", 1_000)
    world.store.gate.clear()
    large: list[Change] = [Enqueued(1, [StoredMessage(1, b"x" * 600, 0, 0)])]
    for _ in range(3):
        world.port.commit(large, lambda _: None)
    assert world.port.waiting_bytes == 1_800
    world.commit(1)
    world.step()
    assert isinstance(world.seen[-1][1], StoreUnavailable)
    world.store.gate.set()
    while "returned" not in world.seen:
        world.step()
    assert world.port.waiting_bytes == 0
    world.commit(2)
    world.step()
    assert world.seen[-1] == (2, None)


def test_one_commit_may_have_more_bytes_than_may_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_store, "BYTES_MAX", 1_000)
    world.store.gate.clear()
    world.port.commit([Enqueued(1, [StoredMessage(1, bytes(5_000), 0, 0)])], lambda _: None)
    world.commit(1)
    world.store.gate.set()
    while not world.seen:
        world.step()
    assert world.seen == [(1, None)]


def test_nothing_waits_for_a_store_that_is_lost(world: World) -> None:
    world.store.fails = True
    world.port.commit([Enqueued(1, [StoredMessage(1, b"x" * 600, 0, 0)])], world.seen.append)
    while len(world.seen) < 2:
        world.step()
    assert world.port.waiting_bytes == 0


def test_a_callback_that_raises_on_a_loss_costs_nobody_an_answer(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: int, __: StoreUnavailable) -> None:
        raise ZeroDivisionError

    world.port._on_lost = broken
    world.store.fails = True
    world.commit(1)
    world.step()
    assert [type(result) for _, result in world.answers] == [StoreUnavailable]
    caplog.clear()


def test_a_lost_reply_fails_a_commit_that_happened_and_the_store_is_reopened_at_once(world: World) -> None:
    world.port.lose_acks(1)
    world.commit(1)
    while "returned" not in world.seen:
        world.step()
    assert world.store.commits == [[FragmentCreated(1)]]
    assert [(number, type(result)) for number, result in world.answers] == [(1, StoreUnavailable)]
    assert world.port.acks_to_lose == 0


def test_a_store_that_cannot_be_opened_after_it_was_switched_on_again_is_lost(world: World) -> None:
    world.port.down()
    world.step()
    world.store.fails = True
    world.port.up()
    world.step()
    assert world.port.condition is StoreCondition.LOST
    assert world.port.fault == "the disk is gone"


def test_a_store_that_fails_while_it_says_where_it_is_kept_is_closed_and_opened_again(world: World) -> None:
    world.port.down()
    world.step()
    world.store.is_silent = True
    world.port.up()
    world.step()
    assert world.seen == ["lost: messaging store 3 is switched off", "lost: the database went away"]
    assert world.store.closed == 2
    while not world.port.is_up:
        world.step()
    assert world.store.opened == 3


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_store_that_nobody_asks_anything_rests_as_often_as_it_wants(
    monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    monkeypatch.setattr(worker, "IDLE_S", 0.01)
    monkeypatch.setattr(worker, "IDLE_STEP_S", 0.0)
    world = World()
    world.store.rests_left = wanted
    world.worker.start()
    for _ in range(wanted):
        world.store.rests.get(timeout=WAIT_S)
    world.port.stop()
    world.worker.join(WAIT_S)
    assert world.store.rests_left == 0


def test_a_store_that_opens_reports_what_it_set_aside(world: World) -> None:
    assert not world.port.set_aside
    world.store.set_aside = [Damage("tables.sqlite", "message 7", "it is not what was written")]
    world.port.down()
    world.step()
    world.port.up()
    world.step()
    assert list(world.port.set_aside) == ["tables.sqlite, message 7: it is not what was written"]


def test_a_store_that_falls_behind_says_so_and_says_when_it_no_longer_does_without_being_asked(world: World) -> None:
    world.store.presses = True
    world.commit(1)
    while not world.port.is_pressed:
        world.step()
    world.store.presses = False
    world.port.on_progress = lambda store, _: world.seen.append(store.is_pressed)
    world.step()
    assert world.seen == [(1, None), False]


def test_a_store_without_room_says_so_and_rests_until_it_has_some_whatever_is_asked_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MAKE_ROOM_S", {RoomLeft.NONE: 0.01, RoomLeft.LITTLE: 0.01})
    world.store.room = RoomLeft.NONE
    world.commit(1)
    while not world.port.is_full:
        world.step()
    assert world.port.reported_fault == FULL_FAULT
    assert world.port.is_up
    for number in range(2, 4):
        world.store.rested.clear()
        world.commit(number)
        assert world.store.rested.wait(WAIT_S)
    world.store.room = RoomLeft.LITTLE
    while world.port.is_full:
        world.step()
    assert not world.port.reported_fault
    world.store.rested.clear()
    assert world.store.rested.wait(WAIT_S), "while there is little, more is made"


def test_a_store_that_has_no_room_when_it_is_opened_says_so_at_once(world: World) -> None:
    world.port.down()
    world.step()
    world.store.room = RoomLeft.NONE
    world.port.up()
    while not world.port.is_up:
        world.step()
    assert world.port.is_full
    world.port.down()
    while world.port.is_up:
        world.step()
    assert not world.port.is_full


def test_a_store_that_is_lost_does_not_hold_anybody_back(world: World) -> None:
    world.store.presses = True
    world.commit(1)
    while not world.port.is_pressed:
        world.step()
    world.port.down()
    world.step()
    assert not world.port.is_pressed
