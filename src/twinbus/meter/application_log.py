"""The operations log of an application: a `Meter` for a pair whose namespaces keep no log of their own.

    with OperationsWriter(folder, "contoso", node="checkout-7") as meter:
        options = SendAvailabilityPairedNamespaceOptions(meter=meter)

The files are the same as those of a server, so the same bill reads them.
"""

import threading
from pathlib import Path
from types import TracebackType

from twinbus.clock import Clock, SystemClock
from twinbus.meter.book import EXACT_PER_SECOND_DEFAULT, OperationsBook
from twinbus.meter.operation import Operation
from twinbus.meter.recorder import OperationsRecorder, Rotate
from twinbus.meter.rotation import rotate_in_child

HAND_OVER_S = 1.0


class OperationsWriter:
    """Any thread may report to it until it is closed."""

    def __init__(
        self,
        folder: Path,
        namespace: str,
        node: str,
        *,
        clock: Clock | None = None,
        exact_per_second_max: int = EXACT_PER_SECOND_DEFAULT,
        rotate: Rotate = rotate_in_child,
    ) -> None:
        self._clock = clock or SystemClock()
        self._book = OperationsBook(self._clock, exact_per_second_max)
        self._lock = threading.Lock()
        self._recorder = OperationsRecorder(folder, namespace, node, rotate)
        self._is_closing = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._hand_over, name="twinbus-operations", daemon=True)
        self._recorder.start()
        self._thread.start()

    def __enter__(self) -> "OperationsWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def record(self, operation: Operation, /) -> None:
        with self._lock:
            self._book.record(operation)

    def flush(self) -> None:
        """Returns when everything reported so far is in Parquet. Raises the error if that fails."""
        done = threading.Event()
        failure: list[BaseException | None] = []

        def flushed(error: BaseException | None) -> None:
            failure.append(error)
            done.set()

        with self._lock:
            if self._is_closed:
                return
            self._recorder.flush(self._clock.now(), self._book.take_all(), flushed)
        done.wait()
        if failure[0] is not None:
            raise failure[0]

    def close(self) -> None:
        """Writes everything to Parquet, then returns."""
        if not self._is_closing.is_set():
            self._is_closing.set()
            self._thread.join()
            with self._lock:
                self._is_closed = True
                self._recorder.stop(self._clock.now(), self._book.take_all())

    def _hand_over(self) -> None:
        while not self._is_closing.wait(HAND_OVER_S):
            with self._lock:
                rows = self._book.take(is_behind=self._recorder.is_behind)
                self._recorder.hand(self._clock.now(), rows)
