"""The operations log of a namespace: its book, and the thread that writes it."""

import asyncio
from pathlib import Path

from twinbus.clock import Clock, Millis
from twinbus.errors import InternalError
from twinbus.meter.book import SECOND, OperationsBook
from twinbus.meter.recorder import OperationsRecorder, Rotate
from twinbus.meter.rotation import rotate_in_child


class Metering:
    """Lives on the event loop."""

    def __init__(
        self,
        folder: Path,
        namespace: str,
        clock: Clock,
        exact_max: int,
        rotate: Rotate = rotate_in_child,
        node: str | None = None,
    ) -> None:
        """`node` names this process in the log where several serve the namespace."""
        self.folder = folder
        self.book = OperationsBook(clock, exact_max)
        self._clock = clock
        self._recorder = OperationsRecorder(folder, namespace, node or namespace, rotate)
        self._handed_at: Millis = 0

    def start(self) -> None:
        self._recorder.start()

    def tick(self, now: Millis) -> None:
        """At every beat collect what the links noted; once a second hand the rows of the last second to the thread."""
        self.book.write_down()
        if 0 <= now - self._handed_at < SECOND:
            return
        self._handed_at = now
        self._recorder.hand(now, self.book.take(is_behind=self._recorder.is_behind))

    async def flush(self) -> None:
        """Raises InternalError if the rows cannot be written as Parquet; they are kept."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def flushed(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_finish, done, error)

        self._recorder.flush(self._clock.now(), self.book.take_all(), flushed)
        await done

    async def stop(self) -> None:
        """Call it when no more operations can happen."""
        await asyncio.to_thread(self._recorder.stop, self._clock.now(), self.book.take_all())


def _finish(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(InternalError(f"The operations log could not be written: {error} See the server's log."))
