"""Frames between a namespace and its store process: whole in, whole out, however they are cut on the way."""

import pickle
import socket
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.server.stores.host import READ_BYTES, SocketEnd
from twinbus.server.stores.line_frames import (
    COMMIT,
    EVENT,
    HEADER,
    LAID,
    LAID_EVENT,
    LAID_PART_BYTES_MAX,
    LAID_ROWS,
    PART_BYTES_MAX,
    PART_COUNT_MAX,
    ROWS,
    SOME_LAID_ROWS,
    SOME_ROWS,
    FrameSpace,
    event_frame,
    frame,
    row_frames,
)
from twinbus.server.stores.served_store import Answer
from twinbus.server.stores.shared_room import LAID_SIZE_MIN, Room
from twinbus.server.stores.worker import Commit
from twinbus.store.changes import StoredMessage
from twinbus.store.journal_record import decode_rows

SPACE = 64


def rows_of(*sizes: int) -> list[StoredMessage]:
    return [StoredMessage(number, bytes([number % 256]) * size, 1, 2) for number, size in enumerate(sizes, start=1)]


def frames_of(rows: list[StoredMessage]) -> Iterator[tuple[int, bytes]]:
    for size, pieces in row_frames(rows, None):
        data = b"".join(pieces)
        kind, content_size = HEADER.unpack_from(data)
        assert size == len(data) == HEADER.size + content_size
        yield kind, data[HEADER.size :]


def test_a_large_answer_is_laid_down_and_what_finds_no_room_is_sent() -> None:
    rows = rows_of(*[LAID_SIZE_MIN] * 100)
    memory = memoryview(bytearray(2 * LAID_PART_BYTES_MAX))
    room = Room(memory)
    kinds: list[int] = []
    found: list[StoredMessage] = []
    for _, pieces in row_frames(rows, room):
        data = b"".join(pieces)
        kind, _ = HEADER.unpack_from(data)
        kinds.append(kind)
        content = memoryview(data)[HEADER.size :]
        if kind in (LAID_ROWS, SOME_LAID_ROWS):
            place, size = LAID.unpack(content)
            content = memory[place : place + size]
        found += decode_rows(content)
    assert found == rows
    assert kinds[0] == SOME_LAID_ROWS
    assert SOME_ROWS in kinds
    assert kinds[-1] in (ROWS, LAID_ROWS)


def test_the_last_part_of_an_answer_says_so_in_the_room_too() -> None:
    room = Room(memoryview(bytearray(4 * LAID_PART_BYTES_MAX)))
    kinds = [HEADER.unpack_from(b"".join(pieces))[0] for _, pieces in row_frames(rows_of(*[LAID_SIZE_MIN] * 40), room)]
    assert kinds == [SOME_LAID_ROWS, LAID_ROWS]


def test_a_large_answer_of_any_kind_is_laid_down_and_what_finds_no_room_is_sent() -> None:
    memory = memoryview(bytearray(4 * LAID_SIZE_MIN))
    room = Room(memory)
    answers = [Answer(bytes([number]) * 3 * LAID_SIZE_MIN) for number in range(3)]
    kinds: list[int] = []
    for number, answer in enumerate([*answers, Answer("little")]):
        data = event_frame(answer, room)
        kind, size = HEADER.unpack_from(data)
        kinds.append(kind)
        content = memoryview(data)[HEADER.size :]
        assert len(content) == size
        if kind == LAID_EVENT:
            place, length = LAID.unpack(content)
            content = memory[place : place + length]
        assert pickle.loads(content) == answer
        if number == 1:
            room.give_up(1)  # the first one was read
    assert kinds == [LAID_EVENT, EVENT, LAID_EVENT, EVENT]


def feed(space: FrameSpace, data: bytes, step: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while data:
        free = space.free()
        some = data[: min(step, len(free))]
        free[: len(some)] = some
        found += [(kind, bytes(content)) for kind, content in space.take(len(some))]
        data = data[len(some) :]
    return found


@given(sizes=st.lists(st.integers(0, 3 * SPACE), max_size=12), step=st.integers(1, 4 * SPACE))
def test_frames_arrive_whole_however_they_are_cut_and_however_large_they_are(sizes: list[int], step: int) -> None:
    sent = [(kind, bytes([kind]) * size) for kind, size in enumerate(sizes, start=1)]
    space = FrameSpace(SPACE)
    assert feed(space, b"".join([frame(*each) for each in sent]), step) == sent
    assert len(space.free()) == SPACE, "the space of a large frame has gone with it"


def test_the_space_of_a_large_frame_goes_before_anything_else_arrives() -> None:
    space, size = FrameSpace(SPACE), 10_000_000
    tracemalloc.start()
    try:
        assert len(feed(space, frame(1, bytes(size)), size + HEADER.size)) == 1
        assert tracemalloc.get_traced_memory()[0] < size
    finally:
        tracemalloc.stop()


def test_a_large_frame_is_not_moved_while_the_rest_of_it_comes() -> None:
    space, size = FrameSpace(SPACE), 1_000_000
    feed(space, frame(1, bytes(size))[:-1], size)
    tracemalloc.start()
    try:
        assert len(space.free()) == 1
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def test_there_is_always_room_for_more() -> None:
    space = FrameSpace(SPACE)
    exact = frame(1, bytes(SPACE - HEADER.size))
    assert feed(space, exact[:-1], SPACE) == []
    assert len(space.free()) == 1
    assert feed(space, exact[-1:], SPACE) == [(1, bytes(SPACE - HEADER.size))]


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([10], [1]),
        ([PART_BYTES_MAX], [1]),
        ([PART_BYTES_MAX - 1, 1], [2]),
        ([PART_BYTES_MAX, 1], [1, 1]),
        ([1, 5 * PART_BYTES_MAX, 1], [1, 1, 1]),
        ([1] * PART_COUNT_MAX, [PART_COUNT_MAX]),
        ([1] * (PART_COUNT_MAX + 1), [PART_COUNT_MAX, 1]),
    ],
)
def test_an_answer_is_cut_into_frames_of_bounded_size(sizes: list[int], counts: list[int]) -> None:
    rows = rows_of(*sizes)
    frames = list(frames_of(rows))
    assert [len(decode_rows(content)) for _, content in frames] == counts
    assert [row for _, content in frames for row in decode_rows(content)] == rows


def test_only_the_last_frame_of_an_answer_says_that_it_is_complete() -> None:
    kinds = [kind for kind, _ in frames_of(rows_of(*[PART_BYTES_MAX] * 3))]
    assert kinds == [SOME_ROWS, SOME_ROWS, ROWS]


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_contents_do_not_change_when_the_space_is_used_again(size: int) -> None:
    (content,) = [content for _, content in frames_of(rows_of(size))]
    space = bytearray(content)
    (row,) = decode_rows(memoryview(space))
    space[:] = bytes(len(space))
    assert row.content == b"\x01" * size


def test_everything_that_has_arrived_is_taken_together() -> None:
    namespace, store = socket.socketpair()
    with namespace, store:
        namespace.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * READ_BYTES)
        contents = [bytes([number]) * (READ_BYTES // 4) for number in range(6)]
        # One sync for all of them: little that waits behind much waits for one sync, and not for one after the other.
        namespace.sendall(b"".join([frame(COMMIT, content) for content in contents]))
        end = SocketEnd(store)
        assert end.receive(None) == [Commit([content]) for content in contents]
        assert end.receive(0.0) == []
        namespace.sendall(frame(COMMIT, bytes(READ_BYTES - HEADER.size)))
        assert end.receive(None) == [Commit([bytes(READ_BYTES - HEADER.size)])]
        namespace.close()
        with pytest.raises(EOFError):
            end.receive(None)
