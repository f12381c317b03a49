"""The pace of checkpoints: which stores of a process commit right now in, when a checkpoint goes on out.

Somebody waits for a commit, and nobody for a checkpoint. Both need the interpreter and the disk, so a checkpoint is work in
slices of about SLICE_S. While commits come, it rests after each slice REST times as long as that took, begins none during a commit,
and the checkpoints of all stores take turns. A checkpoint that is hurried, because the journal is full again or the store is
being closed, does none of this; so a process that is busy throughout writes its tables as fast as it can.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLICE_S = 0.0004
RECENT_S = 0.1
"""Commits that are further apart than this are left alone by a checkpoint's slices often enough."""
REST = 3
GIVE_WAY_S = 0.005
"""The longest rest: commits that follow each other without a gap must not stop a checkpoint."""
LOOK_S = 0.0003
TURN_WAIT_S = 30.0
"""Longer than this nobody waits for his turn: the disk of whoever has it may hang."""
TURN_LOOK_S = 0.05


class CommitTraffic:
    """What the stores of a process have under way. Each calls it from its own thread; single calls of a set are whole."""

    def __init__(self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self.now = now
        self._sleep = sleep
        self._committing: set[int] = set()
        self._ended_at = -RECENT_S
        self.turn = threading.Lock()  # of the checkpoint that is written

    def began(self, store: int) -> None:
        self._committing.add(store)

    def ended(self, store: int) -> None:
        self._committing.discard(store)
        self._ended_at = self.now()

    def rest(self, seconds: float) -> None:
        """So long if commits come, and longer while there is one; GIVE_WAY_S at most."""
        now = self.now()
        if not self._committing and now - self._ended_at >= RECENT_S:
            return
        self._sleep(min(seconds, GIVE_WAY_S))
        while self._committing and self.now() - now < GIVE_WAY_S:
            self._sleep(LOOK_S)


class Pace:
    """Of one checkpoint, on its thread."""

    def __init__(self, traffic: CommitTraffic, is_hurried: Callable[[], bool]) -> None:
        self._traffic = traffic
        self.is_hurried = is_hurried
        self._began_at = traffic.now()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """As soon as no other checkpoint has it; or this one is hurried, or has waited for long."""
        turn, now = self._traffic.turn, self._traffic.now
        give_up_at = now() + TURN_WAIT_S
        while not (has_turn := turn.acquire(timeout=TURN_LOOK_S)):
            if self.is_hurried() or now() >= give_up_at:
                break
        try:
            yield
        finally:
            if has_turn:
                turn.release()

    def give_way(self) -> None:
        """Called after every piece of work, however small."""
        took = self._traffic.now() - self._began_at
        if took >= SLICE_S and not self.is_hurried():
            self._traffic.rest(REST * took)
            self._began_at = self._traffic.now()
