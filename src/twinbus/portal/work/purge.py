"""Remove the messages of a queue, in steps: by the operation of twinbus, elsewhere by receiving them."""

from twinbus.clock import SystemClock
from twinbus.errors import MessagingError, NotImplementedHere
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work.jobs import Job, Work, counted

STEP = 1_000
WAIT_S = 2.0


async def count_messages(bus: Bus, path: str) -> int | None:
    """In any state; None if the namespace does not say."""
    try:
        heads = await (await bus.amqp()).extras(path).fragment_heads()
    except (NotImplementedHere, MessagingError):
        return None
    return sum(head.active + head.deferred + head.scheduled for head in heads)


def purging(bus: Bus, path: str, total: int | None) -> Work:
    async def work(job: Job) -> str:
        job.tell(f"Removing messages from {path}.", total=total)
        before = SystemClock().now()
        async with bus.own_amqp() as namespace:
            try:
                extras = namespace.extras(path)
                while not job.is_stopping and (removed := await extras.purge(STEP, before)):
                    job.tell(done=job.done + removed)
            except NotImplementedHere:
                receiver = await namespace.receiver(path, credit=STEP, deletes=True)
                while not job.is_stopping and (found := await receiver.receive(STEP, WAIT_S)):
                    job.tell(done=job.done + len(found))
                await receiver.close()
        left = " Stopped: the rest is still there." if job.is_stopping else ""
        return f"{counted(job.done)} removed from {path}.{left}"

    return work
