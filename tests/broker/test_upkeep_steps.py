"""Very many messages whose time has come at once: in pieces, one after the other, without waiting for the next tick."""

from random import Random

import pytest

from tests.broker.test_schedule import schedule
from twinbus.broker.commands import PeekRange
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import upkeep
from twinbus.broker.fragment.upkeep import DUE_COUNT_MAX, DUE_UNREAD_MAX, SWEEP_COUNT_MAX
from twinbus.broker.outcomes import Abandon
from twinbus.broker.wakeups import OneByOne
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.store.reads import DueFacts, DueRows
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation


def once(sim: Simulation) -> None:
    """A single tick, and everything that stores answer after it."""
    for broker in sim.brokers:
        broker.tick(sim.now)
    sim.run()


def test_all_that_is_due_becomes_active_after_one_tick() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    count = 3 * DUE_COUNT_MAX + 1
    schedule(sim, queue, *[str(number) for number in range(count)])
    sim.clock.advance(10_000)
    once(sim)
    assert queue.main.counts().active == count


def test_all_that_is_due_at_a_topic_is_published_after_one_tick() -> None:
    sim = Simulation()
    topic = sim.topic(TopicDescription("t"))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    count = 2 * DUE_COUNT_MAX + 1
    sim.send(topic, *[make_message(str(number), scheduled_at=sim.now + 10_000) for number in range(count)])
    sim.clock.advance(10_000)
    once(sim)
    assert subscription.main.counts().active == count


def test_all_that_has_expired_is_gone_after_one_tick() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=5_000) for number in range(3 * SWEEP_COUNT_MAX + 1)])
    sim.clock.advance(6_000)
    once(sim)
    assert queue.main.counts().active == 0


def asked_for_due(sim: Simulation) -> list[DueRows | DueFacts]:
    """What the store is asked for from now on."""
    asked = list[DueRows | DueFacts]()
    (broker,) = sim.brokers
    query = broker.query

    def noticed(read: object, done: object) -> None:
        if isinstance(read, DueRows | DueFacts):
            asked.append(read)
        query(read, done)  # type: ignore[arg-type]

    broker.query = noticed  # type: ignore[method-assign]
    return asked


def test_fragments_of_a_store_take_turns() -> None:
    sim = Simulation()
    queues = [sim.queue(QueueDescription(name)) for name in ("a", "b")]
    for queue in queues:
        schedule(sim, queue, *[str(number) for number in range(2 * DUE_COUNT_MAX)])
    sim.clock.advance(10_000)
    asked = asked_for_due(sim)
    once(sim)
    keys = [queue.main.fragments[0].key for queue in queues]
    assert [read.fragment for read in asked[:4]] == [*keys, *keys]


@pytest.mark.parametrize(("count", "is_unread"), [(DUE_COUNT_MAX - 1, False), (DUE_COUNT_MAX + 1, True)])
def test_contents_of_messages_are_not_read_where_very_many_are_due(count: int, is_unread: bool) -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    schedule(sim, queue, *[str(number) for number in range(count)])
    sim.clock.advance(10_000)
    asked = asked_for_due(sim)
    once(sim)
    assert [read.count_max for read in asked] == [DUE_COUNT_MAX, DUE_UNREAD_MAX][: 1 + is_unread]
    assert queue.main.counts().active == count


def test_a_store_that_falls_behind_is_left_alone_until_it_does_not() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    schedule(sim, queue, *[str(number) for number in range(DUE_COUNT_MAX + 1)])
    sim.clock.advance(10_000)
    (port,) = sim.ports
    port.is_pressed = True
    once(sim)
    sim.clock.advance(10_000)
    once(sim)
    assert queue.main.counts().active == 0
    port.is_pressed = False
    sim.clock.advance(upkeep.PRESSED_AFTER)
    once(sim)
    assert queue.main.counts().active == DUE_COUNT_MAX + 1


def test_a_store_that_is_lost_while_it_is_left_alone_is_kept_up_with_when_it_is_back() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    schedule(sim, queue, "a", "b")
    sim.clock.advance(10_000)
    (port,) = sim.ports
    port.is_pressed = True
    once(sim)
    sim.lose_store(0)
    port.is_pressed = False
    sim.return_store(0)
    sim.advance(1_000)
    assert queue.main.counts().active == 2


def timeline(sim: Simulation, queue: QueueEntity) -> list[tuple[object, ...]]:
    """What can be seen of all messages, but for their numbers."""
    rows = sim.ask(queue.main, PeekRange(0, 1 << 47, 5_000)).value.rows
    return [(message_id_of(row.content), row.state, row.enqueued_at, row.expires_at, row.session_id) for row in rows]


@pytest.mark.parametrize("has_sessions", [False, True])
def test_very_many_become_active_as_a_few_do(has_sessions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind the first pieces are activated without their content; nothing else differs."""
    seen = []
    for piece in (16, 1_000):
        monkeypatch.setattr(upkeep, "DUE_COUNT_MAX", piece)
        monkeypatch.setattr(upkeep, "DUE_UNREAD_MAX", 2 * piece)
        random, sim = Random(1), Simulation()
        queue = sim.queue(QueueDescription("q", requires_session=has_sessions))
        messages = [
            make_message(
                str(number),
                session_id=f"s{number % 3}" if has_sessions else None,
                scheduled_at=sim.now + 10_000 + random.randrange(3),
                time_to_live=random.choice([None, 60_000]),
            )
            for number in range(200)
        ]
        answer: Answer[list[int]] = Answer()
        queue.schedule(messages, sim.now, answer)
        sim.run()
        sim.clock.advance(12_000)
        once(sim)
        counts = queue.main.counts()
        assert (counts.active, counts.scheduled) == (200, 0)
        seen.append(timeline(sim, queue))
        sim.restart()
        queue = sim.entities.queue("q")
        assert queue.main.counts() == counts
        assert timeline(sim, queue) == seen[-1]
        received = (
            [
                sim.receiver(queue.main, 500, session=sim.accept(queue.main, f"s{number}").value).ids()
                for number in range(3)
            ]
            if has_sessions
            else [sim.receiver(queue.main, 500).ids()]
        )
        assert sum(map(len, received)) == 200
        assert [id_ for ids in received for id_ in ids] == [
            str(row[0])
            for session in ("s0", "s1", "s2")
            if has_sessions or session == "s0"
            for row in seen[-1]
            if row[4] in (None, session)
        ]
    assert seen[0] == seen[1]


def test_message_sessions_have_very_many_that_become_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that somebody holds, and those that are free."""
    monkeypatch.setattr(upkeep, "DUE_COUNT_MAX", 8)
    monkeypatch.setattr(upkeep, "DUE_UNREAD_MAX", 16)
    sim = Simulation()
    queue = sim.queue(QueueDescription("q", requires_session=True))
    due_at, names = sim.now + 5_000, [f"s{number}" for number in range(3)]
    messages = [make_message(str(n), session_id=names[n % 3], scheduled_at=due_at) for n in range(99)]
    queue.schedule(messages, sim.now, Answer[list[int]]())
    sim.run()
    holder = sim.receiver(queue.main, 99, session=sim.accept(queue.main, "s0").value)
    sim.clock.advance(5_000)
    once(sim)
    assert holder.ids() == [str(n) for n in range(0, 99, 3)]
    for _ in range(2):
        lock = sim.accept(queue.main).value
        first = names.index(lock.session_id)
        assert sim.receiver(queue.main, 99, session=lock).ids() == [str(n) for n in range(first, 99, 3)]


def test_receivers_get_very_many_that_become_due_and_what_lives_briefly_expires() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receiver = sim.receiver(queue.main, 10_000)
    count = DUE_COUNT_MAX + DUE_UNREAD_MAX + 100
    schedule(sim, queue, *[str(number) for number in range(count)])
    sim.clock.advance(10_000)
    once(sim)
    assert receiver.ids() == [str(number) for number in range(count)]
    answer: Answer[list[int]] = Answer()
    messages = [make_message("m", scheduled_at=sim.now + 1_000, time_to_live=5_000) for _ in range(count)]
    sim.entities.queue("q").schedule(messages, sim.now, answer)
    receiver.credit = 0
    queue.main.recall(receiver, sim.now)
    sim.run()
    receiver.credit = 0
    sim.clock.advance(1_000)
    once(sim)
    assert queue.main.counts().active == 2 * count
    sim.advance(6_000, 500)
    assert queue.main.counts().active == count


def test_messages_that_were_put_off_keep_their_numbers_among_very_many_that_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "DUE_COUNT_MAX", 10)
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(f"put off {number}") for number in range(3)])
    receiver = sim.receiver(queue.main, 3)
    taken = receiver.take()
    schedule(sim, queue, *[str(number) for number in range(40)], after=5_000)
    sim.settle(queue.main, taken, Abandon(due_at=sim.now + 5_000))
    schedule(sim, queue, *[str(number) for number in range(40, 60)], after=5_000)
    sim.clock.advance(5_000)
    once(sim)
    again = sim.receiver(queue.main, 100).take()
    assert [each.message.sequence_number for each in again[:3]] == [each.message.sequence_number for each in taken]
    assert len(again) == 63
    assert [message_id_of(each.message.content) for each in again[3:]] == [str(number) for number in range(60)]


def test_one_that_is_cancelled_while_very_many_become_due_is_not_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "DUE_COUNT_MAX", 10)
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    numbers = schedule(sim, queue, *[str(number) for number in range(40)])
    sim.clock.advance(10_000)
    (broker,) = sim.brokers
    broker.tick(sim.now)
    # The store shows it as scheduled when it is asked for the second piece, and its removal is under way by the answer.
    cancelled: Answer[None] = Answer()
    queue.cancel_scheduled([numbers[-1]], sim.now, cancelled)
    sim.run()
    assert cancelled.value is None
    assert (queue.main.counts().active, queue.main.counts().scheduled) == (39, 0)
    assert sim.receiver(queue.main, 100).ids() == [str(number) for number in range(39)]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_store_that_is_lost_in_between_does_not_end_the_upkeep(is_asked: bool) -> None:
    sim = Simulation()
    queues = [sim.queue(QueueDescription(f"q{number}")) for number in range(1_500)]
    for queue in queues:
        schedule(sim, queue, "m")
    sim.clock.advance(10_000)
    if is_asked:
        for broker in sim.brokers:
            broker.tick(sim.now)
    sim.lose_store(0)
    sim.return_store(0)
    once(sim)
    assert [queue.main.counts().active for queue in queues] == [1] * len(queues)


def test_one_piece_at_a_time_in_the_order_asked_for() -> None:
    line, begun = OneByOne(), list[str]()
    for name in ("first", "second", "third"):
        line.add(lambda name=name: begun.append(name))  # type: ignore[misc]
    assert begun == ["first"]
    line.done()
    assert begun == ["first", "second"]
    line.done()
    line.done()
    line.add(lambda: begun.append("fourth"))
    assert begun == ["first", "second", "third", "fourth"]


def test_a_piece_that_breaks_does_not_stop_the_line(caplog: pytest.LogCaptureFixture) -> None:
    line, begun = OneByOne(), list[str]()

    def broken() -> None:
        raise ValueError("broken")

    line.add(broken)
    line.add(lambda: begun.append("next"))
    assert begun == ["next"]
    caplog.clear()
