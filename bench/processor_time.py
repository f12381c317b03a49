"""Seconds of processor time that a process and all its children took, from /proc; a namespace keeps its stores in a child."""

import os
from contextlib import suppress
from pathlib import Path


def own_seconds(pid: int) -> float:
    """Of this process alone, as long as it lives."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def started_at(pid: int) -> int:
    """In ticks since the machine started."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def threads_of(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def children_of(pid: int) -> set[int]:
    """Of all threads: a JVM starts its Python workers from whichever it likes, and some of them end meanwhile."""
    found: set[int] = set()
    for thread in threads_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, thread.joinpath("children").read_text().split()))
    return found


def processor_seconds(pid: int) -> float | None:
    """Includes children that have ended. None if there is no such process, or no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = children_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(child) or 0.0 for child in children)
