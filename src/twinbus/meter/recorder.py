"""The thread that writes the operations log: rows go into a spool at once, and into Parquet every few minutes.

    hand(rows) > spool --5 min, 64 MB or another hour--> closed --rotate--> Parquet, and the spool is removed

Rotation runs beside appending. Rows that cannot be written are kept and tried again; `is_behind` asks the caller to add rows
up in the meantime. Spools that a killed process left behind are rotated by the next one.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.meter.log_format import HOUR, SEED_BITS
from twinbus.meter.operation import Operation
from twinbus.meter.spool import Spool, SpoolFacts, spool_files

AGE_MAX: Millis = 300_000
SIZE_MAX = 64 * 1024 * 1024
BEHIND_MAX = 20
"""How many batches of rows may wait to be written; one comes about every second."""

log = logging.getLogger(__name__)

Rotate: TypeAlias = Callable[[Path], object]
"""Turn the spools in a folder of operations that no process holds into Parquet; raises if that fails."""
Flushed: TypeAlias = Callable[[BaseException | None], None]


@dataclass(frozen=True, slots=True)
class _Handed:
    now: Millis
    rows: Sequence[Operation]
    flushed: Flushed | None = None
    is_last: bool = False


class OperationsRecorder:
    """`node` names this process and becomes part of file names."""

    def __init__(self, folder: Path, namespace: str, node: str, rotate: Rotate) -> None:
        self._folder = folder
        self._namespace = namespace
        self._node = node
        self._rotate = rotate
        self._inbox: queue.SimpleQueue[_Handed] = queue.SimpleQueue()
        self._spool: Spool | None = None
        self._refused: list[Operation] = []
        self._rotating = ThreadPoolExecutor(1, thread_name_prefix="twinbus-rotation")
        self._thread = threading.Thread(target=self._run, name="twinbus-meter", daemon=True)

    def start(self) -> None:
        self._rotating.submit(self._rotate_closed)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        return bool(self._refused) or self._inbox.qsize() > BEHIND_MAX

    def hand(self, now: Millis, rows: Sequence[Operation]) -> None:
        """Returns at once. Call it every second, even without rows: it is also the recorder's clock."""
        if rows or self._inbox.qsize() <= BEHIND_MAX:
            self._inbox.put(_Handed(now, rows))

    def flush(self, now: Millis, rows: Sequence[Operation], flushed: Flushed) -> None:
        """`flushed` is called on the recorder's thread once everything handed over is in Parquet, or has failed to get there."""
        self._inbox.put(_Handed(now, rows, flushed))

    def stop(self, now: Millis, rows: Sequence[Operation]) -> None:
        """Write the last rows, rotate everything, and wait until that is done."""
        self._inbox.put(_Handed(now, rows, is_last=True))
        self._thread.join()
        self._rotating.shutdown()

    def _run(self) -> None:
        while True:
            handed = self._inbox.get()
            refusal = self._append(handed)
            if handed.flushed is not None or handed.is_last or self._is_due(handed.now):
                self._close_spool()
                future = self._rotating.submit(self._rotate_closed)
                if handed.flushed is not None:
                    future.add_done_callback(_telling(handed.flushed, refusal))
            if handed.is_last:
                return

    def _append(self, handed: _Handed) -> OSError | None:
        """Why rows could not be written, which are kept then."""
        rows = [*self._refused, *handed.rows]
        if not rows:
            return None
        try:
            if self._spool is None:
                seed = int.from_bytes(os.urandom(SEED_BITS // 8))
                self._spool = Spool(self._folder, SpoolFacts(self._namespace, self._node, handed.now, seed))
            self._spool.append(rows)
        except OSError as error:
            if not self._refused:
                log.error("operations_not_written", extra={"fields": {"rows": len(rows), "reason": str(error)}})
            self._refused = rows
            return error
        self._refused = []
        return None

    def _is_due(self, now: Millis) -> bool:
        if self._spool is None:
            return False
        started_at = self._spool.facts.started_at
        is_other_time = not 0 <= now - started_at < AGE_MAX or now // HOUR != started_at // HOUR
        return is_other_time or self._spool.size >= SIZE_MAX

    def _close_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _rotate_closed(self) -> None:
        if not spool_files(self._folder):
            return
        try:
            self._rotate(self._folder)
        except Exception as error:
            log.error("operations_not_rotated", extra={"fields": {"reason": str(error)}})
            raise


def _telling(flushed: Flushed, refusal: OSError | None) -> Callable[["Future[None]"], None]:
    return lambda future: flushed(refusal or future.exception())
