"""Programs of twinbus that run for long, such as a syphon or a rehearsal: their lines become the lines of a job.

They are processes of their own. Keys go to them by their environment, which other users cannot read, and never by their arguments,
which everybody can.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from twinbus.errors import InternalError
from twinbus.portal.work.jobs import Job, Work

STOP_WAIT_S = 20.0
POLL_S = 0.2
REPORT_SIZE_MAX = 32 * 1_048_576


def running(words: Sequence[str], environment: Mapping[str, str], *, makes_report: bool = False) -> Work:
    """`words` are a command line of twinbus. With `makes_report` it gets `--report FILE`, and the job has what is in it."""

    async def work(job: Job) -> str:
        with tempfile.TemporaryDirectory(prefix="twinbus-portal-") as folder:
            report = Path(folder) / "report.html"
            more = ["--report", str(report)] if makes_report else []
            job.tell(f"twinbus {' '.join(words)}")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "twinbus", *words, *more),
                env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            reading = asyncio.create_task(_read(process, job))
            try:
                while not reading.done() and not job.is_stopping:
                    await asyncio.wait({reading}, timeout=POLL_S)
            finally:
                await _end(process, is_ending=reading.done())
                await asyncio.wait({reading}, timeout=STOP_WAIT_S)
            if report.is_file() and report.stat().st_size < REPORT_SIZE_MAX:
                job.report = report.read_text(encoding="utf-8")
        last = job.lines[-1] if job.lines else ""
        if process.returncode and not job.is_stopping:
            raise InternalError(f"It ended with code {process.returncode}. {last.removeprefix('twinbus: ')}")
        return "Stopped." if job.is_stopping else "It has ended."

    return work


async def _read(process: asyncio.subprocess.Process, job: Job) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        job.note(line.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process, *, is_ending: bool) -> None:
    """`is_ending`: it has closed its output, and only needs the time to exit with its own code."""
    if is_ending and await _has_ended(process):
        return
    _send(process, signal.SIGTERM)
    if not await _has_ended(process):
        _send(process, signal.SIGKILL)
        await process.wait()


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_WAIT_S)
    return process.returncode is not None


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # Not by the process's own methods: they look whether it has ended, and then the loop never learns its exit code.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
