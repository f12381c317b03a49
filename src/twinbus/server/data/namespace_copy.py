"""`twinbus copy`: a namespace that nobody serves, from a folder to PostgreSQL, back, or to another database.

    hold both ends -> mark the target unfinished -> each store (twinbus.store.transfer), compared -> catalog and root key
    -> mark the source as moved -> the target's mark goes

Whoever runs it again after an interruption goes on where it ended. A source that was served in between is noticed, and the
stores that changed are copied again. The operations log and the certificates stay in the data folder.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from twinbus.clock import Millis, boot_time
from twinbus.errors import ArgumentError, StoreDamaged, StoreInUse, StoreUnavailable
from twinbus.management.access_control import ROOT_RULE_NAME
from twinbus.management.catalog import Catalog, CatalogDatabase
from twinbus.management.catalog_copy import copy_catalog, is_unused
from twinbus.management.catalog_file import CatalogFile
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.data.copy_marks import MOVED, UNFINISHED, CopyMark, read_mark, require_whole
from twinbus.server.data.data_folder import STORE_COUNT_FILE, DataFolder, known_store_paths, open_store, witness_of
from twinbus.store.durable import DurableStore
from twinbus.store.folder.identity import restored
from twinbus.store.transfer import clear, require_same, transfer

if TYPE_CHECKING:
    from twinbus.management.catalog_postgres import PostgresCatalog
    from twinbus.store.postgres.lease import LeaseRenewal
    from twinbus.store.postgres.place import Owner


CATALOG: Final = "catalog.db"


class HeldNamespace(Protocol):
    """A namespace that nobody else serves meanwhile."""

    @property
    def catalog(self) -> CatalogDatabase: ...

    @property
    def store_count(self) -> int: ...

    @property
    def mark_place(self) -> str: ...

    def mark(self) -> CopyMark | None: ...

    def set_mark(self, mark: CopyMark | None) -> None: ...

    def open_store(self, number: int, *, is_taken_back: bool = False) -> DurableStore:
        """`is_taken_back`: it may be older than it was."""
        ...

    def numbers_left_out(self, number: int) -> None:
        """That store may be served from now on, although it is older than it was."""
        ...

    def stored(self, number: int) -> None:
        """Everything is in that store: from now on it must be found."""
        ...

    def root_key(self) -> str: ...

    def keep_root_key(self, key: str) -> None: ...


class NamespaceEnd(Protocol):
    """Where a namespace is or will be. `str` of it is what people call it."""

    def hold(self, now: Millis, *, is_taken_back: bool = False) -> AbstractContextManager[HeldNamespace]:
        """One that exists. `is_taken_back`: its catalog may be older than it was. Raises MessagingError."""
        ...

    def hold_new(self, now: Millis, store_count: int, source: str) -> AbstractContextManager[HeldNamespace]:
        """A new one, marked as an unfinished copy of `source`; or one that is marked so. Raises MessagingError."""
        ...


class Copied(NamedTuple):
    stores: int
    entities: int
    messages: int
    size_bytes: int


def copy_namespace(
    source: NamespaceEnd, target: NamespaceEnd, now: Millis, told: Callable[[int, int], None] = lambda _, __: None
) -> Copied:
    """`told(store, rows)` after each commit. Raises MessagingError; then the source is as it was."""
    if str(source) == str(target):
        raise ArgumentError(f"{target} is the source and the target. Name another target.")
    with source.hold(now) as ours:
        if ours.mark() != CopyMark(MOVED, str(target)):
            require_whole(ours.mark(), ours.mark_place)
        with target.hold_new(now, ours.store_count, str(source)) as theirs:
            messages = size_bytes = 0
            for number in range(ours.store_count):
                count, size = _copy_store(ours, theirs, number, told)
                messages, size_bytes = messages + count, size_bytes + size
            entities = copy_catalog(ours.catalog, theirs.catalog)
            theirs.keep_root_key(ours.root_key())
            ours.set_mark(CopyMark(MOVED, str(target)))
            theirs.set_mark(None)
            return Copied(ours.store_count, entities, messages, size_bytes)


def _copy_store(
    ours: HeldNamespace, theirs: HeldNamespace, number: int, told: Callable[[int, int], None]
) -> tuple[int, int]:
    """The number of messages and of their bytes."""
    with closing(ours.open_store(number)) as source, closing(theirs.open_store(number)) as target:
        if damage := source.damage():
            raise StoreDamaged(
                f"Messaging store {number} has damaged messages that were set aside ({damage[0]}). Accept their loss with "
                f"'twinbus store accept-loss {number}', then copy again."
            )
        mark = theirs.mark()
        assert mark is not None
        if mark.sequences.get(str(number)) != source.next_sequence:
            clear(target)
            theirs.set_mark(replace(mark, sequences={**mark.sequences, str(number): source.next_sequence}))
        transfer(source, target, lambda rows: told(number, rows))
        fragments = require_same(source, target, f"Messaging store {number}")
        theirs.stored(number)
    count = sum(each.active_count + each.deferred_count + each.scheduled_count for each in fragments)
    return count, sum(each.size_bytes for each in fragments)


def _is_unfinished(mark: CopyMark | None, source: str) -> bool:
    return mark is not None and (mark.kind, mark.other) == (UNFINISHED, source)


class FolderEnd:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path.resolve())

    @contextmanager
    def hold(self, now: Millis, *, is_taken_back: bool = False) -> Iterator["HeldFolder"]:
        if not (self.path / STORE_COUNT_FILE).exists():
            raise ArgumentError(
                f"No namespace has its data in {self.path}. Name the folder of one, such as ./twinbus-data/shop."
            )
        with closing(DataFolder(self.path)) as folder:
            count = len(known_store_paths(self.path))
            held = HeldFolder(folder, count, now, was_in_use=True, is_taken_back=is_taken_back)
            with closing(held.catalog):
                yield held

    @contextmanager
    def hold_new(self, now: Millis, store_count: int, source: str) -> Iterator["HeldFolder"]:
        with closing(DataFolder(self.path)) as folder:
            mark = read_mark(folder.copy_mark(), str(folder.copy_mark_file))
            if not _is_unfinished(mark, source):
                if (self.path / STORE_COUNT_FILE).exists() and (mark is None or mark.kind == MOVED):
                    raise ArgumentError(
                        f"{self.path} holds a namespace already. Move it away, or copy to another folder."
                    )
                require_whole(mark, str(folder.copy_mark_file))
                folder.set_copy_mark(CopyMark(UNFINISHED, source).text())
            held = HeldFolder(folder, store_count, now)
            with closing(held.catalog):
                yield held


class HeldFolder:
    def __init__(
        self,
        folder: DataFolder,
        store_count: int,
        now: Millis,
        *,
        was_in_use: bool = False,
        is_taken_back: bool = False,
    ) -> None:
        self._folder = folder
        self._paths = folder.store_paths(store_count)
        self.catalog: CatalogDatabase = CatalogFile(
            folder.path / CATALOG, folder.path.name, now, was_in_use=was_in_use, is_taken_back=is_taken_back
        )

    @property
    def store_count(self) -> int:
        return len(self._paths)

    @property
    def mark_place(self) -> str:
        return str(self._folder.copy_mark_file)

    def mark(self) -> CopyMark | None:
        return read_mark(self._folder.copy_mark(), self.mark_place)

    def set_mark(self, mark: CopyMark | None) -> None:
        self._folder.set_copy_mark(None if mark is None else mark.text())

    def open_store(self, number: int, *, is_taken_back: bool = False) -> DurableStore:
        return open_store(self._paths[number], is_taken_back=is_taken_back)

    def numbers_left_out(self, number: int) -> None:
        restored(witness_of(self._paths[number]))

    def stored(self, number: int) -> None:
        """Its witness knows it already."""

    def root_key(self) -> str:
        return self._folder.root_rule(None).primary_key

    def keep_root_key(self, key: str) -> None:
        self._folder.keep_root_key(key)


class PostgresEnd:
    """In these databases, as `--store` names them. Needs the extra."""

    def __init__(self, dsns: Sequence[str], namespace: str) -> None:
        from twinbus.store.postgres.place import CatalogPlace, Owner

        self.dsns = dsns
        self.place = CatalogPlace(dsns[0], namespace)
        self._owner = Owner.this_process()

    def __str__(self) -> str:
        return str(self.place)

    def hold(self, now: Millis, *, is_taken_back: bool = False) -> AbstractContextManager["HeldSchemas"]:
        """The catalog went back with its database, which no mark outlives."""
        return self._held(None, now)

    @contextmanager
    def hold_new(self, now: Millis, store_count: int, source: str) -> Iterator["HeldSchemas"]:
        with self._held(store_count, now) as held:
            if not _is_unfinished(held.mark(), source):
                require_whole(held.mark(), held.mark_place)
                if not held.is_unused():
                    raise ArgumentError(
                        f"{self} holds a namespace already. Drop its schemas, or copy to another database."
                    )
                held.set_mark(CopyMark(UNFINISHED, source))
            yield held

    @contextmanager
    def _held(self, store_count: int | None, now: Millis) -> Iterator["HeldSchemas"]:
        from twinbus.management.catalog_postgres import PostgresCatalog
        from twinbus.store.postgres.lease import LeaseKeeper

        with closing(LeaseKeeper(lambda _, __: None, boot_time)) as keeper:
            try:
                catalog = PostgresCatalog(self.place, self._owner, store_count, now, keeper)
            except StoreInUse:
                raise
            except StoreUnavailable as refused:
                raise ArgumentError(str(refused)) from refused
            with closing(catalog):
                yield HeldSchemas(catalog, self.dsns, self._owner, keeper)


class HeldSchemas:
    def __init__(
        self, catalog: "PostgresCatalog", dsns: Sequence[str], owner: "Owner", renewal: "LeaseRenewal"
    ) -> None:
        self.catalog = catalog
        self._dsns = dsns
        self._owner = owner
        self._renewal = renewal

    @property
    def store_count(self) -> int:
        return len(self.catalog.places(self._dsns))

    @property
    def mark_place(self) -> str:
        return f"table copy in {self.catalog.place}"

    def is_unused(self) -> bool:
        return is_unused(self.catalog) and not any(place.is_created for place in self.catalog.places(self._dsns))

    def mark(self) -> CopyMark | None:
        return read_mark(self.catalog.copy_mark(), self.mark_place)

    def set_mark(self, mark: CopyMark | None) -> None:
        self.catalog.set_copy_mark(None if mark is None else mark.text())

    def open_store(self, number: int, *, is_taken_back: bool = False) -> DurableStore:
        from twinbus.store.postgres.store import PostgresStore

        return PostgresStore(self.catalog.places(self._dsns)[number], self._owner, renewal=self._renewal)

    def numbers_left_out(self, number: int) -> None:
        """The schema is its own witness, and went back with it."""

    def stored(self, number: int) -> None:
        self.catalog.mark_created(number)

    def root_key(self) -> str:
        rules = {rule.name: rule for rule in Catalog(self.catalog).namespace_rules()}
        if ROOT_RULE_NAME not in rules:
            raise ArgumentError(f"The namespace in {self.catalog.place} was never served. There is nothing to copy.")
        return rules[ROOT_RULE_NAME].primary_key

    def keep_root_key(self, key: str) -> None:
        """It came with the catalog, unless the folder's own file was changed since."""
        catalog = Catalog(self.catalog)
        known = {rule.name: rule for rule in catalog.namespace_rules()}.get(ROOT_RULE_NAME)
        root = known or AuthorizationRule(ROOT_RULE_NAME, key, "", frozenset(Right))
        catalog.set_namespace_rule(replace(root, primary_key=key))
