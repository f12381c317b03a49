"""Transactions are whole or undone while stores fail, hang, lose replies and come back, and the process crashes."""

import pytest

from tests.simulation.transactional_turmoil import CrossEntityTurmoil, TransactionalTurmoil
from tests.simulation.turmoil import LOCK_DURATION
from twinbus.model.descriptions import QueueDescription

SEEDS = 40
STEPS = 700


@pytest.mark.rule("A7.2")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(
    ("is_partitioned", "requires_session"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_a_transaction_happens_whole_or_not_at_all(seed: int, is_partitioned: bool, requires_session: bool) -> None:
    """Goal: contract A7, besides all that holds without transactions.

    Method: random commands with faults, some of them in transactions that are committed, rolled back or forgotten; then
    everything heals, and what was seen of each transaction is compared with what its commit said.
    """
    description = QueueDescription(
        "q",
        enable_partitioning=is_partitioned,
        requires_session=requires_session,
        lock_duration=LOCK_DURATION,
        max_delivery_count=1_000,  # nothing leaves a session unseen
    )
    turmoil = TransactionalTurmoil(seed, description, store_count=16 if is_partitioned else 1)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()
    assert turmoil.commit_count > 0


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_transaction_over_several_entities_happens_whole_or_not_at_all(seed: int, is_partitioned: bool) -> None:
    """Goal: contract A7 for transactions with a home. Method: as above, with sends to another queue and to a topic in them."""
    description = QueueDescription(
        "q", enable_partitioning=is_partitioned, lock_duration=LOCK_DURATION, max_delivery_count=1_000
    )
    turmoil = CrossEntityTurmoil(seed, description, store_count=16 if is_partitioned else 3)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()
    assert turmoil.commit_count > 0
