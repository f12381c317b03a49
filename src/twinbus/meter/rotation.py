"""Spools become Parquet: `python -m twinbus.meter.rotation FOLDER`, or `rotate` in this process.

A server has it done by a process of its own: pyarrow takes 50 MB and most of a second just to be there, and what it
does would hold up the event loop. A spool is removed when its files have their names; whoever dies before that has the
same files made anew by the next one.
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
    """The spools stay, and are tried again with the next ones."""


def rotate(operations: Path) -> list[Path]:
    """The files made of all spools that nobody holds."""
    return [path for spool in spool_files(operations) for path in _rotate_one(operations, spool)]


def rotate_in_child(operations: Path) -> None:
    """As `rotate`, in a process that is waited for. Raises RotationFailed."""
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
        raise RotationFailed(lines[-1] if lines else f"It ended with {error.returncode}.") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RotationFailed(str(error)) from None


def _rotate_one(operations: Path, spool: Path) -> list[Path]:
    from twinbus.meter.log import write_operations

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
            # What stands before the damage is in the log; somebody may want to look at the rest.
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
