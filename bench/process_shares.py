"""Processor time and memory of a benchmark, by kind of process: the id of its first process in, shares out. From /proc.

client    the benchmark itself, with Spark's driver       loop      the event loop of a namespace that it serves
JVM       Spark                                           stores    the process that keeps its messaging stores
workers   Spark's Python processes
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processor_time import children_of

KINDS = ("client", "JVM", "workers", "loop", "stores")
RESET_PEAK = "5"  # in clear_refs: see proc(5)


@dataclass(slots=True)
class Share:
    """Of all processes of a kind: seconds with those of children that have ended, and the largest one's peak of memory."""

    seconds: float = 0.0
    megabytes: float = 0.0


def shares(pid: int) -> dict[str, Share]:
    found = {kind: Share() for kind in KINDS}
    for kind, process in _processes(pid, "client"):
        try:
            fields = process.joinpath("stat").read_text().rsplit(")", 1)[1].split()
            peak = re.search(r"VmHWM:\s+(\d+) kB", process.joinpath("status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        share = found[kind]
        share.seconds += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
        share.megabytes = max(share.megabytes, int(peak[1]) / 1024 if peak is not None else 0.0)
    return found


def forget_peaks(pid: int) -> None:
    """What is the most memory is counted from now on."""
    for _, process in _processes(pid, "client"):
        try:
            process.joinpath("clear_refs").write_text(RESET_PEAK)
        except OSError:
            continue


def _processes(pid: int, kind: str) -> Iterator[tuple[str, Path]]:
    process = Path(f"/proc/{pid}")
    try:
        words = process.joinpath("cmdline").read_bytes().split(b"\0")
        children = children_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    kind = _kind(words, kind)
    yield kind, process
    for child in children:
        yield from _processes(child, kind)


def _kind(words: list[bytes], parent: str) -> str:
    if parent in ("loop", "stores"):
        return "stores"
    if b"serve" in words:
        return "loop"
    if words[0].endswith(b"java"):
        return "JVM"
    return "workers" if parent == "JVM" or any(b"pyspark" in word for word in words) else parent
