"""Exactly the frames of the .NET SDK around message sessions: links that close, locks that end, messages settled twice."""

from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import Front, payload
from tests.gateway.raw_wire import (
    ACCEPTED,
    APPLICATION_PROPERTIES,
    PROPERTIES,
    VALUE,
    RawWire,
    Said,
    composite,
    section,
    source,
    target,
)
from twinbus.amqp.codec.sections import decode_sections
from twinbus.amqp.codec.types import Array, Described, Symbol, UByte, UInt, Value
from twinbus.broker.entity.session_desk import DETACH_SLACK
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message

LOCK = 30_000
SESSION_FILTER = Symbol("com.microsoft:session-filter")
DETACH: list[Value] = [UInt(0), True, None]


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("talks", requires_session=True, lock_duration=LOCK))
    return front


class DotNet:
    """A client with its sender on channel 1, its session receiver on channel 2 and management links on channel 3."""

    def __init__(self, front: Front) -> None:
        self.front, self.wire = front, RawWire(front)
        self.wire.put_token("talks")
        for channel in (1, 2, 3):
            rest: list[Value] = [UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {}]
            self.wire.say(channel, "begin", None, *rest)
        self._request_count = 0

    def send(self, *texts: str) -> None:
        where: list[Value] = [source("talks-1"), target("/talks"), None, None, UInt(0), *[None] * 4]
        self.wire.say(1, "attach", "sender", UInt(0), False, None, None, *where)
        for number, text in enumerate(texts):
            self.wire.transfer(1, 0, number, payload(text, group_id="SessionId"))
        assert len(self.wire.take("disposition")) >= 1

    def accept(self, session_id: str) -> Said:
        origin = source("/talks", *[None] * 6, {SESSION_FILTER: session_id}, *[None] * 3)
        self.wire.say(2, "attach", "receiver", UInt(0), True, None, UByte(1), origin, target("me"), *[None] * 7)
        (answer,) = self.wire.take("attach")
        return answer

    def receive(self, count: int = 1) -> list[Said]:
        self.wire.flow(2, handle=0, credit=count)
        return self.wire.take("transfer")

    def complete(self, first: int, last: int) -> tuple[int, str, list[Value]]:
        return 2, "disposition", [True, UInt(first), UInt(last), False, composite(ACCEPTED), None]

    def manage(self, operation: str, body: Value) -> tuple[int, Value]:
        """The status and the condition of the answer."""
        if not self._request_count:
            node = "talks/$management"
            self.wire.say(3, "attach", "m:s", UInt(0), False, UByte(1), None, source(None), target(node), *[None] * 7)
            self.wire.say(3, "attach", "m:r", UInt(1), True, UByte(1), None, source(node), target("r"), *[None] * 7)
            self.wire.flow(3, handle=1, credit=50)
            self.wire.take()
        properties: list[Value] = [f"request{self._request_count}", None, None, None, "r", *[None] * 8]
        request = section(PROPERTIES, properties)
        request += section(
            APPLICATION_PROPERTIES, {"operation": operation, "com.microsoft:server-timeout": UInt(9_000)}
        )
        request += section(VALUE, body)
        self.wire.transfer(3, 0, self._request_count, request, tag=b"", settled=True)
        self._request_count += 1
        (answer,) = self.wire.take("transfer")
        found = decode_sections(answer.payload).application_properties or {}
        return int(found["statusCode"]), found.get("errorCondition")


@pytest.fixture
def net(front: Front) -> DotNet:
    return DotNet(front)


def settlement(tag: Value) -> Value:
    assert isinstance(tag, bytes)
    tokens = Array([UUID(bytes_le=tag)])
    return {"disposition-status": "completed", "lock-tokens": tokens, "session-id": "sessionId"}


@pytest.mark.rule("A9.5")
def test_a_session_is_accepted_in_another_case_and_delivered_in_its_own(net: DotNet) -> None:
    net.send("a")
    answer = net.accept("sessionId")
    echoed = answer.fields[5]
    assert isinstance(echoed, Described)
    assert isinstance(echoed.value, list)
    assert echoed.value[7] == {SESSION_FILTER: "sessionId"}
    (delivery,) = net.receive()
    sections = decode_sections(delivery.payload)
    assert sections.properties is not None
    assert sections.properties.group_id == "SessionId"


def attach_with_credit(net: DotNet, session_id: str | None) -> None:
    """The client gives credit with its attach, before it knows whether it gets a session."""
    origin = source("/talks", *[None] * 6, {SESSION_FILTER: session_id}, *[None] * 3)
    attach: list[Value] = ["receiver", UInt(0), True, None, UByte(1), origin, target("me"), *[None] * 7]
    window: list[Value] = [UInt(0), UInt(5_000), UInt(1), UInt(5_000)]
    flow: list[Value] = [*window, UInt(0), UInt(0), UInt(5), UInt(0), False, False, None]
    net.wire.say_together((2, "attach", attach), (2, "flow", flow))


def operations(net: DotNet) -> Counter[str]:
    """Of the session receiver, since the last time."""
    net.wire.run()
    counted = Counter({row.cause.value: row.operations for row in net.front.book.take_all()})
    return Counter({cause: count for cause, count in counted.items() if cause != "send"})


def test_credit_that_was_given_before_the_session_was_free_counts_from_then_on(net: DotNet) -> None:
    net.wire.take()
    attach_with_credit(net, None)
    assert net.wire.take() == []
    queue = net.front.sim.entities.queue("talks")
    net.front.sim.send(queue, make_message("m", session_id="s"))
    net.wire.run()
    assert [said.name for said in net.wire.take()] == ["attach", "transfer"]
    assert operations(net) == {"session": 1, "receive": 1}
    net.wire.say(2, "detach", *DETACH)
    assert operations(net) == {}


@pytest.mark.parametrize("session_id", ["s", None])
def test_credit_that_came_with_the_attach_is_for_one_receive(net: DotNet, session_id: str | None) -> None:
    attach_with_credit(net, session_id)
    if session_id is None:
        net.front.sim.advance(LOCK)
    assert operations(net) == ({} if session_id is None else {"session": 1})
    net.wire.say(2, "detach", *DETACH)
    assert operations(net) == {"empty_receive": 1}


@pytest.mark.rule("A9.13")
def test_a_message_settled_twice_in_a_session_that_is_held_lost_its_own_lock(net: DotNet) -> None:
    net.send("a")
    net.accept("sessionId")
    (delivery,) = net.receive()
    net.wire.say_together(net.complete(0, 0))
    assert [said.fields[4] for said in net.wire.take("disposition")] == [composite(ACCEPTED)]
    assert net.manage("com.microsoft:update-disposition", settlement(delivery.fields[2])) == (
        410,
        "com.microsoft:message-lock-lost",
    )


def test_a_message_settled_after_its_session_was_lost_says_that_the_session_is(net: DotNet) -> None:
    net.send("a")
    net.accept("sessionId")
    (delivery,) = net.receive()
    net.front.sim.advance(LOCK)
    assert net.manage("com.microsoft:update-disposition", settlement(delivery.fields[2])) == (
        410,
        "com.microsoft:session-lock-lost",
    )


@pytest.mark.rule("A9.14")
def test_a_receive_that_waits_ends_soon_after_the_session_lock_has(net: DotNet) -> None:
    net.accept("sessionId")
    assert net.receive() == []
    net.front.sim.advance(LOCK + DETACH_SLACK)
    net.wire.run()
    (detach,) = net.wire.take("detach")
    assert (detach.channel, detach.fields[:2]) == (2, [0, True])
    error = detach.fields[2]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == "com.microsoft:session-lock-lost"


def test_a_detach_and_an_end_in_one_read_are_both_answered_in_order(net: DotNet) -> None:
    net.send("a")
    net.accept("sessionId")
    net.receive()
    net.wire.say_together((2, "detach", DETACH), (2, "end", [None]))
    assert [(said.channel, said.name) for said in net.wire.take()] == [(2, "detach"), (2, "end")]


def test_settlements_before_a_detach_and_an_end_in_one_read_are_confirmed_first(net: DotNet) -> None:
    net.send("a", "b")
    net.accept("sessionId")
    assert len(net.receive(2)) == 2
    net.wire.say_together(net.complete(0, 1), (2, "detach", DETACH), (2, "end", [None]))
    answers = net.wire.take()
    assert [(said.channel, said.name) for said in answers] == [(2, "disposition"), (2, "detach"), (2, "end")]
    assert answers[0].fields[1:3] == [0, 1]
    assert net.front.sim.entities.queue("talks").main.counts().active == 0


def test_the_end_that_waited_for_a_detach_leaves_the_channel_free(net: DotNet) -> None:
    net.accept("sessionId")
    for _ in range(3):
        net.wire.say_together((2, "detach", DETACH), (2, "end", [None]))
        net.wire.say(2, "begin", None, UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {})
        assert [said.name for said in net.wire.take()] == ["detach", "end", "begin"]
        net.accept("sessionId")


def test_everything_that_ends_in_one_read_is_answered_in_order(net: DotNet) -> None:
    """What the client says when it is disposed while a receiver holds a message."""
    net.send("a")
    net.accept("sessionId")
    net.receive()
    net.wire.say_together(
        (1, "detach", DETACH), (1, "end", [None]), (2, "detach", DETACH), (2, "end", [None]), (0, "close", [None])
    )
    assert [(said.channel, said.name) for said in net.wire.take()] == [
        (1, "detach"),
        (1, "end"),
        (2, "detach"),
        (2, "end"),
        (0, "close"),
    ]
