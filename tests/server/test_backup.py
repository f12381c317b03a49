"""A backup that is made while messages come and go holds what was acknowledged before it, and nothing that never was."""

import json
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.cli.conftest import Commands, serve
from tests.contract.rows import HERE, everything, holding, numbers, row
from twinbus.cli.app import run
from twinbus.errors import ArgumentError, StoreDamaged, StoreGone, StoreInUse, StoreUnavailable
from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import FRAGMENT_COUNT, QueueDescription
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.server.data import backup as backup_module
from twinbus.server.data.backup import back_up, check_backup, restore
from twinbus.server.data.copy_marks import MOVED, UNFINISHED, CopyMark
from twinbus.server.data.data_folder import (
    BACKUP_MANIFEST,
    COPY_MARK,
    DataFolder,
    known_store_paths,
    open_store,
    witness_of,
)
from twinbus.server.data.folder_lock import LOCK_NAME
from twinbus.store.changes import Enqueued, FragmentKey, fragment_key
from twinbus.store.folder.copying import copy_store
from twinbus.store.folder.journal import SPARE_NAME, segment_numbers, segment_path
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.room import RESERVE_BYTES
from twinbus.store.transfer import NUMBERS_SKIPPED

NOW = "2026-01-02T03:04:05+00:00"
QUEUE = "orders"
DISK_BYTES = 100 << 30
NOBODY = 65534
NOT_COPIED = (SPARE_NAME, LOCK_NAME)
SMALL_FILES_BYTES = 4_096
"""Of the key, the number of stores, and what tells the stores apart, at most."""
BODY = "x" * 20_000
BATCH = 10
BACKUPS = 3
COUNT_MAX = 2_000
OLDER_STORE = Path(__file__).parents[1] / "store" / "folder_of_tables_2.tar.gz"


class Load:
    """Sends numbered messages and completes every other one of them, until it is told to stop."""

    def __init__(self, connection_string: str) -> None:
        self.sent: set[str] = set()  # acknowledged or not
        self.acknowledged: set[str] = set()
        self.completing: set[str] = set()  # completed or not
        self.completed: set[str] = set()
        self._connection_string = connection_string
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self._connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
            client.get_queue_receiver(QUEUE) as receiver,
        ):
            for first in range(0, COUNT_MAX, BATCH):
                if self._stop.is_set():
                    return
                ids = [f"m{number}" for number in range(first, first + BATCH)]
                self.sent.update(ids)
                sender.send_messages([ServiceBusMessage(BODY, message_id=each) for each in ids])
                self.acknowledged.update(ids)
                for message in receiver.receive_messages(BATCH // 2, max_wait_time=1):
                    assert message.message_id is not None
                    self.completing.add(message.message_id)
                    receiver.complete_message(message)
                    self.completed.add(message.message_id)


def test_backups_under_load_hold_what_was_acknowledged_and_nothing_that_was_settled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, told = tmp_path / "primary", []
    with serve(tmp_path, "primary", "--queue", f"{QUEUE}:partitioned") as served:
        with Load(served.ready["connection_string"]) as load:
            for number in range(BACKUPS):
                while len(load.acknowledged) < 100 * (number + 1):
                    threading.Event().wait(0.05)
                before = set(load.acknowledged), set(load.completed)
                back_up(folder, tmp_path / f"backup-{number}", NOW)
                told.append((*before, set(load.sent), set(load.completing)))
        assert served.stop() == 0
    for number, (acknowledged, completed, sent, completing) in enumerate(told):
        data = tmp_path / f"restored-{number}"
        restore(tmp_path / f"backup-{number}", data / "primary")
        with serve(data, "primary") as served:
            peeked = Commands(served, capsys).json("peek", QUEUE, "--count", str(COUNT_MAX), "--merged")
            found = {message["message_id"] for message in peeked}
            assert len(found) == len(peeked)
            assert acknowledged - completing <= found
            assert not found & completed
            assert found <= sent
            Commands(served, capsys).text("send", QUEUE, "after the restoration")
            served.stop()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a namespace with a message, which is stopped."""
    data = tmp_path_factory.mktemp("backed-up")
    with serve(data, "primary", "--queue", QUEUE) as served:
        assert run(["send", QUEUE, "hello", "--data", str(data)]) == 0
        served.stop()
    assert run(["backup", str(data / "copy"), "--data", str(data)]) == 0
    return data / "copy"


def test_a_backup_is_restored_and_served_under_the_same_key(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["restore", str(backup), "--check"]) == 0
    assert run(["restore", str(backup), "--data", str(tmp_path)]) == 0
    assert (tmp_path / "primary/key").read_bytes() == (backup / "key").read_bytes()
    assert (tmp_path / "primary").stat().st_mode & 0o077 == 0
    with serve(tmp_path, "primary") as served:
        capsys.readouterr()
        assert [each["body"] for each in Commands(served, capsys).json("receive", QUEUE)] == ["hello"]
        served.stop()
    # Nothing is ever written over what is there.
    assert run(["restore", str(backup), "--data", str(tmp_path)]) == 2
    with pytest.raises(ArgumentError, match="exists"):
        back_up(tmp_path / "primary", backup, NOW)


@pytest.mark.parametrize("what", ["changed", "missing", "added", "manifest", "newer"])
def test_a_backup_that_is_not_what_was_written_is_refused_whole(backup: Path, tmp_path: Path, what: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(backup, copy)
    (store, *_) = known_store_paths(copy)
    journal = segment_path(store, segment_numbers(store)[-1])
    if what == "changed":
        journal.write_bytes(journal.read_bytes()[:-1] + b"?")
    elif what == "missing":
        journal.unlink()
    elif what == "added":
        (store / "journal-000000000099").touch()
    elif what == "manifest":
        (copy / BACKUP_MANIFEST).unlink()
    else:
        facts = json.loads((copy / BACKUP_MANIFEST).read_text())
        (copy / BACKUP_MANIFEST).write_text(json.dumps(facts | {"format": 99}))
    with pytest.raises((StoreDamaged, ArgumentError)):
        restore(copy, tmp_path / "primary")
    assert not (tmp_path / "primary").exists()


def test_a_restoration_that_was_interrupted_is_begun_again(backup: Path, tmp_path: Path) -> None:
    half = tmp_path / "primary.restoring" / "stores" / "00"
    half.mkdir(parents=True)
    (half / "journal-000000000001").write_bytes(b"half")
    restore(backup, tmp_path / "primary")
    assert not (tmp_path / "primary.restoring").exists()
    check_backup(backup)
    written = [file.read_bytes() for file in (tmp_path / "primary/stores/00").glob("journal-*")]
    assert b"half" not in written


def test_a_namespace_that_does_not_exist_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", str(tmp_path / "b"), "--data", str(tmp_path)]) == 1
    assert "No namespace 'primary'" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "edited",
    [
        {"namespace": "../elsewhere"},
        {"namespace": ".."},
        {"namespace": ""},
        {"namespace": 5},
        {"stores": 1},
        {"stores": "16"},
        {"format": "1"},
        {"files": []},
    ],
    ids=str,
)
def test_a_manifest_that_was_edited_restores_nothing_and_nowhere_else(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], edited: dict[str, object]
) -> None:
    copy, data = tmp_path / "copy", tmp_path / "data"
    shutil.copytree(backup, copy)
    facts = json.loads((copy / BACKUP_MANIFEST).read_text())
    (copy / BACKUP_MANIFEST).write_text(json.dumps(facts | edited))
    assert run(["restore", str(copy), "--data", str(data)]) == 1
    assert f"{copy / BACKUP_MANIFEST} is not what was written" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy"]


def test_two_restorations_at_once_do_not_remove_each_others_files(backup: Path, tmp_path: Path) -> None:
    running = DataFolder(tmp_path / "primary.restoring")
    (tmp_path / "primary.restoring" / "key").write_text("copied")
    with pytest.raises(StoreInUse):
        restore(backup, tmp_path / "primary")
    assert (tmp_path / "primary.restoring" / "key").read_text() == "copied"
    running.close()


def test_a_restoration_that_fails_leaves_nothing(backup: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # no file can be larger, as on a disk that is full
    try:
        with pytest.raises(StoreUnavailable, match="cannot be restored"):
            restore(backup, tmp_path / "primary")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["primary", "primary.restoring"])
def test_a_restoration_follows_no_link(backup: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="Move it away first"):
        restore(backup, tmp_path / "data" / "primary")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "{name}", "--data", ".", "--stores", "2", "--amqp-port", "0", "--http-port", "0"],
        ["copy", "{name}", "copied"],
        ["store", "check", "--data", ".", "-n", "{name}"],
        ["store", "accept-loss", "0", "--yes", "--data", ".", "-n", "{name}"],
        ["backup", "again", "--data", ".", "-n", "{name}"],
    ],
)
def test_a_backup_is_not_taken_for_a_namespace_and_stays_as_it_is(
    backup: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(backup.parent)
    assert run([word.format(name=backup.name) for word in words]) == 2
    assert (
        f"{backup.name} is a backup. Check it with 'twinbus restore {backup.name} --check'" in capsys.readouterr().err
    )
    check_backup(backup)


def test_a_backup_is_not_made_inside_the_namespace(backup: Path, tmp_path: Path) -> None:
    restore(backup, tmp_path / "primary")
    with pytest.raises(ArgumentError, match="Name a folder elsewhere"):
        back_up(tmp_path / "primary", tmp_path / "primary" / "stores" / "copy", NOW)


def test_a_backup_is_made_neither_inside_another_one_nor_on_the_volume_of_a_store(backup: Path, tmp_path: Path) -> None:
    """The other one would not be what was written any more; and a volume that holds a store is for that alone."""
    kept, volume = tmp_path / "kept", tmp_path / "volume"
    shutil.copytree(backup, kept)
    restore(backup, tmp_path / "primary")
    (tmp_path / "primary/stores/01").rename(volume)
    (tmp_path / "primary/stores/01").symlink_to(volume)
    (tmp_path / "link").symlink_to(kept)
    for target in (kept / "monday", kept / "tls/monday", tmp_path / "link/monday", volume / "monday"):
        with pytest.raises(ArgumentError, match="Name a folder elsewhere"):
            back_up(tmp_path / "primary", target, NOW)
    check_backup(kept)
    back_up(tmp_path / "primary", tmp_path / "monday", NOW)
    assert not (tmp_path / "monday/stores/01").is_symlink()
    check_backup(tmp_path / "monday")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_what_root_backs_up_and_restores_belongs_to_the_owner_of_the_namespace(stopped: Path, tmp_path: Path) -> None:
    """Who serves it has to read the copy, and to write what was made of it."""
    for each in (stopped, *stopped.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    mask = os.umask(0o077)
    try:
        back_up(stopped, tmp_path / "backups/monday", NOW)
        restore(tmp_path / "backups/monday", tmp_path / "data/shop")
    finally:
        os.umask(mask)
    for top in (tmp_path / "backups", tmp_path / "data"):
        for each in (top, *top.rglob("*")):
            there = each.stat()
            assert (there.st_uid, there.st_gid) == (NOBODY, NOBODY), each
            assert stat.S_IMODE(there.st_mode) == (0o700 if each.is_dir() else 0o600), each
    assert {each.stat().st_uid for each in stopped.rglob("*")} == {NOBODY}


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a namespace with two messaging stores, which is not served."""
    folder = DataFolder(tmp_path / "shop")
    folder.root_rule(None)
    for store in folder.store_paths(2):
        open_store(store).close()
    Catalog.in_file(folder.path / "catalog.db", "shop", 0).close()
    folder.close()
    return folder.path


def run_without_rights(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process that may do to files what their modes say, even if it is of root."""
    without_rights = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    if without_rights and shutil.which(without_rights[0]) is None:
        pytest.skip("root may read and write everything")
    command = [*without_rights, sys.executable, "-m", "twinbus", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["stores", BACKUP_MANIFEST])
def test_a_backup_that_may_not_be_read_is_not_called_damaged(backup: Path, tmp_path: Path, closed: str) -> None:
    """Who is told so throws it away."""
    copy = tmp_path / "copy"
    shutil.copytree(backup, copy)
    (copy / closed).chmod(0)
    ended = run_without_rights("restore", str(copy), "--check")
    (copy / closed).chmod(0o700)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"twinbus: {copy / closed}: Permission denied. ")


def test_a_folder_that_cannot_be_written_is_not_backed_up_and_the_advice_fits(stopped: Path, tmp_path: Path) -> None:
    stopped.chmod(0o500)
    ended = run_without_rights("backup", str(tmp_path / "made"), "--namespace", "shop", "--data", str(tmp_path))
    stopped.chmod(0o700)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"twinbus: A backup locks files in {stopped} so that forwarding pauses, and they cannot be written: Permission denied. "
        "Run it as the user that serves the namespace, where the folder is not read-only.\n"
    )
    assert not (tmp_path / "made").exists()


def disk_with(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    said = os.statvfs_result((1, 1, DISK_BYTES, free, free, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: said)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name not in NOT_COPIED)


def test_a_backup_that_would_take_the_reserve_of_the_stores_is_not_begun(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "backups/monday"
    words = ["backup", str(target), "--data", str(tmp_path), "-n", "shop"]
    needed = size_of(stopped)
    disk_with(monkeypatch, needed - SMALL_FILES_BYTES + RESERVE_BYTES)
    assert run(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"twinbus: {target} needs up to ")
    assert said.endswith("Free some space, or name a folder on another disk.\n")
    assert said.count("\n") == 1
    assert not target.parent.exists()
    disk_with(monkeypatch, needed + RESERVE_BYTES)
    assert run(words) == 0


def test_a_restoration_that_would_take_the_reserve_of_the_stores_is_not_begun(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_with(monkeypatch, size_of(backup) + RESERVE_BYTES // 2)
    with pytest.raises(ArgumentError, match=r"needs up to .* another disk\."):
        restore(backup, tmp_path / "data" / "primary")
    assert list(tmp_path.iterdir()) == []


def last_numbers(stores: Path) -> dict[FragmentKey, int]:
    found: dict[FragmentKey, int] = {}
    for folder in sorted(stores.iterdir()):
        store = open_store(folder)
        found |= {each.fragment: each.last_sequence_number for each in store.summaries()}
        store.close()
    return found


def test_no_number_that_was_given_out_after_a_backup_is_given_out_again(stopped: Path, tmp_path: Path) -> None:
    """Clients hold it: it would settle another message, and whoever reads by numbers would pass by. Also of an entity that was created
    while stores were copied: the catalog knows it, and a store does not."""
    catalog = Catalog.in_file(stopped / "catalog.db", "shop", 0)
    entity = catalog.add(catalog.new_id(), QueueDescription(QUEUE, enable_partitioning=True), 0, first_store=0)
    catalog.close()
    store = open_store(stopped / "stores/00")
    holding(store, row(1))
    back_up(stopped, tmp_path / "backup", NOW)
    store.commit([Enqueued(HERE, [row(2)])])
    store.close()
    restore(tmp_path / "backup", tmp_path / "restored")
    found = last_numbers(tmp_path / "restored/stores")
    for index in range(FRAGMENT_COUNT):
        assert found[fragment_key(entity.id, index)] >= (index << SEQUENCE_BITS) + NUMBERS_SKIPPED
    restored = open_store(tmp_path / "restored/stores/00")
    assert numbers(everything(restored)) == [1]
    restored.close()


def test_a_namespace_with_a_store_that_is_gone_is_not_backed_up(stopped: Path, tmp_path: Path) -> None:
    """The restored folder would not have it either, and nobody would know before."""
    shutil.rmtree(stopped / "stores/01")
    (stopped / "stores/01").mkdir()
    with pytest.raises(StoreGone, match="stores/01 is missing or empty"):
        back_up(stopped, tmp_path / "backup", NOW)
    assert not (tmp_path / "backup").exists()


def test_a_namespace_without_its_catalog_is_not_backed_up_and_gets_none(stopped: Path, tmp_path: Path) -> None:
    (stopped / "catalog.db").unlink()
    with pytest.raises(StoreUnavailable, match=r"catalog\.db cannot be copied"):
        back_up(stopped, tmp_path / "backup", NOW)
    assert not (stopped / "catalog.db").exists()
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("mark", [CopyMark(UNFINISHED, "there"), CopyMark(MOVED, "there")], ids=lambda mark: mark.kind)
def test_what_must_not_be_served_is_not_backed_up(stopped: Path, tmp_path: Path, mark: CopyMark) -> None:
    """A restored folder has no mark that would tell."""
    (stopped / COPY_MARK).write_text(mark.text())
    with pytest.raises(ArgumentError, match="there"):
        back_up(stopped, tmp_path / "backup", NOW)
    assert not (tmp_path / "backup").exists()


def test_a_backup_that_fails_leaves_nothing(stopped: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # no file can be larger, as on a disk that is full
    try:
        with pytest.raises(StoreUnavailable):
            back_up(stopped, tmp_path / "backup", NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "backup").exists()


def test_a_store_that_is_opened_for_the_first_time_meanwhile_is_restored(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stopped / "stores/01"
    shutil.rmtree(store)
    witness_of(store).write_text("new\n")

    def copy_and_open(source: Path, *others: Path) -> None:
        copy_store(source, *others)
        if source == store:
            open_store(store).close()

    monkeypatch.setattr(backup_module, "copy_store", copy_and_open)
    back_up(stopped, tmp_path / "backup", NOW)
    assert "new" not in witness_of(store).read_text()
    restore(tmp_path / "backup", tmp_path / "restored")


def test_a_backup_with_tables_of_an_earlier_version_is_restored(stopped: Path, tmp_path: Path) -> None:
    store = stopped / "stores/00"
    shutil.rmtree(store)
    witness_of(store).unlink()
    with tarfile.open(OLDER_STORE) as archive:
        archive.extractall(store, filter="data")
    back_up(stopped, tmp_path / "backup", NOW)
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = open_store(tmp_path / "restored/stores/00")
    assert [each.last_sequence_number for each in restored.summaries()] == [6 + NUMBERS_SKIPPED]
    restored.close()


def damage_a_message(store: Path) -> None:
    """One with the content `damaged`."""
    opened = open_store(store)
    holding(opened, row(1), row(2, b"damaged"), row(3))
    opened.close()
    tables = sqlite3.connect(store / FILE_NAME, isolation_level=None)
    changed = tables.execute("UPDATE contents SET content = x'00' WHERE content = CAST('damaged' AS BLOB)")
    assert changed.rowcount == 1
    tables.close()


def test_a_backup_of_a_namespace_that_goes_on_without_a_damaged_message_is_restored(
    stopped: Path, tmp_path: Path
) -> None:
    store = stopped / "stores/00"
    damage_a_message(store)
    opened = open_store(store)
    with pytest.raises(StoreUnavailable):
        everything(opened)
    opened.close()
    opened = open_store(store)
    assert numbers(everything(opened)) == [1, 3]
    opened.close()
    back_up(stopped, tmp_path / "backup", NOW)
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = open_store(tmp_path / "restored/stores/00")
    assert numbers(everything(restored)) == [1, 3]
    assert len(restored.damage()) == 1, "it is still for somebody to accept"
    restored.close()


def test_a_backup_with_damage_that_nobody_has_noticed_is_not_restored(stopped: Path, tmp_path: Path) -> None:
    damage_a_message(stopped / "stores/00")
    back_up(stopped, tmp_path / "backup", NOW)
    with pytest.raises(StoreDamaged, match="message 2"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("name", ["catalog.db", "key"])
def test_a_backup_that_could_not_be_served_is_not_restored(stopped: Path, tmp_path: Path, name: str) -> None:
    if name == "key":
        (stopped / "key").write_bytes((stopped / "key").read_bytes().replace(b"=", b"-", 1))
    else:
        catalog = sqlite3.connect(stopped / "catalog.db", isolation_level=None)
        catalog.execute("UPDATE namespace SET last_entity_id = 7")
        catalog.close()
    back_up(stopped, tmp_path / "backup", NOW)
    with pytest.raises(StoreDamaged, match=rf"{name} is damaged.* Use another backup\."):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
