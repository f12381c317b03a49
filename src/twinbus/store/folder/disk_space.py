"""How much space the disk of a folder has."""

import os
from pathlib import Path

from twinbus.store.room import UNKNOWN_SPACE, Space


def space_of(folder: Path) -> Space:
    """For whoever is not root, for whom a file system may keep some."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return UNKNOWN_SPACE  # whoever writes there hears what is wrong
    return Space(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
