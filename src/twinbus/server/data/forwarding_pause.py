"""How a backup makes the processes of a namespace pause their forwarding while it copies the stores.

    backup                                each process that serves stores, a few times a second

    locks `backup-lock`                   sees that it is locked: lets no message begin its way
    waits for `forwarding-lock`           has no message on its way any more: gives its share of it back
    locks `forwarding-lock`, copies       cannot have a share
    unlocks both                          has a share again: goes on

Only a process that shares `forwarding-lock` forwards, so none that starts or starts again meanwhile does. Both are file locks,
which the system takes from a process that ends, however it does: after a backup that died, forwarding goes on.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twinbus.broker.forwarding_gate import ForwardingGate
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, StoreInUse, StoreUnavailable
from twinbus.server.data.folder_lock import (
    BACKUP_LOCK,
    FORWARDING_LOCK,
    LOOK_PATIENCE_S,
    FolderNotWritten,
    open_lock,
    take,
    take_within,
)

log = logging.getLogger(__name__)

LOOK_EVERY: Millis = 250
PATIENCE_S = 30.0
"""More than a message waits for a store that does not answer (`SILENCE_MAX`)."""


class ForwardingShare:
    """Of the right to forward; of a process that serves stores in this folder. Raises StoreUnavailable if the folder cannot be written."""

    def __init__(self, folder: Path, gate: ForwardingGate, is_forwarding: Callable[[], bool], now: Millis) -> None:
        self._gate = gate
        self._is_forwarding = is_forwarding
        self._backup = open_lock(folder, BACKUP_LOCK)
        try:
            self._forwarding = open_lock(folder, FORWARDING_LOCK)
        except BaseException:
            os.close(self._backup)
            raise
        self._has_share = False
        self._is_paused = False
        self._look_at: Millis = now + LOOK_EVERY
        gate.close()
        self._look(now)

    def tick(self, now: Millis) -> None:
        # A clock that was set back must not keep it from looking.
        if now >= self._look_at or now < self._look_at - LOOK_EVERY:
            self._look_at = now + LOOK_EVERY
            self._look(now)

    def close(self) -> None:
        os.close(self._forwarding)
        os.close(self._backup)

    def _look(self, now: Millis) -> None:
        if not take(self._backup, fcntl.LOCK_SH):
            self._gate.close()
            if not self._is_paused:
                # A backup that was suspended keeps it so, and nothing else would say why messages stay.
                log.info("forwarding_paused", extra={"fields": {"reason": "a backup is being made"}})
                self._is_paused = True
            if self._has_share and not self._is_forwarding():
                fcntl.flock(self._forwarding, fcntl.LOCK_UN)
                self._has_share = False
            return
        fcntl.flock(self._backup, fcntl.LOCK_UN)
        self._has_share = self._has_share or take(self._forwarding, fcntl.LOCK_SH)
        if self._has_share and not self._gate.is_open:
            self._gate.open(now)
            if self._is_paused:
                log.info("forwarding_goes_on")
                self._is_paused = False


@contextmanager
def paused_forwarding(folder: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Of the namespace in this folder, whether or not it is served: inside, no message leaves one store for another.

    Raises StoreInUse while there is another backup, StoreUnavailable if messages are on their way for too long, and ArgumentError if
    the folder cannot be written.
    """
    backup = _open_for_backup(folder, BACKUP_LOCK)
    try:
        if not take_within(backup, fcntl.LOCK_EX, LOOK_PATIENCE_S):
            raise StoreInUse(f"Another backup of the namespace in {folder} is being made. Wait until it ends.")
        forwarding = _open_for_backup(folder, FORWARDING_LOCK)
        try:
            if not take_within(forwarding, fcntl.LOCK_EX, patience_s):
                raise StoreUnavailable(
                    f"The namespace in {folder} did not finish forwarding messages within {patience_s:.0f} s, and the backup "
                    "would lack those on their way. Check that all stores work ('twinbus store list'), then try again."
                )
            yield
        finally:
            os.close(forwarding)
    finally:
        os.close(backup)


def _open_for_backup(folder: Path, name: str) -> int:
    try:
        return open_lock(folder, name)
    except FolderNotWritten as refused:
        raise ArgumentError(
            f"A backup locks files in {folder} so that forwarding pauses, and they cannot be written: {refused.reason}. Run it as "
            "the user that serves the namespace, where the folder is not read-only."
        ) from None
