"""A backup of a namespace, which may be serving, and a data folder made of one.

backup/
    backup.json      written last: what the backup is of, and the checksum of every file
    key, store-count, catalog.db, known-stores/NN, stores/NN/..., tls/...     as in the data folder

Each store is copied as it was after one of its commits, and the stores one after the other; the catalog comes last. So every
entity in a store is known to the catalog's counter of ids, and an entity that was created meanwhile is there, empty. While the
stores are copied no message is forwarded, for it could leave one store before that is copied, and reach another one afterwards
(`forwarding_pause`). The operations log is not part of it.
"""

import hashlib
import json
import os
import shutil
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

from twinbus.errors import ArgumentError, InternalError, StoreDamaged, StoreUnavailable
from twinbus.management.catalog_file import CatalogFile
from twinbus.server.data.copy_marks import read_mark, require_whole
from twinbus.server.data.copy_place import give_to_owner_of, highest_missing, require_elsewhere, require_room
from twinbus.server.data.data_folder import (
    BACKUP_MANIFEST,
    COPY_MARK,
    WITNESS_FOLDER,
    DataFolder,
    copy_mark_in,
    known_store_paths,
    require_no_backup,
    witness_of,
)
from twinbus.server.data.folder_lock import LOCK_NAME
from twinbus.server.data.forwarding_pause import paused_forwarding
from twinbus.server.data.namespace_copy import HeldFolder
from twinbus.server.data.restored_stores import leave_out
from twinbus.store.folder.copying import bytes_of, copy_bytes_max, copy_database, copy_file, copy_store, sync_file
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.journal import make_folder, sync_folder
from twinbus.store.folder.tables import upgrade

FORMAT: Final = 1
CATALOG: Final = "catalog.db"
PLAIN_FILES: Final = ("key", "store-count")
TLS_FOLDER: Final = "tls"
DRAFT_SUFFIX: Final = ".restoring"


@dataclass(frozen=True, slots=True)
class Manifest:
    namespace: str
    stores: int
    made_at: str
    twinbus: str
    format: int = FORMAT
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 by path

    def is_valid(self) -> bool:
        """Somebody may have edited the file: a name with a slash would lead out of the folder that is restored to."""
        texts = (self.namespace, self.made_at, self.twinbus)
        return (
            all(isinstance(each, str) for each in texts)
            and all(isinstance(each, int) for each in (self.stores, self.format))
            and isinstance(self.files, dict)
            and self.namespace not in ("", ".", "..")
            and not {"/", "\0"} & set(self.namespace)
        )


def back_up(folder: Path, target: Path, made_at: str) -> Manifest:
    """`folder` is that of a namespace that runs or not, and has everything that was in it. `target` must not exist; after a failure it
    does not exist either, and after a crash it has no manifest, without which a backup is not one."""
    require_no_backup(folder)
    stores = known_store_paths(folder)
    mark = str(folder / COPY_MARK)
    require_whole(read_mark(copy_mark_in(folder), mark), mark)
    require_elsewhere(target, stores)
    require_room(target, bytes_of(folder, CATALOG) + sum(map(copy_bytes_max, stores)))
    highest = highest_missing(target)
    try:
        target.mkdir(0o700, parents=True)
    except FileExistsError:
        raise ArgumentError(f"{target} exists. Name a folder that does not.") from None
    except OSError as fault:
        raise ArgumentError(f"{target} cannot be created: {fault.strerror}.") from None
    try:
        with paused_forwarding(folder):
            for store in stores:
                # Before the store: one that is opened for the first time meanwhile has an identity that its witness need not know.
                _copy_witness(witness_of(store), target / WITNESS_FOLDER)
                copy_store(store, target / "stores" / store.name, witness_of(store))
        for name in PLAIN_FILES:
            copy_file(folder / name, target / name)
        _copy_folder(folder / TLS_FOLDER, target / TLS_FOLDER)
        copy_database(folder / CATALOG, target / CATALOG)
        files = {str(file.relative_to(target)): _digest(file) for file in _files(target)}
        manifest = Manifest(folder.name, len(stores), made_at, metadata.version("twinbus"), FORMAT, files)
        (target / BACKUP_MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
        sync_file(target / BACKUP_MANIFEST)
        give_to_owner_of(folder, highest)
        sync_folder(target)
        sync_folder(target.parent)
    except BaseException as fault:
        shutil.rmtree(target, ignore_errors=True)  # a full disk must not stay full
        if isinstance(fault, OSError):
            raise StoreUnavailable(f"The backup in {target} could not be made: {fault}.") from fault
        raise
    return manifest


def read_manifest(backup: Path) -> Manifest:
    try:
        manifest = Manifest(**json.loads((backup / BACKUP_MANIFEST).read_text()))
    except FileNotFoundError:
        raise ArgumentError(f"{backup} is not a complete backup: it has no {BACKUP_MANIFEST}.") from None
    except PermissionError:
        raise  # which says nothing about the backup
    except (OSError, ValueError, TypeError):
        raise StoreDamaged(f"{backup / BACKUP_MANIFEST} cannot be read. Use another backup.") from None
    if not manifest.is_valid():
        raise StoreDamaged(f"{backup / BACKUP_MANIFEST} is not what was written. Use another backup.")
    if manifest.format > FORMAT:
        raise ArgumentError(
            f"{backup} was made by twinbus {manifest.twinbus}. Restore it with that release or a later one."
        )
    return manifest


def check_backup(backup: Path) -> Manifest:
    """Raises StoreDamaged if a file is missing, was added or is not what was written. Damage that was copied is for `restore` to find."""
    manifest = read_manifest(backup)
    found = {str(file.relative_to(backup)): file for file in _files(backup)}
    for name in sorted(set(manifest.files) ^ set(found)):
        raise StoreDamaged(f"{backup / name} is {'missing' if name in manifest.files else 'not part of the backup'}.")
    for name, digest in manifest.files.items():
        if _digest(found[name]) != digest:
            raise StoreDamaged(f"{backup / name} is not what was written. Use another backup.")
    if len(known_store_paths(backup)) != manifest.stores:
        raise StoreDamaged(f"{backup / BACKUP_MANIFEST} is not what was written. Use another backup.")
    return manifest


def restore(backup: Path, folder: Path) -> Manifest:
    """Make the data folder of a namespace. It must not exist; after a failure or a crash it does not exist either."""
    manifest = check_backup(backup)
    if os.path.lexists(folder):
        raise ArgumentError(f"{folder} exists. Move it away first, or restore below another folder with --data.")
    draft = folder.with_name(folder.name + DRAFT_SUFFIX)
    if draft.is_symlink():
        raise ArgumentError(f"{draft} is a link. Move it away first.")
    require_elsewhere(folder)
    require_room(folder, sum((backup / name).stat().st_size for name in manifest.files))
    highest = highest_missing(draft)
    holding = DataFolder(draft)
    try:
        _clear(draft)  # what an interrupted restoration has left
        for name in manifest.files:
            make_folder((draft / name).parent)
            copy_file(backup / name, draft / name)
        for index in range(manifest.stores):
            # A store that was never in use has no file.
            make_folder(draft / "stores" / f"{index:02}")
        for store in known_store_paths(draft):
            upgrade(store)
            for damage in check_folder(store, witness_of(store), with_set_aside=False):
                raise StoreDamaged(f"{damage.file}, {damage.place}: {damage.what}. Use another backup.")
        _check_rest(holding, manifest.namespace)
        held = HeldFolder(holding, manifest.stores, 0)
        with closing(held.catalog):
            leave_out(held, range(manifest.stores))
        give_to_owner_of(backup, highest)
        draft.rename(folder)
        sync_folder(folder.parent)
    except BaseException as fault:
        shutil.rmtree(draft, ignore_errors=True)  # a full disk must not stay full
        if isinstance(fault, OSError):
            raise StoreUnavailable(f"{folder} cannot be restored: {fault}.") from fault
        raise
    finally:
        holding.close()
    return manifest


def _check_rest(folder: DataFolder, namespace: str) -> None:
    """Without these a namespace does not start."""
    try:
        folder.root_rule(None)
        CatalogFile(folder.path / CATALOG, namespace, 0).close()
    except (StoreDamaged, InternalError) as damage:
        raise StoreDamaged(f"{damage} Use another backup.") from damage


def _clear(draft: Path) -> None:
    """Except for the file that locks it."""
    for each in draft.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != LOCK_NAME:
            each.unlink()


def _files(folder: Path) -> list[Path]:
    """Without the manifest. Raises OSError for a folder that cannot be read, which is not an empty one."""

    def refuse(fault: OSError) -> None:
        raise fault

    found = [Path(above, name) for above, _, names in os.walk(folder, onerror=refuse) for name in names]
    return sorted(each for each in found if each.is_file() and each != folder / BACKUP_MANIFEST)


def _copy_folder(source: Path, target: Path) -> None:
    for file in _files(source) if source.is_dir() else ():
        place = target / file.relative_to(source)
        make_folder(place.parent)
        copy_file(file, place)


def _copy_witness(witness: Path, folder: Path) -> None:
    make_folder(folder)
    if witness.exists():  # earlier versions kept none
        copy_file(witness, folder / witness.name)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
