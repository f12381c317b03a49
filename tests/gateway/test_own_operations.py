"""`$management` operations of our own, over a real pair of AMQP connections."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import LISTENS, SENDS, Client, Front, NodeClient, payload, text_of
from tests.gateway.test_nodes import body, lock_one, status
from twinbus.amqp.codec.sections import decode_sections
from twinbus.amqp.codec.types import Array, Int, Long, Symbol, Timestamp, UInt
from twinbus.amqp.events import Deliveries
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.outcomes import DELAY_MAX, DeadLetter
from twinbus.gateway.requests.bulk import OWNER_LENGTH_MAX
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.model.descriptions import QueueDescription, TopicDescription
from twinbus.model.message_limits import TIMES_COUNT_MAX
from twinbus.model.packed_payloads import unpack
from twinbus.model.wire_names import SEQUENCE_BITS

NODE = "spread/$management"


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path, store_count=4)
    front.sim.queue(QueueDescription("spread", enable_partitioning=True))
    front.sim.queue(QueueDescription("orders"))
    return front


@pytest.fixture
def client(front: Front) -> Client:
    return front.client()


@pytest.fixture
def node(client: Client) -> NodeClient:
    return client.node(NODE)


def fill(client: Client, count: int, address: str = "spread") -> None:
    sender = client.sender(address)
    for number in range(count):
        sender.transfer(payload(f"m{number}"), b"%d" % number)
        client.run()
        client.front.sim.advance(1)


def claimed(node: NodeClient, count: int) -> Array:
    ranges = body(node.ask("com.twinbus:claim", {"message-count": Int(count)}))["ranges"]
    assert isinstance(ranges, Array)
    return ranges


@pytest.mark.rule("A17.5")
@pytest.mark.parametrize("operation", [name for name in HANDLERS if name.startswith("com.twinbus:")])
def test_an_operation_of_our_own_needs_the_listen_claim(front: Front, operation: str) -> None:
    refused = front.client(SENDS).node(NODE).ask(operation, {})
    assert status(refused) == (401, "amqp:unauthorized-access")
    assert status(front.client(LISTENS).node(NODE).ask(operation, {}))[0] in (200, 204, 400)


@pytest.mark.parametrize("operation", [name for name in HANDLERS if name.startswith("com.twinbus:")])
def test_a_topic_has_no_messages_to_work_on(front: Front, operation: str) -> None:
    front.sim.topic(TopicDescription("news"))
    reply = front.client().node("news/$management").ask(operation, {"ranges": Array([Long(1), Long(1)])})
    assert status(reply) == (400, "amqp:not-allowed")


@pytest.mark.rule("A12.4")
def test_a_merged_peek_pages_through_all_fragments_in_order(client: Client, node: NodeClient) -> None:
    fill(client, 20)
    found: list[str] = []
    positions: dict[int, int] = {}
    while True:
        arguments = {"message-count": Int(6), "from-sequence-numbers": Array([Long(at) for at in positions.values()])}
        reply = node.ask("com.twinbus:peek-merged", arguments if positions else {"message-count": Int(6)})
        if status(reply)[0] == 204:
            break
        for entry in body(reply)["messages"]:
            found.append(text_of(entry["message"]))
            annotations = decode_sections(entry["message"]).message_annotations or {}
            number = annotations["x-opt-sequence-number"]
            positions[number >> 48] = number + 1
    assert found == [f"m{number}" for number in range(20)]


def test_a_purge_says_how_many_messages_it_removed(client: Client, node: NodeClient) -> None:
    fill(client, 20)
    assert body(node.ask("com.twinbus:purge", {"message-count": Int(15)})) == {"message-count": 15}
    assert body(node.ask("com.twinbus:purge", {})) == {"message-count": 5}
    assert status(node.ask("com.twinbus:purge", {}))[0] == 204


def test_deleting_claimed_messages_by_their_ranges_can_be_repeated(client: Client, node: NodeClient) -> None:
    fill(client, 20)
    ranges = claimed(node, 20)
    assert len(ranges.values) == 32  # 16 fragments, one range in each
    heads = body(node.ask("com.twinbus:fragment-heads", {}))["fragments"]
    assert sum(head["deferred-message-count"] for head in heads) == 20
    assert [head["first-sequence-number"] for head in heads] == ranges.values[::2]
    for removed in (20, 0):
        assert body(node.ask("com.twinbus:delete-claimed", {"ranges": ranges})) == {"message-count": removed}


@pytest.mark.parametrize("ranges", [{"ranges": Array([Long(1)])}, {"ranges": "1-2"}, {}])
def test_ranges_come_in_pairs(node: NodeClient, ranges: dict[str, object]) -> None:
    assert status(node.ask("com.twinbus:delete-claimed", ranges)) == (400, "com.microsoft:argument-error")


def test_deferred_messages_are_active_again_by_number_or_all(client: Client, node: NodeClient) -> None:
    fill(client, 20)
    ranges = claimed(node, 20)
    some = Array(ranges.values[:4])
    count = body(node.ask("com.twinbus:undefer", {"ranges": some}))["message-count"]
    assert 2 <= count <= 4
    assert body(node.ask("com.twinbus:undefer", {}))["message-count"] == 20 - count
    client.receiver("spread", credit=50)
    assert sum(len(event.deliveries) for event in client.take(Deliveries)) == 20


def test_a_message_abandoned_with_a_delay_comes_again_after_it(client: Client) -> None:
    fill(client, 1, "orders")
    token = lock_one(client, "orders")
    arguments = {"disposition-status": "abandoned", "lock-tokens": Array([token]), "com.twinbus:delay": UInt(30_000)}
    assert status(client.node("orders/$management").ask("com.microsoft:update-disposition", arguments))[0] == 200
    client.receiver("orders", credit=1)
    client.advance(29_000)
    assert client.take(Deliveries) == []
    client.advance(2_000)
    (event,) = client.take(Deliveries)
    assert decode_sections(event.deliveries[0].payload).header is not None
    assert text_of(event.deliveries[0].payload) == "m0"


def test_a_delay_has_a_limit(client: Client) -> None:
    fill(client, 1, "orders")
    token = lock_one(client, "orders")
    arguments = {"disposition-status": "abandoned", "lock-tokens": Array([token]), "com.twinbus:delay": DELAY_MAX + 1}
    reply = client.node("orders/$management").ask("com.microsoft:update-disposition", arguments)
    assert status(reply) == (400, "com.microsoft:argument-error")


def test_a_claim_that_ends_at_a_number_names_its_fragment(client: Client, node: NodeClient) -> None:
    fill(client, 20)
    reply = node.ask("com.twinbus:claim", {"last-sequence-number": Long(1)})
    assert status(reply) == (400, "com.microsoft:argument-error")
    assert body(node.ask("com.twinbus:claim", {"fragment": Int(0), "last-sequence-number": Long(1)})) == {
        "message-count": 1,
        "ranges": Array([Long(1), Long(1)], code=0x81),
    }


def test_states_of_a_range_are_named(node: NodeClient) -> None:
    arguments = {"first-sequence-number": Long(1), "last-sequence-number": Long(5), "states": Array(["locked"])}
    assert status(node.ask("com.twinbus:peek-range", arguments)) == (400, "com.microsoft:argument-error")


def ranged(first: int, last: int, **more: object) -> dict[str, object]:
    numbers = {"first-sequence-number": Long(first), "last-sequence-number": Long(last)}
    return numbers | {name.replace("_", "-"): value for name, value in more.items()}


@pytest.mark.parametrize("with_bodies", [True, False])
def test_a_range_comes_in_pages_packed_or_not_with_or_without_bodies(client: Client, with_bodies: bool) -> None:
    fill(client, 5, "orders")
    node = client.node("orders/$management")
    wanted = {} if with_bodies else {"omit_message_body": True}
    payloads: list[bytes] = []
    for first, last, following in ((1, 2, 3), (3, 4, 5), (5, 5, None)):
        asked = ranged(first, 5, message_count=Int(2), **wanted)
        page = body(node.ask("com.twinbus:peek-range", asked))
        assert page.get("next-sequence-number") == following
        payloads = [entry["message"] for entry in page["messages"]]
        packed = body(node.ask("com.twinbus:peek-range", asked | {"packed": True}))
        assert packed.get("next-sequence-number") == following
        assert ("bodies" in packed, "body-ends" in packed) == (with_bodies, with_bodies)
        fronts = unpack(packed["fronts"], packed["front-ends"])
        bodies = unpack(packed["bodies"], packed["body-ends"]) if with_bodies else [b""] * len(fronts)
        assert [front + rest for front, rest in zip(fronts, bodies, strict=True)] == payloads
        if with_bodies:
            assert [text_of(payload) for payload in payloads] == [f"m{number}" for number in range(first - 1, last)]
        else:
            assert all(decode_sections(payload).body is None for payload in payloads)


@pytest.mark.parametrize("more", [{}, {"packed": True}])
def test_a_range_without_messages_has_no_page_and_a_filter_chooses(client: Client, more: dict[str, object]) -> None:
    fill(client, 3, "orders")
    node = client.node("orders/$management")
    assert status(node.ask("com.twinbus:peek-range", ranged(4, 9, **more)))[0] == 204
    chosen = ranged(1, 9, filter="sys.SequenceNumber = 2", **more)
    page = body(node.ask("com.twinbus:peek-range", chosen))
    assert len(unpack(page["fronts"], page["front-ends"]) if more else page["messages"]) == 1
    refused = node.ask("com.twinbus:peek-range", ranged(5, 4, **more))
    assert status(refused) == (400, "com.microsoft:argument-error")


def test_the_owner_of_a_claim_has_a_length(node: NodeClient) -> None:
    for length, code in ((OWNER_LENGTH_MAX, 204), (OWNER_LENGTH_MAX + 1, 400)):
        assert status(node.ask("com.twinbus:claim", {"owner": "o" * length}))[0] == code


def test_a_repair_needs_the_send_claim_where_the_messages_go(front: Front) -> None:
    client = front.client(LISTENS)
    range_ = {"first-sequence-number": Long(1), "last-sequence-number": Long(9)}
    node = client.node("orders/$DeadLetterQueue/$management")
    assert status(node.ask("com.twinbus:repair", range_)) == (401, "amqp:unauthorized-access")
    assert status(node.ask("com.twinbus:repair", {**range_, "destination": "spread"}))[0] == 401
    assert status(node.ask("com.twinbus:preview-repair", range_))[0] == 401
    assert status(node.ask("com.twinbus:repair", {**range_, "remove": True}))[0] == 200


def test_a_repair_in_place_needs_the_send_claim_on_that_entity_and_no_more(front: Front) -> None:
    client = front.client(None)
    for path in ("orders", "orders/$DeadLetterQueue/$management"):
        answer = client.node("$cbs").ask("put-token", front.token(path), name=f"sb://host/{path}")
        assert (answer.application_properties or {})["status-code"] == 202
    range_ = {"first-sequence-number": Long(1), "last-sequence-number": Long(9)}
    node = client.node("orders/$DeadLetterQueue/$management")
    assert status(node.ask("com.twinbus:repair", range_))[0] == 200
    assert status(node.ask("com.twinbus:repair", {**range_, "destination": "spread"}))[0] == 401


def test_a_repair_is_previewed_and_then_done(front: Front) -> None:
    client = front.client()
    fill(client, 3, "orders")
    queue = front.sim.entities.find("orders")
    assert isinstance(queue, QueueEntity)
    receiver = front.sim.receiver(queue.main, 3)
    front.sim.settle(queue.main, receiver.take(), DeadLetter("why"))
    queue.main.detach(receiver, front.sim.now)
    node = client.node("orders/$DeadLetterQueue/$management")
    wanted = {
        "first-sequence-number": Long(1),
        "last-sequence-number": Long(9),
        "filter": "sys.SequenceNumber > 1 AND DeadLetterReason = 'why'",
        "action": "SET colour = 'blue'",
    }
    previews = body(node.ask("com.twinbus:preview-repair", wanted))["previews"]
    assert [text_of(each["message"]) for each in previews] == ["m1", "m2"]
    after = [decode_sections(each["repaired"]).application_properties for each in previews]
    assert after == [{"colour": "blue"}] * 2
    done = body(node.ask("com.twinbus:repair", wanted))
    assert (done["message-count"], done["examined-count"], done["refused-count"]) == (2, 3, 0)
    assert (queue.main.counts().active, queue.dead_letter.counts().active) == (2, 1)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"first-sequence-number": Long(1)},
        {"sequence-numbers": Array([])},
        {"first-sequence-number": Long(1), "last-sequence-number": Long(2), "filter": "a ="},
        {"first-sequence-number": Long(1), "last-sequence-number": Long(2), "filter": Int(1)},
        {"first-sequence-number": Long(1), "last-sequence-number": Long(2), "states": Array(["gone"])},
    ],
)
def test_a_repair_with_wrong_arguments_is_refused(client: Client, wanted: dict[str, object]) -> None:
    node = client.node("orders/$DeadLetterQueue/$management")
    assert status(node.ask("com.twinbus:repair", wanted)) == (400, "com.microsoft:argument-error")


def test_the_times_of_messages_are_found_by_their_numbers(client: Client) -> None:
    fill(client, 3, "orders")
    start = client.front.sim.now - 3
    node = client.node("orders/$management")
    asked = {"sequence-numbers": Array([Long(2), Long(1), Long(9)])}
    found = body(node.ask("com.twinbus:enqueued-times", asked))
    assert found == {
        "sequence-numbers": Array([Long(2), Long(1), Long(-1)], code=0x81),
        "enqueued-times": Array([Timestamp(start + 1), Timestamp(start), Timestamp(0)], code=0x83),
    }
    too_many = {"sequence-numbers": Array([Long(1)] * (TIMES_COUNT_MAX + 1))}
    for wrong in (too_many, {"sequence-numbers": Array([])}, {}):
        assert status(node.ask("com.twinbus:enqueued-times", wrong)) == (400, "com.microsoft:argument-error")


def sessions_node(client: Client, **counts: int) -> NodeClient:
    """Of a queue with message sessions, each with so many messages."""
    client.front.sim.queue(QueueDescription("talks", requires_session=True))
    sender = client.sender("talks")
    for session_id, count in counts.items():
        for _ in range(count):
            sender.transfer(payload("m", group_id=session_id), b"1")
    client.run()
    return client.node("talks/$management")


def test_sessions_are_counted_those_with_most_messages_first_and_in_pages(client: Client) -> None:
    node = sessions_node(client, a=1, b=3, c=2)
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "c"})
    sums = {"session-count": 3, "held-session-count": 1, "active-message-count": 6, "is-all": True}
    page = [
        {"session-id": name, "active-message-count": count, "is-held": name == "c"}
        for name, count in (("b", 3), ("c", 2), ("a", 1))
    ]
    for asked, shown in (
        ({}, page),
        ({"skip": Int(1)}, page[1:]),
        ({"skip": Int(-1), "top": Int(0)}, page[:1]),
        ({"skip": Int(1), "top": Int(1)}, page[1:2]),
    ):
        assert body(node.ask("com.twinbus:count-sessions", asked)) == {**sums, "sessions": shown}


def test_sessions_are_listed_by_name_in_pages_and_by_when_their_state_was_set(client: Client) -> None:
    node = sessions_node(client, b=1, a=1, c=1)

    def names(**asked: object) -> object:
        reply = node.ask("com.microsoft:get-message-sessions", {key.replace("_", "-"): asked[key] for key in asked})
        return (body(reply)["skip"], body(reply)["sessions-ids"].values) if status(reply)[0] == 200 else status(reply)

    nothing = (204, "com.microsoft:session-not-found")
    assert names() == (3, ["a", "b", "c"])
    assert names(top=Int(2)) == (2, ["a", "b"])
    assert names(skip=Int(2), top=Int(2)) == (3, ["c"])
    assert names(skip=Int(-5), top=Int(-5)) == (1, ["a"])
    assert names(skip=Int(3)) == nothing
    last_of_all, before = Timestamp(253_402_300_799_999), client.front.sim.now - 1
    assert names(last_updated_time=last_of_all) == (3, ["a", "b", "c"])
    assert names(last_updated_time=Timestamp(before)) == nothing
    client.receiver("talks", session_filter={Symbol("com.microsoft:session-filter"): "b"})
    node.ask("com.microsoft:set-session-state", {"session-id": "b", "session-state": b"x"})
    assert names(last_updated_time=Timestamp(before)) == (1, ["b"])
    assert names(last_updated_time=Timestamp(client.front.sim.now)) == nothing


def test_a_backlog_is_counted_by_destination_and_in_pages(client: Client) -> None:
    client.front.sim.queue(QueueDescription("x/x-servicebus-transfer/0"))
    sender = client.sender("x/x-servicebus-transfer/0")
    for text, to in (("1", "orders"), ("22", "orders"), ("333", "spread")):
        sender.transfer(payload(text, to=to), b"1")
    client.run()
    node = client.node("x/x-servicebus-transfer/0/$management")
    whole = body(node.ask("com.twinbus:backlog", {}))
    assert set(whole) == {"destinations"}
    assert sum(share["message-count"] for share in whole["destinations"]) == 3
    assert sum(share["size-in-bytes"] for share in whole["destinations"]) > 0
    page = body(node.ask("com.twinbus:backlog", {"message-count": Int(2)}))
    assert page["next-sequence-number"] == 3
    rest = body(node.ask("com.twinbus:backlog", {"from-sequence-number": Long(3)}))
    assert [share["message-count"] for share in rest["destinations"]] == [1]
    assert status(node.ask("com.twinbus:backlog", {"from-sequence-number": Long(4)}))[0] == 204


def test_deferred_messages_are_deleted_as_they_are_received_by_number_if_asked(client: Client) -> None:
    fill(client, 2, "orders")
    node = client.node("orders/$management")
    client.receiver("orders", credit=2)
    tokens = [UUID(bytes_le=each.delivery_tag) for each in client.received()]
    node.ask("com.microsoft:update-disposition", {"disposition-status": "defered", "lock-tokens": Array(tokens)})
    asked = {"sequence-numbers": Array([Long(2), Long(1)]), "receiver-settle-mode": UInt(0)}
    entries = body(node.ask("com.microsoft:receive-by-sequence-number", asked))["messages"]
    assert [text_of(entry["message"]) for entry in entries] == ["m1", "m0"]
    for entry in entries:
        assert set(entry) == {"message"}
        annotations = decode_sections(entry["message"]).message_annotations or {}
        assert annotations["x-opt-message-state"] == 1
        assert "x-opt-locked-until" not in annotations
    assert client.front.sim.entities.queue("orders").main.counts().deferred == 0


def test_deferred_messages_received_by_number_are_locked_and_say_until_when(client: Client) -> None:
    fill(client, 1, "orders")
    node = client.node("orders/$management")
    token = lock_one(client, "orders")
    node.ask("com.microsoft:update-disposition", {"disposition-status": "defered", "lock-tokens": Array([token])})
    (entry,) = body(node.ask("com.microsoft:receive-by-sequence-number", {"sequence-numbers": Array([Long(1)])}))[
        "messages"
    ]
    annotations = decode_sections(entry["message"]).message_annotations or {}
    assert annotations["x-opt-locked-until"] == client.front.sim.now + 60_000
    assert annotations["x-opt-message-state"] == 1
    settled = {"disposition-status": "completed", "lock-tokens": Array([entry["lock-token"]])}
    assert status(node.ask("com.microsoft:update-disposition", settled))[0] == 200


def test_the_head_of_each_fragment_says_what_is_in_it(client: Client) -> None:
    fill(client, 3, "orders")
    node = client.node("orders/$management")
    token = lock_one(client, "orders")
    node.ask("com.microsoft:update-disposition", {"disposition-status": "defered", "lock-tokens": Array([token])})
    lock_one(client, "orders")
    completed = {"disposition-status": "completed", "lock-tokens": Array([token])}
    node.ask("com.microsoft:update-disposition", completed)
    (head,) = body(node.ask("com.twinbus:fragment-heads", {}))["fragments"]
    counts = client.front.sim.entities.queue("orders").main.counts()
    assert head == {
        "fragment": 0,
        "store": client.front.sim.entities.queue("orders").main.fragments[0].broker.index,
        "is-available": True,
        "first-sequence-number": 1,
        "last-sequence-number": 3,
        "active-message-count": 2,
        "deferred-message-count": 1,
        "scheduled-message-count": 0,
        "size-in-bytes": counts.size_bytes,
    }


def test_a_repair_says_what_it_did_and_where_to_go_on(client: Client) -> None:
    fill(client, 4, "orders")
    client.receiver("orders", credit=1)
    node = client.node("orders/$management")
    client.take(Deliveries)
    first = body(node.ask("com.twinbus:repair", ranged(1, 9, message_count=Int(2), destination="spread")))
    assert first == {
        "message-count": 1,
        "examined-count": 2,
        "held-count": 1,
        "refused-count": 0,
        "refusals": [],
        "next-sequence-number": 3,
    }
    named = {"sequence-numbers": Array([Long(4)]), "remove": True}
    assert body(node.ask("com.twinbus:repair", named))["message-count"] == 1
    counts = client.front.sim.entities.queue("orders").main.counts()
    assert counts.active == 2


def operations(client: Client) -> list[tuple[str, int, int]]:
    """Cause, operations and messages of each row since the last time."""
    return [(row.cause.value, row.operations, row.messages) for row in client.front.book.take_all()]


def test_our_own_operations_are_billed_by_what_they_did(client: Client) -> None:
    fill(client, 6, "orders")
    node = client.node("orders/$management")
    operations(client)
    ranges = {"ranges": claimed_from(node, 4)}
    assert operations(client) == [("receive", 4, 4)]
    node.ask("com.twinbus:delete-claimed", ranges)
    assert operations(client) == [("settle", 4, 4)]
    node.ask("com.twinbus:delete-claimed", ranges)
    assert operations(client) == []
    node.ask("com.twinbus:repair", ranged(5, 6, remove=True))
    assert sorted(operations(client)) == [("management", 1, 0), ("settle", 2, 2)]
    node.ask("com.twinbus:claim", {"message-count": Int(4)})
    assert operations(client) == [("empty_receive", 1, 0)]


def test_claims_and_removals_are_billed_where_their_messages_lie(client: Client, node: NodeClient) -> None:
    fill(client, 5)
    client.front.book.take_all()
    ranges = claimed_from(node, 5)
    fragments = sorted(first >> SEQUENCE_BITS for first in ranges.values[::2])
    assert len(set(fragments)) == 5
    found = sorted((row.cause.value, row.fragment) for row in client.front.book.take_all())
    assert found == [("receive", fragment) for fragment in fragments]
    node.ask("com.twinbus:delete-claimed", {"ranges": ranges})
    found = sorted((row.cause.value, row.fragment) for row in client.front.book.take_all())
    assert found == [("settle", fragment) for fragment in fragments]


def claimed_from(node: NodeClient, count: int) -> Array:
    ranges = body(node.ask("com.twinbus:claim", {"message-count": Int(count)}))["ranges"]
    assert isinstance(ranges, Array)
    return ranges


@pytest.mark.parametrize("packed", [False, True])
def test_each_message_of_a_page_is_billed_as_a_peek_of_its_size(client: Client, packed: bool) -> None:
    fill(client, 3, "orders")
    client.sender("orders").transfer(payload("x" * 100_000), b"large")
    client.run()
    node = client.node("orders/$management")
    client.front.book.take_all()
    node.ask("com.twinbus:peek-range", ranged(1, 4, packed=packed))
    found = client.front.book.take_all()
    assert {(row.cause.value, row.fragment) for row in found} == {("peek", 0)}
    assert sum(row.operations for row in found) == sum(row.messages for row in found) == 4
    assert sum(row.units for row in found) == 3 + 2
    assert sum(row.size for row in found) > 100_000
    node.ask("com.twinbus:peek-range", ranged(9, 9, packed=packed))
    (row,) = client.front.book.take_all()
    assert (row.cause.value, row.operations, row.messages, row.units) == ("peek", 1, 0, 1)


def test_a_preview_says_why_a_message_would_stay(client: Client) -> None:
    fill(client, 1, "orders")
    node = client.node("orders/$management")
    wanted = ranged(1, 9, action="SET sys.MessageId = ''", destination="spread")
    (preview,) = body(node.ask("com.twinbus:preview-repair", wanted))["previews"]
    assert set(preview) == {"message", "refusal"}
    page = body(node.ask("com.twinbus:repair", wanted))
    assert (page["message-count"], page["refused-count"]) == (0, 1)
    assert page["refusals"] == [{"sequence-number": 1, "reason": preview["refusal"]}]
