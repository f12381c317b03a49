"""Sending over HTTP: what a message becomes, one by one and in batches."""

import json
from typing import Any

import httpx
import pytest

from tests.interop.running_server import RunningServer, wait_until

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


def take(http: httpx.Client, path: str) -> tuple[httpx.Response, dict[str, Any]]:
    answer = http.delete(f"/{path}/messages/head?timeout=5")
    assert answer.status_code == 200, answer.text
    return answer, json.loads(answer.headers["BrokerProperties"])


def test_a_message_is_received_as_it_was_sent(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("as-sent")
    broker = {
        "MessageId": "m1",
        "SessionId": "s1",
        "PartitionKey": "s1",
        "Label": "lab",
        "CorrelationId": "c",
        "To": "there",
        "ReplyTo": "here",
        "ReplyToSessionId": "rs",
        "TimeToLive": 90,
        "ViaPartitionKey": "v",
        "SomethingElse": 5,
    }
    headers = {"BrokerProperties": json.dumps(broker), "Content-Type": "text/plain", "Priority": '"High"'}
    assert http.post(f"/{queue}/messages", content=b"body", headers=headers).status_code == 201
    answer, shown = take(http, queue)
    assert answer.content == b"body"
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["Priority"] == '"High"'
    assert {name: shown[name] for name in broker if name != "SomethingElse"} == {
        name: value for name, value in broker.items() if name != "SomethingElse"
    }
    assert (shown["DeliveryCount"], shown["State"], shown["SequenceNumber"]) == (1, "Active", 1)
    assert "LockToken" not in shown


def test_headers_become_properties_of_their_type_for_receivers_over_amqp(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("typed")
    headers = {
        "Priority": "High",
        "Quoted": '"a \\"b\\""',
        "Count": "12",
        "Ratio": "1.5",
        "IsIt": "true",
        "At": '"Sun, 06 Nov 1994 08:49:37 GMT"',
        "Uml": '"\\u00fc"',
    }
    http.post(f"/{queue}/messages", content=b"x", headers=headers)
    with server.client() as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        given: Any = message.application_properties
        found = {key.decode(): value for key, value in given.items()}
    at = found.pop("At")
    assert found == {
        "Priority": b"High",
        "Quoted": b'a "b"',
        "Count": 12,
        "Ratio": 1.5,
        "IsIt": True,
        "Uml": "ü".encode(),
    }
    assert at.timestamp() == 784_111_777 if hasattr(at, "timestamp") else at == 784_111_777_000


def test_a_batch_is_sent_whole(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("batched")
    batch = [
        {"Body": "first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "second", "UserProperties": {"Priority": "Low", "n": 3, "none": None}},
        {"Body": "AP8=", "IsBodyBase64": True, "ContentType": "application/octet-stream"},
    ]
    assert http.post(f"/{queue}/messages", json=batch, headers=BATCH).status_code == 201
    first, shown = take(http, queue)
    assert (first.content, shown["Label"], shown["TimeToLive"]) == (b"first", "M1", 40.0)
    second, _ = take(http, queue)
    assert (second.content, second.headers["priority"], second.headers["n"], second.headers["none"]) == (
        b"second",
        '"Low"',
        "3",
        "null",
    )
    third, _ = take(http, queue)
    assert (third.content, third.headers["content-type"]) == (b"\x00\xff", "application/octet-stream")


def test_a_batch_with_one_bad_message_sends_none(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("all-or-none")
    batch = [{"Body": "good"}, {"Body": "bad", "BrokerProperties": {"MessageId": "x" * 129}}]
    assert http.post(f"/{queue}/messages", json=batch, headers=BATCH).status_code == 400
    assert http.delete(f"/{queue}/messages/head?timeout=0").status_code == 204


def test_a_batch_that_is_too_large_is_read_no_further(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("too-large")
    batch = [*[{"Body": "x" * 100_000}] * 3, {"Body": "bad", "BrokerProperties": 1}]
    assert http.post(f"/{queue}/messages", json=batch, headers=BATCH).status_code == 403
    assert http.post(f"/{queue}/messages", json=batch[1:], headers=BATCH).status_code == 400


def test_a_batch_of_different_keys_is_refused_by_a_partitioned_queue(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("by-key", enable_partitioning=True)
    batch = [{"Body": key, "BrokerProperties": {"PartitionKey": key}} for key in ("order-1", "order-2")]
    assert http.post(f"/{queue}/messages", json=batch, headers=BATCH).status_code == 400
    assert http.post(f"/{queue}/messages", json=batch[:1] * 2, headers=BATCH).status_code == 201


def test_a_scheduled_message_is_not_there_before_its_time(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("later")
    broker = json.dumps({"ScheduledEnqueueTimeUtc": "Fri, 01 Jan 2100 00:00:00 GMT"})
    assert http.post(f"/{queue}/messages", content=b"x", headers={"BrokerProperties": broker}).status_code == 201
    assert http.delete(f"/{queue}/messages/head?timeout=0").status_code == 204
    assert server.server.entities.queue(queue).main.counts().scheduled == 1


def test_a_topic_takes_messages_and_its_subscription_gives_them(server: RunningServer, http: httpx.Client) -> None:
    topic = server.create_topic("news", "all")
    assert http.post(f"/{topic}/messages", content=b"x").status_code == 201
    answer, _ = take(http, f"{topic}/subscriptions/all")
    assert answer.content == b"x"
    assert http.post(f"/{topic}/subscriptions/all/messages", content=b"x").status_code == 400
    assert http.delete(f"/{topic}/messages/head?timeout=0").status_code == 400


def test_a_name_with_a_slash_is_found_written_either_way(server: RunningServer, http: httpx.Client) -> None:
    server.create_queue("a/messages/b")
    assert http.post("/a/messages/b/messages", content=b"1").status_code == 201
    assert http.post("/A%2Fmessages%2Fb/Messages", content=b"2").status_code == 201
    assert take(http, "a/messages/b")[0].content == b"1"


SIZE_MAX = 256 * 1024
ENVELOPE = 17  # what AMQP adds to a large body and the id "m"


@pytest.mark.parametrize(("size", "status"), [(SIZE_MAX - ENVELOPE, 201), (SIZE_MAX - ENVELOPE + 1, 403)])
def test_a_message_is_taken_up_to_the_limit_of_its_size(
    server: RunningServer, http: httpx.Client, size: int, status: int
) -> None:
    queue = server.create_queue(f"large-{size}")
    headers = {"BrokerProperties": json.dumps({"MessageId": "m"})}
    answer = http.post(f"/{queue}/messages", content=b"x" * size, headers=headers)
    assert answer.status_code == status, answer.text


def test_the_limit_is_that_of_the_queue(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("large-ones", max_message_size_kb=2_048)
    headers = {"BrokerProperties": json.dumps({"MessageId": "m"})}
    size_max = 2_048 * 1024 - ENVELOPE
    assert http.post(f"/{queue}/messages", content=bytes(size_max), headers=headers).status_code == 201
    for excess in (1, 1_000_000):
        answer = http.post(f"/{queue}/messages", content=bytes(size_max + excess), headers=headers)
        assert answer.status_code == 403
    assert len(http.delete(f"/{queue}/messages/head?timeout=5").content) == size_max


def test_a_batch_has_at_most_one_megabyte_however_large_a_message_may_be(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("large-batches", max_message_size_kb=2_048)
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    for size, status in ((500_000, 201), (600_000, 403)):
        answer = http.post(f"/{queue}/messages", json=[{"Body": "x" * size}] * 2, headers=headers)
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(("length", "status"), [(128, 201), (129, 400)])
@pytest.mark.parametrize("name", ["MessageId", "SessionId", "PartitionKey"])
def test_ids_and_keys_have_at_most_128_characters(
    server: RunningServer, http: httpx.Client, name: str, length: int, status: int
) -> None:
    queue = server.create_queue(f"ids-{name}-{length}")
    headers = {"BrokerProperties": json.dumps({name: "i" * length})}
    assert http.post(f"/{queue}/messages", content=b"x", headers=headers).status_code == status


def test_a_full_queue_refuses_with_the_status_for_quotas(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("full")
    main = server.server.entities.queue(queue).main
    # A queue is never smaller than a gigabyte: what it holds is told to it.
    main.fragments[0].tally.size_bytes += 1024 * 1024 * 1024
    answer = http.post(f"/{queue}/messages", content=b"x")
    main.fragments[0].tally.size_bytes -= 1024 * 1024 * 1024
    assert answer.status_code == 403
    assert "<Code>403</Code>" in answer.text


def test_only_what_is_pinned_to_a_store_that_is_down_is_refused(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("partly-down", enable_partitioning=True)
    broker = server.server.entities.queue(queue).main.fragments[11].broker  # where order-2 belongs
    store = server.server.stores.stores[broker.index]
    store.down()
    wait_until(lambda: not broker.is_available)
    pinned = {"BrokerProperties": json.dumps({"PartitionKey": "order-2"})}
    refused = http.post(f"/{queue}/messages", content=b"x", headers=pinned)
    # Not 503, which asks clients to slow down, and which no paired sender fails over for.
    assert refused.status_code == 500
    assert "50000" in refused.text
    assert {http.post(f"/{queue}/messages", content=b"x").status_code for _ in range(16)} == {201}
    assert {http.delete(f"/{queue}/messages/head?timeout=1").status_code for _ in range(16)} == {200}
    store.up()
    wait_until(lambda: broker.is_available)
    assert http.post(f"/{queue}/messages", content=b"x", headers=pinned).status_code == 201
