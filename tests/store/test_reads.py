"""What a message broker may ask of its store: a closed set of values that survive the way to another process."""

import ast
import inspect
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

import twinbus.broker
from twinbus.clock import NEVER
from twinbus.model.descriptions import SqlFilter
from twinbus.model.wire_names import MessageState
from twinbus.store import reads
from twinbus.store.changes import Enqueued, FragmentCreated, SessionStateSet, StoredMessage, fragment_key
from twinbus.store.memory import MemoryStore
from twinbus.store.reads import (
    READS,
    ActiveUnread,
    BacklogPage,
    BusiestSessions,
    CheckRows,
    DeferredUnread,
    DueFacts,
    DueRows,
    DueUnread,
    ExpiredRows,
    FirstUnexpired,
    KeysSeen,
    Load,
    MemoryWanted,
    PackedScan,
    PrepareSessions,
    Read,
    ReadNumbers,
    ReadSessionState,
    ReadTogether,
    Scan,
    SessionNames,
    SessionTotals,
    Timely,
    TimesFrom,
    carry_out,
)
from twinbus.testing.messages import make_message

KEY = fragment_key(1, 0)
EXAMPLES: list[Read[object]] = [
    Scan(KEY, 0, 10, 1_000),
    PackedScan(KEY, 0, 9, 10, 1_000, now=5),
    ReadNumbers(KEY, [1, 2]),
    ActiveUnread(KEY, 0, None, 10, now=5),
    DeferredUnread(KEY, [1, 2]),
    ReadTogether(KEY, [1, 2], 1_000),
    TimesFrom(KEY, [1, 3]),
    FirstUnexpired(KEY, 0, 10, 1_000, now=5),
    DueRows(KEY, 5, 10),
    DueFacts(KEY, 5, 10),
    ExpiredRows(KEY, 5, 10, frozenset(), retry_at=6),
    BacklogPage(KEY, 0, 10, 1_000, now=5),
    PrepareSessions(KEY),
    SessionNames(KEY, None, 0, 10),
    BusiestSessions(KEY, 10, frozenset({"S"})),
    ReadSessionState(KEY, "s"),
    KeysSeen(KEY),
    Load([MemoryWanted(KEY, has_sessions=True, has_duplicates=True)]),
    CheckRows(),
]


def store_of(*rows: StoredMessage) -> MemoryStore:
    store = MemoryStore()
    store.commit([FragmentCreated(KEY), Enqueued(KEY, list(rows))])
    return store


def test_every_read_of_the_module_is_in_the_set() -> None:
    """All that can be carried out is written down, and there is an example of each below."""
    defined = {each for _, each in inspect.getmembers(reads, inspect.isclass) if each.__module__ == reads.__name__}
    assert {each for each in defined if hasattr(each, "run")} - {Read} == READS
    assert {type(example) for example in EXAMPLES} == READS


@pytest.mark.parametrize("read", EXAMPLES, ids=lambda read: type(read).__name__)
def test_a_read_and_its_answer_are_the_same_on_the_other_side(read: Read[object]) -> None:
    content = make_message("m", application_properties={"x-ms-path": "orders"}).content
    store = store_of(StoredMessage(1, content, 0, 3), StoredMessage(2, content, 0, NEVER))
    sent = pickle.loads(pickle.dumps(read))
    assert sent == read
    answer = carry_out(sent, store)
    assert pickle.loads(pickle.dumps(answer)) == answer


def test_what_is_not_a_read_is_not_carried_out() -> None:
    class Stranger:
        def run(self, store: object) -> None:
            pytest.fail("it was carried out")

    with pytest.raises(TypeError, match="is not a read"):
        carry_out(Stranger(), MemoryStore())


def test_whatever_a_message_broker_asks_is_a_read() -> None:
    """Every module that queries builds the value itself, or passes on one that it was given."""
    names = {read.__name__ for read in READS}
    for path in sorted(Path(twinbus.broker.__path__[0]).rglob("*.py")):
        tree = ast.parse(path.read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert "methodcaller" not in imported, path
        assert "MessagingStore" not in imported, path
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "query":
                asked = node.args[0]
                built = ast.unparse(asked.func) if isinstance(asked, ast.Call) else None
                assert built in names or isinstance(asked, ast.Name | ast.Attribute), f"{path}:{node.lineno}"


def test_rows_that_are_too_large_together_are_not_read() -> None:
    store = store_of(*[StoredMessage(number, bytes(10), 0, NEVER) for number in range(1, 200)])
    assert carry_out(ReadTogether(KEY, range(1, 101), 1_000), store) is not None
    assert carry_out(ReadTogether(KEY, range(1, 102), 1_000), store) is None
    assert carry_out(ReadTogether(KEY, [1], 9), store) is not None


def test_a_filter_sees_the_number_and_the_time_of_a_row() -> None:
    content = make_message("m").content
    store = store_of(StoredMessage(1, content, 10, NEVER), StoredMessage(2, content, 20, NEVER))
    for text in ("sys.EnqueuedTimeUtc = @at", "sys.SequenceNumber = 2"):
        wanted = SqlFilter(text, (("at", datetime.fromtimestamp(0.02, UTC)),))
        found = carry_out(PackedScan(KEY, 0, 9, 10, 1_000, now=5, filter=wanted), store)
        assert found == carry_out(PackedScan(KEY, 1, 9, 10, 1_000, now=5), store)


def test_a_time_is_that_of_the_first_row_from_a_number_on() -> None:
    store = store_of(StoredMessage(2, b"", 20, NEVER), StoredMessage(5, b"", 50, NEVER))
    assert carry_out(TimesFrom(KEY, [1, 2, 3, 6]), store) == [(2, 20), (2, 20), (5, 50), None]


def test_the_first_unexpired_rows_are_found_behind_expired_ones() -> None:
    store = store_of(*[StoredMessage(number, b"", 0, 5 if number < 8 else NEVER) for number in range(1, 11)])
    found = carry_out(FirstUnexpired(KEY, 0, 2, 1_000, now=5), store)
    assert ([row.sequence_number for row in found.rows], found.has_more) == ([8], True)
    found = carry_out(FirstUnexpired(KEY, 9, 2, 1_000, now=5), store)
    assert ([row.sequence_number for row in found.rows], found.has_more) == ([9, 10], False)
    assert carry_out(FirstUnexpired(KEY, 11, 2, 1_000, now=5), store) == ([], False)


def test_expired_rows_that_are_held_are_looked_at_again() -> None:
    store = store_of(*[StoredMessage(number, b"", 0, number) for number in range(1, 6)])
    rows, next_at = carry_out(ExpiredRows(KEY, 3, 10, frozenset({2}), retry_at=1_003), store)
    assert ([row.sequence_number for row in rows], next_at) == ([1, 3], 4)
    rows, next_at = carry_out(ExpiredRows(KEY, 5, 10, frozenset({2}), retry_at=1_005), store)
    assert ([row.sequence_number for row in rows], next_at) == ([1, 3, 4, 5], 1_005)
    rows, next_at = carry_out(ExpiredRows(KEY, 5, 2, frozenset({2}), retry_at=1_005), store)
    assert ([row.sequence_number for row in rows], next_at) == ([1, 3], 4)


def test_due_rows_end_before_they_pass_their_size_and_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "ROWS_BYTES_MAX", 25)
    scheduled = MessageState.SCHEDULED
    store = store_of(*[StoredMessage(n, bytes(10), 0, NEVER, state=scheduled, due_at=n) for n in range(1, 9)])
    rows, next_at = carry_out(DueRows(KEY, 6, 10), store)
    assert ([row.sequence_number for row in rows], next_at) == ([1, 2], 6)
    assert carry_out(DueRows(KEY, 0, 10), store) == Timely([], 1)


def store_with_sessions() -> MemoryStore:
    """`c` has three messages, `a` and `B` two each, and `d` and `B` have a state."""
    names = ["c", "a", "B", "c", "b", "a", "c"]
    rows = [StoredMessage(number, b"", 0, NEVER, session_id=name) for number, name in enumerate(names, 1)]
    store = store_of(*rows)
    store.commit([SessionStateSet(KEY, "d", b"1", 5), SessionStateSet(KEY, "B", b"1", 7)])
    return store


@pytest.mark.parametrize(
    ("updated_after", "skip", "top", "expected"),
    [
        (None, 0, 10, ["B", "a", "c", "d"]),
        (None, 1, 2, ["a", "c"]),
        (None, 3, 2, ["d"]),
        (None, 9, 2, []),
        (-1, 0, 10, ["B", "d"]),
        (5, 0, 10, ["B"]),
        (4, 1, 1, ["d"]),
        (7, 0, 10, []),
    ],
)
def test_of_the_message_sessions_only_the_page_that_was_asked_for_travels(
    updated_after: int | None, skip: int, top: int, expected: list[str]
) -> None:
    assert carry_out(SessionNames(KEY, updated_after, skip, top), store_with_sessions()) == expected


def test_message_sessions_are_summed_up_where_they_are() -> None:
    keys = frozenset(["B", "D", "X", "C"])
    found = carry_out(BusiestSessions(KEY, 2, keys), store_with_sessions())
    assert found == SessionTotals(3, 7, [("c", 3), ("B", 2)], ["B", "C"])
    assert carry_out(BusiestSessions(KEY, 0, frozenset()), store_with_sessions()) == SessionTotals(3, 7, [], [])


def test_due_rows_that_nobody_reads_are_columns_up_to_the_first_that_was_put_off() -> None:
    def scheduled(number: int, expires_at: int = NEVER, session_id: str | None = None, count: int = 0) -> StoredMessage:
        row = StoredMessage(number, b"", 0, expires_at, delivery_count=count, session_id=session_id)
        row.state, row.due_at = MessageState.SCHEDULED, number
        return row

    store = store_of(scheduled(1), scheduled(2, 62, "s"), scheduled(3), scheduled(4, count=1), scheduled(5))
    found = DueFacts(KEY, 9, 10).run(store)
    assert found == DueUnread([1, 2, 3], [NEVER, 60, NEVER], [None, "s", None], is_put_off_next=True, next_at=NEVER)
    assert found.without({7}) == found
    assert found.without({1, 3}) == DueUnread([2], [60], ["s"], is_put_off_next=True, next_at=NEVER)
    assert DueFacts(KEY, 9, 3).run(store) == found._replace(is_put_off_next=False, next_at=4)
