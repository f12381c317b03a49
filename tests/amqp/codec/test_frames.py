from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_SIZE_MIN,
    LARGE,
    PROTOCOL_HEADER,
    FrameReader,
    encode_frame,
)
from twinbus.amqp.errors import ConnectionFault


def bodies(reader: FrameReader, data: bytes) -> list[tuple[int, int, bytes]]:
    return [(kind, channel, data[start:end]) for kind, channel, _, data, start, end in reader.frames(data)]


def in_frames(size_max: int = FRAME_SIZE_MIN) -> FrameReader:
    reader = FrameReader(size_max)
    reader.expects_header = False
    return reader


def test_the_first_eight_bytes_are_a_protocol_header() -> None:
    reader = FrameReader(FRAME_SIZE_MIN)
    data = AMQP_HEADER + encode_frame(7, b"body")
    assert bodies(reader, data) == [(PROTOCOL_HEADER, 0, AMQP_HEADER), (AMQP_FRAME, 7, b"body")]


def test_an_empty_frame_has_an_empty_body() -> None:
    assert bodies(in_frames(), EMPTY_FRAME) == [(AMQP_FRAME, 0, b"")]


def test_an_extended_header_is_skipped() -> None:
    frame = b"\x00\x00\x00\x10\x03\x00\x00\x01" + b"more" + b"body"
    assert bodies(in_frames(), frame) == [(AMQP_FRAME, 1, b"body")]


def test_a_frame_of_exactly_the_limit_is_read() -> None:
    frame = encode_frame(0, bytes(FRAME_SIZE_MIN - 8))
    assert len(bodies(in_frames(), frame)) == 1


def test_a_frame_over_the_limit_fails_before_its_body_is_here() -> None:
    frame = encode_frame(0, bytes(FRAME_SIZE_MIN - 7))
    with pytest.raises(ConnectionFault, match="at most 512"):
        bodies(in_frames(), frame[:8])


@pytest.mark.parametrize("header", ["0000000702000000", "0000000801000000", "0000000803000000", "00000000ff000000"])
def test_a_header_that_contradicts_itself_is_a_fault(header: str) -> None:
    with pytest.raises(ConnectionFault):
        bodies(in_frames(), bytes.fromhex(header))


def test_a_caller_that_stops_early_gets_the_rest_from_the_next_call() -> None:
    reader = in_frames()
    first = next(iter(reader.frames(encode_frame(1, b"one") + encode_frame(2, b"two"))))
    assert first[1] == 1
    assert bodies(reader, b"") == [(AMQP_FRAME, 2, b"two")]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.data())
def test_frames_are_the_same_however_the_bytes_are_cut(contents: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(number, body) for number, body in enumerate(contents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = in_frames()
    found = [body for chunk in _pieces(stream, cuts) for _, _, body in bodies(reader, chunk)]
    assert found == contents


def _pieces(stream: bytes, cuts: Iterable[int]) -> list[bytes]:
    borders = [0, *cuts, len(stream)]
    return [stream[start:end] for start, end in pairwise(borders)]


@given(
    sizes=st.lists(st.integers(8, 3 * LARGE), max_size=6),
    steps=st.lists(st.integers(1, 4 * LARGE), min_size=1),
    share=st.integers(1, 6 * LARGE),
)
def test_large_frames_arrive_whole_and_in_order_however_they_are_cut(
    sizes: list[int], steps: list[int], share: int
) -> None:
    """Goal: a large frame that begins in one read and ends in another is joined alone, and nothing around it gets lost.

    Method: reads of any sizes, of each of which only a share is taken at a time.
    """
    sent = [(AMQP_FRAME, number, bytes([number]) * size) for number, size in enumerate(sizes)]
    data = b"".join([encode_frame(channel, body) for _, channel, body in sent])
    reader = in_frames(4 * LARGE)
    found: list[tuple[int, int, bytes]] = []
    while data:
        step, steps = steps[0], [*steps[1:], steps[0]]
        read, data = data[:step], data[step:]
        while read or reader.unread_size:
            found += [
                (kind, channel, held[start:end]) for kind, channel, _, held, start, end in reader.frames(read, share)
            ]
            read = b""
    assert found == sent


def test_of_one_read_only_frames_that_start_within_the_share_are_taken() -> None:
    frame = encode_frame(1, b"body")
    reader = in_frames()
    for share, count in ((1, 1), (len(frame), 1), (len(frame) + 1, 2)):
        assert len(list(reader.frames(frame * 3, share))) == count
        assert reader.unread_size == (3 - count) * len(frame)
        assert len(bodies(reader, b"")) == 3 - count


def test_a_large_frame_that_began_in_an_earlier_read_counts_in_the_share() -> None:
    large, small = encode_frame(1, bytes(LARGE)), encode_frame(2, b"body")
    for more, count in ((0, 0), (1, 1), (len(small) + 1, 2)):
        reader = in_frames(4 * LARGE)
        assert list(reader.frames(large[:100], LARGE)) == []
        assert len(list(reader.frames(large[100:] + small * 4, len(large) + more))) == 1 + count
        assert reader.unread_size == (4 - count) * len(small)


def test_bytes_that_are_kept_come_behind_those_that_wait_and_fit_in_one_frame() -> None:
    frames = [encode_frame(number, b"body") for number in range(4)]
    reader = in_frames()
    assert len(list(reader.frames(frames[0] + frames[1], 1))) == 1
    reader.keep(frames[2])
    reader.keep(frames[3])
    assert [channel for _, channel, _ in bodies(reader, b"")] == [1, 2, 3]
    reader.keep(bytes(FRAME_SIZE_MIN))
    with pytest.raises(ConnectionFault, match=f"{FRAME_SIZE_MIN + 1} bytes"):
        reader.keep(b"x")
