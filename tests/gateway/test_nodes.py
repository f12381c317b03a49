"""Requests to `$cbs` and `$management`, over a real pair of AMQP connections."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import LISTENS, ROOT, SENDS, Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, Rejected
from twinbus.amqp.codec.sections import (
    DataBody,
    MessageProperties,
    Sections,
    ValueBody,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Array, Decimal128, Described, Int, Long, Symbol, Timestamp, UInt, ULong, Value
from twinbus.amqp.events import CreditChanged, Deliveries, Dispositions, LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import Session
from twinbus.broker.commands import Peek
from twinbus.broker.outcomes import Defer
from twinbus.gateway.links.session_attach import TICKS_AT_EPOCH, WAIT_DEFAULT, wait_of
from twinbus.gateway.nodes import request_links
from twinbus.gateway.nodes.management_node import PENDING_MAX, TIMEOUT_DEFAULT, timeout_of
from twinbus.gateway.nodes.request_message import Request
from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.model.rules.compiled import compile_rule
from twinbus.model.rules.values import TIMESPAN

UNKNOWN = UUID(int=1)
TRANSFER, DISPOSITION = b"\x00\x53\x14", b"\x00\x53\x15"
TOO_LARGE = "amqp:link:message-size-exceeded"


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("talks", requires_session=True))
    return front


def status(reply: Sections) -> tuple[int, str | None]:
    properties = reply.application_properties or {}
    return properties["statusCode"], properties.get("errorCondition")


def body(reply: Sections) -> dict[str, Value]:
    assert isinstance(reply.body, ValueBody)
    assert isinstance(reply.body.value, dict)
    return reply.body.value


def group_of(encoded: bytes) -> str | None:
    properties = decode_sections(encoded).properties
    assert properties is not None
    return properties.group_id


def lock_one(client: Client, address: str = "orders", **options: Value) -> UUID:
    """Receive one message in peek-lock and return its token."""
    client.receiver(address, credit=1, **options)
    (event,) = client.take(Deliveries)
    return UUID(bytes_le=event.deliveries[0].delivery_tag)


def put(front: Front, text: str, address: str = "orders", **properties: Value) -> None:
    client = front.client()
    client.sender(address).transfer(payload(text, **properties), b"1")
    client.run()


@pytest.mark.parametrize(
    ("path", "rule", "code"),
    [
        ("orders", ROOT, 202),
        ("ORDERS/$management", SENDS, 202),
        ("", ROOT, 202),
        ("missing", ROOT, 404),
        ("missing", AuthorizationRule("Root", "wrong", "", frozenset()), 401),
        ("orders", AuthorizationRule("Nobody", "root-key", "", frozenset()), 401),
    ],
)
def test_put_token_answers_with_a_code_that_the_sdks_know(
    front: Front, path: str, rule: AuthorizationRule, code: int
) -> None:
    reply = front.client(None).node("$cbs").ask("put-token", front.token(path, rule), name=f"sb://host/{path}")
    properties = reply.application_properties or {}
    assert properties["status-code"] == code
    assert type(properties["status-code"]) is Int
    assert set(properties) == {"status-code", "status-description"}


def test_a_json_web_token_is_refused_in_words(front: Front) -> None:
    reply = front.client(None).node("$cbs").ask("put-token", "eyJ0.eyJh.sig", name="sb://host/orders", type="jwt")
    assert "JSON web tokens" in (reply.application_properties or {})["status-description"]


def test_requests_are_counted_for_their_entity_whatever_becomes_of_them(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    for operation in ("peek-message", "make-coffee", "renew-lock"):
        node.ask(f"com.microsoft:{operation}", {})
    assert (front.traffic.of("orders").requests, front.traffic.of("talks").requests) == (3, 0)


def test_an_unknown_operation_is_not_implemented(front: Front) -> None:
    reply = front.client().node("orders/$management").ask("com.microsoft:make-coffee", {})
    assert status(reply) == (501, "amqp:not-implemented")


@pytest.mark.rule("A17.5")
@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("peek-message", LISTENS),
        ("receive-by-sequence-number", LISTENS),
        ("renew-lock", LISTENS),
        ("update-disposition", LISTENS),
        ("schedule-message", SENDS),
        ("cancel-scheduled-message", SENDS),
        ("get-message-sessions", LISTENS),
        ("get-session-state", LISTENS),
    ],
)
def test_a_request_needs_the_claim_of_its_operation(front: Front, operation: str, right: AuthorizationRule) -> None:
    for rule in (SENDS, LISTENS):
        reply = front.client(rule).node("orders/$management").ask(f"com.microsoft:{operation}", {})
        assert (status(reply)[1] == "amqp:unauthorized-access") is (rule is not right)


@pytest.mark.parametrize("attach", [Client.sender, Client.receiver])
@pytest.mark.parametrize(
    ("address", "rule", "condition"),
    [
        ("orders/$management", None, "amqp:unauthorized-access"),
        ("missing/$management", None, "amqp:unauthorized-access"),
        ("missing/$management", ROOT, "amqp:not-found"),
    ],
)
def test_management_needs_some_claim_and_an_entity_to_attach(
    front: Front, attach: Callable[[Client, str], object], address: str, rule: AuthorizationRule | None, condition: str
) -> None:
    client = front.client(rule)
    attach(client, address)
    assert [event.error.condition for event in client.take(LinkDetached) if event.error] == [condition]


def test_peek_without_a_count_shows_one_message(front: Front) -> None:
    put(front, "a")
    put(front, "b")
    node = front.client().node("orders/$management")
    assert len(body(node.ask("com.microsoft:peek-message", {"from-sequence-number": Long(0)}))["messages"]) == 1


def test_peek_omits_bodies_if_asked(front: Front) -> None:
    put(front, "a", subject="shown")
    node = front.client().node("orders/$management")
    arguments = {"from-sequence-number": Long(1), "message-count": Int(10), "omit-message-body": True}
    (message,) = body(node.ask("com.microsoft:peek-message", arguments))["messages"]
    sections = decode_sections(message["message"])
    assert sections.body is None
    assert sections.properties is not None
    assert sections.properties.subject == "shown"


@pytest.mark.parametrize("count", [1, 3, 300])
def test_a_page_is_a_list_of_maps_whatever_the_messages_size(front: Front, count: int) -> None:
    for number in range(count):
        put(front, "x" * (number * 7))
    range_of_all = {"first-sequence-number": Long(1), "last-sequence-number": Long(count)}
    reply = front.client().node("orders/$management").ask("com.twinbus:peek-range", range_of_all)
    found = [decode_sections(each["message"]).body for each in body(reply)["messages"]]
    assert found == [DataBody([b"x" * (number * 7)]) for number in range(count)]


def test_peek_of_a_deferred_message_has_the_annotation_of_a_lock(front: Front) -> None:
    put(front, "deferred")
    put(front, "active")
    queue = front.sim.entities.queue("orders").main
    front.sim.settle(queue, front.sim.receiver(queue, 1).take(), Defer())
    reply = front.client().node("orders/$management").ask("com.microsoft:peek-message", {"message-count": Int(2)})
    deferred, active = [decode_sections(each["message"]).message_annotations or {} for each in body(reply)["messages"]]
    assert isinstance(deferred["x-opt-locked-until"], Timestamp)
    assert "x-opt-locked-until" not in active


def test_peek_shows_messages_and_their_state(front: Front) -> None:
    node = front.client().node("orders/$management")
    arguments = {"from-sequence-number": Long(0), "message-count": Int(10)}
    assert status(node.ask("com.microsoft:peek-message", arguments)) == (204, "com.microsoft:message-not-found")
    put(front, "a")
    reply = node.ask("com.microsoft:peek-message", arguments)
    (entry,) = body(reply)["messages"]
    annotations = decode_sections(entry["message"]).message_annotations or {}
    assert (annotations["x-opt-sequence-number"], annotations["x-opt-message-state"]) == (1, 0)


def test_locks_are_renewed_together_or_not_at_all(front: Front) -> None:
    put(front, "a")
    client = front.client()
    token = lock_one(client)
    node = client.node("orders/$management")
    front.sim.clock.advance(10_000)
    reply = node.ask("com.microsoft:renew-lock", {"lock-tokens": Array([token])})
    assert body(reply)["expirations"] == Array([Timestamp(front.sim.now + 60_000)], 0x83)
    lost = node.ask("com.microsoft:renew-lock", {"lock-tokens": Array([token, UNKNOWN])})
    assert status(lost) == (410, "com.microsoft:message-lock-lost")


@pytest.mark.parametrize("outcome", ["completed", "abandoned", "defered", "suspended"])
def test_a_message_is_settled_by_its_token_on_any_connection(front: Front, outcome: str) -> None:
    put(front, "a")
    token = lock_one(front.client())
    node = front.client().node("orders/$management")
    arguments = {"disposition-status": outcome, "lock-tokens": Array([token])}
    assert status(node.ask("com.microsoft:update-disposition", arguments)) == (200, None)
    assert status(node.ask("com.microsoft:update-disposition", arguments))[0] == 410
    counts = front.sim.entities.queue("orders").main.counts()
    assert (counts.active, counts.deferred) == {"abandoned": (1, 0), "defered": (0, 1)}.get(outcome, (0, 0))


def test_a_deferred_message_is_received_by_number(front: Front) -> None:
    put(front, "a")
    client = front.client()
    node = client.node("orders/$management")
    token = lock_one(client)
    node.ask("com.microsoft:update-disposition", {"disposition-status": "defered", "lock-tokens": Array([token])})
    arguments = {"sequence-numbers": Array([Long(1)]), "receiver-settle-mode": UInt(1)}
    (entry,) = body(node.ask("com.microsoft:receive-by-sequence-number", arguments))["messages"]
    assert isinstance(entry["lock-token"], UUID)
    again = node.ask("com.microsoft:receive-by-sequence-number", arguments)
    assert status(again) == (404, "com.microsoft:message-not-found")


def test_messages_are_scheduled_and_cancelled(front: Front) -> None:
    node = front.client().node("orders/$management")
    scheduled = node.ask("com.microsoft:schedule-message", {"messages": [{"message-id": "m", "message": payload("a")}]})
    numbers = body(scheduled)["sequence-numbers"]
    assert [type(number) for number in numbers.values] == [Long]
    too_large = [{"message-id": "m", "message": payload("a" * MESSAGE_SIZE_MAX)}]
    reply = node.ask("com.microsoft:schedule-message", {"messages": too_large})
    assert status(reply) == (403, "amqp:link:message-size-exceeded")
    reply = node.ask("com.microsoft:cancel-scheduled-message", {"sequence-numbers": Array([Long(99)])})
    assert status(reply) == (404, "com.microsoft:message-not-found")


def test_the_oldest_messages_are_deleted_and_younger_or_held_ones_stay(front: Front) -> None:
    client = front.client()
    sender = client.sender("orders")
    node = client.node("orders/$management")
    none = node.ask("com.microsoft:batch-delete-messages", {"message-count": Int(10)})
    assert status(none)[0] == 204
    sender.transfers([(b"%d" % number, payload(str(number))) for number in range(3_000)])
    client.run()
    lock_one(client)
    client.take(Deliveries)
    before = front.sim.now
    client.advance(1_000)
    sender.transfer(payload("young"), b"y")
    client.run()
    arguments = {"message-count": Int(2_500), "enqueued-time-utc": Timestamp(before)}
    deleted = [body(node.ask("com.microsoft:batch-delete-messages", arguments))["message-count"] for _ in range(2)]
    assert deleted == [2_500, 499]
    assert front.sim.entities.queue("orders").main.counts().active == 2


@pytest.mark.rule("A9.15")
@pytest.mark.parametrize("names_link", [True, False])
def test_messages_are_deleted_in_the_session_that_the_request_names(front: Front, names_link: bool) -> None:
    """Which the caller holds: as the .NET client asks, who names its link, or without."""
    for session in ("s1", "s2"):
        put(front, f"of {session}", "talks", group_id=session)
        put(front, f"more of {session}", "talks", group_id=session)
    client = front.client()
    receiver = client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "s1"})
    arguments = {"message-count": Int(10), "enqueued-time-utc": Timestamp(front.sim.now), "session-id": "s1"}
    operation = "com.microsoft:batch-delete-messages"
    link = {"associated-link-name": receiver.name} if names_link else {}
    stranger = front.client().node("talks/$management").ask(operation, arguments)
    assert status(stranger)[0] == 204
    deleted = client.node("talks/$management").ask(operation, arguments, **link)
    assert body(deleted)["message-count"] == 2
    left = front.sim.ask(front.sim.entities.queue("talks").main, Peek(0, 10)).value
    assert [row.session_id for row in left] == ["s2", "s2"]


def test_a_request_that_names_the_link_of_a_session_and_no_session_is_about_that_session(front: Front) -> None:
    """As the Go client asks."""
    for session in ("s1", "s2"):
        put(front, f"of {session}", "talks", group_id=session)
    client = front.client()
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "s1"})
    receiver = client.receiver("talks", credit=1, session_filter={Symbol("com.microsoft:session-filter"): "s2"})
    (delivery,) = client.received()
    node, link = client.node("talks/$management"), {"associated-link-name": receiver.name}
    peeking = {"from-sequence-number": Long(0), "message-count": Int(10)}
    (peeked,) = body(node.ask("com.microsoft:peek-message", peeking, **link))["messages"]
    assert group_of(peeked["message"]) == "s2"
    assert len(body(node.ask("com.microsoft:peek-message", peeking))["messages"]) == 2
    token = UUID(bytes_le=delivery.delivery_tag)
    deferring = {"lock-tokens": Array([token]), "disposition-status": "defered", "session-id": "s2"}
    assert status(node.ask("com.microsoft:update-disposition", deferring, **link))[0] == 200
    taking = {"sequence-numbers": Array([Long(2)]), "receiver-settle-mode": UInt(1)}
    assert status(node.ask("com.microsoft:receive-by-sequence-number", taking))[0] != 200
    (taken,) = body(node.ask("com.microsoft:receive-by-sequence-number", taking, **link))["messages"]
    assert group_of(taken["message"]) == "s2"


@pytest.mark.rule("A9")
@pytest.mark.parametrize("named", ["s1", "S1", None], ids=["as accepted", "in another case", "by its link"])
@pytest.mark.parametrize("is_same", [False, True], ids=["another connection", "the same connection"])
def test_a_link_that_lost_its_session_takes_no_deferred_messages_of_it_even_if_another_link_holds_it(
    front: Front, named: str | None, is_same: bool
) -> None:
    put(front, "a", "talks", group_id="s1")
    first = front.client()
    second = first if is_same else front.client()
    session_filter = {Symbol("com.microsoft:session-filter"): "s1"}
    lost = first.receiver("talks", credit=1, session_filter=session_filter)
    (delivery,) = first.received()
    node = first.node("talks/$management")
    token = UUID(bytes_le=delivery.delivery_tag)
    deferring = {"lock-tokens": Array([token]), "disposition-status": "defered", "session-id": "s1"}
    assert status(node.ask("com.microsoft:update-disposition", deferring, associated_link_name=lost.name))[0] == 200
    first.advance(60_500)
    held = second.receiver("talks", session_filter=session_filter)
    taking: dict[str, Value] = {"sequence-numbers": Array([Long(1)]), "receiver-settle-mode": UInt(1)}
    if named is not None:
        taking["session-id"] = named
    refused = node.ask("com.microsoft:receive-by-sequence-number", taking, associated_link_name=lost.name)
    assert status(refused) == (410, "com.microsoft:session-lock-lost")
    taken = second.node("talks/$management").ask(
        "com.microsoft:receive-by-sequence-number", taking, associated_link_name=held.name
    )
    assert [group_of(each["message"]) for each in body(taken)["messages"]] == ["s1"]


def test_a_message_session_is_accepted_listed_renewed_and_remembered(front: Front) -> None:
    put(front, "a", "talks", group_id="s1")
    client = front.client()
    receiver = client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): None})
    assert receiver.source is not None
    assert receiver.source.filter == {"com.microsoft:session-filter": "s1"}
    until = TICKS_AT_EPOCH + (front.sim.now + 60_000) * 10_000
    assert receiver.properties == {"com.microsoft:locked-until-utc": until}
    node = client.node("talks/$management")
    session = {"session-id": "s1"}
    assert body(node.ask("com.microsoft:get-session-state", session)) == {"session-state": None}
    assert status(node.ask("com.microsoft:set-session-state", {**session, "session-state": b"x"})) == (200, None)
    assert body(node.ask("com.microsoft:get-session-state", session)) == {"session-state": b"x"}
    assert status(node.ask("com.microsoft:set-session-state", {**session, "session-state": b""})) == (200, None)
    assert body(node.ask("com.microsoft:get-session-state", session)) == {"session-state": None}
    renewed = body(node.ask("com.microsoft:renew-session-lock", session))
    assert renewed == {"expiration": front.sim.now + 60_000}
    listing = {"last-updated-time": Timestamp(253_402_300_800_000), "skip": Int(0), "top": Int(10)}
    assert body(node.ask("com.microsoft:get-message-sessions", listing))["sessions-ids"].values == ["s1"]
    past_the_end = node.ask("com.microsoft:get-message-sessions", {**listing, "skip": Int(1)})
    assert status(past_the_end)[0] == 204


@pytest.mark.parametrize("asked", [None, "s1"])
def test_a_session_is_granted_in_the_form_in_which_it_was_asked_for(front: Front, asked: str | None) -> None:
    """Go's AMQP library reads filters as described values only, the other SDKs read session ids as plain strings only."""
    put(front, "a", "talks", group_id="s1")
    name, code = Symbol("com.microsoft:session-filter"), ULong(0x137000000C)
    for wanted, granted in ((asked, "s1"), (Described(code, asked), Described(code, "s1"))):
        client = front.client()
        receiver = client.receiver("talks", session_filter={name: wanted})
        assert receiver.source is not None
        assert receiver.source.filter == {name: granted}
        receiver.detach()
        client.run()


def test_a_message_settled_twice_in_a_session_that_its_receiver_holds_lost_its_own_lock(front: Front) -> None:
    put(front, "a", "talks", group_id="s")
    client = front.client()
    receiver = client.receiver("talks", credit=1, session_filter={Symbol("com.microsoft:session-filter"): "s"})
    (message,) = client.received()
    settled = {"disposition-status": "completed", "lock-tokens": Array([UUID(bytes_le=message.delivery_tag)])}
    client.node("talks/$management").ask("com.microsoft:update-disposition", settled)
    client.take(Dispositions)
    receiver.update(message.delivery_id, message.delivery_id, ACCEPTED)
    client.run()
    (answer,) = client.take(Dispositions)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "com.microsoft:message-lock-lost"


def test_requests_that_wait_for_the_store_are_limited(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    node.replies.grant(PENDING_MAX + 10)
    front.sim.ports[0].is_hung = True
    for _ in range(PENDING_MAX):
        node.send("com.microsoft:peek-message", {"from-sequence-number": Long(0), "message-count": Int(1)})
    assert node.answers() == []
    refused = node.ask("com.microsoft:peek-message", {"from-sequence-number": Long(0), "message-count": Int(1)})
    assert status(refused) == (503, "com.microsoft:server-busy")
    front.sim.ports[0].is_hung = False
    client.run()
    assert len(node.answers()) == PENDING_MAX
    empty = node.ask("com.microsoft:peek-message", {"from-sequence-number": Long(0), "message-count": Int(1)})
    assert status(empty)[0] == 204


@pytest.mark.parametrize("limit", ["WAITING_MAX", "WAITING_BYTES_MAX"])
def test_replies_that_nobody_takes_are_limited(front: Front, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_links, limit, {"WAITING_MAX": 5, "WAITING_BYTES_MAX": 5_000}[limit])
    put(front, "x" * 900)
    client = front.client()
    node = client.node("orders/$management")
    node.replies.grant(0)
    client.run()
    for count, is_attached in ((3, True), (3, False)):
        for _ in range(count):
            node.send("com.microsoft:peek-message", {"from-sequence-number": Long(0), "message-count": Int(1)})
        assert node.replies.is_attached is is_attached
    assert node.answers() == []


def test_a_reply_that_has_credit_is_sent_whatever_waits_on_other_links(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_links, "WAITING_BYTES_MAX", 100)
    client = front.client()
    waiting, node = client.node("talks/$management"), client.node("orders/$management")
    waiting.replies.grant(0)
    node.replies.grant(1)
    client.run()
    waiting.send("com.microsoft:peek-message", {})
    assert client.gateway.held_back_size > 0
    assert status(node.ask("com.microsoft:peek-message", {}))[0] == 204
    assert node.replies.is_attached


def test_replies_that_are_given_up_do_not_count_any_more_before_the_client_has_heard_of_it(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_links, "WAITING_MAX", 2)
    client = front.client()
    node = client.node("orders/$management")
    node.replies.grant(0)
    client.run()
    for _ in range(2):
        node.send("com.microsoft:peek-message", {})
    waiting_size = client.gateway.held_back_size
    assert waiting_size > 0
    request = Sections(application_properties={"operation": "com.microsoft:peek-message"}, body=ValueBody({}))
    node.requests.transfer(encode_sections(request), b"3")
    client.gateway.receive(client.connection.data_to_send(), front.sim.now)
    front.sim.run()
    assert client.gateway.held_back_size == 0
    client.run()
    (gone,) = client.take(LinkDetached)
    assert gone.error is not None
    assert gone.error.description is not None
    assert f"2 replies of {waiting_size} bytes" in gone.error.description


def test_a_reply_is_not_too_large_for_a_link_that_others_do_not_wait_on(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_links, "WAITING_BYTES_MAX", 1)
    put(front, "x" * 900)
    client = front.client()
    node = client.node("orders/$management")
    node.replies.grant(0)
    client.run()
    node.send("com.microsoft:peek-message", {"from-sequence-number": Long(0), "message-count": Int(1)})
    node.replies.grant(9)
    client.run()
    assert len(node.answers()) == 1


def test_a_session_state_may_have_the_size_of_a_message(front: Front) -> None:
    client = front.client()
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "s1"})
    node = client.node("talks/$management")
    for size, answer in ((MESSAGE_SIZE_MAX, (200, None)), (MESSAGE_SIZE_MAX + 1, (403, TOO_LARGE)), (0, (200, None))):
        state = {"session-id": "s1", "session-state": b"x" * size}
        assert status(node.ask("com.microsoft:set-session-state", state)) == answer


@pytest.mark.rule("A9")
@pytest.mark.parametrize("session_id", ["s" * 129, Symbol("s"), 5, b"s"], ids=["long", "symbol", "number", "binary"])
def test_a_session_that_no_message_can_belong_to_is_refused(front: Front, session_id: Value) -> None:
    client = front.client()
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): session_id})
    assert [event.error.condition for event in client.take(LinkDetached) if event.error] == [
        "com.microsoft:argument-error"
    ]


@pytest.mark.rule("A9")
def test_a_session_id_may_have_128_characters(front: Front) -> None:
    session_filter = {Symbol("com.microsoft:session-filter"): "s" * 128}
    assert front.client().receiver("talks", session_filter=session_filter).is_attached


@pytest.mark.parametrize(("address", "taken"), [("orders", None), ("talks", {"com.microsoft:session-filter": "s1"})])
def test_a_filter_that_is_not_applied_is_not_confirmed(front: Front, address: str, taken: Value) -> None:
    unknown = {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])}
    wanted = {**unknown, **({} if taken is None else {Symbol("com.microsoft:session-filter"): "s1"})}
    receiver = front.client().receiver(address, session_filter=wanted)
    assert receiver.is_attached
    assert receiver.source is not None
    assert (receiver.source.address, receiver.source.filter) == (address, taken)


@pytest.mark.parametrize("timeout", [2_000, 65_000, 100_000])
def test_a_session_nobody_can_have_yet_is_waited_for_until_the_timeout(front: Front, timeout: int) -> None:
    client = front.client()
    session_filter = {Symbol("com.microsoft:session-filter"): None}
    client.receiver("talks", session_filter=session_filter, properties={Symbol("com.microsoft:timeout"): UInt(timeout)})
    client.advance(timeout - 500)
    assert client.take(LinkDetached) == []
    client.advance(600)
    (event,) = client.take(LinkDetached)
    assert event.error is not None
    assert event.error.condition == "com.microsoft:timeout"
    waiting = front.client()
    receiver = waiting.receiver("talks", session_filter=session_filter)
    put(front, "a", "talks", group_id="later")
    waiting.run()
    assert receiver.source is not None
    assert receiver.source.filter == {"com.microsoft:session-filter": "later"}


def test_a_session_that_was_waited_for_is_used_from_when_it_was_free(front: Front) -> None:
    client = front.client()
    receiver = client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): None})
    client.advance(30_000)
    put(front, "a", "talks", group_id="later")
    client.run()
    assert receiver.is_attached
    assert front.sim.entities.queue("talks").last_used_at == front.sim.now


@pytest.mark.parametrize(
    ("address", "session_filter"),
    [
        ("orders", {Symbol("com.microsoft:session-filter"): "a"}),
        ("talks", None),
        ("talks", {Symbol("com.microsoft:session-filter"): 7}),
    ],
)
def test_a_link_that_does_not_fit_the_entity_is_refused(
    front: Front, address: str, session_filter: dict[Symbol, Value] | None
) -> None:
    client = front.client()
    client.receiver(address, session_filter=session_filter)
    assert len(client.take(LinkDetached)) == 1


def test_a_session_that_is_lost_detaches_its_link_after_the_slack(front: Front) -> None:
    client = front.client()
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "a"})
    client.advance(60_500)
    assert client.take(LinkDetached) == []
    client.advance(1_500)
    (event,) = client.take(LinkDetached)
    assert event.error is not None
    assert event.error.condition == "com.microsoft:session-lock-lost"


def test_a_request_that_is_not_answered_in_time_times_out_once(front: Front) -> None:
    put(front, "a")
    client = front.client()
    token = lock_one(client)
    node = client.node("orders/$management")
    front.sim.ports[0].is_hung = True
    properties = {"com.microsoft:server-timeout": UInt(1_000)}
    node.send(
        "com.microsoft:update-disposition",
        {"disposition-status": "completed", "lock-tokens": Array([token])},
        **properties,
    )
    client.advance(1_000)
    (reply,) = node.answers()
    assert status(reply) == (408, "com.microsoft:timeout")
    front.sim.ports[0].is_hung = False
    client.run()
    assert node.answers() == []


@pytest.mark.parametrize(
    ("asked", "given"), [(None, WAIT_DEFAULT), (UInt(0), WAIT_DEFAULT), (UInt(1), 1), ("1", WAIT_DEFAULT)]
)
def test_a_receiver_waits_for_a_session_as_long_as_it_asks_for(asked: Value, given: int) -> None:
    assert wait_of({Symbol("com.microsoft:timeout"): asked}) == given
    assert wait_of(None) == WAIT_DEFAULT


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (None, TIMEOUT_DEFAULT),
        (UInt(0), TIMEOUT_DEFAULT),
        (UInt(1), 1),
        (UInt(TIMEOUT_DEFAULT - 1), TIMEOUT_DEFAULT - 1),
        (UInt(TIMEOUT_DEFAULT + 1), TIMEOUT_DEFAULT),
        ("1", TIMEOUT_DEFAULT),
    ],
)
def test_a_request_has_the_time_that_it_asks_for_but_no_more_than_is_usual(asked: Value, given: int) -> None:
    assert timeout_of(Request("id", None, {"com.microsoft:server-timeout": asked}, None)) == given


async def test_names_are_compared_alike_by_the_catalog_and_by_the_broker(front: Front) -> None:
    """A name that only one of the two knew as another's left a queue that took messages until a restart forgot it."""
    control = front.view.control
    await front.settled(control.create_queue(QueueDescription("strasse")))
    await front.settled(control.delete("stra\N{LATIN SMALL LETTER SHARP S}e"))
    assert front.sim.entities.find("strasse") is None


async def test_rules_are_added_listed_and_removed(front: Front) -> None:
    control = front.view.control
    for change in (
        control.create_topic(TopicDescription("news")),
        control.create_subscription(SubscriptionDescription("news", "all")),
    ):
        await front.settled(change)
    client = front.client()
    node = client.node("news/Subscriptions/all/$management")
    page = {"skip": Int(0), "top": Int(10)}
    rule = {"rule-name": "big", "rule-description": {"sql-filter": {"expression": "size > 5"}}}
    node.send("com.microsoft:add-rule", rule)
    await front.until_answered(client)
    assert status(node.answers()[0]) == (200, None)
    names = [
        entry["rule-description"].value[2] for entry in body(node.ask("com.microsoft:enumerate-rules", page))["rules"]
    ]
    assert names == ["$Default", "big"]
    node.send("com.microsoft:add-rule", {**rule, "rule-name": "Able"})
    await front.until_answered(client)
    node.answers()
    names = [
        entry["rule-description"].value[2] for entry in body(node.ask("com.microsoft:enumerate-rules", page))["rules"]
    ]
    assert names == ["$Default", "Able", "big"]
    node.send("com.microsoft:remove-rule", {"rule-name": "able"})
    await front.until_answered(client)
    node.answers()
    node.send("com.microsoft:add-rule", rule)
    await front.until_answered(client)
    assert status(node.answers()[0]) == (409, "com.microsoft:entity-already-exists")
    node.send("com.microsoft:remove-rule", {"rule-name": "big"})
    await front.until_answered(client)
    assert status(node.answers()[0]) == (200, None)
    assert status(node.ask("com.microsoft:enumerate-rules", {"skip": Int(1), "top": Int(10)}))[0] == 204


@pytest.mark.rule("A16")
async def test_the_default_rule_is_added_and_removed_in_any_case_and_compares_properties_with_long_names(
    front: Front,
) -> None:
    client = await with_subscription(front)
    node = client.node("news/Subscriptions/all/$management")
    properties = {"n" * 1024: "v" * 1024}
    rule = {"rule-name": "$default", "rule-description": {"correlation-filter": {"properties": properties}}}
    for operation, arguments, expected in (
        ("add", rule, 409),
        ("remove", {"rule-name": "$DEFAULT"}, 200),
        ("add", rule, 200),
    ):
        node.send(f"com.microsoft:{operation}-rule", arguments)
        await front.until_answered(client)
        assert status(node.answers()[0])[0] == expected
    listed = body(node.ask("com.microsoft:enumerate-rules", {"skip": Int(0), "top": Int(10)}))["rules"]
    assert [entry["rule-description"].value[2] for entry in listed] == ["$default"]
    assert listed[0]["rule-description"].value[0].value[-1] == properties


@pytest.mark.rule("A16")
@pytest.mark.parametrize("action", [{"expression": ""}, {"expression": None}, {}])
async def test_an_empty_sql_action_is_no_action(front: Front, action: dict[str, str | None]) -> None:
    client = await with_subscription(front)
    node = client.node("news/Subscriptions/all/$management")
    description = {"sql-filter": {"expression": "size > 5"}, "sql-rule-action": action}
    node.send("com.microsoft:add-rule", {"rule-name": "big", "rule-description": description})
    await front.until_answered(client)
    assert status(node.answers()[0]) == (200, None)
    rules = front.view.control.subscription("news", "all").rules
    assert [rule.action for rule in rules if rule.name == "big"] == [None]


async def with_subscription(front: Front) -> Client:
    for change in (
        front.view.control.create_topic(TopicDescription("news")),
        front.view.control.create_subscription(SubscriptionDescription("news", "all")),
    ):
        await front.settled(change)
    return front.client()


def comparing(value: Value) -> dict[str, Value]:
    return {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": {"p": value}}}}


@pytest.mark.rule("A16")
@pytest.mark.parametrize(
    "value",
    [
        "text",
        True,
        7,
        Long(7),
        -(2**63),
        Long(2**63 - 1),
        2.5,
        UUID(int=7),
        Timestamp(1_700_000_000_123),
        Described(TIMESPAN, Long(50_000)),
    ],
    ids=repr,
)
async def test_a_rule_compares_with_the_same_value_after_a_restart_and_is_listed_with_it(
    front: Front, value: Value, tmp_path: Path
) -> None:
    client = await with_subscription(front)
    node = client.node("news/Subscriptions/all/$management")
    node.send("com.microsoft:add-rule", comparing(value))
    await front.until_answered(client)
    assert status(node.answers()[0]) == (200, None)
    path = "news/Subscriptions/all"
    (again,) = (rule for rule in Catalog.in_file(tmp_path / "catalog.db", "", 0).get(path).rules if rule.name == "r")
    (kept,) = (rule for rule in front.view.control.catalog.get(path).rules if rule.name == "r")
    assert again == kept
    assert compile_rule(again).conditions == compile_rule(comparing_with(value)).conditions
    listed = body(node.ask("com.microsoft:enumerate-rules", {"skip": Int(1), "top": Int(1)}))["rules"]
    properties = listed[0]["rule-description"].value[0].value[-1]
    assert properties == {"p": value}
    assert isinstance(properties["p"], Long) is (isinstance(value, Long) or value == -(2**63))


@pytest.mark.parametrize(
    "value", [None, [1], b"bytes", ULong(2**63), Timestamp(2**63 - 1), Decimal128(bytes(16))], ids=repr
)
async def test_a_rule_that_compares_with_what_cannot_be_kept_is_refused(front: Front, value: Value) -> None:
    client = await with_subscription(front)
    node = client.node("news/Subscriptions/all/$management")
    node.send("com.microsoft:add-rule", comparing(value))
    await front.until_answered(client)
    assert status(node.answers()[0]) == (400, "com.microsoft:argument-error")
    assert len(front.view.control.catalog.get("news/Subscriptions/all").rules) == 1


def comparing_with(value: Value) -> RuleDescription:
    return RuleDescription("r", CorrelationFilter(properties=(("p", value),)))


def test_only_subscriptions_have_rules(front: Front) -> None:
    node = front.client().node("orders/$management")
    reply = node.ask("com.microsoft:enumerate-rules", {"skip": Int(0), "top": Int(10)})
    assert status(reply) == (400, "amqp:not-allowed")


def test_a_reply_goes_to_the_link_that_the_request_names(front: Front) -> None:
    client = front.client()
    one, two = (client.receiver("orders/$management", credit=10) for _ in range(2))
    requests = client.sender("orders/$management")
    for number, link in enumerate((two, one, two)):
        request = Sections(
            properties=MessageProperties(message_id=f"{number}", reply_to=link.name),
            application_properties={"operation": "com.microsoft:peek-message"},
            body=ValueBody({}),
        )
        requests.transfer(encode_sections(request), b"%d" % number)
        client.run()
    links = [event.link for event in client.take(Deliveries)]
    assert links == [two, one, two]


def test_a_request_that_was_sent_settled_is_answered_and_not_settled_again(front: Front) -> None:
    client = front.client()
    client.receiver("orders/$management", credit=10)
    requests = client.sender("orders/$management")
    request = Sections(
        properties=MessageProperties(message_id="1"),
        application_properties={"operation": "com.microsoft:peek-message"},
        body=ValueBody({}),
    )
    for sent in (encode_sections(request), b"nonsense"):
        requests.transfer(sent, b"1", settled=True)
        client.gateway.receive(client.connection.data_to_send(), front.sim.now)
        front.sim.run()
        answered = client.gateway.data_to_send()
        assert (TRANSFER in answered) is (sent != b"nonsense")
        assert DISPOSITION not in answered


def test_replies_wait_for_credit_and_come_in_order(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    node.replies.grant(0)
    client.run()
    for _ in range(3):
        node.send("com.microsoft:peek-message", {})
    assert node.answers() == []
    node.replies.grant(2)
    client.run()
    ids = [reply.properties.correlation_id for reply in node.answers() if reply.properties]
    assert ids == ["request-1", "request-2"]


def test_a_request_without_a_reply_link_is_still_carried_out(front: Front) -> None:
    client = front.client(None)
    requests = client.sender("$cbs")
    request = Sections(
        application_properties={"operation": "put-token", "name": "sb://host/orders"},
        body=ValueBody(front.token("orders")),
    )
    requests.transfer(encode_sections(request), b"1")
    client.run()
    client.sender("orders")
    assert client.take(LinkDetached) == []


@pytest.mark.parametrize("entry", [{}, {"message": "text"}, {"message": None}])
def test_what_is_scheduled_comes_as_an_encoded_message(front: Front, entry: dict[str, Value]) -> None:
    node = front.client().node("orders/$management")
    refused = node.ask("com.microsoft:schedule-message", {"messages": [entry]})
    assert status(refused) == (400, "com.microsoft:argument-error")
    assert front.sim.entities.queue("orders").main.counts().scheduled == 0


def reply_link(client: Client, session: Session, name: str, address: str = "orders/$management") -> IncomingLink:
    """Its target's address is `to-` and its name."""
    link = session.attach(name, is_sender=False, source=Source(address=address), target=Target(address=f"to-{name}"))
    assert isinstance(link, IncomingLink)
    client.run()
    link.grant(10)
    client.run()
    return link


def replies_to(client: Client, requests: OutgoingLink, reply_to: str | None) -> list[str]:
    """The names of the links that the reply to a request comes on."""
    request = Sections(
        properties=MessageProperties(message_id="1", reply_to=reply_to),
        application_properties={"operation": "com.microsoft:peek-message"},
        body=ValueBody({}),
    )
    requests.transfer(encode_sections(request), b"1")
    client.run()
    return [event.link.name for event in client.take(Deliveries)]


@pytest.mark.parametrize(
    ("reply_to", "name"),
    [("two", "two"), ("to-two", "two"), ("one", "one"), ("nowhere", "one"), (None, "one"), ("elsewhere", "one")],
)
def test_a_reply_goes_to_the_named_link_of_the_node_or_else_to_the_first(
    front: Front, reply_to: str | None, name: str
) -> None:
    client = front.client()
    requests = client.sender("orders/$management")
    reply_link(client, client.session, "elsewhere", "talks/$management")
    for link_name in ("one", "two"):
        reply_link(client, client.session, link_name)
    assert replies_to(client, requests, reply_to) == [name]


def test_a_reply_stays_on_the_amqp_session_of_its_request(front: Front) -> None:
    client = front.client()
    requests, other = client.sender("orders/$management"), client.connection.begin()
    client.run()
    reply_link(client, other, "other")
    assert replies_to(client, requests, "other") == []
    reply_link(client, client.session, "own")
    assert replies_to(client, requests, "other") == ["own"]


def test_a_reply_link_that_is_drained_says_so_and_later_replies_wait_for_credit(front: Front) -> None:
    client = front.client()
    node = client.node("orders/$management")
    client.take(CreditChanged)
    node.replies.drain()
    client.run()
    assert [(event.link, event.drain) for event in client.take(CreditChanged)] == [(node.replies, True)]
    assert node.replies.credit == 0
    node.send("com.microsoft:peek-message", {})
    assert node.answers() == []
    node.replies.grant(1)
    client.run()
    assert len(node.answers()) == 1


def test_a_token_is_put_for_an_audience(front: Front) -> None:
    client = front.client(None)
    reply = client.node("$cbs").ask("put-token", front.token("orders"))
    assert (reply.application_properties or {})["status-code"] == 400
    client.sender("orders")
    assert len(client.take(LinkDetached)) == 1


@pytest.mark.parametrize("operation", ["schedule-message", "cancel-scheduled-message"])
def test_a_subscription_has_no_scheduled_messages_of_its_own(front: Front, operation: str) -> None:
    front.sim.topic(TopicDescription("news"))
    front.sim.subscription(SubscriptionDescription("news", "all"))
    entry = {"message-id": "m", "message": payload("a")}
    wanted: dict[str, Value] = {"messages": [entry], "sequence-numbers": Array([Long(1)])}
    reply = front.client().node("news/Subscriptions/all/$management").ask(f"com.microsoft:{operation}", wanted)
    assert status(reply) == (400, "amqp:not-allowed")


def test_whoever_waits_for_a_session_of_a_queue_that_is_disabled_meanwhile_is_refused_and_the_session_free(
    front: Front,
) -> None:
    client, session_filter = front.client(), {Symbol("com.microsoft:session-filter"): None}
    client.receiver("talks", session_filter=session_filter)
    disabled = QueueDescription("talks", requires_session=True, status=EntityStatus.RECEIVE_DISABLED)
    front.sim.entities.update(disabled, front.sim.now, lambda _: None)
    put(front, "a", "talks", group_id="s")
    client.run()
    (gone,) = client.take(LinkDetached)
    assert gone.error is not None
    assert gone.error.condition == "com.microsoft:entity-disabled"
    front.sim.entities.update(QueueDescription("talks", requires_session=True), front.sim.now, lambda _: None)
    assert client.receiver("talks", session_filter=session_filter).is_attached
