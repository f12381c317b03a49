"""While a backup copies the stores of a namespace one after the other, no message leaves one of them for another."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.forwarding_gate import ForwardingGate
from twinbus.errors import StoreInUse, StoreUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.server.data import backup as backup_module
from twinbus.server.data import forwarding_pause
from twinbus.server.data.backup import back_up, restore
from twinbus.server.data.data_folder import known_store_paths, open_store
from twinbus.server.data.folder_lock import BACKUP_LOCK, FORWARDING_LOCK
from twinbus.server.data.forwarding_pause import LOOK_EVERY, ForwardingShare, paused_forwarding
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings
from twinbus.store.folder.copying import copy_store
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply

NOW = "2026-01-02T03:04:05+00:00"
PATIENCE_S = 20.0
NOBODY = 65_534
DIES_IN_A_PAUSE = """
import sys, time
from pathlib import Path
from twinbus.server.data.forwarding_pause import paused_forwarding
with paused_forwarding(Path(sys.argv[1])):
    print("paused", flush=True)
    time.sleep(60)
"""


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[NamespaceServer]:
    server = NamespaceServer(ServerSettings("shop", folder, amqp_port=0, http_port=0, store_count=2))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def queue_in(server: NamespaceServer, store: int, description: Callable[[str], QueueDescription]) -> QueueEntity:
    """A new one that is in this store: they take turns."""
    for number in range(len(server.stores.stores)):
        name = f"in-{store}-{number}"
        await server.control.create_queue(description(name))
        queue = server.entities.queue(name)
        if queue.first_store == store:
            return queue
    raise AssertionError("queues are shared out among the stores")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0)


async def test_a_message_that_is_to_be_forwarded_during_a_backup_is_in_it_and_forwarded_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    async with serving(tmp_path / "shop") as server:
        target = await queue_in(server, 0, QueueDescription)
        source = await queue_in(server, 1, lambda name: QueueDescription(name, forward_to=target.settings.path))

        async def send() -> None:
            reply = EachReply()
            source.send_each([make_message("m")], server.clock.now(), reply)
            await until(lambda: bool(reply.good) and not server.stores.is_forwarding)

        def copy_and_send(source: Path, *others: Path) -> None:
            copy_store(source, *others)
            if source.name == "00":
                asyncio.run_coroutine_threadsafe(send(), loop).result()

        monkeypatch.setattr(backup_module, "copy_store", copy_and_send)
        await asyncio.to_thread(back_up, tmp_path / "shop", tmp_path / "backup", NOW)
        await until(lambda: target.main.counts().active == 1)
    restore(tmp_path / "backup", tmp_path / "restored")
    found = 0
    for path in known_store_paths(tmp_path / "restored"):
        store = open_store(path)
        found += sum(summary.active_count for summary in store.summaries())
        store.close()
    assert found == 1


class Served:
    """A process that serves stores in this folder."""

    def __init__(self, folder: Path) -> None:
        self.gate = ForwardingGate()
        self.is_forwarding = False
        self.now = 0
        self._share = ForwardingShare(folder, self.gate, lambda: self.is_forwarding, self.now)

    def look(self) -> None:
        self.now += LOOK_EVERY
        self._share.tick(self.now)

    def close(self) -> None:
        self._share.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


class Paused:
    """In a thread, which waits for those who forward."""

    def __init__(self, folder: Path) -> None:
        self.is_paused, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=[folder])

    def _run(self, folder: Path) -> None:
        with paused_forwarding(folder, PATIENCE_S):
            self.is_paused.set()
            self._ends.wait(PATIENCE_S)

    def __enter__(self) -> "Paused":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_S)


def test_a_backup_waits_until_no_process_has_a_message_on_its_way(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding_pause, "LOOK_PATIENCE_S", PATIENCE_S)  # these two look without a pause
    other = Served(tmp_path)
    served.is_forwarding = True
    with Paused(tmp_path) as paused:
        while served.gate.is_open or other.gate.is_open:
            served.look()
            other.look()
        assert not paused.is_paused.is_set(), "the last message has not arrived"
        served.is_forwarding = False
        served.look()
        assert paused.is_paused.wait(PATIENCE_S)
        served.look()
        assert not served.gate.is_open
    served.look()
    other.look()
    assert served.gate.is_open
    assert other.gate.is_open
    other.close()


def test_a_process_that_starts_during_a_backup_forwards_when_that_has_ended(tmp_path: Path) -> None:
    with paused_forwarding(tmp_path):
        served = Served(tmp_path)
        served.look()
        assert not served.gate.is_open
    served.look()
    assert served.gate.is_open
    served.close()


def test_the_log_says_once_that_forwarding_is_paused_and_once_that_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with paused_forwarding(tmp_path):
        served = Served(tmp_path)
        served.look()
        served.look()
    served.look()
    served.look()
    served.close()
    assert caplog.messages == ["forwarding_paused", "forwarding_goes_on"]
    caplog.clear()
    Served(tmp_path).close()
    assert caplog.messages == []


def test_forwarding_goes_on_after_a_backup_that_was_killed(tmp_path: Path) -> None:
    backup = subprocess.Popen([sys.executable, "-c", DIES_IN_A_PAUSE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert backup.stdout is not None
    backup.stdout.readline()
    served = Served(tmp_path)
    assert not served.gate.is_open
    backup.send_signal(signal.SIGKILL)
    backup.wait()
    backup.stdout.close()
    served.look()
    assert served.gate.is_open
    served.close()


def test_a_backup_ends_if_messages_are_on_their_way_for_too_long_and_they_go_on(tmp_path: Path, served: Served) -> None:
    with pytest.raises(StoreUnavailable, match="did not finish forwarding"), paused_forwarding(tmp_path, 0):
        raise AssertionError("it is not paused")
    served.look()
    assert served.gate.is_open


def test_there_is_one_backup_at_a_time(tmp_path: Path) -> None:
    with (
        paused_forwarding(tmp_path),
        pytest.raises(StoreInUse, match="Another backup"),
        paused_forwarding(tmp_path),
    ):
        raise AssertionError("there are two")


def test_a_namespace_that_ends_holds_up_no_backup(tmp_path: Path) -> None:
    Served(tmp_path).close()
    with paused_forwarding(tmp_path, 0):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_a_backup_by_root_leaves_no_lock_that_the_owner_of_the_namespace_cannot_open(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with paused_forwarding(tmp_path):
        pass
    assert {(tmp_path / name).stat().st_uid for name in (BACKUP_LOCK, FORWARDING_LOCK)} == {NOBODY}
