"""The folder that a backup or a restoration makes: where it may be, whether it fits there, and whom it belongs to."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from twinbus.errors import ArgumentError
from twinbus.server.data.data_folder import STORE_COUNT_FILE
from twinbus.store.folder.disk_space import space_of


def require_elsewhere(folder: Path, stores: Sequence[Path] = ()) -> None:
    """Not inside a namespace, whose stores may be on volumes of their own, nor inside a backup, which would not be what was written any
    more. Raises ArgumentError."""
    volumes = {store.resolve() for store in stores}
    for above in folder.resolve().parents:
        if above in volumes or os.path.lexists(above / STORE_COUNT_FILE):
            raise ArgumentError(
                f"{folder} is in {above}, which belongs to a namespace or backup. Name a folder elsewhere."
            )


def require_room(folder: Path, size: int) -> None:
    """For so many bytes, above what messaging stores on that disk keep free. Raises ArgumentError."""
    space = space_of(highest_missing(folder).absolute().parent)
    room = max(space.free - space.reserve, 0)
    if size > room:
        raise ArgumentError(
            f"{folder} needs up to {size:,} bytes, and its disk has {room:,.0f} left above the reserve of messaging stores. "
            "Free some space, or name a folder on another disk."
        )


def highest_missing(folder: Path) -> Path:
    """The folder, or the highest one above it that does not exist either."""
    return next((above for above in reversed(folder.parents) if not above.exists()), folder)


def give_to_owner_of(source: Path, made: Path) -> None:
    """What root has copied belongs to whom it was copied from: that user has to read it, and to write it once it is served."""
    if os.geteuid() != 0:
        return
    owner = source.stat()
    for each in (*made.rglob("*"), made):
        # Some file systems know no owners, or let root of another machine change none.
        with suppress(PermissionError):
            os.chown(each, owner.st_uid, owner.st_gid, follow_symlinks=False)
