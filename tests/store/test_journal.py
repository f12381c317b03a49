"""Batches come back as they were written; torn ones are cut off; damage is reported and nothing is changed."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.contract.rows import DEFERRED, HERE, NOON, row
from twinbus.clock import NEVER
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store import journal_record
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Change,
    Copied,
    DuplicatesForgotten,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    Removed,
    SessionStateSet,
    SharedRows,
    StoredMessage,
    fragment_key,
)
from twinbus.store.folder import journal
from twinbus.store.folder.journal import (
    BATCH_HEADER,
    BATCH_MAGIC,
    FILE_HEADER,
    SPARE_BYTES_MAX,
    SPARE_NAME,
    SegmentFile,
    segment_numbers,
    segment_path,
)
from twinbus.store.journal_record import decode_changes, decode_rows, encode_changes, encode_rows
from twinbus.store.layers.located_changes import (
    CONTENT_STAYS,
    PLACE,
    SIZE,
    RowAltered,
    RowsAdded,
    RowsAltered,
    stored_messages,
)

EVERY_KIND: list[Change] = [
    FragmentCreated(HERE),
    FragmentDeleted(HERE),
    Enqueued(HERE, [row(1, b"one", session_id="s\x00\ud800"), row(2, b"", state=DEFERRED), row(2**44 - 1, b"three")]),
    Enqueued(HERE, [row(4, b"four")]),
    Enqueued(HERE, []),
    Removed(HERE, [1, 2, 3]),
    Removed(HERE, []),
    Altered(HERE, 1, DEFERRED, 2, NOON, NEVER),
    AlteredTogether(HERE, [1, 2, 5], DEFERRED, -7),
    Altered(HERE, 1, DEFERRED, 2, NOON, NEVER, b""),
    Altered(HERE, 1, DEFERRED, 2, NOON, NEVER, b"new"),
    Activated(HERE, 1, 2, NOON, NEVER),
    ActivatedTogether(HERE, [1, 5], 6, NOON, [NEVER, NOON]),
    SessionStateSet(HERE, "s", None, NOON),
    SessionStateSet(HERE, "s", b"", NOON),
    SessionStateSet(HERE, "é", b"state", NOON),
    DuplicatesSeen(HERE, [("k", NOON), ('"', NEVER)]),
    DuplicatesForgotten(HERE, NOON),
]
BODIES = [b"first", b"second one", b"3"]


def test_rows_come_back_from_their_columns_as_they_were() -> None:
    sessions = [row(1, b"one", session_id="s\x00\ud800"), row(2, b"", state=DEFERRED), row(2**44 - 1, b"three")]
    plain = [row(7, b"seven", due_at=NOON, delivery_count=3), replace(row(9, b"9"), enqueued_sequence_number=-5)]
    for rows in (sessions, plain, [row(4, b"")]):
        assert decode_rows(b"".join(encode_rows(rows))) == rows
    (found,) = decode_rows(b"".join(encode_rows([row(2, state=DEFERRED)])))
    assert found.state is MessageState.DEFERRED


def new_segment(folder: Path) -> SegmentFile:
    return SegmentFile.create(folder, 1, first_sequence=1)


def written(folder: Path, bodies: list[bytes] = BODIES) -> bytes:
    """The file of a segment with a batch for each body, without the space allocated ahead."""
    segment = new_segment(folder)
    for body in bodies:
        segment.append([body])
    segment.renew_tail()
    segment.close()
    return segment_path(folder, 1).read_bytes()


def bodies_in(folder: Path) -> list[bytes]:
    segment = SegmentFile.open(folder, 1)
    assert segment is not None
    try:
        return [batch.body for batch in segment.batches()]
    finally:
        segment.close()


@pytest.mark.parametrize("change", EVERY_KIND, ids=lambda change: type(change).__name__)
def test_a_decoded_record_is_the_change_with_its_contents_left_in_the_segment(change: Change) -> None:
    located = list(decode_changes(b"".join(encode_changes([change, *EVERY_KIND])), place=100))
    assert len(located) == 1 + len(EVERY_KIND)
    match first := located[0]:
        case RowsAdded():
            assert isinstance(change, Enqueued)
            rows = stored_messages(first.numbers, first.rows, [b""] * len(first.rows))
            assert rows == [replace(message, content=b"") for message in change.messages]
        case RowAltered(fragment, number, state, delivery_count, due_at, expires_at, size):
            assert isinstance(change, Altered)
            assert size == (CONTENT_STAYS if change.content is None else len(change.content))
            facts = Altered(fragment, number, MessageState(state), delivery_count, due_at, expires_at, change.content)
            assert facts == change
        case RowsAltered(fragment, numbers, state, due_at):
            assert AlteredTogether(fragment, numbers, MessageState(state), due_at) == change
        case ActivatedTogether():
            assert list(first.each()) == ([change] if isinstance(change, Activated) else list(first.each()))
            assert isinstance(change, Activated) or first == change
        case _:
            assert first == change


@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_several_fragments_get_are_written_once(count: int) -> None:
    shared = SharedRows([row(0, b"%d" % number * 1_000, session_id="s") for number in range(count)])
    others = SharedRows([row(0, b"another")])
    changes: list[Change] = [
        Removed(HERE, [1]),
        Copied(HERE, 5, shared),
        Copied(fragment_key(8, 0), 1, others),
        *[Copied(fragment_key(8, index), (index << SEQUENCE_BITS) + 7, shared) for index in range(1, 60)],
        Copied(fragment_key(8, 60), 2, others),
    ]
    body = b"".join(encode_changes(changes))
    assert len(body) < (count + 1) * 1_000 + 60 * 64
    before = b"".join(encode_changes([Enqueued(HERE, [row(1, b"of another commit in the same batch")])]))
    _, removed, *added = decode_changes(memoryview(before + body), place=100)
    assert removed == changes[0]
    for change, found in zip(changes[1:], added, strict=True):
        assert isinstance(change, Copied)
        assert isinstance(found, RowsAdded)
        assert (found.fragment, len(found.numbers)) == (change.fragment, len(change.rows))
        whole = before + body
        contents = [whole[row[PLACE] - 100 : row[PLACE] - 100 + row[SIZE]] for row in found.rows]
        read = stored_messages(found.numbers, found.rows, contents)
        assert read == change.rows.numbered(change.first_number)


def all_in(body: bytes) -> tuple[dict[int, list[StoredMessage]], list[object]]:
    """The rows of each fragment with their contents, and everything else."""
    rows: dict[int, list[StoredMessage]] = {}
    others: list[object] = []
    for located in decode_changes(body, place=0):
        if isinstance(located, RowsAdded):
            contents = [body[row[PLACE] : row[PLACE] + row[SIZE]] for row in located.rows]
            rows.setdefault(located.fragment, []).extend(stored_messages(located.numbers, located.rows, contents))
        elif isinstance(located, RowAltered):
            content = body[located.place : located.place + max(0, located.size)]
            others.append((located._replace(place=0), content))
        else:
            others.append(located)
    return rows, others


@pytest.mark.parametrize("weight", [1, 2, 3, 7, 1_000])
def test_a_commit_that_is_encoded_in_parts_is_the_same_commit(weight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_record, "PART_WEIGHT", weight)
    monkeypatch.setattr(journal_record, "NUMBERS_PER_ROW", 2)
    shared = SharedRows([row(0, b"%d" % number * 99, session_id="s" * (number % 2)) for number in range(5)])
    other = SharedRows([row(0, b"other")])
    changes: list[Change] = [
        *[Copied(fragment_key(8, index), index + 1, shared) for index in range(4)],
        *EVERY_KIND,
        Enqueued(HERE, [row(number, b"%d" % number) for number in range(10, 21)]),
        Copied(fragment_key(8, 5), 1, other),
        Removed(HERE, list(range(9))),
        Copied(fragment_key(8, 6), 3, shared),
        Copied(fragment_key(8, 7), 4, other),
    ]
    parts = [b"".join(part) for part in journal_record.encode_in_parts(changes)]
    whole = b"".join(encode_changes(changes))
    assert all_in(b"".join(parts)) == all_in(whole)
    assert (len(parts) == 1) == (weight == 1_000)
    # What is shared is written once, whatever part it is in.
    assert len(b"".join(parts)) <= len(whole) + 30 * journal_record.FRAME.size


def test_a_part_of_a_commit_has_as_many_rows_as_are_encoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_record, "PART_WEIGHT", 4)
    shared = SharedRows([row(0)] * 4)
    changes: list[Change] = [
        Enqueued(HERE, [row(number) for number in range(1, 11)]),
        FragmentCreated(HERE),
        *[Copied(fragment_key(8, index), 1, shared) for index in range(7)],
    ]
    body, counts, known = b"", list[list[int]](), 0
    for part in journal_record.encode_in_parts(changes):
        body += b"".join(part)
        found = [len(each.rows) if isinstance(each, RowsAdded) else 0 for each in decode_changes(body, place=0)]
        counts.append(found[known:])
        known = len(found)
    assert counts == [[4], [4], [2, 0, 4], [4] * 4, [4] * 2]


@pytest.mark.parametrize(
    ("changes", "is_long"),
    [
        ([Enqueued(HERE, [row(number) for number in range(1, 7)])], False),
        ([Enqueued(HERE, [row(number) for number in range(1, 8)])], True),
        ([Copied(HERE, 1, SharedRows([row(0)] * 4)), Enqueued(HERE, [row(1), row(2)])], False),
        ([Copied(HERE, 1, SharedRows([row(0)] * 4)), Enqueued(HERE, [row(1), row(2), row(3)])], True),
        ([Removed(HERE, list(range(5 * journal_record.NUMBERS_PER_ROW)))], False),
        ([Removed(HERE, list(range(6 * journal_record.NUMBERS_PER_ROW)))], True),
        ([FragmentCreated(HERE)] * 7, True),
    ],
)
def test_a_commit_of_many_rows_is_to_be_encoded_in_parts(
    changes: list[Change], is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_record, "PART_WEIGHT", 3)
    assert journal_record.is_long(changes) == is_long


def test_a_segment_that_finds_no_room_takes_that_of_the_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that filled a disk are gone, and their segment is the spare: all the room that there is."""
    first = new_segment(tmp_path)
    second = SegmentFile.create(tmp_path, 2, first_sequence=2)
    first.append([b"x" * 1_000])
    first.retire()
    first.close()
    spare = tmp_path / SPARE_NAME

    def write(descriptor: int, pieces: list[bytes], place: int) -> int:
        if spare.exists():
            raise OSError(errno.ENOSPC, "full")
        return writev(descriptor, pieces, place)

    def allocate(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    writev = os.pwritev
    monkeypatch.setattr(os, "pwritev", write)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    for body in (b"a message", b"another one"):
        second.append([body])
    second.close()
    assert not spare.exists()


def test_where_space_cannot_be_allocated_the_spare_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next segment overwrites it, which is all that makes its syncs fast there."""
    first = new_segment(tmp_path)
    second = SegmentFile.create(tmp_path, 2, first_sequence=2)
    first.retire()
    first.close()

    def allocate(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    second.append([b"a message"])
    second.close()
    assert (tmp_path / SPARE_NAME).exists()


def test_the_overlay_learns_where_contents_are() -> None:
    body = b"".join(encode_changes(EVERY_KIND))
    contents = []
    for located in decode_changes(body, place=0):
        if isinstance(located, RowsAdded):
            contents += [body[row[PLACE] : row[PLACE] + row[SIZE]] for row in located.rows]
        elif isinstance(located, RowAltered) and located.size > 0:
            contents.append(body[located.place : located.place + located.size])
    assert contents == [b"one", b"", b"three", b"four", b"new"]


def test_batches_come_back_in_order_and_more_can_follow(tmp_path: Path) -> None:
    written(tmp_path)
    segment = SegmentFile.open(tmp_path, 1)
    assert segment is not None
    places = [batch.place for batch in segment.batches()]
    assert [segment.read(place, 1) for place in places] == [b"f", b"s", b"3"]
    segment.append([b"fourth"])
    segment.close()
    assert bodies_in(tmp_path) == [*BODIES, b"fourth"]


def test_space_allocated_ahead_reads_as_the_end(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    segment.append([b"only"])
    segment.close()
    assert segment_path(tmp_path, 1).stat().st_size > 1_000_000
    assert bodies_in(tmp_path) == [b"only"]


def test_a_system_need_not_have_the_calls_that_are_for_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    written(tmp_path)
    assert bodies_in(tmp_path) == BODIES


def test_a_batch_torn_at_any_byte_is_cut_off(tmp_path: Path) -> None:
    whole = written(tmp_path)
    last_begins = len(whole) - BATCH_HEADER.size - len(BODIES[-1])
    for length in range(last_begins, len(whole)):
        for filler in (b"", bytes(len(whole) - length), bytes(100_000)):
            segment_path(tmp_path, 1).write_bytes(whole[:length] + filler)
            # Where a zero was to be written anyway, there is no difference.
            expected = BODIES if whole[:length] + filler[: len(whole) - length] == whole else BODIES[:-1]
            assert bodies_in(tmp_path) == expected, length


def test_a_torn_batch_is_cut_off_even_if_its_first_pages_are_the_missing_ones(tmp_path: Path) -> None:
    whole = written(tmp_path, [b"first", b"x" * 10_000])
    begins = len(whole) - 10_000 - BATCH_HEADER.size
    segment_path(tmp_path, 1).write_bytes(whole[:begins] + bytes(4096) + whole[begins + 4096 :])
    assert bodies_in(tmp_path) == [b"first"]


def test_a_bad_byte_anywhere_before_the_last_batch_is_damage_with_file_and_offset(tmp_path: Path) -> None:
    whole = written(tmp_path)
    second_begins = FILE_HEADER.size + BATCH_HEADER.size + len(BODIES[0])
    last_begins = len(whole) - BATCH_HEADER.size - len(BODIES[-1])
    for position in range(second_begins, last_begins):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        segment_path(tmp_path, 1).write_bytes(damaged)
        with pytest.raises(StoreDamaged, match=f"journal-0+1, offset {second_begins}:"):
            bodies_in(tmp_path)
        assert segment_path(tmp_path, 1).read_bytes() == damaged


def test_a_bad_batch_in_front_of_a_good_one_is_damage_however_far_away_that_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of the file at a time may end anywhere in the good one, and contents between the two may look like the beginning of
    one."""
    monkeypatch.setattr(journal, "SEARCH_STEP", 16)
    second_begins = FILE_HEADER.size + BATCH_HEADER.size + len(b"first")
    for distance in range(50):
        damaged = bytearray(written(tmp_path, [b"first", (BATCH_MAGIC * 50)[:distance], b"last"]))
        damaged[second_begins] ^= 0x40
        segment_path(tmp_path, 1).write_bytes(damaged)
        with pytest.raises(StoreDamaged, match="a bad batch is followed by good ones"):
            bodies_in(tmp_path)
        segment_path(tmp_path, 1).unlink()


@pytest.mark.parametrize("ahead", [0, 5_000], ids=["cut", "with space behind"])
def test_a_flipped_bit_anywhere_in_the_last_batch_is_damage_with_its_place(tmp_path: Path, ahead: int) -> None:
    whole = written(tmp_path, [b"first", b"the last one"])
    last_begins = len(whole) - BATCH_HEADER.size - len(b"the last one")
    for position in range(8 * last_begins, 8 * len(whole)):
        damaged = bytearray(whole + bytes(ahead))
        damaged[position // 8] ^= 1 << position % 8
        segment_path(tmp_path, 1).write_bytes(damaged)
        with pytest.raises(StoreDamaged, match=f"bit {position % 8} of the byte at offset {position // 8} is wrong"):
            bodies_in(tmp_path)
        assert segment_path(tmp_path, 1).read_bytes() == damaged


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_that_lacks_some_of_its_sectors_is_cut_off(tmp_path: Path, seed: int) -> None:
    """Wherever they are, and whether zeros or what the file held before is found in their place."""
    random = Random(seed)
    whole = written(tmp_path, [b"first", random.randbytes(20_000)])
    begins = FILE_HEADER.size + BATCH_HEADER.size + len(b"first")
    sectors = range(begins // 512 + 1, len(whole) // 512)
    damaged = bytearray(whole)
    for sector in random.sample(sectors, random.randint(1, len(sectors))):
        damaged[512 * sector : 512 * (sector + 1)] = random.choice((bytes(512), random.randbytes(512)))
    segment_path(tmp_path, 1).write_bytes(damaged)
    assert bodies_in(tmp_path) == [b"first"]


def test_a_file_that_serves_again_gives_back_nothing_of_what_it_held(tmp_path: Path) -> None:
    first = new_segment(tmp_path)
    for body in [*BODIES, b"x" * 1_000]:
        first.append([body])
    first.retire()
    first.close()
    assert segment_numbers(tmp_path) == []
    second = SegmentFile.create(tmp_path, 2, first.next_sequence)
    second.append([b"new"])
    second.close()
    reopened = SegmentFile.open(tmp_path, 2)
    assert reopened is not None
    assert [batch.body for batch in reopened.batches()] == [b"new"]
    reopened.close()
    assert b"second one" in segment_path(tmp_path, 2).read_bytes()


def test_a_file_that_serves_again_is_no_larger_than_a_spare_may_be(tmp_path: Path) -> None:
    first = new_segment(tmp_path)
    first.append([b"x" * (SPARE_BYTES_MAX + 1)])
    first.retire()
    first.close()
    second = SegmentFile.create(tmp_path, 2, first.next_sequence)
    second.close()
    assert segment_path(tmp_path, 2).stat().st_size == SPARE_BYTES_MAX


def test_who_reads_a_segment_while_it_retires_finds_all_of_it(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    segment.append([b"x" * SPARE_BYTES_MAX])
    place = segment.body_place
    segment.append([b"last"])
    segment.retire()
    assert segment.read(place, 4) == b"last"
    segment.close()


def test_a_segment_that_cannot_be_created_keeps_no_file_open(tmp_path: Path) -> None:
    (segment_path(tmp_path, 1) / "in the way").mkdir(parents=True)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(IsADirectoryError):
        new_segment(tmp_path)
    assert len(os.listdir("/dev/fd")) == before


def test_a_segment_that_cannot_be_read_keeps_no_file_open(tmp_path: Path) -> None:
    os.mkfifo(segment_path(tmp_path, 1))
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="seek"):
        SegmentFile.open(tmp_path, 1)
    assert len(os.listdir("/dev/fd")) == before


def test_a_missing_batch_is_damage(tmp_path: Path) -> None:
    whole = written(tmp_path)
    second_begins = FILE_HEADER.size + BATCH_HEADER.size + len(BODIES[0])
    last_begins = len(whole) - BATCH_HEADER.size - len(BODIES[-1])
    segment_path(tmp_path, 1).write_bytes(whole[:second_begins] + whole[last_begins:])
    with pytest.raises(StoreDamaged, match="batch 3 is in the place of 2"):
        bodies_in(tmp_path)


def test_a_segment_whose_creation_was_cut_short_was_never_used(tmp_path: Path) -> None:
    header = written(tmp_path, [])
    assert len(header) == FILE_HEADER.size
    for length in range(FILE_HEADER.size):
        segment_path(tmp_path, 1).write_bytes(header[:length])
        assert SegmentFile.open(tmp_path, 1) is None
    segment_path(tmp_path, 1).write_bytes(bytes(5_000))
    assert SegmentFile.open(tmp_path, 1) is None


def test_a_bad_file_header_in_front_of_batches_is_damage(tmp_path: Path) -> None:
    whole = written(tmp_path)
    for position in range(FILE_HEADER.size):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        segment_path(tmp_path, 1).write_bytes(damaged)
        with pytest.raises(StoreDamaged):
            SegmentFile.open(tmp_path, 1)


def test_a_content_that_looks_like_a_batch_of_another_segment_does_not_pass_for_one(tmp_path: Path) -> None:
    forged = written(tmp_path)[FILE_HEADER.size :]
    os.unlink(segment_path(tmp_path, 1))
    whole = written(tmp_path, [b"first", forged])
    segment_path(tmp_path, 1).write_bytes(whole[:-1])
    assert bodies_in(tmp_path) == [b"first"]


def test_a_batch_does_not_ask_the_open_file_for_its_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux the sync of the next batch would write the file's times as well: half as long again."""
    segment = new_segment(tmp_path)
    asked: list[object] = []
    with monkeypatch.context() as patch:
        for name in ("fstat", "stat"):
            patch.setattr(os, name, lambda *about, **_: asked.append(about))
        segment.append([b"quick"])
    assert asked == []
    segment.close()


def test_a_segment_that_lost_its_name_takes_no_batch(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    segment_path(tmp_path, 1).unlink()
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        segment.append([b"lost"])
    segment.close()
