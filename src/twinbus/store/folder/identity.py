"""Gone is not empty: what a store was is kept in its folder and outside of it, and a store that differs is refused.

    stores/NN/identity     random, written when everything that a new store consists of is there
    known-stores/NN        on the namespace's side: `new`, then the same; the witness
    known-stores/NN.commits    how many commits it took, as far as known (`commit_mark`)
    known-stores/NN.accepted   somebody accepted that what is missing or damaged is lost; `numbers` if numbers given out are among it

A volume that is not mounted looks like an empty folder. So a store whose witness knows an identity opens only with that one, and
a folder with an identity only with its tables and its journal. A witness that does not exist belongs to a namespace of a
version that kept none: its folder is taken as it is, if it holds tables.

A store that took fewer commits than its witness knows of has lost some at its end, or is an older copy of itself. Whoever brought it
back says so (`restored`), so that no number that was given out since is given out again.
"""

import os
import re
from pathlib import Path

from twinbus.errors import StoreGone
from twinbus.store.folder.commit_mark import CommitMark, read_mark, remove_mark
from twinbus.store.folder.journal import make_folder, sync_folder
from twinbus.store.folder.private_file import write_private
from twinbus.store.folder.tables import FILE_NAME

IDENTITY_NAME = "identity"
IDENTITY_BYTES = 16
IDENTITY = re.compile("[0-9a-f]{32}")
NEW = "new"
ACCEPTED_SUFFIX = ".accepted"
COMMITS_SUFFIX = ".commits"
NUMBERS_LOST = "numbers"
ADVICE = (
    "Mount its volume or restore the folder. If what it held is lost, accept that with 'twinbus store accept-loss'."
)


class StoreIdentity:
    """Of one folder, and its witness if there is one."""

    def __init__(self, folder: Path, witness: Path | None) -> None:
        self._folder = folder
        self._witness = witness
        # In this order, for somebody may be creating the store: it has its identity before its witness has it.
        self._known = None if witness is None else _read(witness)
        self._own = _read(folder / IDENTITY_NAME)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever kept here, as far as is known."""
        return self._own is None

    @property
    def holds_nothing(self) -> bool:
        """Whether nothing was ever committed here. A store that is being created has tables before it has an identity."""
        return self._own is None and (self._known == NEW or not (self._folder / FILE_NAME).exists())

    @property
    def is_loss_accepted(self) -> bool:
        return self._witness is not None and accepted_mark(self._witness).exists()

    @property
    def are_numbers_lost(self) -> bool:
        """Whether the accepted loss has numbers that were given out, and that only clients know."""
        return self._witness is not None and _read(accepted_mark(self._witness)) == NUMBERS_LOST

    def note_lost_numbers(self) -> None:
        """Before the first of them is given up, so that it is known until the store has opened, even if the process ends first."""
        assert self._witness is not None
        if not self.are_numbers_lost:
            write_private(accepted_mark(self._witness), f"{NUMBERS_LOST}\n")

    def require(self) -> None:
        """Raises StoreGone if there was a store that is not in this folder."""
        has_tables = (self._folder / FILE_NAME).exists()
        if self._known not in (None, NEW, self._own):
            state = "is missing or empty" if self._own is None else "holds another store"
            raise StoreGone(f"{self._folder} {state}, and the messaging store has been in use. {ADVICE}")
        if self._own is not None and not has_tables:
            raise StoreGone(f"{self._folder / FILE_NAME} is missing. {ADVICE}")
        if self._witness is not None and self._known is None and self._own is None and not has_tables:
            raise StoreGone(f"{self._folder} is missing or empty, and its namespace has been in use. {ADVICE}")

    @property
    def last_commit(self) -> int:
        return 0 if self._witness is None else read_mark(_commits_file(self._witness))

    def commit_mark(self) -> CommitMark | None:
        return None if self._witness is None else CommitMark(_commits_file(self._witness))

    def forget_commits(self) -> None:
        """Those that are missing are given up."""
        if self._witness is not None:
            remove_mark(_commits_file(self._witness))

    def keep(self) -> None:
        """The store is open and whole: from now on it must be found here. Durable before anything is committed."""
        if self._own is None or not IDENTITY.fullmatch(self._own):
            # Also in the place of one that was damaged, for that need not be what is read back.
            self._own = os.urandom(IDENTITY_BYTES).hex()
            write_private(self._folder / IDENTITY_NAME, f"{self._own}\n")
        if self._witness is not None:
            if self._known != self._own:
                make_folder(self._witness.parent)
                write_private(self._witness, f"{self._own}\n")
                self._known = self._own
            if (accepted := accepted_mark(self._witness)).exists():
                accepted.unlink()
                sync_folder(accepted.parent)  # it was for what was lost until now


def announce_new(witness: Path) -> None:
    """A store that will be created: an empty folder is no loss yet."""
    make_folder(witness.parent)
    if not witness.exists():
        write_private(witness, f"{NEW}\n")


def has_known_stores(witnesses: Path) -> bool:
    """Whether any store that has its witness in this folder was ever in use."""
    return any(_read(each) not in (None, "", NEW) for each in witnesses.glob("*") if each.name.isdecimal())


def accept_loss(witness: Path) -> None:
    """The next opening goes on with what is whole, and sets everything else aside."""
    make_folder(witness.parent)
    if not accepted_mark(witness).exists():
        write_private(accepted_mark(witness), "\n")


def restored(witness: Path) -> None:
    """The store was taken back to an earlier moment on purpose, and gives out nothing again that was given out since."""
    remove_mark(_commits_file(witness))


def _commits_file(witness: Path) -> Path:
    return witness.with_name(witness.name + COMMITS_SUFFIX)


def accepted_mark(witness: Path) -> Path:
    return witness.with_name(witness.name + ACCEPTED_SUFFIX)


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
