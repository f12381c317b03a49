"""Seconds of processor time that a process and all its children took, from /proc; a namespace keeps its stores in a child."""

import os
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


def processor_seconds(pid: int) -> float | None:
    """Includes children that have ended. None if there is no such process, or no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        # Of all threads: a JVM starts its Python workers from whichever it likes.
        children = [child for each in threads_of(pid) for child in each.joinpath("children").read_text().split()]
    except FileNotFoundError:
        return None
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(int(child)) or 0.0 for child in children)
