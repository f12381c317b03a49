"""Turns spools into Parquet: `python -m twinbus.meter.rotation FOLDER`, or `rotate` in this process.

A server runs it in a separate process: importing pyarrow alone takes 50 MB and most of a second, and its work would hold up the
event loop. A spool is removed once its files have their final names; if the process dies before that, the next one writes the
same files again.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from twinbus.meter.spool import End, SpoolHeld, SpoolReader, spool_files

DAMAGED_SUFFIX = ".damaged"
MODULE = "twinbus.meter.rotation"
NICENESS = 10
CHILD_MAX_S = 300.0


class RotationFailed(Exception):
    """The spools stay and are tried again with the next ones."""


def rotate(operations: Path) -> list[Path]:
    """Rotates all spools that no process holds; returns the new files. One that fails, such as a file of another user, keeps no other
    waiting; its failure is raised at the end."""
    made: list[Path] = []
    failure: Exception | None = None
    for spool in spool_files(operations):
        try:
            made += _rotate_one(operations, spool)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return made


def rotate_in_child(operations: Path) -> None:
    """Like `rotate`, in a separate process; waits for it. Raises RotationFailed."""
    try:
        subprocess.run(
            [sys.executable, "-m", MODULE, str(operations)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=CHILD_MAX_S,
            # Ctrl-C is for the server, which waits for this.
            start_new_session=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise RotationFailed(lines[-1] if lines else f"The process ended with code {error.returncode}.") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RotationFailed(str(error)) from None


def _rotate_one(operations: Path, spool: Path) -> list[Path]:
    from twinbus.meter.log_writer import write_operations

    try:
        reader = SpoolReader(spool)
    except (SpoolHeld, FileNotFoundError):
        return []
    made: list[Path] = []
    try:
        if reader.facts is not None:
            facts = reader.facts
            made = write_operations(operations, facts.namespace, facts.name, facts.seed, reader.rows())
        if reader.end is End.DAMAGED:
            # The rows before the damage are in the log; the file stays for whoever wants to look at the rest.
            spool.rename(spool.with_name(spool.name + DAMAGED_SUFFIX))
        else:
            spool.unlink()
    finally:
        reader.close()
    return made


def main(arguments: Sequence[str]) -> None:
    os.nice(NICENESS)
    rotate(Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
