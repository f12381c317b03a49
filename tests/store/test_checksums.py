"""Checksums as they are on disks: of the same values always the same, and of others almost never."""

import zlib
from typing import Any

import pytest

from twinbus.store.checksums import NO_SUM, content_sum, row_sum, values_sum

FACTS: tuple[Any, ...] = (1 << 44 | 7, 2, 30, 40, 5, 60, 70, 80, 90)


def sum_of(*values: Any) -> int:
    """Of a message, whatever damage has left of it."""
    return row_sum(*values)


def test_integers_take_eight_bytes_each_and_texts_follow_a_zero() -> None:
    packed = b"".join(value.to_bytes(8, "little", signed=True) for value in (1, -2))
    assert values_sum(1, -2) == zlib.crc32(packed)
    assert values_sum(1, -2, "é", None, "b") == zlib.crc32(packed + b"\x00" + "é".encode() + b"\x00b")
    assert values_sum(1, -2, None) == values_sum(1, -2)
    assert values_sum() == 0
    assert content_sum(b"content") == content_sum(memoryview(b"content")) == zlib.crc32(b"content")
    assert NO_SUM == -1, "which no content has"


@pytest.mark.parametrize("session_id", [None, '"s"', '""'])
def test_the_sum_of_a_message_is_that_of_its_values(session_id: str | None) -> None:
    assert sum_of(*FACTS, session_id) == values_sum(*FACTS, session_id)


@pytest.mark.parametrize("place", range(len(FACTS)))
def test_every_fact_of_a_message_counts(place: int) -> None:
    changed = [*FACTS]
    changed[place] += 1
    assert sum_of(*changed, None) != sum_of(*FACTS, None)


def test_values_of_other_types_are_refused() -> None:
    for text in (b"bytes", 1.5):
        with pytest.raises(ValueError, match="a value of type"):
            values_sum(1, text)
    for facts in (("text", *FACTS[1:]), (None, *FACTS[1:]), (1 << 63, *FACTS[1:])):
        with pytest.raises(ValueError, match=r"."):
            sum_of(*facts, None)
    with pytest.raises(ValueError, match=r"."):
        sum_of(*FACTS, b"bytes")
