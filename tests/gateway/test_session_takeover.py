"""The non-exclusive session filter of the .NET SDK, as its client writes and reads it."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import Client, Front, text_of
from tests.gateway.test_nodes import put, status
from twinbus.amqp.codec.types import Array, Described, Symbol, ULong, Value
from twinbus.amqp.events import LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.model.descriptions import QueueDescription

NAME = Symbol("com.microsoft:non-exclusive-session-filter")
DESCRIPTOR = Symbol("com.microsoft:non-exclusive-session-filter:list")
CODE = ULong(0x137000000E)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("work", requires_session=True))
    return front


def attach(client: Client, *fields: Value, descriptor: Value = CODE, name: Value = NAME) -> IncomingLink:
    return client.receiver("work", credit=5, session_filter={name: Described(descriptor, list(fields))})


def granted(link: IncomingLink, name: Value = NAME) -> tuple[Value, Value, UUID]:
    """Descriptor, session id and lock token of the echoed filter."""
    assert link.source is not None
    assert link.source.filter is not None
    assert list(link.source.filter) == [name]
    echoed = link.source.filter[name]
    assert isinstance(echoed, Described)
    session_id, token = echoed.value
    assert isinstance(token, UUID)
    return echoed.descriptor, session_id, token


def refusals(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


@pytest.mark.parametrize("name", [NAME, DESCRIPTOR])
@pytest.mark.parametrize("descriptor", [CODE, DESCRIPTOR])
@pytest.mark.parametrize("session_id", ["one", None])
def test_the_filter_is_echoed_as_it_came_with_the_session_and_a_lock_token(
    front: Front, session_id: str | None, descriptor: Value, name: Value
) -> None:
    put(front, "a", "work", group_id="one")
    client = front.client()
    link = attach(client, session_id, None, descriptor=descriptor, name=name)
    assert granted(link, name)[:2] == (descriptor, "one")
    until = link.properties[Symbol("com.microsoft:locked-until-utc")]
    assert isinstance(until, int)
    ticks, rest = divmod(until - 621_355_968_000_000_000, 10_000)
    assert rest == 0
    assert ticks > front.sim.now
    assert [text_of(each.payload) for each in client.received()] == ["a"]


@pytest.mark.parametrize("fields", [(), ("one",)])
def test_fields_at_the_end_of_the_filter_may_be_omitted(front: Front, fields: tuple[Value, ...]) -> None:
    put(front, "a", "work", group_id="one")
    assert granted(attach(front.client(), *fields))[1] == "one"


def test_another_connection_takes_the_session_over_and_settles_what_the_first_one_received(front: Front) -> None:
    put(front, "a", "work", group_id="one")
    first, second = front.client(), front.client()
    token = granted(attach(first, "one", None))[2]
    (message,) = first.received()
    successor = attach(second, "one", token)
    first.run()
    assert refusals(first) == ["com.microsoft:session-lock-lost"]
    assert granted(successor)[2] == token
    node = second.node("work/$management")
    link_name = successor.name
    state = node.ask("com.microsoft:get-session-state", {"session-id": "one"}, associated_link_name=link_name)
    assert status(state)[0] == 200
    settled = node.ask(
        "com.microsoft:update-disposition",
        {
            "disposition-status": "completed",
            "lock-tokens": Array([UUID(bytes_le=message.delivery_tag)]),
            "session-id": "one",
        },
        associated_link_name=link_name,
    )
    assert status(settled)[0] == 200
    assert front.sim.entities.queue("work").main.counts().active == 0


def test_a_token_that_is_not_that_of_the_session_is_refused_and_the_holder_stays(front: Front) -> None:
    first, second = front.client(), front.client()
    attach(first, "one", None)
    for token in (None, UUID(int=1)):
        attach(second, "one", token)
        assert refusals(second) == ["com.microsoft:session-cannot-be-locked"]
    first.run()
    assert refusals(first) == []


def test_a_token_of_a_session_that_nobody_holds_is_refused(front: Front) -> None:
    client = front.client()
    link = attach(client, "one", None)
    token = granted(link)[2]
    link.detach()
    client.run()
    client.take(LinkDetached)
    attach(client, "one", token)
    assert refusals(client) == ["com.microsoft:session-lock-lost"]


@pytest.mark.parametrize(
    "fields", [(None, UUID(int=1)), ("one", "token"), (1, None), ("x" * 129, None), ("one", None, None)]
)
def test_a_filter_that_makes_no_sense_is_refused(front: Front, fields: tuple[Value, ...]) -> None:
    client = front.client()
    attach(client, *fields)
    assert refusals(client) == ["com.microsoft:argument-error"]


def test_a_link_has_one_session_filter(front: Front) -> None:
    client = front.client()
    both = {NAME: Described(CODE, ["one", None]), Symbol("com.microsoft:session-filter"): "one"}
    client.receiver("work", session_filter=both)
    assert refusals(client) == ["com.microsoft:argument-error"]
