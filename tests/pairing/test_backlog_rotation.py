import pytest

from twinbus.pairing.backlog_rotation import Rotation

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
def test_no_queue_is_chosen_when_all_are_out() -> None:
    queues = rotation()
    for index in queues.indexes:
        queues.take_out(index, NOON)
    assert queues.choose(0.5) is None


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
