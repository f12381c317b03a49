"""Remove the messages of a queue, in steps: by the operation of twinbus, elsewhere by receiving them."""

from dataclasses import dataclass

from twinbus.clock import SystemClock
from twinbus.errors import MessagingError, NotImplementedHere
from twinbus.model.paths import SubQueue, parse_address
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_list import read_entity
from twinbus.portal.work.jobs import Job, Work, counted

STEP = 1_000
WAIT_S = 2.0


COUNTS = {
    SubQueue.MAIN: "ActiveMessageCount",
    SubQueue.DEAD_LETTER: "DeadLetterMessageCount",
    SubQueue.TRANSFER_DEAD_LETTER: "TransferDeadLetterMessageCount",
}


@dataclass(frozen=True, slots=True)
class MessageCount:
    """`count` is None if the namespace does not say. `is_of_all`: in any state; otherwise of those that can be received."""

    count: int | None
    is_of_all: bool


async def count_messages(bus: Bus, path: str) -> MessageCount:
    try:
        heads = await (await bus.amqp()).extras(path).fragment_heads()
    except NotImplementedHere:
        return MessageCount(await _administered_count(bus, path), False)
    except MessagingError:
        return MessageCount(None, True)
    return MessageCount(sum(head.active + head.deferred + head.scheduled for head in heads), True)


async def _administered_count(bus: Bus, path: str) -> int | None:
    try:
        return (await read_entity(bus, path)).number(COUNTS[parse_address(path).sub_queue])
    except (MessagingError, KeyError):
        return None  # the key may not ask


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
