from twinbus.amqp.credit import ReceiverCredit, SenderCredit
from twinbus.amqp.serial_number import MASK


def test_credit_counts_from_the_receivers_count() -> None:
    credit = SenderCredit()
    credit.flow_received(delivery_count=0, link_credit=10, drain=False)
    credit.sent(4)
    assert credit.left == 6
    credit.flow_received(delivery_count=2, link_credit=10, drain=False)
    assert credit.left == 8


def test_a_receiver_that_does_not_know_the_count_means_the_first_one() -> None:
    credit = SenderCredit()
    credit.sent(3)
    credit.flow_received(delivery_count=None, link_credit=10, drain=False)
    assert credit.left == 7


def test_the_highest_credit_is_a_credit() -> None:
    credit = SenderCredit()
    credit.flow_received(0, MASK, drain=False)
    credit.sent(3)
    assert credit.left == MASK - 3
    credit.flow_received(1, MASK, drain=False)
    assert credit.left == MASK - 2


def test_a_receiver_whose_count_is_ahead_grants_more_than_it_says() -> None:
    credit = SenderCredit()
    credit.flow_received(delivery_count=2, link_credit=10, drain=False)
    assert credit.left == 12


def test_credit_can_be_taken_back() -> None:
    credit = SenderCredit()
    credit.flow_received(0, 10, drain=False)
    credit.flow_received(0, 0, drain=False)
    assert credit.left == 0


def test_what_was_sent_beyond_the_credit_is_not_owed() -> None:
    credit = SenderCredit(left=1)
    credit.sent(3)
    assert credit.left == 0


def test_draining_advances_the_count_by_the_rest() -> None:
    credit = SenderCredit(delivery_count=MASK)
    credit.flow_received(MASK, 5, drain=True)
    credit.sent(2)
    credit.drained()
    assert (credit.delivery_count, credit.left, credit.is_draining) == (4, 0, False)


def test_credit_is_topped_up_once_half_of_the_target_can_be() -> None:
    credit = ReceiverCredit(target=10, left=10)
    credit.received(6, unsettled_count=6)
    assert not credit.is_refill_due
    credit.settled(4)
    assert not credit.is_refill_due
    credit.settled(1)
    assert credit.is_refill_due
    credit.refill()
    assert credit.left == 9


def test_credit_for_settled_deliveries_comes_back_as_they_arrive() -> None:
    credit = ReceiverCredit(target=10, left=10)
    credit.received(5, unsettled_count=0)
    assert credit.is_refill_due


def test_a_sender_without_credit_is_not_punished() -> None:
    credit = ReceiverCredit(target=2, left=2)
    credit.received(5, unsettled_count=5)
    assert credit.left == 0
    credit.settled(5)
    credit.refill()
    assert (credit.left, credit.delivery_count) == (2, 5)


def test_without_a_target_nothing_is_topped_up() -> None:
    credit = ReceiverCredit(left=1)
    credit.received(1, unsettled_count=0)
    assert not credit.is_refill_due


def test_a_sender_that_drained_is_ahead_of_us() -> None:
    credit = ReceiverCredit(left=10, delivery_count=3)
    credit.flow_received(13)
    assert (credit.left, credit.delivery_count) == (0, 13)


def test_a_sender_that_is_behind_or_silent_changes_nothing() -> None:
    credit = ReceiverCredit(left=10, delivery_count=3)
    credit.flow_received(2)
    credit.flow_received(None)
    assert (credit.left, credit.delivery_count) == (10, 3)
