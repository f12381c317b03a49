"""The folder that holds all data of a namespace, locked by one process at a time and open to its owner alone.

lock, *-lock     who holds it, and whether a backup is being made (twinbus.server.data.folder_lock)
key              the key of RootManageSharedAccessKey and its checksum, mode 600, generated at the first start
store-count      how many messaging stores the namespace was created with, and its checksum: fragments never move
catalog...       which entities exist (twinbus.management)
known-stores/NN  whether that messaging store has ever been in use (twinbus.store.folder.identity)
stores/NN/       one folder for each messaging store (twinbus.store)
operations/      the operations log, as Parquet (twinbus.meter.log_writer), where it is metered
copy.json        that it is half of a copy, or was moved elsewhere (twinbus.server.data.copy_marks)
tls/             a certificate for development, if one was asked for (twinbus.server.tls)
"""

import os
import re
import secrets
import zlib
from base64 import b64encode
from pathlib import Path

from twinbus.errors import ArgumentError, StoreDamaged
from twinbus.management.access_control import ROOT_RULE_NAME
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.data.folder_lock import FolderNotWritten, hold
from twinbus.store.folder.identity import announce_new, has_known_stores
from twinbus.store.folder.journal import FOLDER_MODE, make_folder, sync_folder
from twinbus.store.folder.private_file import write_private
from twinbus.store.folder.store import FolderStore
from twinbus.store.store_limits import StoreLimits

KEY_BYTES = 32
OPERATIONS_FOLDER = "operations"
WITNESS_FOLDER = "known-stores"
STORE_COUNT_FILE = "store-count"
COPY_MARK = "copy.json"
BACKUP_MANIFEST = "backup.json"
SUM_INSIDE = re.compile("crc32 [0-9a-f]{8}$")  # of a line that does not end any more
STORE_COUNT = re.compile("[1-9][0-9]?", re.ASCII)


OTHER_KEY = (
    "The namespace has another key: a key is for the first start alone. Omit it; to change keys, use "
    f"'twinbus access regenerate {ROOT_RULE_NAME}' while the namespace runs."
)


class DataFolder:
    def __init__(self, path: Path, inherited_lock: int | None = None) -> None:
        """Create the folder if it does not exist, and lock it; or use a lock that was inherited from the process that has it.

        Raises StoreInUse while another process holds the lock, StoreUnavailable if the folder cannot be written, and ArgumentError
        for a backup.
        """
        self.path = path
        if inherited_lock is not None:
            self.lock = inherited_lock
            return
        require_no_backup(path)
        try:
            make_folder(path)
        except OSError as fault:
            raise FolderNotWritten(path, fault) from None
        self.lock = hold(path)

    def root_rule(self, wanted_key: str | None) -> AuthorizationRule:
        """The rule with all rights. A wanted key is written only if there is none yet."""
        file = self.path / "key"
        if not file.exists():
            key = wanted_key or b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            self.keep_root_key(key)
        key = _read_key(file)
        if wanted_key is not None and key != wanted_key:
            raise ArgumentError(OTHER_KEY)
        return AuthorizationRule(ROOT_RULE_NAME, key, "", frozenset(Right))

    def keep_root_key(self, key: str) -> None:
        write_private(self.path / "key", f"{key}\n{_checksum(key)}\n")

    def store_paths(self, wanted_count: int) -> list[Path]:
        file, stores = self.path / STORE_COUNT_FILE, self.path / "stores"
        if not file.exists():
            if has_known_stores(self.path / WITNESS_FOLDER):
                # With another number messages would be looked for where they are not.
                raise StoreDamaged(f"{file} is missing, and the namespace has been in use. {_advice(self.path)}")
            stores.mkdir(FOLDER_MODE, exist_ok=True)
            for index in range(wanted_count):
                announce_new(witness_of(stores / f"{index:02}"))
            write_private(file, f"{wanted_count}\n{_checksum(str(wanted_count))}\n")
        paths = known_store_paths(self.path)
        count = len(paths)
        if count != wanted_count:
            raise ArgumentError(
                f"The namespace in {self.path} has {count} messaging stores and cannot be served with {wanted_count}: use --stores {count}."
            )
        return paths

    @property
    def was_in_use(self) -> bool:
        """The number of stores is written when everything else is there."""
        return (self.path / STORE_COUNT_FILE).exists() or has_known_stores(self.path / WITNESS_FOLDER)

    @property
    def copy_mark_file(self) -> Path:
        return self.path / COPY_MARK

    def copy_mark(self) -> str | None:
        return copy_mark_in(self.path)

    def set_copy_mark(self, text: str | None) -> None:
        if text is not None:
            write_private(self.copy_mark_file, f"{text}\n")
        else:
            self.copy_mark_file.unlink(missing_ok=True)
            sync_folder(self.path)

    def close(self) -> None:
        os.close(self.lock)


def require_no_backup(path: Path) -> None:
    """Raises ArgumentError for a backup, which with as little as a lock in it would not be what was written any more."""
    if (path / BACKUP_MANIFEST).exists():
        raise ArgumentError(
            f"{path} is a backup. Check it with 'twinbus restore {path} --check', or restore it with --data DIR and use that."
        )


def copy_mark_in(folder: Path) -> str | None:
    """Also of a folder that another process holds."""
    file = folder / COPY_MARK
    return file.read_text(errors="replace") if file.exists() else None


def _checksum(text: str) -> str:
    return f"crc32 {zlib.crc32(text.encode()):08x}"


def _read_checked(file: Path) -> str | None:
    """The first line; None if it is not what was written. A line alone, as people and earlier versions write it, is taken as it is."""
    lines = file.read_bytes().decode(errors="replace").strip().split("\n")
    is_text = lines[0].isascii() and lines[0].isprintable()  # and not what a disk has in the place of it, such as zeros
    is_wrong = (len(lines) > 1 and _checksum(lines[0]) != lines[1]) or len(lines) > 2 or SUM_INSIDE.search(lines[0])
    return None if is_wrong or not is_text else lines[0].strip()


def _read_key(file: Path) -> str:
    key = _read_checked(file)
    if not key:
        wrong = "the key is not the one that was written" if key is None else "it is empty"
        raise StoreDamaged(
            f"{file} is damaged: {wrong}. Restore it, write the key alone into the file, or remove the file for a new key."
        )
    return key


def known_store_paths(folder: Path) -> list[Path]:
    """Of a namespace that was served before."""
    file = folder / STORE_COUNT_FILE
    text = _read_checked(file)
    if text is None or not STORE_COUNT.fullmatch(text):
        raise StoreDamaged(f"{file} is damaged: it must hold the number of messaging stores. {_advice(folder)}")
    return [folder / "stores" / f"{index:02}" for index in range(int(text))]


def _advice(folder: Path) -> str:
    return f"Write the number of folders in {folder / 'stores'} into it."


def open_store(folder: Path, limits: StoreLimits | None = None, *, is_taken_back: bool = False) -> FolderStore:
    """The messaging store in one of `store_paths`."""
    return FolderStore(folder, limits, witness=witness_of(folder), is_taken_back=is_taken_back)


def witness_of(store_folder: Path) -> Path:
    """Beside the folder of all stores, which may be a volume of its own."""
    return store_folder.parent.with_name(WITNESS_FOLDER) / store_folder.name
