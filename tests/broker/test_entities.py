"""The registry: create, update, delete over all fragments or not at all (contract A6)."""

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from weakref import ref

import pytest

from twinbus.broker.commands import Peek
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.outcomes import DeadLetter
from twinbus.broker.replies import Holdings, QueueCounts
from twinbus.clock import NEVER, Millis
from twinbus.errors import EntityAlreadyExists, EntityNotFound, FragmentUnavailable, ServerBusy
from twinbus.model.descriptions import (
    MINUTE,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation

KEY_OF_FRAGMENT_1 = "0"
IDLE: Millis = 5 * MINUTE

pytestmark = pytest.mark.one_node("the control plane does this at all nodes")


@pytest.fixture
def sim() -> Simulation:
    return Simulation(4)


def delete(sim: Simulation, path: str) -> Answer[None]:
    answer: Answer[None] = Answer()
    sim.entities.delete(path, sim.now, answer)
    sim.run()
    return answer


def create(sim: Simulation, description: QueueDescription) -> Answer[QueueEntity]:
    answer: Answer[QueueEntity] = Answer()
    sim.entities.create_queue(sim.next_id(), description, sim.now, answer)
    sim.run()
    return answer


def test_names_are_found_in_any_case(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("Orders/New"))
    assert sim.entities.queue("orders/NEW") is queue
    assert queue.description.name == "Orders/New"


def test_a_name_that_is_taken_is_refused_in_any_case(sim: Simulation) -> None:
    sim.queue(QueueDescription("orders"))
    assert isinstance(create(sim, QueueDescription("ORDERS")).error, EntityAlreadyExists)


def test_two_requests_for_one_name_at_the_same_time_make_one_entity(sim: Simulation) -> None:
    answers: list[Answer[QueueEntity]] = [Answer(), Answer()]
    for answer in answers:
        sim.entities.create_queue(sim.next_id(), QueueDescription("q"), sim.now, answer)
    sim.run()
    assert sorted(type(answer.error).__name__ for answer in answers) == ["EntityAlreadyExists", "NoneType"]


def test_what_is_not_there_is_not_found(sim: Simulation) -> None:
    sim.queue(QueueDescription("q"))
    for lookup in (lambda: sim.entities.queue("x"), lambda: sim.entities.topic("q")):
        with pytest.raises(EntityNotFound, match="could not be found"):
            lookup()
    assert sim.entities.find("x") is None
    assert isinstance(delete(sim, "x").error, EntityNotFound)


def test_whatever_can_be_counted_by_its_path_is_known_in_any_case_by_its_own(sim: Simulation) -> None:
    sim.queue(QueueDescription("Orders"))
    sim.topic(TopicDescription("News"))
    sim.subscription(SubscriptionDescription("News", "All"))
    paths = ["orders", "news", "news/subscriptions/all", "x", "news/subscriptions/x"]
    assert [sim.entities.name_at(path) for path in paths] == ["Orders", "News", "News/Subscriptions/All", None, None]


@pytest.mark.rule("A6.1")
def test_creating_fails_whole_while_a_store_is_unhealthy(sim: Simulation) -> None:
    sim.lose_store(2)
    answer = create(sim, QueueDescription("p", enable_partitioning=True))
    assert isinstance(answer.error, FragmentUnavailable)
    assert sim.entities.find("p") is None


def test_creating_leaves_nothing_behind_when_a_store_fails_meanwhile(sim: Simulation) -> None:
    sim.ports[2].next_fault = Fault.FAIL_BEFORE
    answer = create(sim, QueueDescription("p", enable_partitioning=True))
    assert isinstance(answer.error, FragmentUnavailable)
    sim.return_store(2)
    assert [port.store.summaries() for port in sim.ports] == [[], [], [], []]
    assert create(sim, QueueDescription("p", enable_partitioning=True)).value.description.name == "p"


def test_deleting_takes_everything_with_it(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("p", enable_partitioning=True))
    sim.send(queue, make_message("m"))
    assert delete(sim, "P").value is None
    assert sim.entities.find("p") is None
    assert [port.store.summaries() for port in sim.ports] == [[], [], [], []]
    again = sim.queue(QueueDescription("p", enable_partitioning=True))
    assert sim.receiver(again.main, 5).take() == []


@pytest.mark.parametrize("expires_after", [None, 50_000 * MINUTE])
def test_what_was_deleted_is_free_at_once(sim: Simulation, expires_after: Millis | None) -> None:
    """Not when its messages would have expired, and not when the collector comes, which is seldom."""
    queue = sim.queue(QueueDescription("q", requires_session=True, default_time_to_live=expires_after or NEVER))
    sim.send(queue, make_message("m", session_id="s"))
    topic = sim.topic(TopicDescription("t"))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    sim.send(topic, make_message("m", time_to_live=expires_after))
    parts: list[object] = [queue, topic, subscription]
    parts += [*queue.fragments, *topic.fragments, *subscription.fragments]
    references = [ref(each) for each in parts]
    parts.clear()
    del queue, topic, subscription
    gc.disable()
    try:
        delete(sim, "q")
        delete(sim, "t")
        assert [each() for each in references if each() is not None] == []
    finally:
        gc.enable()


@pytest.mark.rule("A6.2")
def test_deleting_fails_whole_while_a_store_is_unhealthy(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("p", enable_partitioning=True))
    sim.send(queue, make_message("m"))
    sim.lose_store(1)
    assert isinstance(delete(sim, "p").error, FragmentUnavailable)
    assert sim.receiver(sim.entities.queue("p").main, 5).ids() == ["m"]


def test_who_holds_on_to_a_deleted_queue_finds_it_gone(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    receivers = [sim.receiver(queue.main, 5), sim.receiver(queue.dead_letter, 5)]
    delete(sim, "q")
    assert isinstance(sim.send(queue, make_message("m")).errors[0], EntityNotFound)
    assert all(isinstance(receiver.lost, EntityNotFound) for receiver in receivers)
    with pytest.raises(EntityNotFound):
        sim.receiver(queue.main, 1)


def test_who_waits_for_a_session_of_a_deleted_queue_gets_an_error(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True))
    receiver = sim.receiver(queue.main, 5, session=sim.accept(queue.main, "x").value)
    waiting = sim.accept(queue.main, wait=60_000)
    delete(sim, "s")
    assert isinstance(waiting.error, EntityNotFound)
    assert isinstance(receiver.lost, EntityNotFound)


def test_a_subscription_deleted_alone_leaves_the_topic(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t"))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    receiver = sim.receiver(subscription.main, 5)
    answer: Answer[None] = Answer()
    sim.entities.delete_subscription("T", "S", sim.now, answer)
    sim.run()
    assert answer.value is None
    assert isinstance(receiver.lost, EntityNotFound)
    assert sim.send(topic, make_message("m")).good == {0}


def test_deleting_a_queue_that_is_sent_to_costs_nobody_else_anything(sim: Simulation) -> None:
    """What comes behind the deletion in line is for a fragment that the store has no more."""
    queue, other = sim.queue(QueueDescription("q")), sim.queue(QueueDescription("o"))
    port = sim.ports[queue.fragments[0].broker.index]
    held = sim.receiver(queue.main, 1)
    sim.send(queue, make_message("held"))
    port.is_hung = True
    answer = delete(sim, "q")
    late = sim.send(queue, make_message("late"))
    dead = sim.settle(queue.main, held.take(), DeadLetter("late"))
    port.is_hung = False
    sim.run()
    assert answer.value is None
    assert isinstance(late.errors[0], FragmentUnavailable)
    assert dead.good == {0}
    assert all(broker.is_available for broker in sim.brokers)
    assert sim.send(other, make_message("m")).good == {0}


def test_what_is_sent_to_others_while_a_queue_is_deleted_is_stored() -> None:
    sim = Simulation(1)
    sim.queue(QueueDescription("q"))
    other = sim.queue(QueueDescription("o"))
    sim.ports[0].is_hung = True
    answer = delete(sim, "q")
    sent = sim.send(other, make_message("m"))
    sim.ports[0].is_hung = False
    sim.run()
    assert answer.value is None
    assert sent.good == {0}
    sim.restart()
    assert sim.receiver(sim.entities.queue("o").main, 5).ids() == ["m"]


def test_what_a_queue_was_about_to_do_when_it_was_deleted_costs_nobody_else_anything(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", dead_letter_on_expiry=True))
    sim.send(queue, make_message("m", time_to_live=1_000))
    port = sim.ports[queue.fragments[0].broker.index]
    port.is_hung = True
    sim.advance(2_000)
    assert len(port) == 1, "it asks what has expired"
    answer = delete(sim, "q")
    port.is_hung = False
    sim.run()
    assert answer.value is None
    assert all(broker.is_available for broker in sim.brokers)


def test_a_subscription_is_deleted_while_its_topic_is_sent_to(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t"))
    sim.subscription(SubscriptionDescription("t", "going"))
    staying = sim.subscription(SubscriptionDescription("t", "staying"))
    port = sim.ports[topic.fragments[0].broker.index]
    port.is_hung = True
    answer: Answer[None] = Answer()
    sim.entities.delete_subscription("t", "going", sim.now, answer)
    sent = sim.send(topic, make_message("m"))
    port.is_hung = False
    sim.run()
    assert answer.value is None
    assert sent.good == {0}
    assert sim.receiver(staying.main, 5).ids() == ["m"]


@pytest.mark.parametrize("fault", list(Fault))
def test_a_queue_whose_deletion_failed_half_way_can_be_used_and_deleted_again(sim: Simulation, fault: Fault) -> None:
    queue = sim.queue(QueueDescription("p", enable_partitioning=True))
    sim.ports[2].next_fault = fault
    assert isinstance(delete(sim, "p").error, FragmentUnavailable)
    sim.return_store(2)
    assert all(sim.send(queue, make_message(str(place))).good == {0} for place in range(32))
    assert all(broker.is_available for broker in sim.brokers)
    assert len(sim.receiver(queue.main, 50).take()) == 32
    assert delete(sim, "p").value is None
    assert [port.store.summaries() for port in sim.ports] == [[], [], [], []]


def test_a_queue_that_was_deleted_twice_at_once_in_vain_loses_nothing_that_is_sent_to_it_then(sim: Simulation) -> None:
    """Whoever gave up waiting for a store that hangs asks again, and both deletions fail together."""
    queue = sim.queue(QueueDescription("p", enable_partitioning=True))
    sim.ports[2].is_hung = True
    answers = [delete(sim, "p") for _ in range(2)]
    sim.ports[2].is_hung = False
    sim.ports[2].next_fault = Fault.FAIL_BEFORE
    sim.ports[2].step()
    assert all(isinstance(answer.error, FragmentUnavailable) for answer in answers)
    fragment = queue.main.fragments[1]
    port = sim.ports[1]
    while not fragment.is_available:
        port.step(1)
    sent = EachReply()
    queue.send_each([make_message("m", partition_key=KEY_OF_FRAGMENT_1)], sim.now, sent)
    sim.run()
    assert sent.good == {0}
    assert fragment.tally.active_count == 1


@pytest.mark.parametrize("is_reloaded_first", [False, True])
def test_who_holds_a_session_of_a_queue_whose_deletion_failed_gets_an_error_and_can_accept_it_again(
    sim: Simulation, is_reloaded_first: bool
) -> None:
    queue = sim.queue(QueueDescription("s", enable_partitioning=True, requires_session=True))
    names = [str(number) for number in range(20)]
    holders = [sim.receiver(queue.main, 5, session=sim.accept(queue.main, name).value) for name in names]
    sim.ports[2].next_fault = Fault.FAIL_BEFORE
    sim.ports[3].is_hung = True
    answer = delete(sim, "s")
    if is_reloaded_first:
        sim.return_store(2)
        for name in names:
            sim.accept(queue.main, name)
    sim.ports[3].is_hung = False
    sim.run()
    assert isinstance(answer.error, FragmentUnavailable)
    if not is_reloaded_first:
        sim.return_store(2)
    assert all(holder.lost is not None for holder in holders)
    sim.advance(120_000)
    for name in names:
        assert sim.send(queue, make_message(name, session_id=name)).good == {0}
        assert sim.receiver(queue.main, 5, session=sim.accept(queue.main, name).value).ids() == [name]


def idle_names(sim: Simulation) -> list[str]:
    return [description.name for description in sim.entities.idle(sim.now)]


def test_an_entity_nobody_uses_is_idle_after_its_duration(sim: Simulation) -> None:
    used = sim.queue(QueueDescription("used", auto_delete_on_idle=300_000))
    read = sim.queue(QueueDescription("read", auto_delete_on_idle=300_000))
    sim.queue(QueueDescription("forgotten", auto_delete_on_idle=300_000))
    sim.queue(QueueDescription("kept"))
    sim.receiver(read.main, 1)
    sim.advance(299_999)
    assert idle_names(sim) == []
    sim.topic(TopicDescription("new", auto_delete_on_idle=300_000))
    sim.send(used, make_message("m"))
    sim.advance(1)
    assert idle_names(sim) == ["forgotten"]


def test_a_topic_that_is_sent_to_is_in_use_and_so_is_one_whose_lost_transfers_are_received(sim: Simulation) -> None:
    sent_to = sim.topic(TopicDescription("sent-to", auto_delete_on_idle=300_000))
    received = sim.topic(TopicDescription("received", auto_delete_on_idle=300_000))
    sim.topic(TopicDescription("forgotten", auto_delete_on_idle=300_000))
    sim.receiver(received.transfer_dead_letter, 1)
    sim.advance(200_000)
    sim.send(sent_to, make_message("m"))
    sim.advance(100_000)
    assert idle_names(sim) == ["forgotten"]


def test_a_new_entity_is_used_by_nobody_and_a_restored_one_as_of_the_restart(sim: Simulation) -> None:
    queue, topic = sim.queue(QueueDescription("q")), sim.topic(TopicDescription("t"))
    assert (queue.last_used_at, topic.last_used_at) == (0, 0)
    sim.advance(5)
    sim.receiver(queue.main, 1)
    sim.send(topic, make_message("m"))
    assert (queue.last_used_at, topic.last_used_at) == (sim.now, sim.now)
    sim.advance(5)
    sim.restart()
    assert (sim.entities.queue("q").last_used_at, sim.entities.topic("t").last_used_at) == (sim.now, sim.now)


def test_what_nobody_uses_after_a_restart_is_idle_after_its_duration(sim: Simulation) -> None:
    sim.queue(QueueDescription("q", auto_delete_on_idle=300_000))
    sim.topic(TopicDescription("t", auto_delete_on_idle=300_000))
    sim.advance(200_000)
    sim.restart()
    sim.advance(299_999)
    assert idle_names(sim) == []
    sim.advance(1)
    assert sorted(idle_names(sim)) == ["q", "t"]


def test_a_topic_is_in_use_while_one_of_its_subscriptions_is(sim: Simulation) -> None:
    sim.topic(TopicDescription("t", auto_delete_on_idle=300_000))
    busy = sim.subscription(SubscriptionDescription("t", "busy", auto_delete_on_idle=300_000))
    sim.subscription(SubscriptionDescription("t", "quiet", auto_delete_on_idle=300_000))
    receiver = sim.receiver(busy.main, 1)
    sim.advance(300_000)
    assert idle_names(sim) == ["quiet"]
    busy.main.detach(receiver, sim.now)
    sim.advance(300_000)
    assert idle_names(sim) == ["t"]


def test_an_entity_that_forwards_is_in_use(sim: Simulation) -> None:
    sim.queue(QueueDescription("target"))
    sim.queue(QueueDescription("q", forward_to="target", auto_delete_on_idle=IDLE))
    sim.topic(TopicDescription("t", auto_delete_on_idle=IDLE))
    sim.subscription(SubscriptionDescription("t", "s", forward_to="target", auto_delete_on_idle=IDLE))
    sim.advance(IDLE)
    assert idle_names(sim) == []
    for stopped in (
        QueueDescription("q", auto_delete_on_idle=IDLE),
        SubscriptionDescription("t", "s", auto_delete_on_idle=IDLE),
    ):
        sim.entities.update(stopped, sim.now, Answer[None]())
    sim.advance(IDLE)
    assert idle_names(sim) == ["q", "t"]


def test_an_entity_with_message_sessions_forwards_nothing_and_is_idle_as_any_other(sim: Simulation) -> None:
    sim.queue(QueueDescription("target"))
    sim.queue(QueueDescription("q", requires_session=True, forward_to="target", auto_delete_on_idle=IDLE))
    sim.advance(IDLE)
    assert idle_names(sim) == ["q"]


def test_an_entity_is_in_use_until_its_scheduled_messages_are_due_and_for_its_duration_after_that(
    sim: Simulation,
) -> None:
    queue = sim.queue(QueueDescription("q", auto_delete_on_idle=IDLE))
    topic = sim.topic(TopicDescription("t", auto_delete_on_idle=IDLE))
    for entity in (queue, topic):
        sim.send(entity, make_message("later", scheduled_at=sim.now + 10 * IDLE))
    sim.advance(9 * IDLE)
    assert idle_names(sim) == []
    sim.advance(IDLE)
    sim.advance(IDLE - 1)
    assert idle_names(sim) == []
    sim.advance(1)
    assert idle_names(sim) == ["q", "t"]


def test_an_entity_is_in_use_while_one_of_its_messages_is_locked(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", auto_delete_on_idle=IDLE, lock_duration=IDLE))
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 1)
    (delivery,) = receiver.take()
    queue.main.detach(receiver, sim.now)
    sim.advance(IDLE - 1)
    queue.main.renew([delivery.lock_token], sim.now, Answer[list[Millis]]())
    sim.advance(IDLE - 1)
    assert idle_names(sim) == []
    sim.settle(queue.main, [delivery])
    assert idle_names(sim) == ["q"]


def test_an_update_and_a_new_rule_are_uses_and_leave_the_time_of_the_last_access(sim: Simulation) -> None:
    queue = QueueDescription("q", auto_delete_on_idle=IDLE)
    topic = TopicDescription("t", auto_delete_on_idle=IDLE)
    subscription = SubscriptionDescription("t", "s", auto_delete_on_idle=IDLE)
    runtime: list[QueueEntity | TopicEntity | SubscriptionEntity] = [
        sim.queue(queue),
        sim.topic(topic),
        sim.subscription(subscription),
    ]
    accessed = [each.last_used_at for each in runtime]
    sim.advance(IDLE - 1)
    for description in (queue, topic, subscription):
        sim.entities.update(replace(description, user_metadata="new"), sim.now, Answer[None]())
    sim.advance(IDLE - 1)
    assert idle_names(sim) == []
    sim.entities.change_rules("t", "s", [], [RuleDescription("another")], sim.now, Answer[None]())
    sim.advance(1)
    assert idle_names(sim) == ["q"]
    sim.advance(IDLE - 1)
    assert idle_names(sim) == ["q", "t"]
    assert [each.last_used_at for each in runtime] == accessed


def test_what_is_closed_for_want_of_use_refuses_every_use_until_it_is_reopened(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", auto_delete_on_idle=IDLE))
    with_sessions = sim.queue(QueueDescription("s", auto_delete_on_idle=IDLE, requires_session=True))
    topic = sim.topic(TopicDescription("t", auto_delete_on_idle=IDLE))
    below = sim.subscription(SubscriptionDescription("t", "s"))
    assert not any(sim.entities.close_if_idle(path, sim.now) for path in ("q", "s", "t", "nobody"))
    sim.advance(IDLE)

    def uses() -> list[type | None]:
        sent = [sim.send(entity, make_message("m")).errors.get(0) for entity in (queue, topic)]
        batch: Answer[list[int]] = Answer()
        queue.send_batch([make_message("m")], sim.now, batch)
        sim.run()
        taken = [sim.accept(with_sessions.main, "a").error, sim.ask(queue.main, Peek(1, 1)).error, batch.error]
        for each in (queue, below):
            try:
                each.main.detach(sim.receiver(each.main, 0), sim.now)
            except ServerBusy as error:
                taken.append(error)
        return [type(error) for error in (*sent, *taken) if error is not None]

    assert all(sim.entities.close_if_idle(path, sim.now) for path in ("q", "s", "t"))
    assert sim.entities.is_leaving("t/Subscriptions/s")
    assert uses() == [ServerBusy] * 7
    for path in ("q", "s", "t"):
        sim.entities.reopen(path)
    assert not any(sim.entities.is_leaving(path) for path in ("q", "t/Subscriptions/s", "nobody"))
    assert [error for error in uses() if error is ServerBusy] == []


def test_deleting_a_topic_deletes_its_subscriptions(sim: Simulation) -> None:
    sim.topic(TopicDescription("t"))
    sim.subscription(SubscriptionDescription("t", "s"))
    assert delete(sim, "t").value is None
    assert [port.store.summaries() for port in sim.ports] == [[], [], [], []]
    with pytest.raises(EntityNotFound):
        sim.entities.subscription("t", "s")


@pytest.mark.rule("A6.5")
def test_counts_are_the_sum_over_all_fragments(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("p", enable_partitioning=True))
    for number in range(30):
        sim.send(queue, make_message(str(number)))
    counts = queue.main.counts()
    assert counts.active == 30
    assert counts.size_bytes == sum(fragment.tally.size_bytes for fragment in queue.main.fragments) > 0


@pytest.mark.rule("A1.3")
@pytest.mark.parametrize("store_count", [4, 16, 17, 64])
def test_entities_fill_all_stores_alike_and_each_starts_elsewhere(store_count: int) -> None:
    sim = Simulation(store_count)
    queues = [sim.queue(QueueDescription(f"q{n}", enable_partitioning=True)) for n in range(store_count)]
    stores = [[fragment.broker.index for fragment in queue.main.fragments] for queue in queues]
    assert sorted(first for first, *_ in stores) == list(range(store_count))
    loads = Counter(index for each in stores for index in each)
    assert set(loads.values()) == {16}
    assert len({index for each in stores[:8] for index in each}) == store_count


@pytest.mark.rule("A6.4")
def test_an_ordinary_entity_is_created_in_a_store_that_works(sim: Simulation) -> None:
    for index in range(len(sim.brokers) - 1):
        sim.lose_store(index)
    queue = sim.queue(QueueDescription("q"))
    topic = sim.topic(TopicDescription("t"))
    assert {each.fragments[0].broker.index for each in (queue, topic)} == {len(sim.brokers) - 1}
    assert sim.send(queue, make_message("m")).good == {0}


def test_entities_of_before_are_found_where_they_were() -> None:
    """Their first store is not in the catalog: partitioned ones begin in store 0, others are where their id says."""
    sim = Simulation(4)
    split = sim.entities.restore_queue(6, QueueDescription("split", enable_partitioning=True), sim.now)
    plain = sim.entities.restore_topic(6, TopicDescription("plain"), sim.now)
    assert [fragment.broker.index for fragment in split.main.fragments] == [0, 1, 2, 3] * 4
    assert [fragment.broker.index for fragment in plain.main_fragments] == [2]


def counted(sim: Simulation, path: str) -> Answer[Holdings]:
    answer: Answer[Holdings] = Answer()
    sim.entities.count(path, sim.now, answer)
    return answer


def test_a_rule_that_cannot_be_read_any_more_is_reported_and_all_else_is_restored(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    sim.entities.restore_topic(77, TopicDescription("t"), sim.now)
    rules = [RuleDescription("good", SqlFilter("n = 1")), RuleDescription("bad", SqlFilter("n = = 1"))]
    subscription = sim.entities.restore_subscription(78, SubscriptionDescription("t", "s"), rules, sim.now)
    sim.run()
    faulty = [record.__dict__["fields"]["rule"] for record in caplog.records if record.msg == "rule_faulty"]
    assert faulty == ["bad"]
    message = make_message("m", application_properties={"n": 1})
    assert sim.send(sim.entities.topic("t"), message).good == {0}
    assert sim.receiver(subscription.main, 5).ids() == ["m"]


def test_what_an_entity_holds_is_counted_and_what_is_not_there_is_not_found(sim: Simulation) -> None:
    queue, topic = sim.queue(QueueDescription("q")), sim.topic(TopicDescription("t"))
    sim.subscription(SubscriptionDescription("t", "s"))
    sim.send(queue, make_message("a"))
    sim.send(topic, make_message("a"))
    assert counted(sim, "q").value.main.active == 1
    assert counted(sim, "t/Subscriptions/s").value.main.active == 1
    assert counted(sim, "t").value.main.active == 0
    for path in ("x", "t/Subscriptions/x", "x/Subscriptions/s"):
        assert isinstance(counted(sim, path).error, EntityNotFound)


def holdings(counts: Sequence[int], last_used_at: int) -> Holdings:
    a, b, c, d = [QueueCounts(count, 10 * count, 20 * count, 30 * count, is_limited=False) for count in counts]
    return Holdings(a, b, c, d, last_used_at)


def test_counts_of_two_nodes_add_up_and_the_later_use_counts() -> None:
    assert holdings([1, 2, 3, 4], 7) + holdings([5, 6, 7, 8], 5) == holdings([6, 8, 10, 12], 7)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_second", [False, True])
def test_counts_are_partial_if_those_of_any_node_are_and_unknown_only_if_all_are(
    is_first: bool, is_second: bool
) -> None:
    first, second = [QueueCounts(0, 0, 0, 0, is_limited=each, is_unknown=each) for each in (is_first, is_second)]
    together = first + second
    assert (together.is_limited, together.is_unknown) == (is_first or is_second, is_first and is_second)


def test_a_subscription_follows_a_new_description(sim: Simulation) -> None:
    sim.topic(TopicDescription("t"))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    answer: Answer[None] = Answer()
    changed = SubscriptionDescription("t", "s", max_delivery_count=3)
    sim.entities.update(changed, sim.now, answer)
    assert answer.value is None
    assert (subscription.description, subscription.settings.max_delivery_count) == (changed, 3)


def test_a_topic_and_its_subscriptions_follow_its_new_description(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    changed = replace(topic.description, max_message_size_kb=512, status=EntityStatus.DISABLED)
    answers: list[Answer[None]] = [Answer(), Answer()]
    sim.lose_store(2)
    sim.entities.update(changed, sim.now, answers[0])
    assert isinstance(answers[0].error, FragmentUnavailable)
    assert topic.settings.can_send
    sim.return_store(2)
    sim.entities.update(changed, sim.now, answers[1])
    assert answers[1].value is None
    assert topic.description == changed
    assert (topic.settings.can_send, subscription.settings.message_size_max) == (False, 512 * 1024)


def test_a_subscription_does_not_change_while_a_store_of_it_is_unhealthy(sim: Simulation) -> None:
    sim.topic(TopicDescription("t", enable_partitioning=True))
    former = SubscriptionDescription("t", "s")
    subscription = sim.subscription(former)
    sim.lose_store(2)
    answers: list[Answer[None]] = [Answer(), Answer()]
    sim.entities.update(SubscriptionDescription("t", "s", max_delivery_count=3), sim.now, answers[0])
    sim.entities.check_rules_can_change("t", "s", sim.now, answers[1])
    assert [type(answer.error) for answer in answers] == [FragmentUnavailable] * 2
    assert subscription.description == former


def test_rules_of_a_subscription_that_is_not_there_cannot_change(sim: Simulation) -> None:
    sim.topic(TopicDescription("t"))
    answers: list[Answer[None]] = [Answer(), Answer()]
    sim.entities.check_rules_can_change("t", "s", sim.now, answers[0])
    sim.entities.change_rules("t", "s", ["$Default"], [], sim.now, answers[1])
    assert [type(answer.error) for answer in answers] == [EntityNotFound] * 2
