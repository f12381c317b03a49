"""Time as a process has it: without what it spent ready to run while others had the processors.

On a busy machine a test takes longer and is no slower. Its processor time is the same, but says nothing of what waits, so tests are
chosen and limited by this instead.
"""

import time
from contextlib import suppress
from pathlib import Path


def unhindered_time(pid: int) -> float:
    """Seconds from some moment on, of the main thread of a process. All the time that passes, where Linux does not say more."""
    hindered_ns = 0
    with suppress(OSError):
        # Time on a processor, time in line for one, and how often.
        hindered_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return time.monotonic() - hindered_ns / 1e9
