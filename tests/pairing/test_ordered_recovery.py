"""Order through an outage: after the heal a message session goes on through the backlog until its earlier messages are home."""

from collections import defaultdict
from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.pairing.sim_syphon import LOCK, SimSyphon
from tests.pairing.world import CALL, SimSender, World, run_send
from twinbus.clock import Millis
from twinbus.pairing.backlog.delivery import Pause
from twinbus.pairing.courier import Step
from twinbus.pairing.deciding.catching_up import (
    DOUBT_MAX,
    SESSIONS_MAX,
    SURVEY_INTERVAL,
    SURVEY_INTERVAL_IDLE,
    UNREADABLE_MAX,
    CatchingUp,
    Order,
)
from twinbus.pairing.deciding.failover import FailoverDetector
from twinbus.pairing.deciding.survey import SURVEYED_MAX, UNSEEN, Survey
from twinbus.pairing.errors import BacklogUnavailable
from twinbus.pairing.events import Availability, EventKind
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rewriting.stages import Stage

SECOND = timedelta(seconds=1)
SESSIONS = [f"s{number}" for number in range(4)]
NOON: Millis = 1_800_000_000_000
RESTART_SHARE = 0.1
"""Of sends, before which the process is restarted."""
DELIVERY_COUNT_DEFAULT = 10
"""After which a queue dead-letters a message, if whoever created it did not say otherwise."""


def survey(at: Millis, *waiting: tuple[str, int], is_complete: bool = True) -> Survey:
    """Messages for `orders` in queue 0, by session and number."""
    found = Survey(at, unseen_from={} if is_complete else {0: UNSEEN})
    for session, number in waiting:
        found.add(0, "orders", session, number)
    return found


def recovered(*sessions: str) -> CatchingUp:
    """These sessions have a message in the backlog."""
    catching_up = CatchingUp()
    catching_up.begins(sessions, 0)
    catching_up.ends(sessions, NOON)
    assert catching_up.start(NOON + 10)
    return catching_up


@pytest.mark.rule("B8")
def test_until_somebody_has_looked_every_session_goes_on_through_the_backlog() -> None:
    """Others may have sent messages of it, in another process."""
    assert recovered("a").order(["b"], NOON + 60) is Order.BACKLOG


@pytest.mark.rule("B8")
def test_a_session_that_waits_follows_its_messages_and_another_does_not_wait_for_it() -> None:
    catching_up = recovered("a")
    catching_up.surveyed("orders", survey(NOON + 20, ("a", 1), ("c", 2)))
    assert [catching_up.order([each], NOON + 60) for each in "ABc"] == [Order.BACKLOG, Order.PRIMARY, Order.BACKLOG]
    assert catching_up.order(["b", "a"], NOON + 60) is Order.BACKLOG


@pytest.mark.rule("B8")
def test_what_was_sent_after_a_survey_began_is_not_taken_for_home() -> None:
    catching_up = recovered("a", "b")
    catching_up.surveyed("orders", survey(NOON + 20, ("b", 9)))
    catching_up.begins(["a"], 0)
    assert not catching_up.surveyed("orders", survey(NOON + 30))
    catching_up.ends(["a"], NOON + 40)
    assert not catching_up.surveyed("orders", survey(NOON + 40))
    assert catching_up.surveyed("orders", survey(NOON + 41))
    assert not catching_up.is_active


@pytest.mark.rule("B8")
def test_a_send_that_outlasts_the_recovery_does_not_hold_up_the_next_one() -> None:
    """Recovery is given up after a while, whatever is under way to the backlog then."""
    catching_up = recovered("a")
    catching_up.begins(["a"], 0)
    catching_up.stop()
    catching_up.begins(["a"], 0)
    catching_up.ends(["a"], NOON + 20)
    assert catching_up.start(NOON + 30)
    assert not catching_up.surveyed("orders", survey(NOON + 40))  # the other one is still under way
    catching_up.ends(["a"], NOON + 50)
    assert catching_up.surveyed("orders", survey(NOON + 60))


@pytest.mark.rule("B8")
def test_a_busy_session_is_held_for_a_moment_once_its_messages_move() -> None:
    catching_up = recovered("a")
    catching_up.surveyed("orders", survey(NOON + 20, ("a", 1), ("a", 2)))
    assert catching_up.order(["a"], NOON + 60) is Order.BACKLOG
    catching_up.surveyed("orders", survey(NOON + 30, ("a", 2), ("a", 3)))
    assert catching_up.order(["a"], NOON + 60) is Order.BACKLOG, (
        "one that was left behind stays for as long as its lock"
    )
    catching_up.surveyed("orders", survey(NOON + 40, ("a", 4)))
    assert catching_up.order(["a"], NOON + 60) is Order.HOLD
    assert catching_up.next_survey_at() < NOON + 1_000
    assert catching_up.surveyed("orders", survey(NOON + 50))


@pytest.mark.rule("B8")
def test_while_a_backlog_is_too_deep_to_look_through_nobody_overtakes() -> None:
    catching_up = recovered("a")
    catching_up.surveyed("orders", survey(NOON + 20, is_complete=False))
    assert catching_up.order(["b"], NOON + 60) is Order.BACKLOG
    assert catching_up.queues() is None


def test_more_sessions_than_can_be_kept_all_wait() -> None:
    catching_up = CatchingUp()
    catching_up.begins((f"s{number}" for number in range(SESSIONS_MAX + 1)), 0)
    assert len(catching_up.trails) == SESSIONS_MAX
    catching_up.ends((f"s{number}" for number in range(SESSIONS_MAX + 1)), NOON)
    catching_up.start(NOON)
    catching_up.surveyed("orders", survey(NOON + 20, ("s1", 1)))
    assert catching_up.order(["new"], NOON + 60) is Order.BACKLOG


def test_an_entity_without_sessions_has_nothing_to_catch_up_with() -> None:
    assert not CatchingUp().start(NOON)


# A process that begins while messages wait


def in_doubt() -> CatchingUp:
    catching_up = CatchingUp()
    catching_up.doubt(range(3))
    catching_up.doubt_begins(NOON, is_failed_over=False)
    return catching_up


@pytest.mark.rule("B8.7")
def test_a_process_that_finds_messages_waiting_holds_its_sessions_until_somebody_has_looked() -> None:
    catching_up = in_doubt()
    assert catching_up.next_survey_at() <= NOON
    assert catching_up.queues() is None
    assert catching_up.order(["a"], NOON + 10) is Order.HOLD
    catching_up.surveyed("orders", survey(NOON + 10, ("a", 1)))
    assert [catching_up.order([each], NOON + 20) for each in "ab"] == [Order.BACKLOG, Order.PRIMARY]
    assert catching_up.queue_of(["a"]) == 0


@pytest.mark.rule("B8.7")
def test_while_nobody_can_look_a_session_is_held_for_a_moment_and_then_follows_whatever_is_there() -> None:
    catching_up = in_doubt()
    assert catching_up.order(["a"], NOON + DOUBT_MAX) is Order.BACKLOG
    assert catching_up.stages_at(["a"], 1) == {"A": Stage(NOON + 1, (0, 2))}
    catching_up.begins(["a"], 1)
    catching_up.ends(["a"], NOON, accepted_by=1)
    catching_up.not_surveyed(NOON + 10)
    assert catching_up.order(["b"], NOON + 20) is Order.BACKLOG, "once a look has failed nobody is held for the next"
    catching_up.not_surveyed(NOON + UNREADABLE_MAX)
    assert catching_up.order(["b"], NOON + UNREADABLE_MAX) is Order.PRIMARY, (
        "a lost secondary does not keep it for good"
    )
    assert catching_up.order(["a"], NOON + UNREADABLE_MAX) is Order.BACKLOG


@pytest.mark.rule("B8.7")
def test_a_session_that_waits_in_several_queues_goes_on_in_the_last_one_after_the_others() -> None:
    catching_up, found = in_doubt(), Survey(NOON + 10)
    found.add(0, "orders", "a", 7, 0, NOON - 9)
    found.add(2, "orders", "a", 3, 1, NOON - 5)
    catching_up.surveyed("orders", found)
    assert catching_up.queue_of(["a"]) == 2
    assert catching_up.stages_at(["a"], 2) == {"A": Stage(2, (0,))}


@pytest.mark.rule("B8.7")
def test_a_process_that_uses_no_sessions_seldom_looks_into_a_deep_backlog() -> None:
    """It would be hundreds of operations a second for nothing."""
    catching_up = in_doubt()
    catching_up.surveyed("orders", survey(NOON + 10, is_complete=False))
    assert catching_up.next_survey_at() == NOON + 10 + SURVEY_INTERVAL_IDLE
    catching_up.uses_sessions = True
    assert catching_up.order(["a"], NOON + 20) is Order.BACKLOG
    assert catching_up.next_survey_at() == NOON + 10 + SURVEY_INTERVAL


@pytest.mark.rule("B8.7")
def test_what_was_seen_still_holds_when_the_next_look_fails() -> None:
    """A secondary that fails while an entity catches up must not keep sessions from the primary that have nothing there."""
    catching_up = recovered("a")
    catching_up.surveyed("orders", survey(NOON + 20, ("a", 1)))
    catching_up.not_surveyed(NOON + 30)
    assert [catching_up.order([each], NOON + 40) for each in "ab"] == [Order.BACKLOG, Order.PRIMARY]


# In the simulated world


@pytest.mark.rule("B8.7")
def test_a_process_that_begins_with_an_empty_backlog_looks_for_nothing_and_holds_nobody() -> None:
    world = world_of(1)
    world.restart()
    began_at = world.clock.at
    assert world.send(world.sender("orders"), session_id="a")
    assert world.entities["orders"].arrived == ["orders-0"]
    assert world.clock.at - began_at == CALL
    assert world.survey_count == 0


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize("is_healed", [False, True])
def test_a_sender_that_is_restarted_goes_on_in_the_queue_where_its_session_waits(is_healed: bool) -> None:
    world = world_of(1, failover_interval=timedelta(0), backlog_queue_count=10)
    world.syphons.clear()
    world.primary.is_down = True
    assert world.send(world.sender("orders"), session_id="a")
    world.primary.is_down = not is_healed
    for _ in range(5):
        world.restart()
        assert world.send(world.sender("orders"), session_id="a")
        assert world.availability.state().entities[0].availability is Availability.CATCHING_UP
    assert [len(queue.waiting) for queue in world.queues.values() if queue.waiting] == [6]
    world.primary.heal()
    assert world.send(world.sender("orders"), session_id="b")
    assert world.send(world.sender("orders"))
    assert world.entities["orders"].arrived == ["orders-6", "orders-7"], "other sessions and other messages go directly"


@pytest.mark.rule("B8.7")
def test_a_sender_created_after_the_backlog_was_seen_empty_has_nothing_to_wait_for() -> None:
    world = world_of(1, failover_interval=timedelta(0))
    world.primary.is_down = True
    assert world.send(world.sender("orders"), session_id="a")
    world.primary.heal()
    world.restart()
    for queue in world.queues.values():
        queue.waiting.clear()
    assert world.send(world.sender("orders"), session_id="a")
    assert world.sender("bills").courier.watch.is_untroubled
    assert world.availability.state().entities[0].availability is Availability.HEALTHY


@pytest.mark.rule("B5", "B8")
def test_a_session_stays_with_its_backlog_queue_over_a_short_failure_of_the_secondary() -> None:
    """In another queue its messages could overtake those that wait."""
    world = world_of(1, failover_interval=timedelta(0))
    world.primary.is_down = True
    senders = [world.sender("orders") for _ in range(5)]
    for sender in senders:
        assert world.send(sender, session_id="a")
    world.secondary.is_down = True
    assert not world.send(senders[0], session_id="a")
    world.secondary.is_down = False
    for sender in senders:
        assert world.send(sender, session_id="a")
    used = [queue for queue in world.queues.values() if queue.waiting]
    assert len(used) == 1


@pytest.mark.rule("B5")
def test_a_session_whose_backlog_queue_stays_away_is_accepted_by_another() -> None:
    world = world_of(1, failover_interval=timedelta(0))
    world.primary.is_down = True
    sender = world.sender("orders")
    assert world.send(sender, session_id="a")
    (own,) = (queue for queue in world.queues.values() if queue.waiting)
    own.is_full = True
    assert world.send(sender, session_id="a")
    assert sum(len(queue.waiting) for queue in world.queues.values()) == 2


def restarted_while_nobody_can_look() -> World:
    """Messages wait in the backlog, the primary works, and the secondary fails once the new process has been told of them."""
    world = world_of(1, failover_interval=timedelta(0))
    world.syphons.clear()
    world.primary.is_down = True
    assert world.send(world.sender("orders"), session_id="a")
    world.primary.heal()
    world.restart()
    world.secondary.is_down = True
    return world


@pytest.mark.rule("B2", "B8.7")
def test_a_lost_secondary_keeps_a_session_from_the_working_primary_for_half_a_minute_at_most() -> None:
    """Though sends of it were tried in the backlog meanwhile, and none of them was accepted."""
    world = restarted_while_nobody_can_look()
    sender = world.sender("orders")
    began_at = world.clock.at
    assert not sender.send(["tried"], 10, session_id="b")
    while not sender.send([f"at {world.clock.at}"], 10, session_id="b"):
        world.pass_time(SECOND)
        assert world.clock.at - began_at < 2 * UNREADABLE_MAX
    assert world.clock.at - began_at <= UNREADABLE_MAX + 10_000
    assert len(world.entities["orders"].arrived) == 1


@pytest.mark.rule("B2", "B5")
def test_a_send_that_no_backlog_queue_takes_goes_to_the_primary_once_that_takes_it_again() -> None:
    world = restarted_while_nobody_can_look()
    began_at = world.clock.at
    assert world.sender("orders").send(["patient"], 60, session_id="b")
    assert world.entities["orders"].arrived == ["patient"]
    assert world.clock.at - began_at <= UNREADABLE_MAX + 5_000


def test_the_error_of_a_message_that_had_to_follow_others_does_not_say_that_its_entity_is_failed_over() -> None:
    world = restarted_while_nobody_can_look()

    def perform(step: Step) -> None:
        if not isinstance(step, Pause):
            raise ConnectionError("down")
        world.clock.at += step.duration

    with pytest.raises(BacklogUnavailable, match="although the primary works"):
        run_send(world.sender("orders").courier, ServiceBusMessage("x", session_id="b"), 10, perform)


@pytest.mark.rule("B5")
def test_a_send_that_fails_in_the_backlog_goes_to_a_primary_that_recovers_meanwhile() -> None:
    world = world_of(1, failover_interval=timedelta(0))
    world.primary.is_down = world.secondary.is_down = True
    sender = world.sender("orders")
    assert not world.send(sender)
    world.primary.heal()
    assert sender.send(["patient"], 60)
    assert world.entities["orders"].arrived == ["patient"]


def world_of(seed: int, *, ordered: bool = True, **chosen: Any) -> World:
    """With an hour to catch up: a syphon that hangs with its primary takes half a minute for each step."""
    settings: dict[str, Any] = {
        "backlog_queue_count": 3,
        "failover_interval": timedelta(seconds=5 * (seed % 2)),
        "ping_primary_interval": timedelta(seconds=10),
        "recovery_ramp": timedelta(seconds=20 * (seed % 3 == 0)),
        "ordered_recovery": ordered,
        "ordered_recovery_max": timedelta(hours=1),
    }
    world = World(seed, SendAvailabilityPairedNamespaceOptions(**{**settings, **chosen}))
    for queue in world.queues:
        world.syphon(queue)
    return world


class Conversation:
    """Two senders that share four sessions of one entity; each session is one sender's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begin_anew()
        self.accepted: dict[str, list[str]] = defaultdict(list)

    def begin_anew(self) -> None:
        self.senders = [self.world.sender("orders") for _ in range(2)]

    def speak(self) -> None:
        number = self.world.random.randrange(len(SESSIONS))
        sender: SimSender = self.senders[number % 2]
        before = self.world._sent_count
        if self.world.send(sender, session_id=SESSIONS[number]):
            self.accepted[SESSIONS[number]].append(f"orders-{before}")

    def out_of_order(self) -> int:
        """Accepted messages that came after a later one of their session; of repeated ones the first counts."""
        arrived = {each: place for place, each in reversed(list(enumerate(self.world.entities["orders"].arrived)))}
        return sum(arrived[one] > arrived[other] for ids in self.accepted.values() for one, other in pairwise(ids))


def run_outages(world: World, *, loses_queues: bool = False, restarts: bool = False) -> Conversation:
    talk, random = Conversation(world), world.random
    queues = list(world.queues.values())
    for turn in range(60):
        if loses_queues:
            for queue in queues:
                queue.is_down = False
            random.choice(queues).is_down = turn % 4 > 0
        if turn % 15 == 5:
            random.choice(
                (lambda: setattr(world.primary, "is_down", True), lambda: setattr(world.primary, "is_hung", True))
            )()
        if turn % 15 == 12:
            world.primary.heal()
        for _ in range(3):
            if restarts and random.random() < RESTART_SHARE:
                world.restart()
                talk.begin_anew()
            talk.speak()
        for syphon in world.syphons:
            syphon.step()
        world.pass_time(random.randint(0, 4) * SECOND)
    world.primary.heal()
    for turn in range(90):
        for queue in queues:
            queue.is_down = queue.is_down and turn < 20
        talk.speak()
        for syphon in world.syphons:
            for _ in range(4):
                syphon.step()
        world.pass_time(SECOND)
    for _ in range(3000):
        for syphon in world.syphons:
            syphon.step()
        world.pass_time(SECOND)
        if not world.in_backlog() and not world.availability.is_catching_up:
            break
    world.pass_time(20 * SECOND)
    assert world.in_backlog() == []
    return talk


def check_outages(
    seeds: range, *, loses_queues: bool = False, restarts: bool = False, surveyed_max: int = SURVEYED_MAX
) -> None:
    for seed in seeds:
        world = world_of(seed)
        world.surveyed_max = surveyed_max
        talk = run_outages(world, loses_queues=loses_queues, restarts=restarts)
        assert talk.out_of_order() == 0, f"seed {seed}"
        assert world.availability.state().entities[0].availability is Availability.HEALTHY, f"seed {seed}"
        recovered_count = sum(event.kind is EventKind.RECOVERED for event in world.events)
        caught_up = [event for event in world.events if event.kind is EventKind.CAUGHT_UP]
        assert restarts or 1 <= len(caught_up) <= recovered_count
        assert [event for event in caught_up if event.error is not None] == []
        world.auditor.check_ledger(world.ledger(), may_repeat=True)


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize("first", [0, 5])
def test_no_message_of_a_session_is_overtaken_over_the_end_of_an_outage(first: int) -> None:
    check_outages(range(first, first + 5))


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize("first", [0, 5])
def test_no_message_of_a_session_is_overtaken_when_backlog_queues_fail_in_the_middle(first: int) -> None:
    """A session goes on in another queue, and what is there waits for what is in the lost one."""
    check_outages(range(first, first + 5), loses_queues=True)


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize("loses_queues", [False, True])
@pytest.mark.parametrize("surveyed_max", [SURVEYED_MAX, 3])
def test_no_message_of_a_session_is_overtaken_when_its_process_is_restarted_in_the_middle(
    loses_queues: bool, surveyed_max: int
) -> None:
    """It knows nothing then but what it sees in the backlog, which may be too deep to be looked through."""
    check_outages(range(5), loses_queues=loses_queues, restarts=True, surveyed_max=surveyed_max)


@pytest.mark.nightly
@pytest.mark.parametrize("loses_queues", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", range(100, 400, 50))
def test_no_message_of_a_session_is_overtaken_over_many_more_outages(
    first: int, loses_queues: bool, restarts: bool
) -> None:
    check_outages(range(first, first + 50), loses_queues=loses_queues, restarts=restarts)
    check_outages(range(first, first + 10), loses_queues=loses_queues, restarts=restarts, surveyed_max=3)


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize("spoke_before", [True, False])
def test_a_ramp_takes_no_session_apart(spoke_before: bool) -> None:
    """A lot for each message would send one to the backlog and the next one past it, once nothing waits there any more."""
    world = world_of(1, failover_interval=timedelta(0), recovery_ramp=timedelta(minutes=20))
    talk = Conversation(world)
    world.primary.is_down = True
    world.send(world.sender("orders"), session_id=SESSIONS[0] if spoke_before else None)
    world.primary.heal()
    bring_home(world)
    assert not world.availability.is_catching_up
    for _ in range(60):
        talk.speak()
        world.pass_time(10 * SECOND)
    bring_home(world)
    assert talk.out_of_order() == 0


def bring_home(world: World) -> None:
    for _ in range(60):
        world.pass_time(SECOND)
        for syphon in world.syphons:
            syphon.step()
    assert world.in_backlog() == []


def test_without_the_option_new_messages_overtake_the_backlog() -> None:
    """So the test above can fail."""
    assert sum(run_outages(world_of(seed, ordered=False)).out_of_order() for seed in range(5)) > 10


@pytest.mark.rule("B8.7")
def test_catching_up_is_bounded_shown_and_ends_with_an_event_that_says_so() -> None:
    world = world_of(1, ordered_recovery_max=timedelta(seconds=30))
    talk = Conversation(world)
    world.syphons.clear()
    world.primary.is_down = True
    for _ in range(20):
        talk.speak()
        world.pass_time(SECOND)
    world.primary.heal()
    world.pass_time(11 * SECOND)
    assert world.availability.state().entities[0].availability is Availability.CATCHING_UP
    arrived = len(world.entities["orders"].arrived)
    assert world.send(world.sender("orders"))
    assert world.send(world.sender("orders"), session_id="another")
    assert len(world.entities["orders"].arrived) == arrived + 2, "other sessions and other messages are not held up"
    world.pass_time(31 * SECOND)
    (ended,) = [event for event in world.events if event.kind is EventKind.CAUGHT_UP]
    assert isinstance(ended.error, TimeoutError)
    assert world.availability.state().entities[0].availability is Availability.HEALTHY


def with_one_in_the_backlog() -> tuple[World, SimSender, str, SimSyphon]:
    """A world whose primary is down, the sender of the one message that waits, its queue, and a syphon that has not looked yet."""
    world = World(1)
    world.primary.is_down = True
    sender = world.sender("orders")
    assert not world.send(sender)
    world.pass_time(timedelta(minutes=1))
    assert world.send(sender)
    (queue,) = [path for path, each in world.queues.items() if each.waiting]
    return world, sender, queue, world.syphon(queue)


def cannot_be_given_back(syphon: SimSyphon) -> None:
    """The backlog queue refused to take the first message back, so that it stays locked."""
    syphon.pump.memory.destination("orders").gave_back([1], None)


@pytest.mark.rule("B8.7")
def test_after_a_recovery_what_was_left_is_home_at_once_and_in_order() -> None:
    world, sender, _, syphon = with_one_in_the_backlog()
    while not syphon.pump.memory.left_count():
        syphon.step()
    for _ in range(3):
        assert world.send(sender)
        world.pass_time(50 * SECOND // 3)
        for _ in range(5):
            syphon.step()
    world.primary.heal()
    syphon.pump.primary_recovered()
    began_at = world.clock.at
    while len(world.entities["orders"].arrived) < 4:
        syphon.step()
        world.pass_time(timedelta(milliseconds=100))
    assert world.clock.at - began_at < 3_000
    assert world.entities["orders"].arrived == [f"orders-{number}" for number in range(1, 5)]


@pytest.mark.rule("B8.7")
def test_a_message_behind_one_that_is_still_locked_is_given_back_and_does_not_wait_for_a_lock_of_its_own() -> None:
    """Otherwise a queue that never rests stays one lock behind for good."""
    world, sender, queue, syphon = with_one_in_the_backlog()
    syphon.do_pass()
    cannot_be_given_back(syphon)
    world.primary.heal()
    world.pass_time(2 * SECOND)
    assert world.send(sender)
    syphon.do_pass()
    first, second = world.queues[queue].waiting
    assert first.locked_until > world.clock.at
    assert second.locked_until == 0
    world.pass_time(timedelta(minutes=1))
    syphon.do_pass()
    assert world.entities["orders"].arrived == ["orders-1", "orders-2"]


@pytest.mark.rule("B8.7")
def test_waiting_behind_a_locked_message_costs_fewer_deliveries_than_any_queue_allows() -> None:
    """A queue that somebody else created may dead-letter a message after ten."""
    world, sender, queue, syphon = with_one_in_the_backlog()
    while not syphon.pump.memory.left_count():
        syphon.step()
    assert world.send(sender)
    behind = world.queues[queue].waiting[1]
    cannot_be_given_back(syphon)
    world.primary.heal()
    syphon.pump.primary_recovered()
    began_at = world.clock.at
    while len(world.entities["orders"].arrived) < 2:
        syphon.step()
        world.pass_time(timedelta(milliseconds=100))
    assert behind.lock_count < DELIVERY_COUNT_DEFAULT
    assert world.clock.at - began_at < LOCK + 1_000, "and it is home as soon as the lock has ended"
    assert world.entities["orders"].arrived == ["orders-1", "orders-2"]


@pytest.mark.rule("B8.7")
def test_no_sender_finds_the_entity_healthy_before_it_catches_up() -> None:
    """Senders look without the lock: between the two, the next message of a session would overtake its backlog."""
    world = world_of(1, failover_interval=timedelta(0))
    world.primary.is_down = True
    assert world.send(world.sender("orders"), session_id="a")
    watch, seen = world.availability.watch("orders"), list[bool]()

    class Overheard(FailoverDetector):
        def recover(self, now: Millis) -> bool:
            was_failed_over = super().recover(now)
            seen.append(watch.is_untroubled)
            return was_failed_over

    watch.whole = Overheard(**{each.name: getattr(watch.whole, each.name) for each in fields(watch.whole)})
    world.availability.mark_healthy("orders", world.clock.at)
    assert seen == [False]
    assert world.availability.is_catching_up
