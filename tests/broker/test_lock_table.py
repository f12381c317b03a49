"""A table of locks by itself: what is held, what has ended, and what a transaction or another node has of it."""

from random import Random

import pytest

from tests.contract.rows import row
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.fragment.locks import TOKEN_SIZE, LockTable, fragment_index_of
from twinbus.broker.held_contents import HeldContents, unread_content
from twinbus.clock import NEVER
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

UNBOUND = 1 << 40


def table(index: int = 3) -> LockTable:
    return LockTable(index, Random(1), HeldContents(), lambda message: f"key of {message.sequence_number}")


def rows(count: int, size: int = 10) -> list[StoredMessage]:
    return [row(number, bytes(size)) for number in range(1, count + 1)]


def tokens(taken: list[TakenMessage]) -> list[bytes]:
    return [each.lock_token for each in taken]


def numbers(messages: list[StoredMessage]) -> list[int]:
    return [message.sequence_number for message in messages]


def test_a_token_has_its_fragment_in_front_and_none_is_given_twice() -> None:
    found = tokens(table().lock(rows(50), 100))
    assert {len(token) for token in found} == {TOKEN_SIZE}
    assert {fragment_index_of(token) for token in found} == {3}
    assert len(set(found)) == 50
    assert fragment_index_of(found[0][:-1]) == fragment_index_of(found[0] + b"x") == fragment_index_of(b"") == -1


def test_what_is_locked_says_until_when_or_what_is_to_be_shown() -> None:
    locks, messages = table(), rows(2)
    taken = locks.lock(messages, 100)
    assert [(each.message, each.locked_until) for each in taken] == [(message, 100) for message in messages]
    assert [each.locked_until for each in locks.lock(rows(1), NEVER, shown_until=7)] == [7]
    assert len(locks) == 3
    assert locks.next_expiry() == 100, "what has no end is not watched"


@pytest.mark.parametrize(("now", "is_live"), [(99, True), (100, False), (101, False)])
def test_a_lock_is_live_until_its_end(now: int, is_live: bool) -> None:
    locks = table()
    (token,) = tokens(locks.lock(rows(1), 100))
    assert locks.is_live(token, now) is is_live
    assert not locks.is_live(b"x" * TOKEN_SIZE, now)
    messages, lost, busy = locks.settle([token], now, None)
    assert (numbers(messages), lost, busy) == (([1], [], []) if is_live else ([], [0], []))
    assert len(locks) == (0 if is_live else 1)


def test_a_settlement_tells_what_is_lost_and_what_a_transaction_has() -> None:
    locks = table()
    first, second, third, fourth = tokens(locks.lock(rows(4), 100))
    locks.enlist([second])
    assert locks.is_any_enlisted([first, second])
    assert not locks.is_any_enlisted([first, third])
    asked = [b"x" * TOKEN_SIZE, first, second, third, first]
    messages, lost, busy = locks.settle(asked, 50, lambda message, now: message.sequence_number != 3 and now == 50)
    assert (numbers(messages), lost, busy) == ([1], [0, 3, 4], [2])
    locks.dismiss([second])
    assert not locks.is_any_enlisted([second])
    assert numbers(locks.settle([second, fourth], 50, None)[0]) == [2, 4]


def test_locks_that_are_dropped_return_what_they_held() -> None:
    locks = table()
    first, second, third = tokens(locks.lock(rows(3), 100))
    assert numbers(locks.drop([second, b"x" * TOKEN_SIZE])) == [2]
    assert numbers(locks.drop([third, second, first])) == [3, 1]
    assert len(locks) == 0


def test_the_numbers_of_what_is_locked_follow_every_change() -> None:
    locks, messages = table(), rows(9)
    assert locks.locked_among(range(1, 10)) == set()
    first, second, third = tokens(locks.lock(messages[:3], 100))
    assert locks.locked_among(range(1, 10)) == {1, 2, 3}
    locks.lock(messages[5:6], 50)
    assert locks.locked_among(range(1, 10)) == {1, 2, 3, 6}
    assert locks.locked_among(range(3, 8)) == {3, 6}
    locks.settle([first], 0, None)
    assert locks.locked_among(range(1, 10)) == {2, 3, 6}
    locks.take_expired(50, 10, UNBOUND)
    assert locks.locked_among(range(1, 10)) == {2, 3}
    locks.drop([second, third])
    assert locks.locked_among(range(1, 10)) == set()
    locks.lock(messages[8:], 100)
    assert locks.locked_among(range(1, 10)) == {9}


def test_locks_that_ended_are_taken_in_order_so_many_and_so_large_at_most_and_at_least_one() -> None:
    locks = table()
    locks.lock(rows(5), 100)
    locks.lock([row(number, bytes(10)) for number in (6, 7)], 90)
    assert locks.next_expiry() == 90
    assert locks.take_expired(89, 10, UNBOUND) == []
    assert numbers(locks.take_expired(100, 3, UNBOUND)) == [6, 7, 1]
    assert (locks.next_expiry(), len(locks), locks.lost_count) == (100, 4, 3)
    assert numbers(locks.take_expired(100, 10, 11)) == [2, 3]
    assert numbers(locks.take_expired(100, 10, 1)) == [4]
    assert numbers(locks.take_expired(100, 10, UNBOUND)) == [5]
    assert (locks.next_expiry(), len(locks), locks.lost_count) == (NEVER, 0, 7)


def test_nothing_more_is_taken_once_it_is_as_large_as_may_be() -> None:
    locks = table()
    for number in (1, 2):
        locks.lock([row(number, bytes(10))], 90 + number)
    assert [numbers(locks.take_expired(100, 10, 10)) for _ in range(3)] == [[1], [2], []]


def test_a_lock_that_was_renewed_or_settled_does_not_end() -> None:
    locks = table()
    first, second, _ = tokens(locks.lock(rows(3), 100))
    locks.renew([first], 200)
    locks.settle([second], 0, None)
    assert numbers(locks.take_expired(100, 10, UNBOUND)) == [3]
    assert locks.is_live(first, 199)
    assert locks.next_expiry() == 200
    assert numbers(locks.take_expired(200, 10, UNBOUND)) == [1]


def test_deferred_messages_that_are_locked_are_known_until_they_are_forgotten() -> None:
    locks = table()
    locks.hold_deferred(rows(3))
    assert locks.deferred == {1, 2, 3}
    locks.forget_deferred([2, 7])
    assert locks.deferred == {1, 3}


def test_a_content_that_is_left_to_the_store_leaves_its_size_and_key() -> None:
    locks = table()
    first, second = tokens(locks.lock(rows(2), 100))
    locks.drop([second])
    locks.leave_contents([first, second])
    message, until = locks.held[first]
    unread = unread_content(message)
    assert unread is not None
    assert (unread.size, unread.key, until, len(locks)) == (10, "key of 1", 100, 1)


def test_a_million_contents_of_one_size_that_are_left_to_the_store_leave_one_object() -> None:
    locks = LockTable(3, Random(1), HeldContents(), lambda message: None)
    found = tokens(locks.lock(rows(2), 100))
    locks.leave_contents(found)
    first, second = [unread_content(locks.held[token][0]) for token in found]
    assert first is second is not None


def test_locks_that_move_to_another_node_are_held_there_until_they_end() -> None:
    locks, there = table(), table()
    locks.lock(rows(2), 100)
    locks.lock([row(3, bytes(10), state=MessageState.DEFERRED)], 90)
    locks.lock([row(4, bytes(10))], NEVER)
    moved = locks.moved()
    assert [(each.message.sequence_number, each.locked_until) for each in moved] == [
        (1, 100),
        (2, 100),
        (3, 90),
        (4, NEVER),
    ]
    assert all(unread_content(each.message) is not None for each in moved)
    there.restore(moved)
    assert list(there.held) == list(locks.held)
    assert (there.deferred, there.next_expiry()) == ({3}, 90)
    assert numbers(there.take_expired(100, 10, UNBOUND)) == [3, 1, 2]
    assert there.next_expiry() == NEVER
    there.clock_stepped(-1)
    assert there.next_expiry() == NEVER
    assert [until for _, until in there.held.values()] == [NEVER]
