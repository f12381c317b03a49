"""Work in the background: something that reports its progress in, a job that pages can show and stop out."""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from twinbus.errors import EntityNotFound, QuotaExceeded
from twinbus.portal.namespaces.sentences import sentence_of

log = logging.getLogger(__name__)

KEPT_MAX = 100
RUNNING_MAX = 20
LINES_MAX = 2_000


class JobState(Enum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Job:
    """`total` is None where nobody knows it. `back` is the page that the work was started from."""

    id: str
    title: str
    back: str
    owner: str = field(repr=False)
    total: int | None = None
    done: int = 0
    said: str = ""
    state: JobState = JobState.RUNNING
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    report: str | None = None  # HTML of a report that the work made
    is_stopping: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING

    @property
    def seconds(self) -> float:
        return (self.ended_s if self.ended_s is not None else time.monotonic()) - self.started_s

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def tell(self, said: str | None = None, done: int | None = None, total: int | None = None) -> None:
        """How far it is."""
        self.said = self.said if said is None else said
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def note(self, line: str) -> None:
        self.lines.append(line)
        self.tell()


Work = Callable[[Job], Awaitable[str]]
"""Does it, tells the job how far it is, looks at `is_stopping` between two steps, and returns what it did as a sentence."""


def counted(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


class Jobs:
    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, title: str, back: str, owner: str, work: Work) -> Job:
        """Raises QuotaExceeded while too much runs."""
        if sum(job.is_running for job in self._jobs.values()) >= RUNNING_MAX:
            raise QuotaExceeded(f"{RUNNING_MAX} actions are running. Wait until one ends, or stop one.")
        job = Job(secrets.token_hex(8), title, back, owner)
        self._jobs[job.id] = job
        for old in [each.id for each in self._jobs.values() if not each.is_running][
            : max(0, len(self._jobs) - KEPT_MAX)
        ]:
            del self._jobs[old]
        self._tasks[job.id] = asyncio.create_task(self._run(job, work))
        return job

    def of(self, owner: str) -> list[Job]:
        """The newest first."""
        return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    def get(self, owner: str, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise EntityNotFound(
                "The portal does not know this action, or no longer does. 'Running work' lists the known ones."
            )
        return job

    def stop(self, job: Job) -> None:
        """After the step that it is at."""
        job.is_stopping = True
        job.tell()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            said = await work(job)
            job.state = JobState.STOPPED if job.is_stopping else JobState.DONE
        except asyncio.CancelledError:
            said, job.state = "The portal stopped.", JobState.STOPPED
        except Exception as error:
            job.state = JobState.FAILED
            said = sentence_of(error) or f"Unexpected error: {error!r}."
            if sentence_of(error) is None:
                log.exception("job=%s failed", job.id)
        finally:
            self._tasks.pop(job.id, None)
        job.ended_s = time.monotonic()
        job.tell(said)
