"""Queues keep their promises while stores fail, hang, lose replies and come back."""

import pytest

from tests.simulation.turmoil import LOCK_DURATION, DeletingTurmoil, Turmoil
from twinbus.broker.fragment import lane
from twinbus.model.descriptions import QueueDescription

SEEDS = 70
STEPS = 600


@pytest.mark.rule("A4.11")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_and_nothing_completed_comes_back(seed: int) -> None:
    """Goal: contract A4, A5 and design rule 5.

    Method: random commands over 16 fragments with faults; then everything heals, and what the stores hold is compared
    with what was acknowledged, counted, and received to the last message.
    """
    turmoil = Turmoil(seed, QueueDescription("q", enable_partitioning=True, lock_duration=LOCK_DURATION))
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()


@pytest.mark.rule("A4.2")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_message_without_a_key_is_refused_as_too_much_only_when_no_fragment_has_room(seed: int) -> None:
    """Goal: contract A4. Method: as above, with messages of which a fragment holds four, and more of them in the end."""
    description = QueueDescription("q", enable_partitioning=True, max_size_mb=1, lock_duration=LOCK_DURATION)
    turmoil = Turmoil(seed, description, body_bytes=240_000)
    turmoil.run(STEPS)
    turmoil.heal()
    for _ in range(80):
        turmoil.send()
        turmoil.sim.run()
    assert turmoil.full_count, "the queue was never full"
    turmoil.check()


@pytest.mark.rule("A4.7", "A10")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_there_twice_where_duplicates_are_detected(seed: int) -> None:
    """Goal: contract A4 and A10. Method: as the first."""
    description = QueueDescription(
        "q", enable_partitioning=True, requires_duplicate_detection=True, lock_duration=LOCK_DURATION
    )
    turmoil = Turmoil(seed, description)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()


@pytest.mark.rule("A9.2")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_messages_of_a_session_never_overtake_each_other(seed: int) -> None:
    """Goal: contract A9. Method: as above, on a queue that requires message sessions."""
    description = QueueDescription(
        "q",
        enable_partitioning=True,
        requires_session=True,
        lock_duration=LOCK_DURATION,
        max_delivery_count=1_000,  # nothing leaves the session unseen
    )
    turmoil = Turmoil(seed, description)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()


@pytest.mark.rule("A9.15")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_deleting_in_a_session_takes_nothing_of_others(is_partitioned: bool) -> None:
    """Goal: contract A9. Method: as above, with deletions in single sessions, by those who hold them and by others."""
    description = QueueDescription(
        "q",
        enable_partitioning=is_partitioned,
        requires_session=True,
        lock_duration=LOCK_DURATION,
        max_delivery_count=1_000,
    )
    deleted_count = 0
    for seed in range(SEEDS):
        turmoil = DeletingTurmoil(seed, description, store_count=16 if is_partitioned else 1)
        turmoil.run(STEPS)
        turmoil.heal()
        turmoil.check()
        deleted_count += turmoil.deleted_count
    assert deleted_count > SEEDS  # there was something to take


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("requires_session", [False, True])
def test_promises_hold_when_most_messages_are_beyond_memory(
    seed: int, requires_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: design rule 6 costs nobody a message. Method: as above, with room for four messages in each lane."""
    monkeypatch.setattr(lane, "READY_COUNT_MAX", 4)
    description = QueueDescription(
        "q", requires_session=requires_session, lock_duration=LOCK_DURATION, max_delivery_count=1_000
    )
    turmoil = Turmoil(seed, description, store_count=1)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()
