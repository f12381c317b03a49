"""A program that is killed over a tripwire, and run again until it is done.

calm run            everything passes
run with a number   dies over that frame, unless it is done before
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from tests.pipeline.kills.tripwire import Tripwire, kill_session

RUNS_MAX = 8


class DoomedProgram:
    """`command` is what Python is given; its output goes to the log."""

    def __init__(
        self, wire: Tripwire, command: Sequence[str], log: Path, environment: Mapping[str, str], run_s_max: float
    ) -> None:
        self._wire = wire
        self._command = [sys.executable, *command]
        self._log = log
        self._environment = {**os.environ, **environment}
        self._run_s_max = run_s_max
        self._frame_count = 0  # that passed in the last run
        self._has_died = False

    def run(self, number: int = 0, *, goes_on: bool = False) -> int:
        """The exit code, that of a kill where it was killed."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        self._wire.set(lambda: kill_session(process.pid), number, goes_on=goes_on)
        try:
            return process.wait(self._run_s_max)
        finally:
            self._frame_count = self._wire.count
            self._wire.set(lambda: None, 0, goes_on=True)
            kill_session(process.pid)
            process.wait()

    def run_and_die(self, dice: Random, frames: int, times: int) -> None:
        """`frames` is about what the whole work takes; a program that has less left to do may survive."""
        for _ in range(times):
            if self.run(dice.randrange(1, frames + 1), goes_on=dice.random() < 0.5) == 0:
                found = self._frame_count
                assert self._has_died or 2 * found >= frames, (
                    f"all of it took {found} frames of {frames}: hardly anybody would die"
                )
                return
            self._has_died = True

    def run_to_the_end(self) -> None:
        """A run may fail because of what the one before it has left; the next one goes on."""
        for _ in range(RUNS_MAX):
            if self.run() == 0:
                return
        raise AssertionError(self._log.read_text()[-3000:])
