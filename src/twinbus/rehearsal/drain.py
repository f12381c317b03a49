"""Draining the backlog with the syphon as a separate process; `spark_drain` does it with the Spark job."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Protocol

from twinbus.errors import MessagingError
from twinbus.rehearsal.interruption import uninterrupted
from twinbus.rehearsal.stage import Stage

STOP_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Drained:
    """`seconds` includes the start of a process, but not that of Spark."""

    moved: int
    dead_lettered: int
    seconds: float


class Drain(Protocol):
    """`prepare` runs before anything is measured, `drain` once all faults are over, `close` last and always."""

    def prepare(self) -> None: ...

    def drain(self, stage: Stage) -> Drained: ...

    def close(self) -> None: ...


class ProcessDrain:
    def prepare(self) -> None:
        """Nothing to do: the process starts quickly."""

    def drain(self, stage: Stage) -> Drained:
        return _drain_by_process(stage)

    def close(self) -> None:
        """Nothing to do: the process has ended."""


def _drain_by_process(stage: Stage) -> Drained:
    """Until the backlog is empty. Raises MessagingError with the output of the process if it fails."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "twinbus", "syphon", "--until-empty", "--json", "--primary-name", stage.name]
    if stage.secondary.endpoint is not None:
        command += ["--secondary-endpoint", stage.secondary.endpoint]
    # Connection strings contain keys, and everyone on the machine can read the arguments of a process.
    secrets = {
        "TWINBUS_PRIMARY": stage.primary.connection_string,
        "TWINBUS_SECONDARY": stage.secondary.connection_string,
    }
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **secrets},
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate()
    except BaseException:
        with uninterrupted():
            end(process, STOP_WAIT_S)
        raise
    if process.returncode != 0:
        raise MessagingError(f"The syphon failed: {complaint.strip() or process.returncode}")
    tally = json.loads(said)[0]
    return Drained(tally["moved"], tally["dead_lettered"], time.monotonic() - begun)


def end(process: subprocess.Popen[str], wait_s: float) -> None:
    """Terminate it, and kill it if it does not end in time: nobody is left to end it later."""
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
