"""The fast readers say what the general decoder says, or nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.amqp.codec import transfer_reader
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.delivery_state import ACCEPTED, Modified, Rejected, Released
from twinbus.amqp.codec.encode import encode_list, encode_value
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.performatives import RECEIVER, Disposition, Transfer, decode_performative
from twinbus.amqp.codec.transfer_reader import NO_ID, read_disposition, read_transfer
from twinbus.amqp.codec.transfer_writer import TransferWriter, encode_disposition
from twinbus.amqp.codec.types import UInt
from twinbus.amqp.errors import DecodeError
from twinbus.errors import MessageLockLost
from twinbus.model.wire_names import BATCH_FORMAT

UINT = st.sampled_from([0, 1, 255, 256, 2**32 - 1]) | st.integers(0, 2**32 - 1)
UINT_FIELDS = UINT.map(UInt).map(encode_value)
BOOLEAN_FIELDS = st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x56\x02"])
TAGS = st.binary(max_size=32).map(encode_value)
NULL = st.just(b"\x40")
TRANSFER_FIELDS = st.tuples(
    UINT_FIELDS,
    UINT_FIELDS | NULL,
    TAGS | NULL,
    UINT_FIELDS | NULL,
    BOOLEAN_FIELDS,
    BOOLEAN_FIELDS,
    NULL | st.just(b"\x50\x01"),
    NULL | st.just(b"\x00\x53\x24\x45"),
    BOOLEAN_FIELDS,
    BOOLEAN_FIELDS,
    BOOLEAN_FIELDS,
)
STATES = st.sampled_from([ACCEPTED, Released(), Modified(), Modified(delivery_failed=True), Rejected()])


def general(body: bytes) -> Any:
    try:
        return decode_performative(body)
    except DecodeError:
        return None


def check_transfer(body: bytes) -> None:
    fast = read_transfer(b"...." + body + b"\x43" * 40, 4, 4 + len(body))
    if fast is None:
        return
    handle, delivery_id, tag, message_format, settled, more, payload_start = fast
    transfer, end = general(body)
    assert isinstance(transfer, Transfer)
    # Without an id there is no tag either, or the general decoder decides.
    known = (NO_ID, b"") if transfer.delivery_id is None else (transfer.delivery_id, transfer.delivery_tag)
    assert (handle, delivery_id, tag) == (transfer.handle, *known)
    assert (message_format, settled) == (transfer.message_format or 0, bool(transfer.settled))
    assert (more, payload_start) == (transfer.more, end + 4)
    assert transfer.state is None
    assert transfer.rcv_settle_mode is None
    assert not transfer.aborted
    assert not transfer.resume


@given(TRANSFER_FIELDS, st.integers(0, 11), st.binary(max_size=20))
def test_a_transfer_is_read_as_the_general_decoder_reads_it(
    fields: tuple[bytes, ...], count: int, payload: bytes
) -> None:
    check_transfer(b"\x00\x53\x14" + encode_list(fields[:count]) + payload)


@settings(max_examples=200)
@given(TRANSFER_FIELDS, st.integers(5, 11), st.integers(4, 30), st.integers(0, 255))
def test_a_damaged_transfer_is_not_read_otherwise(
    fields: tuple[bytes, ...], count: int, place: int, value: int
) -> None:
    body = bytearray(b"\x00\x53\x14" + encode_list(fields[:count]) + b"payload")
    body[min(place, len(body) - 1)] = value
    if body[:4] == b"\x00\x53\x14\xc0":
        check_transfer(bytes(body))


@given(UINT, UINT, st.binary(max_size=32), st.booleans(), st.binary(max_size=20))
def test_what_our_writer_writes_is_read_fast(
    handle: int, number: int, tag: bytes, settled: bool, payload: bytes
) -> None:
    frame = b"".join(TransferWriter(3, handle, 65536).write_all(number, [(tag, payload)], settled))
    fields = read_transfer(frame, 8, len(frame))
    assert fields is not None
    assert fields[:6] == (handle, number, tag, 0, settled, False)
    assert frame[fields[6] :] == payload
    assert int.from_bytes(frame[:4]) == len(frame)


@given(st.binary(max_size=32), st.integers(0, 2000), st.none() | STATES, st.booleans())
def test_every_frame_of_a_delivery_has_all_fields_of_a_transfer(
    tag: bytes, size: int, state: Any, settled: bool
) -> None:
    """The Python SDK before 7.15 takes what stands behind the eleventh field for the payload."""
    writer = TransferWriter(3, 7, 512)
    parts = writer.write(1, tag, bytes(size), 0, settled, state) + writer.write_all(1, [(tag, bytes(size))], settled)
    for head in parts[::2]:
        written, _ = decode_value(bytes(head), 8)
        assert len(written.value) == 11


def test_a_transfer_as_proton_writes_it_is_read_fast() -> None:
    body = bytes.fromhex("005314c00d0643700000012ca00131434242") + b"payload"
    assert read_transfer(body, 0, len(body)) == (0, 300, b"1", 0, False, False, len(body) - 7)


def test_a_transfer_without_the_fields_that_have_defaults_is_read_fast() -> None:
    needed = [b"\x43", b"\x52\x01", b"\xa0\x011", b"\x40"]
    for fields, settled in ((needed, False), ([*needed, b"\x41"], True)):
        front = b"\x00\x53\x14" + encode_list(fields)
        body = front + b"payload"
        assert read_transfer(body, 0, len(body)) == (0, 1, b"1", 0, settled, False, len(front))


@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT])
@pytest.mark.parametrize("delivery_id", [None, 0, 1, 300])
@pytest.mark.parametrize("handle", [0, 1, 300])
@pytest.mark.parametrize("more", [False, True])
def test_transfers_of_messages_and_batches_are_read_fast_however_their_numbers_are_written(
    handle: int, delivery_id: int | None, message_format: int, more: bool
) -> None:
    tag = None if delivery_id is None else b"tag"
    transfer = Transfer(
        handle=handle, delivery_id=delivery_id, delivery_tag=tag, message_format=message_format, settled=True, more=more
    )
    front = encode_composite(transfer)
    body = front + b"payload"
    known = (NO_ID, b"") if delivery_id is None else (delivery_id, b"tag")
    assert read_transfer(body, 0, len(body)) == (handle, *known, message_format, True, more, len(front))


def test_a_list_that_is_shorter_than_its_fields_is_left_to_the_general_decoder() -> None:
    body = bytes.fromhex("005314c00c0643700000012ca00131434242") + b"payload"
    assert read_transfer(body, 0, len(body)) is None


def test_a_list_that_ends_after_its_frame_is_left_to_the_general_decoder() -> None:
    """What follows the frame would be read as if it belonged to it."""
    front = bytes.fromhex("005314c00d0643700000012ca00131434242")
    assert read_transfer(front, 0, len(front)) is not None
    for missing in range(1, 13):
        assert read_transfer(front, 0, len(front) - missing) is None


def test_a_transfer_as_the_python_sdk_writes_it_is_read_fast() -> None:
    body = bytes.fromhex("005314c0150b5201520aa0040000000143560056004040404040") + b"payload"
    assert read_transfer(body, 0, len(body)) == (1, 10, b"\0\0\0\x01", 0, False, False, len(body) - 7)


def test_few_forms_of_plain_outcomes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a peer says in ever new ways would fill the memory of all."""
    known: dict[bytes, tuple[int, bool, object]] = {}
    monkeypatch.setattr(transfer_reader, "_DISPOSITION_TAILS", known)
    monkeypatch.setattr(transfer_reader, "_DISPOSITION_TAILS_MAX", 2)
    for state in (Rejected(), ACCEPTED, Modified(delivery_failed=True), Released(), Modified()):
        frame = encode_disposition(9, RECEIVER, 1, 1, True, state)
        for _ in range(2):
            assert read_disposition(frame, 8, len(frame)) == (RECEIVER, 1, 1, True, state)
    assert [state for _, _, state in known.values()] == [ACCEPTED, Released()]


def test_a_disposition_as_the_python_sdk_writes_it_is_read_fast() -> None:
    body = bytes.fromhex("005315c00e06 5601 520a 520a 5601 00532445 40")
    assert read_disposition(body, 0, len(body)) == (RECEIVER, 10, 10, True, ACCEPTED)


@given(st.booleans(), UINT, UINT, st.booleans(), st.none() | STATES)
def test_a_disposition_of_ours_is_read_as_it_was_written(
    role: bool, first: int, last: int, settled: bool, state: Any
) -> None:
    frame = encode_disposition(9, role, first, last, settled, state)
    written = Disposition(role=role, first=first, last=last, settled=settled, state=state)
    assert frame == encode_frame(9, frame[8:])
    assert decode_performative(frame[8:])[0] == written
    assert len(decode_value(frame, 8)[0].value) == 6
    assert read_disposition(frame, 8, len(frame)) == (role, first, last, settled, state)


@given(st.booleans(), UINT, st.none() | UINT, st.booleans(), st.none() | STATES)
def test_any_disposition_is_read_as_the_general_decoder_reads_it(
    role: bool, first: int, last: int | None, settled: bool, state: Any
) -> None:
    written = Disposition(role=role, first=first, last=last, settled=settled, state=state)
    body = encode_composite(written)
    expected = role, first, first if last is None else last, settled, state
    assert read_disposition(body, 0, len(body)) == expected


@pytest.mark.parametrize("last", [None, 0, 7, 300])
@pytest.mark.parametrize("first", [0, 7, 300])
def test_dispositions_that_differ_in_their_ids_alone_are_read_fast(
    monkeypatch: pytest.MonkeyPatch, first: int, last: int | None
) -> None:
    def body(first: int, last: int | None) -> bytes:
        return encode_composite(Disposition(role=RECEIVER, first=first, last=last, settled=True, state=Released()))

    known, other = body(1, 2), body(first, last)
    read_disposition(known, 0, len(known))
    monkeypatch.setattr(transfer_reader, "decode_performative", None)
    expected = RECEIVER, first, first if last is None else last, True, Released()
    assert read_disposition(other, 0, len(other)) == expected


@settings(max_examples=200)
@given(st.integers(4, 25), st.integers(0, 255))
def test_a_damaged_disposition_is_not_read_otherwise(place: int, value: int) -> None:
    body = bytearray(encode_composite(Disposition(role=RECEIVER, first=7, last=300, settled=True, state=ACCEPTED)))
    body[min(place, len(body) - 1)] = value
    try:
        fast = read_disposition(bytes(body) + b"\x43" * 20, 0, len(body))
    except DecodeError:
        return
    if fast is not None:
        read = general(bytes(body))
        assert read is not None
        disposition = read[0]
        last = disposition.first if disposition.last is None else disposition.last
        assert fast == (disposition.role, disposition.first, last, disposition.settled, disposition.state)


def test_a_long_state_makes_a_long_list() -> None:
    state = Rejected.because(MessageLockLost("x" * 300))
    frame = encode_disposition(0, RECEIVER, 1, 2, True, state)
    assert decode_performative(frame[8:])[0] == Disposition(role=RECEIVER, first=1, last=2, settled=True, state=state)


def test_a_disposition_whose_list_ends_after_its_frame_or_has_too_few_fields_is_not_read_fast() -> None:
    frame = encode_disposition(9, RECEIVER, 1, 2, True, None)
    size_at, end = 8 + 4, len(frame)
    assert read_disposition(frame, 8, end) is not None
    for size in range(frame[size_at] + 1, frame[size_at] + 20):
        longer = frame[:size_at] + bytes([size]) + frame[size_at + 1 :] + b"\x40" * 20
        assert read_disposition(longer, 8, end) is None
    for count in range(3):
        fewer = frame[: size_at + 1] + bytes([count]) + frame[size_at + 2 :]
        assert read_disposition(fewer, 8, end) is None
