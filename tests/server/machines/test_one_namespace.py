"""Three machines serve one namespace: any client may be connected to any of them, and what one had, others take over."""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.server.machines.machines import STORES, Node, until
from tests.server.served_on_postgres import Served
from twinbus.cli.app import run

pytestmark = pytest.mark.timeout(600)
PARTS, PLAIN = "parts", "plain"
DEPLOY = Path(__file__).parents[3] / "deploy"


class Machines:
    """Three nodes; a test that ends one finds all of them again in the next."""

    def __init__(self, folder: Path, dsn: str, namespace: str) -> None:
        self.folder, self.dsn, self.namespace = folder, dsn, namespace
        self.nodes: dict[str, Node] = {}

    def all(self) -> list[Node]:
        missing = [name for name in ("a", "b", "c") if name not in self.nodes or not self.nodes[name].is_serving]
        for name in missing:
            options = ("--queue", f"{PARTS}:partitioned", "--queue", PLAIN)
            self.nodes[name] = Node(self.folder, self.dsn, self.namespace, name, *options)
        for name in missing:
            self.nodes[name].ready()
        return [self.nodes[name] for name in ("a", "b", "c")]

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, postgres_dsn: str) -> Iterator[Machines]:
    machines = Machines(tmp_path_factory.mktemp("machines"), postgres_dsn, f"machines{os.getpid()}")
    try:
        yield machines
    finally:
        machines.stop()


@pytest.fixture
def nodes(machines: Machines) -> list[Node]:
    return machines.all()


def send(node: Node, queue: str, *bodies: str, session_id: str | None = None) -> None:
    with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, session_id=session_id))


def receive(node: Node, queue: str, count: int) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while len(found) < count and (messages := receiver.receive_messages(count, max_wait_time=20)):
            for message in messages:
                found.append(str(message))
                receiver.complete_message(message)
    return found


def listed(node: Node, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The nodes by name, as this one sees them."""
    capsys.readouterr()
    assert run(["node", "list", "--connection-string", node.connection_string, "--json"]) == 0
    return {node["name"]: node for node in json.loads(capsys.readouterr().out)}


def test_a_name_belongs_to_one_node_and_a_process_without_one_waits(
    nodes: list[Node], machines: Machines, tmp_path: Path
) -> None:
    second = Node(tmp_path / "second", machines.dsn, machines.namespace, "a")
    spare = Served(tmp_path / "spare", machines.dsn, machines.namespace, stores=STORES)
    try:
        spare.wait_log("waiting_as_spare")
        assert second.wait() == 2
        assert "A node 'a' of this namespace runs already" in second.log
        assert sum(nodes[0].owners().values()) == STORES
    finally:
        spare.kill()
        second.kill()


def test_an_operator_sees_the_nodes_and_moves_a_store(nodes: list[Node], capsys: pytest.CaptureFixture[str]) -> None:
    a, b, _ = nodes
    given = ("--connection-string", b.connection_string)
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        found.update(listed(b, capsys))
        stores = sorted(store for node in found.values() for store in node["stores"])
        is_reached = all(node["is_reached"] for node in found.values())
        return sorted(found) == ["a", "b", "c"] and is_reached and stores == list(range(STORES))

    until(is_whole, b.log)
    # Whoever comes first takes what has no owner, so any of them may have none yet.
    owner = next(name for name, node in found.items() if node["stores"])
    target = b if owner != "b" else a
    store = found[owner]["stores"][0]
    send(a, PARTS, *(f"moved{number}" for number in range(12)))
    assert run(["store", "move", str(store), "--to", target.name, *given]) == 0
    until(lambda: store in listed(b, capsys)[target.name]["stores"], a.log + b.log)
    assert len(set(receive(a, PARTS, 12))) == 12
    capsys.readouterr()
    for unknown in (["store", "move", str(store), "--to", "nobody"], ["node", "drain", "nobody"]):
        assert run([*unknown, *given]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "No node 'nobody' serves" in line
    assert run(["store", "move", str(STORES), "--to", "b", *given]) == 2
    until(lambda: f'node="{target.name}",peer="c"' in target.metrics(), target.log)
    metrics = target.metrics()
    dashboard = (DEPLOY / "grafana/twinbus-nodes.json").read_text()
    for name in set(re.findall(r"twinbus_[a-z_]+(?=\{)", dashboard)):
        assert f"\n{name}{{" in metrics
    for metric in (
        f'twinbus_store_epoch{{namespace="{a.namespace}",node="{target.name}",store="{store:02}"}}',
        "twinbus_store_lease_seconds",
        "twinbus_node_takeovers_total",
        "twinbus_node_sent_bytes_total",
    ):
        assert metric in metrics
    assert run(["store", "move", str(store), *given]) == 0


def test_a_node_that_stood_still_finds_its_stores_taken_and_serves_on_as_a_front(nodes: list[Node]) -> None:
    a, b, c = nodes
    send(a, PLAIN, "one")
    a.freeze()
    until(lambda: f"process {a.pid}" not in " ".join(b.owners()) and sum(b.owners().values()) == STORES, b.log)
    send(b, PLAIN, "two")
    a.thaw()
    until(lambda: sum(a.owners().values()) == STORES, a.log)
    send(a, PLAIN, "three")
    assert sorted(receive(c, PLAIN, 3)) == ["one", "three", "two"]
    until(lambda: "event=node_was_taken_for_dead" in a.log, a.log)


def test_a_node_that_another_process_has_replaced_meanwhile_ends_and_leaves_its_lines_to_that_one(
    nodes: list[Node], machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, _ = nodes
    a.freeze()
    second = Node(tmp_path / "second", machines.dsn, machines.namespace, "a")
    try:
        second.ready()
        a.thaw()
        assert a.wait() == 1
        assert "event=node_replaced" in a.log
        assert "Another process has the place of node 'a' now" in a.log
        until(lambda: all(node["is_reached"] for node in listed(b, capsys).values()), second.log + b.log)
        assert f"process {second.pid}" in listed(b, capsys)["a"]["process"]
    finally:
        second.kill()


def test_a_frozen_node_does_not_keep_the_others_from_saying_to_a_balancer_that_they_are_ready(
    nodes: list[Node],
) -> None:
    a, b, c = nodes
    a.freeze()
    for node in (b, c):
        began = time.monotonic()
        assert node.page("/ready")["status"] == "ready"
        # Its line is given up after two seconds, and a balancer waits for one.
        assert time.monotonic() - began < 1
    a.thaw()


def test_three_machines_serve_one_namespace_and_outlive_one_of_them(
    nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = nodes
    assert a.page("/ready")["status"] == "ready"
    # Any client may be connected to any node.
    for node in nodes:
        send(node, PARTS, *(f"{node.name}{number}" for number in range(8)))
        send(node, PLAIN, node.name)
    assert sorted(receive(b, PLAIN, 3)) == ["a", "b", "c"]
    assert len(set(receive(c, PARTS, 24))) == 24
    # A change at one node is known to all of them when it is answered.
    assert run(["queue", "create", "later", "--connection-string", b.connection_string]) == 0
    send(c, "later", "hello")
    assert receive(a, "later", 1) == ["hello"]
    # One is killed: what it had is there again, and sending without a key never stops.
    send(c, PARTS, *(f"kept{number}" for number in range(12)))
    a.kill()
    began, failures, sent = time.monotonic(), 0, 0
    with (
        ServiceBusClient.from_connection_string(c.connection_string, retry_total=0) as client,
        client.get_queue_sender(PARTS) as sender,
    ):
        while sum(c.owners().values()) < STORES or sent < 50:
            try:
                sender.send_messages(ServiceBusMessage(f"during{sent}"))
                sent += 1
            except ServiceBusError:
                failures += 1
            assert time.monotonic() - began < 240
    # A machine that is too busy to beat in time is not what this is about.
    was_busy = any(sign in b.log + c.log for sign in ("has been silent", "event=store_lost"))
    assert failures == 0 or was_busy
    assert f"process {a.pid}" not in " ".join(c.owners())
    # An operator finds out who is missing.
    assert {name: node["state"] for name, node in listed(b, capsys).items()} == {
        "a": "gone",
        "b": "serving",
        "c": "serving",
    }
    assert run(["node", "drain", "a", "--connection-string", b.connection_string]) == 2
    assert run(["store", "move", "0", "--to", "a", "--connection-string", b.connection_string]) == 2
    found = receive(b, PARTS, 12 + sent)
    assert {f"kept{number}" for number in range(12)} | {f"during{number}" for number in range(sent)} == set(found)
    # What the log of those who took over tells.
    story = b.log + c.log
    for event in ("event=line_broken node=a", "event=nodes_changed gone=a", "event=taking_store", "event=store_taken"):
        assert event in story
    assert 'former="node a, ' in story


def conditions(node: Node, capsys: pytest.CaptureFixture[str]) -> dict[int, str]:
    """Of the stores that are not up, by what the operator is told at this node."""
    capsys.readouterr()
    assert run(["store", "list", "--connection-string", node.connection_string, "--json"]) == 0
    listed = {store["index"]: store["condition"] for store in json.loads(capsys.readouterr().out)}
    return {index: condition for index, condition in listed.items() if condition != "up"}


def test_a_store_that_is_switched_off_stays_off_at_every_node_over_restarts_and_takeovers(
    nodes: list[Node], machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    _, b, c = nodes
    until(lambda: sum(b.owners().values()) == STORES, b.log)
    send(b, PARTS, *(f"off{number}" for number in range(24)))
    owner, store = next((name, node["stores"][0]) for name, node in listed(b, capsys).items() if node["stores"])
    asked = b if owner != "b" else c
    assert run(["store", "down", str(store), "--connection-string", asked.connection_string]) == 0
    for node in nodes:
        assert conditions(node, capsys) == {store: "down"}
        assert node.page("/health")["unhealthy_stores"] == {str(store): "down"}
    machines.nodes[owner].kill()
    left = [node for node in nodes if node.name != owner]
    until(lambda: sum(left[0].owners().values()) == STORES - 1, left[0].log)
    assert [conditions(node, capsys) for node in left] == [{store: "down"}] * 2
    # Also a node that was not there when it was switched off, and those that were not asked.
    nodes = machines.all()
    assert [conditions(node, capsys) for node in nodes] == [{store: "down"}] * 3
    assert run(["store", "up", str(store), "--connection-string", machines.nodes[owner].connection_string]) == 0
    until(lambda: not any(conditions(node, capsys) for node in nodes), b.log)
    assert set(receive(nodes[0], PARTS, 24)) == {f"off{number}" for number in range(24)}


def test_a_node_that_reaches_no_store_that_is_up_is_not_ready(
    nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--connection-string", nodes[0].connection_string)
    until(lambda: sum(nodes[0].owners().values()) == STORES, nodes[0].log)
    assert run(["store", "down", "--all", *given]) == 0
    for node in nodes:
        until(lambda node=node: node.page("/ready")["status"] == "not ready", node.log)  # type: ignore[misc]
        assert node.page("/ready")["reason"] == "this node reaches no messaging store that is up"
    assert run(["store", "up", *given]) == 0
    for node in nodes:
        until(lambda node=node: node.page("/ready")["status"] == "ready", node.log)  # type: ignore[misc]


def test_a_node_that_is_stopped_hands_its_stores_over_first(
    nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, _ = nodes
    assert a.stop() == 0
    assert f"process {a.pid}" not in " ".join(b.owners())
    until(lambda: sum(b.owners().values()) == STORES, b.log)
    log = a.log
    assert log.index("event=drained") < log.index("event=stopped")
    # It left in good order, and nobody misses it once the register has been read again.
    until(lambda: sorted(listed(b, capsys)) == ["b", "c"], b.log)


def test_a_store_that_was_given_to_a_node_does_not_come_back_to_it_while_that_one_leaves(
    nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody would have it until all know that the node is about to end."""
    a, b, c = nodes
    given = ("--connection-string", b.connection_string)
    for store in range(STORES):
        assert run(["store", "move", str(store), "--to", "a", *given]) == 0
    until(lambda: len(listed(b, capsys)["a"]["stores"]) == STORES, b.log + c.log)
    before = [node.log for node in (b, c)]
    assert a.stop() == 0
    until(lambda: sum(b.owners().values()) == STORES, b.log)
    for node, known in zip((b, c), before, strict=True):
        assert "event=moving_store" not in node.log.removeprefix(known)
    assert a.log.count("event=store_moved") >= STORES
    for store in range(STORES):
        assert run(["store", "move", str(store), *given]) == 0
