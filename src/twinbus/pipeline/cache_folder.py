"""Files that can be generated again at any time, for this user: a name and a function for the bytes in, a path out."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_CACHE_HOME")
    folder = Path(given) if given else Path(environment.get("HOME") or Path.home()) / ".cache"
    return folder / "twinbus"


def put(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Several processes may write it at once: each replaces it whole, and nobody sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)
    os.chmod(unfinished, mode)
    os.replace(unfinished, file)
