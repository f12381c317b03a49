"""A receive of one message: answered once, with the message or with nothing, and leaving nothing behind."""

import pytest

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.errors import EntityNotFound, FragmentUnavailable, NotAllowed
from twinbus.http.messaging.single_receive import SingleReceive
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


class Scene:
    def __init__(self, mode: ReceiveMode = ReceiveMode.PEEK_LOCK) -> None:
        self.sim = Simulation()
        self.queue: QueueEntity = self.sim.queue(QueueDescription("orders"))
        self.answer: Answer[TakenMessage | None] = Answer()
        self.receive = SingleReceive(self.queue.main, mode, self.answer)

    def send(self, *ids: str) -> None:
        self.sim.send(self.queue, *(make_message(each) for each in ids))


def test_the_first_message_ends_it_and_the_second_stays() -> None:
    scene = Scene()
    scene.receive.start(scene.sim.now)
    scene.send("a", "b")
    assert scene.answer.value is not None
    scene.receive.finish(scene.sim.now)
    assert scene.queue.main.receiver_count == 0
    assert scene.sim.receiver(scene.queue.main, credit=5).ids() == ["b"]


def test_whoever_waits_learns_at_once_that_the_entity_is_gone() -> None:
    scene = Scene()
    scene.receive.start(scene.sim.now)
    deleted: Answer[None] = Answer()
    scene.sim.entities.delete("orders", scene.sim.now, deleted)
    scene.sim.run()
    assert isinstance(scene.answer.error, EntityNotFound)
    scene.receive.finish(scene.sim.now)


@pytest.mark.rule("A4.9")
@pytest.mark.parametrize("mode", list(ReceiveMode))
def test_whoever_waits_learns_at_once_that_the_store_is_lost(mode: ReceiveMode) -> None:
    scene = Scene(mode)
    scene.receive.start(scene.sim.now)
    scene.sim.lose_store(0)
    assert isinstance(scene.answer.error, FragmentUnavailable)
    scene.receive.finish(scene.sim.now)


def test_whoever_gives_up_gets_nothing_and_takes_nothing_later() -> None:
    scene = Scene()
    scene.receive.start(scene.sim.now)
    scene.receive.give_up(scene.sim.now)
    scene.send("a")
    assert scene.answer.value is None
    scene.receive.finish(scene.sim.now)
    assert scene.sim.receiver(scene.queue.main, credit=5).ids() == ["a"]


def test_a_message_that_is_being_removed_is_waited_for() -> None:
    scene = Scene(ReceiveMode.RECEIVE_AND_DELETE)
    scene.send("a")
    scene.receive.start(scene.sim.now)
    assert scene.receive.is_under_way
    scene.receive.give_up(scene.sim.now)
    assert not scene.answer.has_come
    scene.sim.run()
    assert scene.answer.value is not None
    assert scene.queue.main.counts().active == 0


@pytest.mark.rule("A4")
def test_a_removal_that_fails_leaves_the_message_and_ends_the_receive_with_the_error() -> None:
    scene = Scene(ReceiveMode.RECEIVE_AND_DELETE)
    scene.send("a")
    scene.sim.ports[0].next_fault = Fault.FAIL_BEFORE
    scene.receive.start(scene.sim.now)
    scene.sim.run()
    assert isinstance(scene.answer.error, FragmentUnavailable)
    assert not scene.receive.is_under_way
    scene.receive.finish(scene.sim.now)
    scene.sim.return_store(0)
    assert scene.sim.receiver(scene.queue.main, credit=5).ids() == ["a"]


def test_a_message_nobody_takes_any_more_is_free_at_once_with_its_old_count() -> None:
    scene = Scene()
    scene.send("a")
    scene.receive.start(scene.sim.now)
    delivery = scene.answer.value
    assert delivery is not None
    scene.receive.return_message(delivery, scene.sim.now)
    scene.receive.finish(scene.sim.now)
    scene.sim.run()
    (again,) = scene.sim.receiver(scene.queue.main, credit=5).take()
    assert again.message.delivery_count == 0


def test_a_queue_with_message_sessions_is_refused() -> None:
    scene = Scene()
    talks = scene.sim.queue(QueueDescription("talks", requires_session=True))
    receive = SingleReceive(talks.main, ReceiveMode.PEEK_LOCK, scene.answer)
    with pytest.raises(NotAllowed):
        receive.start(scene.sim.now)
    receive.finish(scene.sim.now)
