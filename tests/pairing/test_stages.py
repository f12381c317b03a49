"""What a message says that went to another backlog queue than the ones before it, and what a pump makes of that."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from tests.pairing.test_pump import Bench
from twinbus.client.message import encode_message
from twinbus.clock import NEVER, Millis
from twinbus.model import wire_names
from twinbus.pairing.deciding.catching_up import Trail
from twinbus.pairing.deciding.survey import SURVEYED_MAX, Survey
from twinbus.pairing.events import EventKind
from twinbus.pairing.rewriting.restore import NotATransfer, restore
from twinbus.pairing.rewriting.stages import Stage, parse_stage, staged
from twinbus.pairing.rewriting.transfer import set_aside
from twinbus.pairing.syphon.transport import Abandon, Answer, LookInto, Receive, Request, Taken, Transfer, Wait

LOCK: Millis = 60_000


def test_a_session_that_stays_with_its_queue_says_nothing() -> None:
    trail = Trail()
    assert trail.stage_at(0) is None
    trail.accepted_by(0)
    assert trail.stage_at(0) is None


def test_each_queue_that_a_session_moves_to_follows_those_before() -> None:
    trail = Trail()
    trail.accepted_by(0)
    assert trail.stage_at(4) == Stage(1, (0,))
    trail.accepted_by(4)
    assert trail.stage_at(4) == Stage(1, (0,))
    assert trail.stage_at(0) == Stage(2, (0, 4))
    trail.accepted_by(0)
    assert trail.stage_at(4) == Stage(3, (4, 0))


def test_a_session_follows_a_hundred_queues_at_most() -> None:
    trail = Trail()
    for queue in range(102):
        trail.accepted_by(queue)
    stage = trail.stage_at(101)
    assert stage is not None
    assert stage.follows == tuple(range(1, 101))
    assert parse_stage(str(stage)) == stage


def test_a_queue_that_never_accepted_a_message_is_not_followed() -> None:
    """Otherwise a session whose first attempt met a lost queue would wait for that queue to come back."""
    trail = Trail(tried={3})
    assert trail.stage_at(4) is None


@pytest.mark.parametrize("text", ["", "1", "1:", "0:1", "1:-1", "x:1", "1:" + ",".join(map(str, range(101)))])
def test_what_is_not_a_stage_is_dead_lettered(text: str) -> None:
    properties = {wire_names.TRANSFER_PATH: "orders", wire_names.TRANSFER_FOLLOWS: text}
    with pytest.raises(NotATransfer):
        restore(encode_message(b"x", application_properties=properties))


def test_the_longest_stage_is_read_back() -> None:
    stage = Stage(2**31, tuple(range(100)))
    assert parse_stage(str(stage)) == stage


def test_a_stage_is_said_by_the_messages_of_its_session_and_gone_at_home() -> None:
    aside = [
        set_aside(ServiceBusMessage(b"x", message_id=each, session_id=each), "orders", str, 0) for each in ("a", "b")
    ]
    first, second = staged(aside, {"A": Stage(1, (0,))})
    assert first.application_properties is not None
    assert first.application_properties[wire_names.TRANSFER_FOLLOWS] == "1:0"
    assert second is aside[1]
    assert aside[0].application_properties is not None
    assert wire_names.TRANSFER_FOLLOWS not in aside[0].application_properties
    properties = {wire_names.TRANSFER_PATH: "orders", wire_names.TRANSFER_FOLLOWS: "1:0", "own": "o"}
    restored = restore(encode_message(b"x", application_properties=properties))
    assert restored.stage == Stage(1, (0,))
    assert wire_names.TRANSFER_FOLLOWS.encode() not in restored.payload


class Followed(Bench):
    """A pump of queue 4, and what waits in queue 0; None while nobody can look."""

    def __init__(self) -> None:
        super().__init__()
        self.pump.queue = "p/x-servicebus-transfer/4"
        self.elsewhere: Survey | None = Survey(0)
        self.is_deleted = False
        self.keeps_locks = False
        """What is given back stays locked: its messaging store is down."""

    def put_of(self, number: int, session_id: str, stage: Stage | None = None, enqueued_at: Millis = NEVER) -> None:
        content = Transfer("orders", number, 100, session_id, None, stage)
        self.ready.append(Taken(None, number, self.clock.now() + LOCK, content, enqueued_at))

    def perform(self, request: Request) -> Answer:
        if isinstance(request, LookInto):
            assert request.queue == "p/x-servicebus-transfer/0"
            if self.is_deleted:
                raise MessagingEntityNotFoundError(message="The backlog queue does not exist.")
            if self.elsewhere is None:
                raise ConnectionError("its messaging store is down")
            return self.elsewhere
        if isinstance(request, Abandon) and self.keeps_locks:
            raise ConnectionError("its messaging store is down")
        return super().perform(request)

    def moved(self) -> list[object]:
        return [number for _, numbers in self.sent() for number in numbers]


@pytest.mark.rule("B8.7")
def test_what_follows_a_lost_queue_waits_for_it_and_other_sessions_do_not() -> None:
    bench = Followed()
    bench.elsewhere = None
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.put_of(2, "s", Stage(1, (0,)))
    bench.put_of(3, "t")
    assert bench.do_pass()
    assert bench.moved() == [3]
    assert bench.pump.memory.left_count() == 2
    assert any(event.kind is EventKind.SYPHON_SKIPPED and event.count == 2 for event in bench.events)


@pytest.mark.rule("B8.7")
def test_what_follows_goes_once_no_earlier_stage_of_its_session_waits_elsewhere() -> None:
    bench = Followed()
    assert bench.elsewhere is not None
    bench.elsewhere.add(0, "orders", "S", 7)
    bench.elsewhere.add(0, "orders", "other", 8)
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.do_pass()
    assert bench.moved() == []
    bench.elsewhere = Survey(0)
    bench.elsewhere.add(0, "orders", "s", 9, stage=2)
    bench.clock.advance(LOCK + 2_000)
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.do_pass()
    assert bench.moved() == [1], "a later stage is not waited for: it waits for this one"


@pytest.mark.rule("B8.7")
def test_what_came_later_is_not_waited_for_so_that_senders_of_one_session_never_wait_for_each_other() -> None:
    bench = Followed()
    assert bench.elsewhere is not None
    bench.elsewhere.add(0, "orders", "s", 7, enqueued_at=5_000)
    bench.put_of(1, "s", Stage(1, (0,)), enqueued_at=4_999)
    bench.put_of(2, "s", Stage(1, (0,)), enqueued_at=5_000)
    bench.do_pass()
    assert bench.moved() == [1]


@pytest.mark.rule("B8.7")
def test_nothing_of_a_session_overtakes_what_was_left_while_it_is_still_locked() -> None:
    bench = Followed()
    bench.elsewhere, bench.keeps_locks = None, True
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.do_pass()
    bench.elsewhere = Survey(0)
    bench.clock.advance(LOCK // 2)
    bench.put_of(2, "s", Stage(1, (0,)))
    bench.do_pass()
    assert bench.moved() == []
    bench.clock.advance(LOCK + 2_000)
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.put_of(2, "s", Stage(1, (0,)))
    bench.do_pass()
    assert bench.moved() == [1, 2]


def test_a_queue_that_was_deleted_is_not_waited_for() -> None:
    bench = Followed()
    bench.is_deleted = True
    bench.put_of(1, "s", Stage(1, (0,)))
    bench.do_pass()
    assert bench.moved() == [1]


def test_a_queue_too_deep_to_look_through_keeps_what_follows_it_waiting() -> None:
    bench = Followed()
    bench.elsewhere = Survey(0, unseen_from={0: 5_000})
    bench.put_of(1, "s", Stage(1, (0,)), enqueued_at=5_000)
    bench.do_pass()
    assert bench.moved() == []
    assert SURVEYED_MAX == 5_000


@pytest.mark.rule("B8.7")
def test_what_came_before_all_that_is_unseen_goes_however_deep_the_other_queue_is() -> None:
    """Otherwise two deep queues whose messages follow each other would never be drained."""
    bench = Followed()
    bench.elsewhere = Survey(0, unseen_from={0: 5_000})
    bench.put_of(1, "s", Stage(1, (0,)), enqueued_at=4_999)
    bench.put_of(2, "t", Stage(1, (0,)), enqueued_at=5_001)
    bench.do_pass()
    assert bench.moved() == [1]


def test_a_message_that_follows_is_looked_at_again_soon_and_then_once_in_a_lock() -> None:
    """Soon, because it is mostly a matter of seconds; then seldom, so that others in its queue get their turn."""
    bench = Followed()
    bench.elsewhere = None
    steps = bench.pump.run()
    request = next(steps)
    asked: list[Request] = []
    for _ in range(18):
        asked.append(request)
        if isinstance(request, Receive):
            bench.put_of(1, "s", Stage(1, (0,)))
        try:
            answer = bench.perform(request)
        except ConnectionError as error:
            request = steps.throw(error)
        else:
            request = steps.send(answer)
    assert [each.duration for each in asked if isinstance(each, Wait)] == [500, 1_500, 4_500, 13_500]
    assert [type(each) for each in asked[-2:]] == [Receive, LookInto]
    assert isinstance(request, Receive), "it was left to its lock"
