"""Tables that are not what checkpoints wrote: single rows are set aside, named and counted off; anything else is refused."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.rows import ELSEWHERE, HERE, everything, holding, numbers, row
from tests.store.test_folder_check import AT_ONCE
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    AlteredTogether,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    Removed,
    SessionStateSet,
    fragment_key,
)
from twinbus.store.damage import Damage
from twinbus.store.folder import table_check
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.medium import FolderMedium, FolderTables
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME

FACTS, READ = "the facts are not what was written", "what was read is not what was written"
HOME = "entity 1, fragment 0, main"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Messages 1 to 5 in one fragment (2 in a session, 4 scheduled), 1 and 2 in another; states and keys in the first."""
    store = FolderStore(tmp_path / "store", AT_ONCE)
    scheduled = row(4, state=MessageState.SCHEDULED, due_at=9)
    holding(store, row(1), row(2, b"of a session", session_id="S"), row(3, b"three"), scheduled, row(5))
    store.commit([Enqueued(ELSEWHERE, [row(1), row(2)])])
    store.commit([SessionStateSet(HERE, "s", b"a state", 7), SessionStateSet(HERE, "t", b"other", 7)])
    store.commit([DuplicatesSeen(HERE, [("one", 10), ("two", 20)])])
    store.commit([SessionStateSet(HERE, "u", b"", 7)])
    store.rest()
    store.close()
    with closing(FolderStore(tmp_path / "store", AT_ONCE)) as store:
        store.rest()
    return tmp_path / "store"


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def message(number: int, fragment_slot: int = 1) -> str:
    return f"id = {fragment_slot << 44 | number}"


def opened(folder: Path) -> FolderStore:
    return FolderStore(folder, AT_ONCE)


def counts(store: FolderStore) -> dict[int, tuple[int, int, int]]:
    return {each.fragment: (each.active_count, each.deferred_count, each.scheduled_count) for each in store.summaries()}


def test_tables_in_order_have_no_damage_and_every_row_of_them_is_checked(folder: Path) -> None:
    with closing(opened(folder)) as store:
        assert store.damage() == []
        assert counts(store) == {HERE: (4, 0, 1), ELSEWHERE: (2, 0, 0)}
        page = store.check(-1)
        assert (page.checked, page.next_id, list(page.damaged)) == (7 + 3 + 2, None, [])


def test_fragments_that_have_no_rows_or_those_of_one_kind_alone_are_in_order(tmp_path: Path) -> None:
    keys = [fragment_key(entity, 0) for entity in range(1, 5)]
    with closing(FolderStore(tmp_path, AT_ONCE)) as store:
        store.commit([FragmentCreated(key) for key in keys])
        store.commit([Enqueued(keys[0], [row(1)]), SessionStateSet(keys[1], "s", b"a state", 7)])
        store.commit([DuplicatesSeen(keys[2], [("one", 10)])])
    assert check_folder(tmp_path, None) == []
    with closing(opened(tmp_path)) as store:
        assert store.damage() == []
        assert {key: counts(store)[key] for key in keys} == dict.fromkeys(keys, (0, 0, 0)) | {keys[0]: (1, 0, 0)}
        assert store.session_state(keys[1], "s") == b"a state"
        assert store.duplicates(keys[2]) == [("one", 10)]


def test_rows_that_are_removed_or_restated_together_are_counted_off(tmp_path: Path) -> None:
    """What is left is checked against the sums of all rows."""
    with closing(FolderStore(tmp_path, AT_ONCE)) as store:
        holding(store, *[row(number) for number in range(1, 51)])
        store.rest()
        store.commit(
            [Removed(HERE, [*range(1, 21)]), AlteredTogether(HERE, [*range(21, 41)], MessageState.DEFERRED, 0)]
        )
        store.rest()
    with closing(opened(tmp_path)) as store:
        assert counts(store)[HERE] == (10, 20, 0)
        assert store.damage() == []
    assert check_folder(tmp_path, None) == []


WRONG = (
    "due_at = 'x'",
    *(f"{name} = {name} - 1" for name in ("due_at", "expires_at", "delivery_count", "enqueued_at", "enqueued_number")),
    *("content_sum = content_sum - 1", "session_id = '\"T\"'", "session_key = '\"T\"'", "session_key = NULL"),
)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_message_with_a_wrong_fact_is_set_aside_when_it_is_read_and_the_others_are_served(
    folder: Path, wrong: str
) -> None:
    change(folder, f"UPDATE messages SET {wrong} WHERE {message(2)}")
    place = f"message 2 ({HOME})"
    assert [each.place for each in check_folder(folder, None)] == [place]
    with closing(opened(folder)) as store, pytest.raises(StoreUnavailable, match=r"message 2 \("):
        store.check(-1)
    with closing(opened(folder)) as store:
        assert store.damage() == [Damage(FILE_NAME, place, READ)]
        assert numbers(everything(store)) == [1, 3, 4, 5]
        assert counts(store) == {HERE: (3, 0, 1), ELSEWHERE: (2, 0, 0)}
        assert store.summaries()[0].size_bytes == sum(len(each.content) for each in everything(store))
        assert store.check(-1).checked == 6 + 3 + 2
    with closing(opened(folder)) as store:
        assert len(store.damage()) == 1, "the next time everything adds up"
    assert check_folder(folder, None) == [Damage(str(folder / FILE_NAME), place, f"set aside before: {READ}")]
    assert check_folder(folder, None, with_set_aside=False) == []


def test_a_message_that_cannot_be_set_aside_ends_the_store_and_stays(folder: Path) -> None:
    change(folder, f"UPDATE messages SET due_at = due_at - 1 WHERE {message(2)}")
    with closing(opened(folder)) as store:
        tables = store._opened_tables
        assert isinstance(tables, FolderTables)
        no_room = "BEGIN SELECT RAISE (ABORT, 'no room'); END"
        tables._reader.execute(f"CREATE TEMP TRIGGER no_room BEFORE INSERT ON main.damaged {no_room}")
        with pytest.raises(StoreDamaged, match="could not be set aside: no room"):
            store.check(-1)
        with pytest.raises(StoreUnavailable, match="could not be set aside: no room"):
            store.summaries()
        with closing(sqlite3.connect(folder / FILE_NAME, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing is left under way
    with closing(opened(folder)) as store:
        assert store.damage() == []
        with pytest.raises(StoreUnavailable, match=r"message 2 \("):
            store.check(-1)


READS: dict[str, Callable[[FolderStore], object]] = {
    "read": lambda store: store.read(HERE, [1, 2]),
    "facts": lambda store: store.facts(HERE, [2]),
    "scan": everything,
}


@pytest.mark.parametrize("wrong", WRONG[:7])
@pytest.mark.parametrize("read", READS)
def test_a_message_with_a_wrong_fact_is_never_given_out(folder: Path, wrong: str, read: str) -> None:
    change(folder, f"UPDATE messages SET {wrong} WHERE {message(2)}")
    with closing(opened(folder)) as store, pytest.raises(StoreUnavailable, match=r"message 2 \(entity 1"):
        READS[read](store)
    with closing(opened(folder)) as store:
        assert store.damage() == [Damage(FILE_NAME, f"message 2 ({HOME})", READ)]
        assert numbers(everything(store)) == [1, 3, 4, 5]


@pytest.mark.parametrize("wrong", ["due_at = 'x'", "enqueued_at = x'00'", "content_sum = 'x'"])
def test_a_message_with_a_fact_of_another_type_is_never_given_out(folder: Path, wrong: str) -> None:
    change(folder, f"UPDATE messages SET {wrong} WHERE {message(3)}")
    with closing(opened(folder)) as store, pytest.raises(StoreUnavailable, match=r"message 3 \("):
        everything(store)
    with closing(opened(folder)) as store:
        assert numbers(everything(store)) == [1, 2, 4, 5]


def test_an_index_that_differs_from_its_table_is_built_again_and_nothing_is_lost(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        wanted = "SELECT rootpage FROM sqlite_master WHERE name = 'duplicates_by_end'"
        (page,) = connection.execute(wanted).fetchone()
    data = bytearray((folder / FILE_NAME).read_bytes())
    at = data.index(b'\x0a"one"', (page - 1) * size, page * size)
    data[at] = 0x0B
    (folder / FILE_NAME).write_bytes(data)
    with closing(opened(folder)) as store:
        (found,) = store.damage()
        assert found.place == "an index"
        assert "built again" in found.what
        assert store.duplicates(HERE) == [("one", 10), ("two", 20)]
        assert counts(store) == {HERE: (4, 0, 1), ELSEWHERE: (2, 0, 0)}
    with closing(opened(folder)) as store:
        assert len(store.damage()) == 1


def test_damage_that_no_index_explains_is_refused_and_nothing_is_changed(folder: Path) -> None:
    """The page of a table does not say how many of its bytes are free: everything on it can be read."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    data = bytearray((folder / FILE_NAME).read_bytes())
    data[(page - 1) * size + 7] += 3  # of its header: free bytes in pieces too small to be used
    (folder / FILE_NAME).write_bytes(data)
    for _ in ("first", "again"):
        with pytest.raises(StoreDamaged, match=r"(?s)messages: .*Nothing was changed"):
            opened(folder)
    assert (folder / FILE_NAME).read_bytes() == data


@pytest.mark.parametrize("wrong", [*WRONG, "size = size - 1", "state = 1", "slot = 2"])
def test_once_rows_do_not_add_up_each_is_checked_and_set_aside_before_anything_is_served(
    folder: Path, wrong: str
) -> None:
    change(folder, f"UPDATE messages SET {wrong} WHERE {message(2)}")
    change(folder, f"DELETE FROM messages WHERE {message(2, 2)}")
    with closing(opened(folder)) as store:
        assert store.damage() == [
            Damage(FILE_NAME, f"message 2 ({HOME})", FACTS),
            Damage(FILE_NAME, "entity 2, fragment 0, main", "1 messages are missing"),
        ]
        assert numbers(everything(store)) == [1, 3, 4, 5]
        assert counts(store) == {HERE: (3, 0, 1), ELSEWHERE: (1, 0, 0)}


def test_what_is_left_of_a_message_that_is_set_aside_is_kept(folder: Path) -> None:
    change(folder, f"UPDATE messages SET size = 77 WHERE {message(3)}")
    opened(folder).close()
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        ((facts, content),) = connection.execute("SELECT facts, content FROM damaged").fetchall()
        assert "77" in facts
        assert content == b"three"
        assert connection.execute(f"SELECT count(*) FROM contents WHERE {message(3)}").fetchone() == (0,)


def test_what_is_left_of_a_state_or_a_key_that_is_set_aside_is_kept(folder: Path) -> None:
    change(folder, "UPDATE session_states SET updated_at = 8 WHERE session_id = '\"s\"'")
    change(folder, "UPDATE duplicates SET until = x'00' WHERE until = 10")
    change(folder, f"DELETE FROM messages WHERE {message(3)}")
    opened(folder).close()
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        state, key, _ = connection.execute("SELECT facts, content FROM damaged ORDER BY found").fetchall()
    assert (state[1], key[1]) == (b"a state", None)
    assert "one" in key[0]


def test_messages_that_are_missing_are_counted_and_named_by_their_fragment(folder: Path) -> None:
    for number in (3, 4, 5):
        change(folder, f"DELETE FROM messages WHERE {message(number)}")
    with closing(opened(folder)) as store:
        assert store.damage() == [Damage(FILE_NAME, HOME, "3 messages are missing")]
        assert counts(store) == {HERE: (2, 0, 0), ELSEWHERE: (2, 0, 0)}
        assert numbers(everything(store)) == [1, 2]


def test_of_messages_that_are_missing_those_that_were_set_aside_are_not_counted(folder: Path) -> None:
    change(folder, f"DELETE FROM messages WHERE {message(3)}")
    change(folder, f"UPDATE messages SET delivery_count = 77 WHERE {message(5)}")
    with closing(opened(folder)) as store:
        places = [(each.place, each.what) for each in store.damage()]
        assert places == [(f"message 5 ({HOME})", FACTS), (HOME, "1 messages are missing")]


def test_of_messages_that_are_missing_only_messages_that_were_set_aside_with_them_are_not_counted(folder: Path) -> None:
    change(folder, f"UPDATE messages SET delivery_count = 77 WHERE {message(5)}")
    change(folder, f"DELETE FROM messages WHERE {message(1)}")
    opened(folder).close()
    change(folder, f"DELETE FROM messages WHERE {message(3)}")
    change(folder, "UPDATE session_states SET updated_at = 8 WHERE session_id = '\"s\"'")
    with closing(opened(folder)) as store:
        assert [each.what for each in store.damage() if each.place == HOME] == ["1 messages are missing"] * 2
    change(folder, "DELETE FROM duplicates WHERE until = 10")
    with closing(opened(folder)) as store:
        assert store.damage()[-1].what == "rows are missing, or their counts are not what was written"


def test_a_state_or_key_that_is_missing_is_noted_with_its_fragment(folder: Path) -> None:
    change(folder, "DELETE FROM duplicates WHERE until = 10")
    with closing(opened(folder)) as store:
        (found,) = store.damage()
        assert (found.place, found.what) == (HOME, "rows are missing, or their counts are not what was written")
        assert [key for key, _ in store.duplicates(HERE)] == ["two"]


@pytest.mark.parametrize("wrong", ["updated_at = 8", "updated_at = 'x'", "checksum = 'x'", "content_sum = x'00'"])
def test_a_state_of_a_session_with_a_wrong_fact_is_set_aside(folder: Path, wrong: str) -> None:
    change(folder, f"UPDATE session_states SET {wrong} WHERE session_id = '\"s\"'")
    change(folder, "DELETE FROM duplicates WHERE until = 10")
    with closing(opened(folder)) as store:
        assert store.damage()[0] == Damage(FILE_NAME, f'state of session "S" ({HOME})', FACTS)
        assert (store.session_state(HERE, "s"), store.session_state(HERE, "t")) == (None, b"other")


@pytest.mark.parametrize("wrong", ["until = 11", "until = 'x'", "until = x'00'", "checksum = 'x'"])
def test_a_key_with_a_wrong_fact_is_set_aside(folder: Path, wrong: str) -> None:
    change(folder, f"UPDATE duplicates SET {wrong} WHERE until = 10")
    change(folder, f"DELETE FROM messages WHERE {message(3)}")
    with closing(opened(folder)) as store:
        assert store.damage()[0] == Damage(FILE_NAME, f'duplicate key "one" ({HOME})', FACTS)
        assert store.duplicates(HERE) == [("two", 20)]


def test_a_content_that_is_not_what_was_written_is_set_aside_when_it_is_read_and_the_store_opens_again(
    folder: Path,
) -> None:
    change(folder, f"UPDATE contents SET content = x'00' WHERE {message(3)}")
    with closing(opened(folder)) as store:
        assert numbers(store.read(HERE, [1, 2])) == [1, 2]
        with pytest.raises(StoreUnavailable, match=r"message 3 \(entity 1.*opened again"):
            store.read(HERE, [3])
        with pytest.raises(StoreUnavailable, match="set aside"):
            store.read(HERE, [1])
    with closing(opened(folder)) as store:
        assert store.damage() == [Damage(FILE_NAME, f"message 3 ({HOME})", READ)]
        assert counts(store) == {HERE: (3, 0, 1), ELSEWHERE: (2, 0, 0)}


def test_what_is_set_aside_is_counted_off_so_that_no_row_is_looked_at_when_the_store_opens(folder: Path) -> None:
    """A row nobody has read stays where it is: a folder whose rows do not add up would be searched for it, which takes long."""
    change(folder, f"UPDATE contents SET content = x'00' WHERE {message(3)}")
    change(folder, f"UPDATE messages SET delivery_count = 9 WHERE {message(2, 2)}")
    with closing(opened(folder)) as store, pytest.raises(StoreUnavailable, match=r"message 3 \("):
        store.read(HERE, [3])
    with closing(opened(folder)) as store:
        assert [each.place for each in store.damage()] == [f"message 3 ({HOME})"]


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        (f"UPDATE contents SET content = x'00' WHERE {message(5)}", f"message 5 ({HOME})"),
        (f"UPDATE contents SET content = 'text' WHERE {message(5)}", f"message 5 ({HOME})"),
        (f"DELETE FROM contents WHERE {message(5)}", f"message 5 ({HOME})"),
        (f"UPDATE contents SET content = x'00' WHERE {message(2, 2)}", "message 2 (entity 2, fragment 0, main)"),
        ("UPDATE session_states SET state = x'00' WHERE session_id = '\"t\"'", f'state of session "T" ({HOME})'),
    ],
)
def test_a_check_of_all_rows_finds_what_nobody_has_read_yet(folder: Path, statement: str, place: str) -> None:
    change(folder, statement)
    assert [each.place for each in check_folder(folder, None)] == [place]
    with closing(opened(folder)) as store:
        assert store.damage() == []
        with pytest.raises(StoreUnavailable, match="opened again"):
            store.check(-1)
    with closing(opened(folder)) as store:
        assert store.damage() == [Damage(FILE_NAME, place, READ)]


def test_rows_are_checked_a_page_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_check, "ROWS_PER_PAGE", 3)
    with closing(opened(folder)) as store:
        first = store.check(-1)
        assert (first.checked, first.next_id) == (3 + 5, 1 << 44 | 3)
        second = store.check(1 << 44 | 3)
        assert (second.checked, second.next_id) == (3, 2 << 44 | 1)
        third = store.check(2 << 44 | 1)
        assert (third.checked, third.next_id) == (1, None)
        monkeypatch.setattr(table_check, "BYTES_PER_PAGE", 0)
        assert store.check(0).checked == 1, "a page has one row, however large"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE journal SET position = position + 1", "position of the journal"),
        ("DELETE FROM journal", "position of the journal"),
        ("INSERT INTO journal SELECT * FROM journal", "position of the journal"),
        ("UPDATE fragments SET last_number = 99 WHERE slot = 1", f"facts of fragment {HERE}"),
        ("UPDATE fragments SET active_count = 99 WHERE slot = 1", f"facts of fragment {HERE}"),
        ("DELETE FROM fragments WHERE slot = 2", "fragments are missing"),
    ],
)
def test_damage_that_is_not_in_single_rows_is_refused_and_nothing_is_changed(
    folder: Path, statement: str, reason: str
) -> None:
    change(folder, statement)
    before = (folder / FILE_NAME).read_bytes()
    with pytest.raises(StoreDamaged, match=reason):
        opened(folder)
    assert (folder / FILE_NAME).read_bytes() == before
    assert any(reason in str(each) for each in check_folder(folder, None))


def test_a_check_names_rows_that_do_not_add_up(folder: Path) -> None:
    change(folder, f"DELETE FROM messages WHERE {message(2, 2)}")
    assert [each.what for each in check_folder(folder, None)] == [
        "the rows in slot 2 do not add up to what their fragment says"
    ]


def test_another_schema_is_refused(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("ALTER TABLE damaged ADD COLUMN more INTEGER")
    with pytest.raises(StoreDamaged, match="schema"):
        opened(folder)


@pytest.mark.parametrize(
    ("error", "is_damage"),
    [
        (sqlite3.OperationalError("malformed database schema (messages)"), True),
        (sqlite3.DatabaseError("database disk image is malformed"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), True),
        (sqlite3.OperationalError("disk I/O error"), False),
        (sqlite3.OperationalError("database is locked"), False),
    ],
)
def test_tables_that_cannot_be_read_are_damaged_only_if_what_was_written_has_changed(
    tmp_path: Path, error: Exception, is_damage: bool
) -> None:
    failure = FolderMedium(tmp_path).failure(error)
    assert isinstance(failure, StoreUnavailable)
    assert isinstance(failure, StoreDamaged) is is_damage
