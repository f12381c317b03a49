"""Entities that hang together keep their promises while stores fail, lose replies, hang and come back."""

from collections.abc import Callable

import pytest

from tests.simulation.forwarding_chain import OFTEN, rehearse_chain
from tests.simulation.landscape import LOCK_DURATION, Landscape
from tests.simulation.outlets import Mouth, Outlet
from twinbus.broker import held_contents
from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.entity import fan_out, topic_placement
from twinbus.broker.fragment import decision, lane, settlement, upkeep
from twinbus.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from twinbus.testing.faulty_store import Fault
from twinbus.testing.simulation import Simulation

SEEDS = 30
STEPS = 500


def only(*paths: str) -> Callable[[str], tuple[str, ...]]:
    return lambda _: paths


def one(description: QueueDescription) -> Callable[[Simulation], None]:
    def build(sim: Simulation) -> None:
        sim.queue(description)

    return build


@pytest.mark.rule("A13.1", "A10", "A14")
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_duplicate_comes_and_none_comes_too_early_or_too_late(seed: int, is_partitioned: bool) -> None:
    """Goal: duplicates are dropped whatever fails, scheduled messages wait, expired ones are not handed over.

    Method: senders send some messages again, with and without a first answer; some live for a second.
    """
    description = QueueDescription(
        "q",
        enable_partitioning=is_partitioned,
        requires_duplicate_detection=True,
        lock_duration=LOCK_DURATION,
        dead_letter_on_expiry=seed % 2 == 0,
    )
    mouth = Mouth("q", only("q"), is_unique=True, time_to_live=1_000, is_scheduling=True)
    landscape = Landscape(seed, one(description), [mouth], [Outlet("q", is_unique=True)])
    landscape.run(STEPS)
    landscape.heal()
    landscape.check()


@pytest.mark.rule("A9", "A14")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_messages_that_expire_in_sessions_hold_up_nothing_behind_them(seed: int) -> None:
    """Goal: order in sessions and time to live together, also where a session ends up empty."""
    description = QueueDescription(
        "q",
        enable_partitioning=seed % 2 == 0,
        requires_session=True,
        lock_duration=LOCK_DURATION,
        max_delivery_count=OFTEN,
        dead_letter_on_expiry=seed % 3 == 0,
    )
    mouth = Mouth("q", only("q"), has_sessions=True, time_to_live=1_000, is_scheduling=True)
    landscape = Landscape(seed, one(description), [mouth], [Outlet("q")])
    landscape.run(STEPS)
    landscape.heal()
    landscape.check()


@pytest.mark.rule("A5", "A12")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_claims_and_their_ends_lose_and_double_nothing(seed: int) -> None:
    """Goal: claimed messages are there, and come again when they are given back."""
    description = QueueDescription("q", enable_partitioning=True, lock_duration=LOCK_DURATION, max_delivery_count=OFTEN)
    outlet = Outlet("q", is_claimed_from=True)
    landscape = Landscape(seed, one(description), [Mouth("q", only("q"))], [outlet])
    landscape.run(STEPS)
    landscape.heal()
    landscape.check()


@pytest.mark.rule("A5.7")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_received_and_deleted_comes_once_and_nothing_else_is_lost(seed: int) -> None:
    """Goal: at most once, and exactly once where no reply of a store is lost.

    Method: stores refuse, go down and come back, and the process crashes, but whatever they did they say.
    """
    description = QueueDescription("q", enable_partitioning=True)
    mouth = Mouth("q", only("q"), is_scheduling=True)
    outlet = Outlet("q", mode=ReceiveMode.RECEIVE_AND_DELETE)
    landscape = Landscape(seed, one(description), [mouth], [outlet], faults=[Fault.FAIL_BEFORE])
    landscape.run(STEPS)
    landscape.heal()
    landscape.check()


@pytest.mark.rule("A16", "A9")
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_subscription_gets_what_its_rules_say_and_nothing_else(seed: int, is_partitioned: bool) -> None:
    """Goal: a message and all of its copies are one; order in sessions holds for copies too; no copy comes twice where
    the topic detects duplicates, as it does for every second seed."""
    is_unique = seed % 2 == 1

    def build(sim: Simulation) -> None:
        sim.topic(TopicDescription("t", enable_partitioning=is_partitioned, requires_duplicate_detection=is_unique))
        red = RuleDescription("r", SqlFilter("color = 'red'"))
        green = RuleDescription("r", CorrelationFilter(properties=(("color", "green"),)))
        marked = RuleDescription("r", TrueFilter(), SqlAction("SET seen = 1"))
        for name, rule in (("all", RuleDescription("r")), ("red", red), ("green", green), ("marked", marked)):
            description = SubscriptionDescription("t", name, lock_duration=LOCK_DURATION, max_delivery_count=OFTEN)
            sim.subscription(description, [rule])
        talks = SubscriptionDescription(
            "t", "talks", requires_session=True, lock_duration=LOCK_DURATION, max_delivery_count=OFTEN
        )
        sim.subscription(talks)

    def reached(color: str) -> tuple[str, ...]:
        return "t/all", f"t/{color}", "t/marked", "t/talks"

    mouth = Mouth("t", reached, is_unique=is_unique, has_sessions=True, is_scheduling=True)
    outlets = [Outlet(f"t/{name}", is_unique=is_unique) for name in ("all", "red", "green", "marked", "talks")]
    landscape = Landscape(seed, build, [mouth], outlets)
    landscape.run(STEPS)
    landscape.heal()
    landscape.check()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done in pieces is done in very small ones, and contents of locked messages are left to the store."""
    for module, name, value in (
        (lane, "READY_COUNT_MAX", 4),
        (lane, "WIDE_COUNT_MAX", 8),
        (lane, "STEP_COUNT_MAX", 3),
        (held_contents, "HELD_BYTES_MAX", 0),
        (settlement, "ENDED_COUNT_MAX", 2),
        (settlement, "SETTLED_TOGETHER", 1),
        (settlement, "WRITTEN_TOGETHER", 1),
        (upkeep, "DUE_COUNT_MAX", 2),
        (upkeep, "DUE_UNREAD_MAX", 3),
        (upkeep, "SWEEP_COUNT_MAX", 2),
        (topic_placement, "COPIES_AT_ONCE", 30),
        (fan_out, "STEP_COPIES", 1),
        (fan_out, "STEP_SHAPED", 1),
        (fan_out, "SHARED_BYTES_MIN", 400),
        (decision, "ANNOUNCED_TOGETHER", 1),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_done_in_pieces_keeps_the_same_promises(seed: int) -> None:
    """Goal: whatever comes between two pieces, nothing is lost, doubled or overtaken: a topic with message sessions and without,
    queues with schedules, times to live and claims."""

    def build(sim: Simulation) -> None:
        sim.topic(TopicDescription("t", enable_partitioning=seed % 2 == 0))
        for name, requires_session in (("all", False), ("more", False), ("talks", True)):
            sim.subscription(
                SubscriptionDescription(
                    "t",
                    name,
                    requires_session=requires_session,
                    lock_duration=LOCK_DURATION,
                    max_delivery_count=OFTEN,
                )
            )
        for name in ("mortal", "claimed"):
            sim.queue(QueueDescription(name, lock_duration=LOCK_DURATION, max_delivery_count=OFTEN))

    mouths = [
        Mouth("t", only("t/all", "t/more", "t/talks"), has_sessions=True, is_scheduling=True),
        Mouth("mortal", only("mortal"), time_to_live=1_000, is_scheduling=True),
        Mouth("claimed", only("claimed"), is_scheduling=True),
    ]
    outlets = [Outlet("t/all"), Outlet("t/more"), Outlet("t/talks"), Outlet("mortal")]
    landscape = Landscape(seed, build, mouths, [*outlets, Outlet("claimed", is_claimed_from=True)])
    landscape.run(2 * STEPS)
    landscape.heal()
    landscape.check()


@pytest.mark.rule("A11.5", "A10")
@pytest.mark.parametrize("detects_duplicates", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_chain_of_forwarding_loses_nothing(seed: int, detects_duplicates: bool) -> None:
    rehearse_chain(Landscape, seed, STEPS, detects_duplicates=detects_duplicates)
