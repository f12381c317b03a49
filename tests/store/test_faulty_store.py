"""A store that fails on purpose fails as the protocol says stores fail."""

from random import Random

import pytest

from tests.contract.rows import HERE, everything, holding, row
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Removed
from twinbus.store.memory import MemoryStore
from twinbus.testing.faulty_store import Fault, FaultSwitch, FaultyStore, random_faults


def test_without_a_fault_it_is_the_store_inside() -> None:
    inside = MemoryStore()
    holding(FaultyStore(inside, FaultSwitch()), row(1))
    assert everything(inside) == [row(1)]


@pytest.mark.parametrize(("fault", "is_applied"), [(Fault.FAIL_BEFORE, False), (Fault.LOSE_REPLY, True)])
def test_a_commit_that_fails_was_applied_or_not_and_ends_the_opening(fault: Fault, is_applied: bool) -> None:
    inside, switch = MemoryStore(), FaultSwitch()
    store = FaultyStore(holding(inside, row(1)), switch)
    switch.fail_next(fault)
    with pytest.raises(StoreUnavailable):
        store.commit([Removed(HERE, [1])])
    assert (everything(inside) == []) is is_applied
    with pytest.raises(StoreUnavailable):
        store.summaries()
    FaultyStore(inside, switch).summaries()


def test_a_store_that_is_down_cannot_be_used_or_opened_until_it_is_healed() -> None:
    inside, switch = MemoryStore(), FaultSwitch()
    store = FaultyStore(inside, switch)
    switch.is_down = True
    with pytest.raises(StoreUnavailable):
        store.summaries()
    with pytest.raises(StoreUnavailable):
        FaultyStore(inside, switch)
    switch.heal()
    assert FaultyStore(inside, switch).summaries() == []


def test_closing_ends_the_opening_and_not_the_store_inside() -> None:
    inside = holding(MemoryStore(), row(1))
    store = FaultyStore(inside, FaultSwitch())
    store.close()
    with pytest.raises(StoreUnavailable):
        everything(store)
    assert everything(FaultyStore(inside, FaultSwitch())) == [row(1)]


def test_the_same_seed_gives_the_same_faults() -> None:
    def outcomes(seed: int) -> list[bool]:
        switch = FaultSwitch(random_faults(Random(seed), share=0.5))
        inside = MemoryStore()
        results = []
        for _ in range(50):
            try:
                FaultyStore(inside, switch).summaries()
                results.append(True)
            except StoreUnavailable:
                results.append(False)
        return results

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert 10 < sum(outcomes(1)) < 40
