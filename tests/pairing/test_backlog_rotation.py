import pytest

from twinbus.pairing.deciding.backlog_rotation import Rotation

NOON = 1_800_000_000_000
SECOND = 1000


def rotation() -> Rotation:
    return Rotation((0, 1, 3), 60 * SECOND)


@pytest.mark.rule("B5.1")
def test_every_queue_can_be_chosen() -> None:
    assert [rotation().choose(draw) for draw in (0.0, 0.34, 0.999)] == [0, 1, 3]


@pytest.mark.rule("B5")
def test_a_queue_that_was_taken_out_is_not_chosen() -> None:
    queues = rotation()
    queues.take_out(1, NOON)
    assert {queues.choose(draw / 100) for draw in range(100)} == {0, 3}


@pytest.mark.rule("B5.4")
def test_while_all_are_out_the_one_that_failed_longest_ago_is_chosen() -> None:
    queues = rotation()
    for second, index in enumerate((1, 3, 0, 1)):
        queues.take_out(index, NOON + second * SECOND)
    assert {queues.choose(draw / 100) for draw in range(100)} == {3}
    queues.take_out(3, NOON + 9 * SECOND)
    assert queues.choose(0.5) == 0


@pytest.mark.rule("B5.4")
def test_the_first_success_while_all_are_out_brings_all_back() -> None:
    queues = rotation()
    for index in queues.indexes:
        queues.take_out(index, NOON)
    assert queues.accepted() == [0, 1, 3]
    assert {queues.choose(draw / 100) for draw in range(100)} == {0, 1, 3}


@pytest.mark.rule("B5.2")
def test_a_success_elsewhere_does_not_bring_a_queue_back_that_may_still_fail() -> None:
    queues = rotation()
    queues.take_out(1, NOON)
    assert queues.accepted() == []
    assert not queues.contains(1)


@pytest.mark.rule("B5.2")
def test_a_queue_comes_back_when_its_time_is_over() -> None:
    queues = rotation()
    queues.take_out(1, NOON)
    assert queues.readmit(NOON + 60 * SECOND - 1) == []
    assert queues.readmit(NOON + 60 * SECOND) == [1]
    assert queues.contains(1)


@pytest.mark.rule("B5")
def test_more_failures_do_not_prolong_the_time_out() -> None:
    queues = rotation()
    assert queues.take_out(1, NOON)
    assert not queues.take_out(1, NOON + 50 * SECOND)
    assert queues.readmit(NOON + 60 * SECOND) == [1]
