"""Memory that the namespace and the process of its stores share: what is laid down stays whole until it is given up."""

import errno
import os
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.server.stores.shared_room import PIECES_JOINED_MIN, Room, new_rooms

SIZE = 100


@given(st.lists(st.integers(1, SIZE + 10) | st.just(0), max_size=60))
def test_what_is_laid_down_stays_whole_until_it_is_given_up(steps: list[int]) -> None:
    """0 gives the oldest up; any other number lays so many bytes down."""
    memory = memoryview(bytearray(SIZE))
    room = Room(memory)
    laid: deque[tuple[int, bytes]] = deque()
    for number, size in enumerate(steps):
        if size:
            data = bytes([number]) * size
            place = room.lay_down([data[:1], data[1:]], size)
            if place is not None:
                laid.append((place, data))
            else:
                assert laid or size > SIZE, "an empty room has room for whatever is not larger than it"
        elif laid:
            laid.popleft()
            room.give_up(1)
        for place, data in laid:
            assert memory[place : place + len(data)] == data


@pytest.mark.parametrize("count", [2, PIECES_JOINED_MIN])
def test_pieces_follow_each_other_however_many_there_are(count: int) -> None:
    memory = memoryview(bytearray(10_000))
    pieces = [bytes([number]) * (number % 5) for number in range(count)]
    data = b"".join(pieces)
    place = Room(memory).lay_down(pieces, len(data))
    assert place is not None
    assert memory[place : place + len(data)] == data


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no such memory")
def test_a_system_that_gives_no_memory_to_share_is_as_one_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [os.memfd_create("first")]

    def refuse_the_second(_: str) -> int:
        if len(given) > 1:
            raise OSError(errno.EPERM, "Operation not permitted")
        given.append(given[0])
        return given[0]

    monkeypatch.setattr(os, "memfd_create", refuse_the_second)
    assert new_rooms(2) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given[0])
