"""A namespace on a disk that fills up: senders are refused, receivers empty it, and then everything goes on. A disk of its own needs
root."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusServerBusyError

from tests.attack.served_namespace import served

DISK_MB = 96
BODY = b"x" * 100_000
PATIENCE_S = 60.0
FULL_FOR_S = 3.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.parametrize("store_count", [1, 16])
def test_what_filled_a_disk_can_be_received_and_then_there_is_room_again(small_disk: Path, store_count: int) -> None:
    options = ["--queue", "q", "--stores", str(store_count)]
    with (
        served(small_disk, *options) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender("q") as sender,
        httpx.Client(base_url=namespace.endpoint, timeout=PATIENCE_S) as http,
    ):
        sent = fill(sender, http)
        assert sent * len(BODY) > DISK_MB * 1_000_000 // 4, "most of what a message takes is the message"
        health = http.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "full")
        with client.get_queue_receiver("q", prefetch_count=50) as receiver:
            received = 0
            while received < sent:
                messages = receiver.receive_messages(100, max_wait_time=PATIENCE_S)
                assert messages, f"{received} of {sent} came"
                for message in messages:
                    assert message.delivery_count == 0, "no store was lost, so nothing came twice"
                    receiver.complete_message(message)
                received += len(messages)
        assert fill(sender, http) > sent // 2


def fill(sender: ServiceBusSender, http: httpx.Client) -> int:
    """Send until no more is taken, for longer than a store needs to give back what it can. How many were."""
    sent = 0
    for _ in range(DISK_MB * 1_000_000 // len(BODY)):
        try:
            sender.send_messages(ServiceBusMessage(BODY))
            sent += 1
        except ServiceBusServerBusyError:
            if not becomes_free(http):
                return sent
    raise AssertionError("there is more on the disk than it has room for")


def becomes_free(http: httpx.Client) -> bool:
    deadline = time.monotonic() + FULL_FOR_S
    while time.monotonic() < deadline:
        if http.get("/health").json()["status"] == "healthy":
            return True
        time.sleep(0.1)
    return False
