"""`$management` operations of our own, over a real pair of AMQP connections."""

from pathlib import Path

import pytest

from tests.gateway.front import LISTENS, SENDS, Client, Front, NodeClient, payload, text_of
from tests.gateway.test_nodes import body, lock_one, status
from twinbus.amqp.codec.sections import decode_sections
from twinbus.amqp.codec.types import Array, Int, Long, UInt
from twinbus.amqp.events import Deliveries
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.outcomes import DELAY_MAX, DeadLetter
from twinbus.gateway.requests.bulk import OWNER_LENGTH_MAX
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.model.descriptions import QueueDescription, TopicDescription
from twinbus.model.packed_payloads import unpack

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
