"""Whether whoever made something still lives: a file that it holds until it ends, however it does.

Numbers of processes do not tell: they are given again, and those of another container mean nothing here.
"""

import fcntl
from pathlib import Path
from typing import BinaryIO


def hold(path: Path) -> BinaryIO | None:
    """Held until it is closed, at the latest by the end of this process. None if somebody holds it, or it cannot be opened."""
    try:
        file = path.open("ab")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def hold_new(path: Path) -> BinaryIO:
    """As `hold`, of a file that nobody finds before it is held."""
    hidden = path.with_name(f".{path.name}")
    held = hold(hidden)
    assert held is not None, f"{hidden} cannot be held"
    hidden.rename(path)
    return held
