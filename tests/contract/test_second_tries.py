"""What was taken under a name before the process ended, on every store that outlives it (contract A4.6)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.conftest import ON_POSTGRES, STORES, open_postgres
from twinbus.broker.fragment.names import NAMES_KEPT, SecondTry
from twinbus.errors import OutcomeUnknown
from twinbus.model.descriptions import QueueDescription
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import KeysSeen, carry_out
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture(params=["durable", "durable-checkpointed", *ON_POSTGRES])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MessagingStore]:
    """Each time what the last one has left."""
    if request.param in ON_POSTGRES:
        return lambda: open_postgres(request)
    return lambda: STORES[request.param](tmp_path / "store")


def served(store: MessagingStore) -> Simulation:
    sim = Simulation(make_store=lambda: store)
    sim.entities.restore_queue(1, QueueDescription("q", enable_partitioning=True), sim.now)
    sim.run()
    return sim


def send_again(sim: Simulation) -> Answer[list[int]]:
    answer: Answer[list[int]] = Answer()
    placement = sim.entities.queue("q").placement
    placement.send_together_again([make_message("a"), make_message("b")], SecondTry(5, ["n.0", "n.1"]), sim.now, answer)
    sim.run()
    return answer


@pytest.mark.rule("A4.6")
def test_what_was_written_before_its_answer_was_lost_is_known_to_the_next_process(
    open_store: Callable[[], MessagingStore],
) -> None:
    store = open_store()
    sim = served(store)
    sim.ports[0].next_fault = Fault.LOSE_REPLY
    assert isinstance(send_again(sim).error, OutcomeUnknown)
    store.close()
    store = open_store()
    sim = served(store)
    numbers = send_again(sim).value
    deliveries = sim.receiver(sim.entities.queue("q").main, 9).take()
    assert [each.message.sequence_number for each in deliveries] == numbers
    store.close()


@pytest.mark.rule("A4.6")
def test_what_was_not_written_is_stored_by_the_next_process(open_store: Callable[[], MessagingStore]) -> None:
    store = open_store()
    sim = served(store)
    sim.ports[0].next_fault = Fault.FAIL_BEFORE
    assert isinstance(send_again(sim).error, OutcomeUnknown)
    store.close()
    store = open_store()
    sim = served(store)
    assert send_again(sim).error is None
    assert sim.receiver(sim.entities.queue("q").main, 9).ids() == ["a", "b"]
    store.close()


def test_names_leave_the_store_after_their_time(open_store: Callable[[], MessagingStore]) -> None:
    store = open_store()
    sim = served(store)
    assert send_again(sim).error is None
    key = sim.entities.queue("q").main.fragments[5].key
    assert len(carry_out(KeysSeen(key), store)) == 2
    sim.advance(2 * NAMES_KEPT, NAMES_KEPT)
    assert carry_out(KeysSeen(key), store) == []
    store.close()
