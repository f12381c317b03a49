"""When requests to a store's process are sent: at once, with others of the same turn of the loop, or with whatever comes next."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tests.contract.rows import row
from twinbus.server.stores import in_order, socket_line
from twinbus.server.stores.line_frames import COMMIT, HEADER, QUERY, SWITCH, UNWRITABLE, FrameSpace
from twinbus.server.stores.served_store import Done, ServedStore
from twinbus.server.stores.socket_line import UNAWAITED_WAIT_S, SocketLine
from twinbus.store import journal_record
from twinbus.store.changes import Enqueued, Removed, fragment_key
from twinbus.store.reads import ANY_STATE, Scan

KEY = fragment_key(7, 0)


class Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandLoop:
    """An event loop whose turns and timers are those of the test."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.timers: dict[float, Timer] = {}

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers[seconds] = Timer(call)
        return self.timers[seconds]

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self, seconds: float) -> None:
        timer = self.timers.pop(seconds)
        if not timer.is_cancelled:
            timer.call()


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self.is_aborted = self.has_no_memory = False

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: bytes) -> None:
        if self.has_no_memory:
            raise MemoryError
        self._written.append(data)

    def take(self) -> list[bytes]:
        """What was written since the last time."""
        written, self._written = self._written, []
        return written

    def kinds(self) -> list[list[int]]:
        """Of the frames in each write since the last call."""
        return [[kind for kind, _ in frames_in(data)] for data in self.take()]


def frames_in(data: bytes) -> list[tuple[int, bytes]]:
    space = FrameSpace(len(data) + HEADER.size)
    space.free()[: len(data)] = data
    return [(kind, bytes(content)) for kind, content in space.take(len(data))]


class World:
    def __init__(self) -> None:
        self.loop, self.wire = HandLoop(), Wire()
        self.store = ServedStore(0, lambda *_: None, lambda _: None)
        self.line = SocketLine(cast(asyncio.AbstractEventLoop, self.loop), self.store, lambda: None)
        self.line.connection_made(cast(asyncio.Transport, self.wire))
        assert self.wire.kinds() == [[SWITCH]]

    def remove(self, *, is_awaited: bool) -> None:
        self.store.commit([Removed(KEY, [1])], lambda _: None, is_awaited=is_awaited)

    def scan(self) -> None:
        self.store.query(Scan(KEY, 0, 1, 1, ANY_STATE), lambda _: None)

    def enqueue(self, *contents: bytes) -> None:
        rows = [row(number, content) for number, content in enumerate(contents, 1)]
        self.store.commit([Enqueued(KEY, rows)], lambda _: None)


def test_an_idle_store_is_asked_at_once_and_a_busy_one_once_in_a_turn() -> None:
    world = World()
    world.remove(is_awaited=True)
    assert world.wire.kinds() == [[COMMIT]]
    world.remove(is_awaited=True)
    world.scan()
    assert world.wire.kinds() == []
    world.loop.turn()
    assert world.wire.kinds() == [[COMMIT, QUERY]]


def test_a_commit_that_nobody_waits_for_goes_with_the_next_request_before_it() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.remove(is_awaited=False)
    world.loop.turn()
    assert world.wire.kinds() == []
    world.scan()  # of a store that has nothing to do, whatever waits here
    assert world.wire.kinds() == [[COMMIT, COMMIT, QUERY]]
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == []


def test_a_commit_that_nobody_waits_for_goes_alone_after_a_while() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == [[COMMIT]]
    world.store.told([Done(1)])
    world.remove(is_awaited=False)
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == [[COMMIT]]


def test_a_store_is_stopped_behind_what_nobody_waits_for() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.store.stop()
    assert world.wire.kinds() == [[COMMIT, SWITCH]]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_record, "PART_WEIGHT", 2)
    monkeypatch.setattr(socket_line, "JOINED_BYTES_MAX", 1_000)


@pytest.mark.usefixtures("small_steps")
def test_a_commit_of_many_rows_is_encoded_and_written_in_steps_and_what_is_behind_it_waits() -> None:
    world = World()
    world.remove(is_awaited=False)
    contents = [b"%d" % number * 300 for number in range(8)]
    world.enqueue(*contents)
    world.remove(is_awaited=False)
    world.scan()
    world.store.down()
    assert world.store.waiting_bytes >= sum(map(len, contents))
    written: list[list[bytes]] = []
    for _ in range(12):
        written.append(world.wire.take())
        world.loop.turn()
    assert max([sum(map(len, each)) for each in written]) < 1_300
    assert len([each for each in written if each]) > 3
    (_, (_, large), _, _, _) = frames = frames_in(b"".join([data for each in written for data in each]))
    assert [kind for kind, _ in frames] == [COMMIT, COMMIT, COMMIT, QUERY, SWITCH]
    assert large.endswith(contents[6] + contents[7])
    world.scan()
    assert world.loop.soon  # nothing is busy any more


@pytest.mark.usefixtures("small_steps")
def test_a_commit_of_a_large_message_is_written_in_steps_without_another_copy_of_it() -> None:
    world = World()
    content = bytes(5_000)
    world.enqueue(content, b"small")
    world.enqueue(b"next")
    world.loop.turn()
    world.loop.turn()
    world.loop.turn()
    header, front, large, rest, *_ = world.wire.take()
    assert large is content
    ((kind, body),) = frames_in(header + front + large + rest)
    assert (kind, body.endswith(b"small")) == (COMMIT, True)


@pytest.mark.usefixtures("small_steps")
def test_a_commit_that_cannot_be_encoded_is_found_out_in_a_step_and_what_is_behind_it_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    rows = [row(number) for number in (1, 2, 3, 4, 2**80)]
    world.store.commit([Enqueued(KEY, rows)], lambda _: None)
    world.scan()
    for _ in range(6):
        world.loop.turn()
    assert world.wire.kinds() == [[UNWRITABLE, QUERY]]
    assert [record.msg for record in caplog.records] == ["commit_not_encoded"]


@pytest.mark.usefixtures("small_steps")
def test_nothing_more_is_written_when_the_line_is_gone() -> None:
    world = World()
    world.enqueue(*[bytes(900)] * 8)
    world.scan()
    for _ in range(6):
        world.loop.turn()
    assert world.wire.take()
    world.line.connection_lost(None)
    for _ in range(9):
        world.loop.turn()
    assert (world.wire.take(), world.loop.soon) == ([], [])


@pytest.mark.usefixtures("small_steps")
def test_a_line_on_which_a_commit_is_broken_off_is_given_up() -> None:
    """What follows would be taken for the rest of it."""
    world = World()
    world.enqueue(*[bytes(900)] * 8)
    world.scan()
    while not world.wire.take():
        world.loop.turn()
    world.wire.has_no_memory = True
    with pytest.raises(MemoryError):
        world.loop.turn()
    assert (world.wire.is_aborted, world.loop.soon) == (True, [])


@pytest.mark.usefixtures("small_steps")
def test_those_who_waited_for_a_large_commit_are_not_all_sent_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "TOGETHER_MAX", 3)
    world = World()
    world.enqueue(*[b""] * 5)
    for _ in range(7):
        world.scan()
    kinds: list[list[int]] = []
    for _ in range(9):
        kinds += world.wire.kinds()
        world.loop.turn()
    assert [kind for each in kinds for kind in each] == [COMMIT] + [QUERY] * 7
    assert max([each.count(QUERY) for each in kinds]) <= 3
