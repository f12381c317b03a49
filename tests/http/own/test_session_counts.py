"""Counts of message sessions: as a `$management` request, by the bulk client and as a page for scalers."""

from pathlib import Path

import pytest

from tests.gateway.front import Client, Front
from tests.gateway.test_nodes import body, put, status
from twinbus.amqp.codec.types import Int, Long, Symbol, Value
from twinbus.client import namespace_http
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import MessagingError
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.local_namespace import LocalNamespace

FILTER = Symbol("com.microsoft:session-filter")


@pytest.fixture(params=[False, True], ids=["ordinary", "partitioned"])
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Front:
    front = Front(tmp_path, store_count=4)
    front.sim.queue(QueueDescription("talks", requires_session=True, enable_partitioning=request.param))
    for name, count in (("b", 2), ("a", 2), ("c", 3)):
        for _ in range(count):
            put(front, "x", "talks", group_id=name)
    return front


def ask(client: Client, **arguments: Value) -> dict[str, Value]:
    return body(client.node("talks/$management").ask("com.twinbus:count-sessions", arguments))


def row(name: str, count: int, *, is_held: bool = False) -> dict[str, Value]:
    return {"session-id": name, "active-message-count": Long(count), "is-held": is_held}


def test_sessions_are_counted_those_with_most_messages_first(front: Front) -> None:
    assert ask(front.client()) == {
        "session-count": Long(3),
        "held-session-count": Long(0),
        "active-message-count": Long(7),
        "is-all": True,
        "sessions": [row("c", 3), row("a", 2), row("b", 2)],
    }


def test_a_page_is_a_part_of_the_sessions_and_the_sums_are_of_all(front: Front) -> None:
    found = ask(front.client(), skip=Int(1), top=Int(1))
    assert found["sessions"] == [row("a", 2)]
    assert (found["session-count"], found["active-message-count"]) == (3, 7)


def test_a_locked_message_counts_and_its_session_is_held(front: Front) -> None:
    client = front.client()
    client.receiver("talks", credit=1, session_filter={FILTER: "a"})
    client.received()
    found = ask(client)
    assert found["held-session-count"] == 1
    assert row("a", 2, is_held=True) in found["sessions"]


def test_a_session_without_active_messages_is_not_counted(front: Front) -> None:
    client = front.client()
    client.receiver("talks", session_filter={FILTER: "empty"})
    state = {"session-id": "empty", "session-state": b"x"}
    assert status(client.node("talks/$management").ask("com.microsoft:set-session-state", state))[0] == 200
    assert ask(client)["session-count"] == 3


def test_sessions_of_a_store_that_is_down_are_left_out_and_the_answer_says_so(front: Front) -> None:
    queue = front.sim.entities.queue("talks").main
    stores = {name: queue.sessions().place(name).broker for name in "abc"}
    front.sim.lose_store(front.sim.brokers.index(stores["c"]))
    reply = front.client().node("talks/$management").ask("com.twinbus:count-sessions", {})
    if len(queue.fragments) == 1:
        assert status(reply) == (500, "amqp:internal-error")
    else:
        left = [name for name in "ab" if stores[name] is not stores["c"]]
        assert body(reply)["sessions"] == [row(name, 2) for name in left]
        assert body(reply)["is-all"] is False


async def test_a_scaler_gets_the_counts_as_json(tmp_path: Path) -> None:
    namespace = LocalNamespace(tmp_path)
    namespace.create_queue("talks", requires_session=True)
    namespace.create_queue("orders")
    with namespace:
        async with await Namespace.connect(namespace.connection_string) as client:
            payloads = [encode_message(b"x", session_id=name) for name in ("a", "b", "b")]
            assert not any(await (await client.sender("talks")).send_batches(payloads, keeps_keys_apart=False))
            assert (await client.extras("talks").count_sessions(top=1)).page == [("b", 2, False)]

        def page(query: str) -> object:
            path = f"/$sessions{query}"
            return namespace_http.ask(namespace.connection_string, namespace.endpoint, "GET", path)

        busiest = {"session_id": "b", "active_messages": 2, "is_held": False}
        sums = {"sessions": 2, "held": 0, "active_messages": 3, "is_all": True}
        assert page("?entity=talks&top=1") == sums | {"busiest": [busiest]}
        for query, said in (
            ("", "entity=PATH"),
            ("?entity=gone", "could not be found"),
            ("?entity=orders", "no message sessions"),
            ("?entity=talks&top=-1", "'top'"),
        ):
            with pytest.raises(MessagingError, match=said):
                page(query)
