"""How many processes serve a namespace best on this machine, if nobody says.

One for every two cores: under load a process takes one, its stores half of another, and the applications need some too. On two
cores one process with its stores and the load fill both, which was measured; for more cores it follows from the processor time of
a message with one, two and four processes (docs/benchmarks.md). At most four: each takes memory whether it is needed or not.
"""

import os
from pathlib import Path

CORES_EACH = 2
COUNT_MAX = 4
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What a container may use: microseconds in a period, and the period."""


def best_process_count(cores: int, store_count: int) -> int:
    return max(1, min(cores // CORES_EACH, COUNT_MAX, store_count))


def cores_here(quota: Path = QUOTA) -> int:
    """That this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text().split()
        return max(1, min(cores, int(allowed) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # there is none
        return cores
