"""Long requests and answers in steps: work that takes a while in, the loop served in between.

Everything else a namespace does happens on the same thread, so whatever goes through thousands of entities rests now and then.
"""

import asyncio
import time

STEP_S = 0.002
"""Of the thread's own time: a machine that is busy with other things does not make more rests."""


class Pace:
    def __init__(self) -> None:
        self._since = time.thread_time()

    async def rest(self) -> None:
        """Let the loop go on if this has worked for a while. What others change may be different afterwards."""
        if time.thread_time() - self._since >= STEP_S:
            await asyncio.sleep(0)
            self._since = time.thread_time()
