"""A namespace on a disk that fills up: senders are refused, receivers empty it, and then everything goes on. A disk of its own needs
root."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusServerBusyError

from tests.attack.served_namespace import served
from twinbus.cli.app import run
from twinbus.management.catalog import Catalog
from twinbus.server.data.data_folder import DataFolder, open_store

DISK_MB = 96
BODY = b"x" * 100_000
PATIENCE_S = 60.0
MAKE_ROOM_S = 5.0
REFUSALS = 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.parametrize("queue", ["q", "q:partitioned"])
def test_what_filled_a_disk_can_be_received_and_then_there_is_room_again(small_disk: Path, queue: str) -> None:
    with (
        served(small_disk, "--queue", queue) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender("q") as sender,
        httpx.Client(base_url=namespace.endpoint, timeout=PATIENCE_S) as http,
    ):
        sent = fill(sender, http)
        assert sent * len(BODY) > DISK_MB * 1_000_000 // 4, "most of what a message takes is the message"
        with client.get_queue_receiver("q", prefetch_count=50) as receiver:
            received = 0
            while received < sent:
                messages = receiver.receive_messages(min(100, sent - received), max_wait_time=PATIENCE_S)
                assert messages, f"{received} of {sent} came"
                for message in messages:
                    assert message.delivery_count == 0, "no store was lost, so nothing came twice"
                    receiver.complete_message(message)
                received += len(messages)
        wait_for_room(http)
        assert send_until_refused(sender) > 0


def test_what_is_due_at_once_stops_nobody_though_its_copies_are_more_than_the_disk_holds(small_disk: Path) -> None:
    names, sent = [f"s{number}" for number in range(6)], 150
    entities = small_disk / "entities.toml"
    subscriptions = "".join(f'[[topic.subscription]]\nname = "{name}"\n' for name in names)
    entities.write_text(f'[[topic]]\nname = "t"\n{subscriptions}')
    with (
        served(small_disk, "--entities", str(entities), "--stores", "1") as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_topic_sender("t") as sender,
    ):
        due_at = datetime.now(UTC) + timedelta(seconds=4)
        for _ in range(sent):
            sender.send_messages(ServiceBusMessage(BODY, scheduled_enqueue_time_utc=due_at))
        receivers = [client.get_subscription_receiver("t", name, prefetch_count=20) for name in names]
        received = dict.fromkeys(names, 0)
        with ExitStack() as opened:
            for receiver in receivers:
                opened.enter_context(receiver)
            deadline = time.monotonic() + PATIENCE_S
            while sum(received.values()) < sent * len(names):
                assert time.monotonic() < deadline, f"{received} came"
                for name, receiver in zip(names, receivers, strict=True):
                    for message in receiver.receive_messages(20, max_wait_time=0.1):
                        assert message.delivery_count == 0, "no store was lost, so nothing came twice"
                        receiver.complete_message(message)
                        received[name] += 1


def test_a_copy_onto_a_disk_that_is_full_goes_on_when_there_is_room(
    small_disk: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, filler = tmp_path_factory.mktemp("data") / "shop", small_disk / "shop", small_disk / "filler"
    folder = DataFolder(source)
    folder.root_rule(None)
    for store in folder.store_paths(16):
        open_store(store).close()
    Catalog.in_file(source / "catalog.db", "shop", 0).close()
    folder.close()
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 1_000_000))
    assert run(["copy", str(source), str(target)]) == 1
    said = capsys.readouterr().err
    assert "is full. Free some space" in said
    assert said.endswith(" Run it again: it continues where it ended.\n")
    filler.unlink()
    assert run(["copy", str(source), str(target)]) == 0


def fill(sender: ServiceBusSender, http: httpx.Client) -> int:
    """Send until refused, and again what fits into the room that stores make by themselves. How many messages were taken."""
    sent = 0
    for _ in range(REFUSALS):
        sent += send_until_refused(sender)
        wait_for_room(http)
    return sent


def send_until_refused(sender: ServiceBusSender) -> int:
    for taken in range(DISK_MB * 1_000_000 // len(BODY)):
        try:
            sender.send_messages(ServiceBusMessage(BODY))
        except ServiceBusServerBusyError:
            return taken
    raise AssertionError("there is more on the disk than it has room for")


def wait_for_room(http: httpx.Client) -> None:
    """Or for as long as stores need to make some."""
    deadline = time.monotonic() + MAKE_ROOM_S
    while time.monotonic() < deadline:
        health = http.get("/health")
        assert health.status_code == 200
        if health.json()["status"] == "healthy":
            return
        time.sleep(0.1)
