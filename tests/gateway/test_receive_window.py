"""Which receives of a link are empty."""

import pytest

from twinbus.gateway.links.receive_window import ReceiveWindow


def peek_lock() -> ReceiveWindow:
    return ReceiveWindow(deletes=False)


def test_credit_given_again_without_a_message_ends_an_empty_receive() -> None:
    window = peek_lock()
    assert [window.told(10, drain=False) for _ in range(3)] == [False, True, True]
    assert window.ended()


def test_a_receive_ends_with_its_first_message() -> None:
    window = peek_lock()
    window.told(10, drain=False)
    window.delivered(3)
    assert not window.told(10, drain=False)
    window.delivered(1)
    assert not window.ended()


def test_a_drain_ends_a_receive_once() -> None:
    window = peek_lock()
    window.told(10, drain=False)
    assert not window.told(0, drain=True)
    assert window.ended()
    assert not window.ended()


@pytest.mark.parametrize("credit", [1, 10])
def test_a_drain_with_credit_of_its_own_is_a_receive(credit: int) -> None:
    window = peek_lock()
    assert not window.told(credit, drain=True)
    assert window.ended()


def test_credit_that_is_taken_back_without_a_drain_ends_a_receive() -> None:
    window = peek_lock()
    window.told(10, drain=False)
    assert window.told(0, drain=False)
    assert not window.ended()


def test_a_link_without_credit_receives_nothing_and_so_nothing_empty() -> None:
    window = peek_lock()
    assert not window.told(0, drain=False)
    assert not window.ended()


def test_credit_for_what_was_settled_goes_on_with_the_receive() -> None:
    """As a client does that keeps its credit up: all came at once, and it settles them bit by bit."""
    window = peek_lock()
    window.told(400, drain=False)
    window.delivered(400)
    window.settled(200)
    assert not window.told(200, drain=False)
    window.settled(200)
    assert not window.told(400, drain=False)


def test_more_credit_than_was_settled_is_a_new_receive() -> None:
    """As a client does that asks for one message in vain, and then for ten."""
    window = peek_lock()
    window.told(10, drain=False)
    window.delivered(10)
    window.settled(10)
    assert not window.told(1, drain=False)
    assert window.told(10, drain=False)


def test_where_messages_are_deleted_credit_for_what_was_delivered_goes_on_with_the_receive() -> None:
    window = ReceiveWindow(deletes=True)
    window.told(1000, drain=False)
    window.delivered(1000)
    assert not window.told(500, drain=False)
    assert not window.told(1000, drain=False)
    assert window.told(1000, drain=False)


def test_messages_of_earlier_credit_use_up_no_more_than_there_is() -> None:
    window = ReceiveWindow(deletes=True)
    window.told(1, drain=False)
    window.delivered(3)
    assert not window.told(2, drain=False)
    assert not window.told(3, drain=False)
    assert window.told(4, drain=False)


def test_credit_after_a_drain_is_all_new() -> None:
    """What was left of it, and what was settled before, counts no more."""
    window = peek_lock()
    window.told(10, drain=False)
    window.delivered(10)
    window.settled(10)
    window.told(0, drain=True)
    window.ended()
    assert not window.told(1, drain=False)
    assert window.told(2, drain=False)


def test_credit_after_a_drain_replaces_nothing_that_came_before_it() -> None:
    window = ReceiveWindow(deletes=True)
    window.told(10, drain=False)
    window.delivered(5)
    window.told(0, drain=True)
    assert not window.ended()
    assert not window.told(6, drain=False)
    assert window.told(8, drain=False)


def test_what_comes_after_the_end_of_a_receive_is_all_that_credit_replaces_then() -> None:
    window = ReceiveWindow(deletes=True)
    window.told(10, drain=False)
    assert window.ended()
    window.delivered(3)
    assert not window.told(3, drain=False)
    assert window.told(4, drain=False)
