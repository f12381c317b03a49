"""Hand-over from fragments to receivers (contract A5, design rule 6)."""

import time
from collections import Counter

import pytest

from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment.lane import READY_BYTES_MAX, READY_COUNT_MAX, WIDE_COUNT_MAX
from twinbus.broker.outcomes import Abandon, Release
from twinbus.broker.wide_lanes import WIDE_LANES_MAX
from twinbus.model.descriptions import QueueDescription
from twinbus.store.changes import fragment_parts
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, SimReceiver, Simulation


def test_messages_of_an_ordinary_queue_come_in_order() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(10)])
    assert sim.receiver(queue.main, 10).ids() == [str(number) for number in range(10)]


def test_a_receiver_gets_no_more_than_its_credit() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receiver = sim.receiver(queue.main, 3)
    sim.send(queue, *[make_message(str(number)) for number in range(10)])
    assert receiver.ids() == ["0", "1", "2"]
    assert receiver.credit == 0
    receiver.credit = 2
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["3", "4"]


@pytest.mark.rule("A5.6")
def test_a_message_is_handed_over_only_when_it_is_durable() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receiver = sim.receiver(queue.main, 3)
    sim.ports[0].is_hung = True
    reply = sim.send(queue, make_message("m"))
    assert (reply.good, receiver.deliveries) == (set(), [])
    sim.ports[0].is_hung = False
    sim.run()
    assert (reply.good, receiver.ids()) == ({0}, ["m"])


@pytest.mark.rule("A5.2")
def test_a_receiver_cannot_tell_how_many_fragments_there_are() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(40):
        sim.send(queue, make_message(str(number)))
    receiver = sim.receiver(queue.main, 100)
    assert sorted(map(int, receiver.ids())) == list(range(40))


@pytest.mark.rule("A5.1")
def test_all_fragments_get_their_turn() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for burst in range(16):
        sim.send(queue, *[make_message(f"{burst}-{number}") for number in range(64)])
    deliveries = sim.receiver(queue.main, 16).take()
    queue.main.pump(sim.now)
    receiver = sim.receiver(queue.main, 1)
    for _ in range(31):
        receiver.credit += 1
        queue.main.pump(sim.now)
    indexes = Counter(delivery.lock_token[0] for delivery in receiver.take())
    assert len(indexes) == 16
    assert len(deliveries) == 16


@pytest.mark.one_node("over several nodes each has turns of its own")
@pytest.mark.rule("A5.1")
def test_what_a_receiver_gets_at_once_is_of_as_few_fragments_as_have_it_and_the_next_has_the_next_turn() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for burst in range(16):
        sim.send(queue, *[make_message(f"{burst}-{number}") for number in range(200)])
    receiver = sim.receiver(queue.main, 150)
    for first in range(16):
        if first:
            receiver.credit = 150
            queue.main.pump(sim.now)
        assert {delivery.lock_token[0] for delivery in receiver.take()} == {first}
    receiver.credit = 300
    queue.main.pump(sim.now)
    assert len({delivery.lock_token[0] for delivery in receiver.take()}) == 6


@pytest.mark.rule("A5.1")
def test_fragments_with_messages_share_the_turns_of_those_without() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for burst in range(4):
        sim.send(queue, *[make_message(f"{burst}-{number}") for number in range(64)])
    receiver = sim.receiver(queue.main, 1)
    for _ in range(15):
        receiver.credit += 1
        queue.main.pump(sim.now)
    counts = Counter(delivery.lock_token[0] for delivery in receiver.take())
    assert counts.keys() == {0, 1, 2, 3}
    assert set(counts.values()) <= {3, 4, 5}


@pytest.mark.rule("A4.8")
def test_an_unhealthy_fragment_does_not_hold_up_the_others() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(16):
        sim.send(queue, make_message(str(number)))
    sim.lose_store(5)
    receiver = sim.receiver(queue.main, 100)
    assert len(receiver.take()) == 15
    assert queue.main.counts().is_limited
    sim.return_store(5)
    assert receiver.ids() == ["5"]
    assert not queue.main.counts().is_limited


def test_what_is_ready_is_shared_among_receivers() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receivers = [sim.receiver(queue.main, 100) for _ in range(4)]
    sim.send(queue, *[make_message(str(number)) for number in range(40)])
    assert [len(receiver.take()) for receiver in receivers] == [10, 10, 10, 10]


def test_receivers_take_turns_when_messages_come_one_by_one() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receivers = [sim.receiver(queue.main, 100) for _ in range(3)]
    for number in range(9):
        sim.send(queue, make_message(str(number)))
    assert [len(receiver.take()) for receiver in receivers] == [3, 3, 3]


def test_very_many_receivers_that_leave_together_hold_nobody_up() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    receivers = [SimReceiver(0) for _ in range(20_000)]
    for receiver in receivers:
        queue.main.attach(receiver, sim.now)
    before = time.thread_time()
    for receiver in receivers:
        queue.main.detach(receiver, sim.now)
    assert time.thread_time() - before < 1


class EagerReceiver(SimReceiver):
    """Asks for the next message while it is handed one, as a front does that knows that there are more."""

    def __init__(
        self, sim: Simulation, queue: QueueEntity, served: list["EagerReceiver"], session: SessionLock | None = None
    ) -> None:
        """`served`: those that are handed something now."""
        super().__init__(0, session=session)
        self._sim = sim
        self._queue = queue
        self._served = served
        self.interrupted_count = 0  # calls in the middle of another one

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        super().deliver(deliveries)
        self.interrupted_count += len(self._served)
        self._served.append(self)
        self.credit += len(deliveries)
        self._queue.main.pump(self._sim.now, self)
        self._served.remove(self)


def serve_eager(message_count: int, receiver_count: int, session_id: str | None = None) -> list[EagerReceiver]:
    """Receivers of one queue, or one of a message session."""
    sim = Simulation()
    queue = sim.queue(QueueDescription("q", requires_session=session_id is not None))
    sim.send(queue, *[make_message(str(number), session_id=session_id) for number in range(message_count)])
    session = None if session_id is None else sim.accept(queue.main, session_id).value
    served = list[EagerReceiver]()
    receivers = [EagerReceiver(sim, queue, served, session) for _ in range(receiver_count)]
    for receiver in receivers:
        queue.main.attach(receiver, sim.now)
    for receiver in receivers:
        receiver.credit = 1
    queue.main.pump(sim.now)
    return receivers


@pytest.mark.one_node("its merge is called by what it serves")
def test_receivers_that_ask_for_more_while_they_are_served_take_turns_too() -> None:
    assert [receiver.ids() for receiver in serve_eager(6, 3)] == [["0", "3"], ["1", "4"], ["2", "5"]]


@pytest.mark.one_node("its merge is called by what it serves")
@pytest.mark.parametrize(("count", "session_id"), [(3, None), (1, "s")], ids=["a queue", "a message session"])
def test_nobody_is_handed_anything_in_the_middle_of_another_hand_over(count: int, session_id: str | None) -> None:
    """However often receivers ask for more in their turn: as many calls within one another as there are messages are too many."""
    receivers = serve_eager(READY_COUNT_MAX, count, session_id)
    assert [receiver.interrupted_count for receiver in receivers] == [0] * count
    assert sum(len(receiver.ids()) for receiver in receivers) == READY_COUNT_MAX


def test_memory_does_not_grow_with_the_depth_of_the_queue() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    (fragment,) = queue.main.fragments
    for start in range(0, 12_000, 100):
        sim.send(queue, *[make_message(str(start + number)) for number in range(100)])
        assert len(fragment.lane.ready) <= READY_COUNT_MAX
    assert queue.main.counts().active == 12_000
    receiver = sim.receiver(queue.main, 0)
    seen: list[str] = []
    while True:
        receiver.credit = 300
        queue.main.pump(sim.now)
        sim.run()
        deliveries = receiver.deliveries
        if not deliveries:
            break
        assert len(fragment.lane.ready) <= WIDE_COUNT_MAX
        seen += receiver.ids()
        sim.settle(queue.main, deliveries)
    assert seen == [str(number) for number in range(12_000)]


def test_who_takes_from_a_backlog_has_more_of_it_in_memory_and_the_last_to_leave_leaves_little() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    (fragment,) = queue.main.fragments
    for start in range(0, 12_000, 500):
        sim.send(queue, *[make_message(str(start + number)) for number in range(500)])
    receivers = [sim.receiver(queue.main, 600) for _ in range(2)]
    assert READY_COUNT_MAX < len(fragment.lane.ready) <= WIDE_COUNT_MAX
    queue.main.detach(receivers[0], sim.now)
    assert len(fragment.lane.ready) > READY_COUNT_MAX
    queue.main.detach(receivers[1], sim.now)
    assert len(fragment.lane.ready) == READY_COUNT_MAX
    assert len(sim.brokers[0].wide_lanes) == 0
    names = sim.receiver(queue.main, 20_000).ids()
    assert names == [str(number) for number in range(1_200, 12_000)]


def test_few_queues_read_far_ahead_at_a_time() -> None:
    sim = Simulation()
    queues = [sim.queue(QueueDescription(f"q{number}")) for number in range(WIDE_LANES_MAX + 1)]
    for queue in queues:
        for _ in range(6):
            sim.send(queue, *[make_message(str(number)) for number in range(500)])
    receivers = [sim.receiver(queue.main, 1_600) for queue in queues]
    lanes = [queue.main.fragments[0].lane for queue in queues]
    assert [len(lane.ready) for lane in lanes] == [1_400] * WIDE_LANES_MAX + [READY_COUNT_MAX]
    assert len(sim.receiver(queues[0].main, 5_000).ids()) == 1_400
    receivers[-1].credit = 600
    queues[-1].main.pump(sim.now)
    sim.run()
    assert [lane.is_wide for lane in lanes] == [False, True, True, True, True]


def test_memory_is_bounded_in_bytes_too() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    (fragment,) = queue.main.fragments
    sim.send(queue, *[make_message(str(number), body=bytes(100_000)) for number in range(30)])
    assert fragment.lane.ready_bytes <= READY_BYTES_MAX
    assert sim.receiver(queue.main, 30).ids() == [str(number) for number in range(30)]


def test_messages_given_back_to_a_full_window_keep_their_order() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    (fragment,) = queue.main.fragments
    for start in range(0, 3_000, 100):
        sim.send(queue, *[make_message(str(start + number)) for number in range(100)])
    receiver = sim.receiver(queue.main, 1_500)
    queue.main.detach(receiver, sim.now)
    held = receiver.take()
    sim.settle(queue.main, held[:100], Release())
    sim.settle(queue.main, held[1_400:], Abandon())
    sim.settle(queue.main, held[100:1_400:2], Release())
    assert len(fragment.lane.ready) <= READY_COUNT_MAX
    last = sim.receiver(queue.main, 5_000)
    left = [int(name) for name in last.ids()]
    assert left == sorted(left)
    assert set(left) == set(range(3_000)) - set(range(101, 1_400, 2))


def test_messages_that_come_while_the_window_is_being_filled_are_not_lost_or_doubled() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    for start in range(0, 2_000, 100):
        sim.send(queue, *[make_message(str(start + number)) for number in range(100)])
    receiver = sim.receiver(queue.main, 700)  # a scan is asked for on the way
    sim.ports[0].is_hung = True
    receiver.credit = 700
    queue.main.pump(sim.now)
    sim.send(queue, make_message("2000"))
    sim.ports[0].is_hung = False
    receiver.credit = 5_000
    queue.main.pump(sim.now)
    sim.run()
    assert receiver.ids() == [str(number) for number in range(2_001)]


def test_credit_comes_back_when_receive_and_delete_fails() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    sim.ports[0].next_fault = Fault.FAIL_BEFORE
    receiver = sim.receiver(queue.main, 4, ReceiveMode.RECEIVE_AND_DELETE)
    assert (receiver.credit, receiver.deliveries) == (4, [])
    sim.return_store(0)
    assert sim.receiver(queue.main, 4, ReceiveMode.RECEIVE_AND_DELETE).ids() == ["m"]


@pytest.mark.rule("A4.8")
def test_credit_that_comes_back_takes_what_the_other_fragments_have_ready() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    sim.send(queue, make_message("in 11", partition_key="order-2"), make_message("in 13", partition_key="order-1"))
    sim.ports[11].next_fault = Fault.FAIL_BEFORE
    receiver = sim.receiver(queue.main, 1, ReceiveMode.RECEIVE_AND_DELETE)
    sim.tick()
    assert receiver.ids() == ["in 13"]


@pytest.mark.rule("A5.4")
def test_both_receive_modes_work_side_by_side_on_a_partitioned_queue() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    receivers = [
        sim.receiver(queue.main, 100),
        sim.receiver(queue.main, 100, ReceiveMode.RECEIVE_AND_DELETE),
    ]
    for number in range(60):
        sim.send(queue, make_message(str(number)))
    seen = [name for receiver in receivers for name in receiver.ids()]
    assert sorted(map(int, seen)) == list(range(60))


@pytest.mark.rule("A1.1")
def test_an_ordinary_queue_lives_in_one_store_and_a_partitioned_one_in_all() -> None:
    sim = Simulation(4)
    plain = [sim.queue(QueueDescription(f"q{number}")) for number in range(4)]
    split = sim.queue(QueueDescription("p", enable_partitioning=True))
    assert sorted(queue.main.fragments[0].broker.index for queue in plain) == [0, 1, 2, 3]
    assert [fragment.broker.index for fragment in split.main.fragments] == [0, 1, 2, 3] * 4
    assert [fragment_parts(fragment.key).index for fragment in split.main.fragments] == list(range(16))


@pytest.mark.rule("A6.2")
def test_an_update_fails_while_a_fragment_is_unhealthy() -> None:
    sim = Simulation(4)
    sim.queue(QueueDescription("p", enable_partitioning=True))
    sim.lose_store(2)
    answer: Answer[None] = Answer()
    sim.entities.update(QueueDescription("p", enable_partitioning=True, lock_duration=5_000), sim.now, answer)
    assert answer.error is not None
    assert sim.entities.queue("p").settings.lock_duration == 60_000


def ready_count(queue: QueueEntity) -> int:
    return sum(len(fragment.lane.ready) for fragment in queue.fragments)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_messages_that_nobody_receives_are_left_in_the_store_when_it_is_opened(is_partitioned: bool) -> None:
    """There may be thousands of such queues: to read from all of them keeps the store from those that are used."""
    sim = Simulation(4)
    queue = sim.queue(QueueDescription("q", enable_partitioning=is_partitioned))
    ids = [str(number) for number in range(50)]
    sim.send(queue, *map(make_message, ids))
    sim.restart()
    queue = sim.entities.queue("q")
    assert ready_count(queue) == 0
    assert sim.send(queue, make_message("more")).good == {0}
    assert ready_count(queue) <= 1
    receiver = sim.receiver(queue.main, 100)
    assert sorted(receiver.ids()) == sorted([*ids, "more"])


def test_a_receiver_gets_what_is_there_when_its_store_has_returned() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    receiver = sim.receiver(queue.main, 2)
    sim.send(queue, *[make_message(name, partition_key="order-1") for name in "abc"])
    receiver.take()
    sim.lose_store(13)
    sim.return_store(13)
    receiver.credit = 5
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["a", "b", "c"]


@pytest.mark.one_node("the stores are moved by hand")
def test_who_waits_for_reads_of_several_stores_is_called_after_the_last() -> None:
    sim = Simulation(2)
    queue_before = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(16):
        sim.send(queue_before, make_message(str(number)))
    sim.restart()
    queue, calls = sim.entities.queue("q").main, list[bool]()
    queue.attach(SimReceiver(9), sim.now)
    queue.after_reading(lambda: calls.append(True))
    sim.ports[0].run()
    assert not calls
    sim.ports[1].run()
    assert calls == [True]


@pytest.mark.parametrize(("is_lost", "delivered"), [(False, 1), (True, 0)], ids=["found", "lost"])
@pytest.mark.one_node("over several nodes a drain waits for what each part reads")
def test_who_waits_for_a_read_is_called_once_it_is_through(is_lost: bool, delivered: int) -> None:
    sim = Simulation()
    sim.send(sim.queue(QueueDescription("q")), make_message("m"))
    sim.restart()
    queue, receiver, calls = sim.entities.queue("q").main, SimReceiver(1), list[int]()
    queue.after_reading(lambda: calls.append(-1))
    assert calls == [-1], "nothing is read where nobody receives"
    queue.attach(receiver, sim.now)
    queue.after_reading(lambda: calls.append(len(receiver.deliveries)))
    assert (queue.is_reading, calls) == (True, [-1])
    if is_lost:
        sim.lose_store(0)
    sim.run()
    assert calls == [-1, delivered]
