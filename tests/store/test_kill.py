"""Goal: what was acknowledged is there after kill -9, at whatever moment it comes.

Method: a process commits and prints what was acknowledged; it is killed after some lines, the folder is
opened and compared, and the next process goes on in the same folder.
"""

import signal
import subprocess
import sys
from pathlib import Path

from tests.store import committing_process
from tests.store.committing_process import FRAGMENT, content
from twinbus.model.wire_names import MessageState
from twinbus.store.folder.store import FolderStore


def acknowledged_by_a_killed_process(folder: Path, line_count: int) -> dict[str, int]:
    """The last number of each kind that the process printed."""
    command = [sys.executable, "-m", committing_process.__name__, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(line_count)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    whole = (line.split() for line in lines if line.endswith("\n"))
    return {kind: int(number) for kind, number in whole}


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    left_before: set[int] = set()
    for line_count in (1, 40, 151, 302, 500):
        acknowledged = acknowledged_by_a_killed_process(tmp_path, line_count)
        store = FolderStore(tmp_path)
        rows = store.scan(FRAGMENT, 0, 1_000_000, 1 << 40, tuple(MessageState))
        assert all(row.content == content(row.sequence_number) for row in rows)
        found = {row.sequence_number for row in rows}
        removed = acknowledged.get("removed", 0)
        assert found >= set(range(10, acknowledged["enqueued"] + 1, 10))
        # At most the last removal was not acknowledged, and it happened whole or not at all.
        left = {number for number in found if number % 10}
        assert left >= left_before
        assert all(number > removed for number in left - left_before)
        assert len(left - left_before) in (0, 9)
        left_before = left
        store.close()
