"""Receiving over HTTP: with and without a lock, waiting, and what happens to a locked message."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from tests.http.conftest import ClientWith
from tests.interop.running_server import RunningServer, wait_until
from twinbus.client.connecting.token_sources import sign
from twinbus.http.messaging import messaging_api as http_messaging


def lock(http: httpx.Client, path: str) -> httpx.Response:
    answer = http.post(f"/{path}/messages/head?timeout=5")
    assert answer.status_code == 201, answer.text
    return answer


def place_of(answer: httpx.Response) -> str:
    return httpx.URL(answer.headers["location"]).raw_path.decode()


def is_empty(http: httpx.Client, path: str) -> bool:
    return http.delete(f"/{path}/messages/head?timeout=0").status_code == 204


def test_an_empty_queue_answers_with_no_content(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("empty")
    for answer in (http.delete(f"/{queue}/messages/head?timeout=0"), http.post(f"/{queue}/messages/head?timeout=0")):
        assert (answer.status_code, answer.content) == (204, b"")


def test_a_locked_message_is_completed_at_its_location(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("complete")
    server.put(queue, "a")
    answer = lock(http, queue)
    shown = json.loads(answer.headers["BrokerProperties"])
    assert answer.headers["location"].endswith(f"/{queue}/messages/{shown['SequenceNumber']}/{shown['LockToken']}")
    assert answer.content == b"a"
    assert is_empty(http, queue)
    assert http.delete(place_of(answer)).status_code == 200
    assert server.server.entities.queue(queue).main.counts().active == 0
    assert http.delete(place_of(answer)).status_code == 404


def test_an_unlocked_message_comes_again_with_a_higher_count(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("unlock")
    server.put(queue, "a")
    assert http.put(place_of(lock(http, queue))).status_code == 200
    shown = json.loads(lock(http, queue).headers["BrokerProperties"])
    assert shown["DeliveryCount"] == 2


def test_a_lock_is_renewed_and_ends_after_its_duration(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("renew", lock_duration=60_000)
    server.put(queue, "a")
    place = place_of(lock(http, queue))
    server.clock.advance(40)
    assert http.post(place).status_code == 200
    server.clock.advance(40)
    assert http.post(place).status_code == 200
    server.clock.advance(61)
    assert http.post(place).status_code == 404
    assert http.delete(place).status_code == 404


def test_a_message_id_does_as_well_as_a_number_in_the_place_of_a_message(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("by-id")
    http.post(f"/{queue}/messages", content=b"x", headers={"BrokerProperties": '{"MessageId": "a/b c"}'})
    shown = json.loads(lock(http, queue).headers["BrokerProperties"])
    assert http.delete(f"/{queue}/messages/a%2Fb%20c/{shown['LockToken']}").status_code == 200


def test_a_receive_waits_for_a_message_that_comes_later(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("wait")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.delete, f"/{queue}/messages/head?timeout=20")
        wait_until(lambda: server.server.entities.queue(queue).main.receiver_count == 1)
        server.put(queue, "late")
        assert waiting.result(10).content == b"late"
    assert server.server.entities.queue(queue).main.receiver_count == 0


def test_a_receive_from_a_queue_that_is_deleted_meanwhile_ends_with_gone(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("deleted")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.delete, f"/{queue}/messages/head?timeout=60", timeout=60)
        wait_until(lambda: server.server.entities.queue(queue).main.receiver_count == 1)
        server.run(server.server.control.delete(queue))
        assert waiting.result(10).status_code == 410


def test_a_client_that_leaves_while_it_waits_takes_no_message(server: RunningServer, client_with: ClientWith) -> None:
    queue = server.create_queue("leave")
    main = server.server.entities.queue(queue).main
    leaving = client_with("")
    stopped = threading.Thread(target=_ask_and_fail, args=(leaving, queue))
    stopped.start()
    stopped.join(10)
    wait_until(lambda: main.receiver_count == 0)
    server.put(queue, "a")
    answer = lock(client_with(""), queue)
    assert json.loads(answer.headers["BrokerProperties"])["DeliveryCount"] == 1


def _ask_and_fail(client: httpx.Client, queue: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(f"/{queue}/messages/head?timeout=20", timeout=0.2)


def test_dead_letters_are_received_over_http(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("dead", max_delivery_count=1)
    server.put(queue, "a")
    http.put(place_of(lock(http, queue)))
    answer = lock(http, f"{queue}/$DeadLetterQueue")
    assert answer.headers["DeadLetterReason"] == '"MaxDeliveryCountExceeded"'
    assert http.delete(place_of(answer)).status_code == 200


@pytest.mark.rule("A19.4")
def test_what_was_sent_over_amqp_is_received_over_http(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("from-amqp")
    properties: Any = {"colour": "réd", "n": 5, "not a token": 1, "Content-Length": 7}
    with server.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("ab", application_properties=properties, subject="s"))
    answer = http.delete(f"/{queue}/messages/head?timeout=5")
    assert answer.content == b"ab"
    assert (answer.headers["colour"], answer.headers["n"], answer.headers["content-length"]) == (
        '"r\\u00e9d"',
        "5",
        "2",
    )
    assert json.loads(answer.headers["BrokerProperties"])["Label"] == "s"


def test_every_message_of_a_partitioned_queue_is_found(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("spread", enable_partitioning=True)
    for number in range(20):
        http.post(f"/{queue}/messages", content=str(number).encode())
    found = [http.delete(f"/{queue}/messages/head?timeout=5").content for _ in range(20)]
    assert sorted(map(int, found)) == list(range(20))
    assert is_empty(http, queue)


def test_a_queue_with_message_sessions_cannot_be_received_from_over_http(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("sessions", requires_session=True)
    assert http.post(f"/{queue}/messages/head?timeout=0").status_code == 400
    sent = http.post(f"/{queue}/messages", content=b"x", headers={"BrokerProperties": '{"SessionId": "s"}'})
    assert sent.status_code == 201


@pytest.mark.parametrize(("timeout", "status"), [("0", 204), ("-1", 400), ("x", 400), ("1.5", 400), ("²", 400)])
def test_a_timeout_is_a_whole_number_of_seconds(
    server: RunningServer, http: httpx.Client, timeout: str, status: int
) -> None:
    queue = f"timeout-{uuid4().hex}"
    server.create_queue(queue)
    assert http.delete(f"/{queue}/messages/head", params={"timeout": timeout}).status_code == status


def test_only_so_many_requests_wait_at_a_time(
    server: RunningServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_messaging, "RECEIVES_MAX", 2)
    queue = server.create_queue("crowded")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(http.delete, f"/{queue}/messages/head?timeout=20") for _ in range(2)]
        wait_until(lambda: server.server.entities.queue(queue).main.receiver_count == 2)
        assert http.delete(f"/{queue}/messages/head?timeout=0").status_code == 503
        server.put(queue, "a", "b")
        assert {each.result(10).status_code for each in waiting} == {200}
    assert http.delete(f"/{queue}/messages/head?timeout=0").status_code == 204


@pytest.mark.rule("A19.5")
def test_one_connection_serves_many_requests(server: RunningServer) -> None:
    root = server.server.root_rule
    assert server.server.http_port
    queue = server.create_queue("keep-alive")
    token = sign("sb://localhost/", root.name, root.primary_key, int(time.time()) + 600)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    base = f"http://127.0.0.1:{server.server.http_port}"
    with httpx.Client(base_url=base, headers={"Authorization": token}, limits=limits) as client:
        addresses = {
            client.post(f"/{queue}/messages", content=b"x").extensions["network_stream"].get_extra_info("client_addr")
            for _ in range(5)
        }
    assert len(addresses) == 1


def test_a_stopping_server_answers_those_who_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    running = RunningServer(tmp_path_factory.mktemp("stopping"), store_count=1)
    queue = running.create_queue("q")
    root, started = running.server.root_rule, time.monotonic()
    token = sign("sb://localhost/", root.name, root.primary_key, int(time.time()) + 600)
    url = f"http://127.0.0.1:{running.server.http_port}/{queue}/messages/head?timeout=60"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.delete, url, headers={"Authorization": token}, timeout=30)
        wait_until(lambda: running.server.entities.queue(queue).main.receiver_count == 1)
        running.stop()
        assert waiting.result(10).status_code == 204
    assert time.monotonic() - started < 5


@pytest.mark.rule("A4")
def test_a_queue_whose_store_is_down_is_not_empty_but_unavailable(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("out-of-reach")
    server.put(queue, "a")
    broker = server.server.entities.queue(queue).main.fragments[0].broker
    with ThreadPoolExecutor(1) as pool:
        http.delete(f"/{queue}/messages/head?timeout=5")
        waiting = pool.submit(http.delete, f"/{queue}/messages/head?timeout=20")
        wait_until(lambda: server.server.entities.queue(queue).main.receiver_count == 1)
        server.server.stores.stores[broker.index].down()
        assert waiting.result(10).status_code == 500
    for method in ("DELETE", "POST"):
        refused = http.request(method, f"/{queue}/messages/head?timeout=0")
        assert refused.status_code == 500
        assert f"Messaging store {broker.index} is unavailable" in refused.text
    server.server.stores.stores[broker.index].up()
    wait_until(lambda: broker.is_available)
    assert http.delete(f"/{queue}/messages/head?timeout=0").status_code == 204
