"""Messages from JSON lines to an entity: lines in, messages sent, with the number of every line that was refused."""

from collections.abc import Sequence

from twinbus.errors import ArgumentError, MessagingError
from twinbus.portal.messages.records import parse_line
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work.jobs import Job, Work, counted

STEP = 500
FAULTS_SHOWN = 100


def read_lines(text: str) -> list[tuple[int, bytes]]:
    """The messages with their line numbers. Nothing is sent if one of them is wrong: ArgumentError says which."""
    found = []
    # Other characters that end a line of text may stand in JSON.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found.append((number, parse_line(line)))
            except ArgumentError as wrong:
                raise ArgumentError(f"Line {number}: {wrong} Nothing was sent.") from None
    if not found:
        raise ArgumentError('There is no line to send. Each line is a message as JSON, such as {"body": "hello"}.')
    return found


def loading(bus: Bus, path: str, messages: Sequence[tuple[int, bytes]]) -> Work:
    async def work(job: Job) -> str:
        job.tell(f"Sending to {path}.", total=len(messages))
        refused = 0
        async with bus.own_amqp() as namespace:
            sender = await namespace.sender(path)
            for start in range(0, len(messages), STEP):
                if job.is_stopping:
                    break
                part = messages[start : start + STEP]
                outcomes: Sequence[MessagingError | None] = await sender.send([payload for _, payload in part])
                for (number, _), fault in zip(part, outcomes, strict=True):
                    if fault is not None:
                        refused += 1
                        if refused <= FAULTS_SHOWN:
                            job.note(f"line {number}: {fault}")
                job.tell(done=start + len(part))
            await sender.close()
        if refused:
            raise ArgumentError(
                f"{job.done - refused:,} messages sent to {path}, {refused:,} refused. The reasons are below."
            )
        return f"{counted(job.done)} sent to {path}."

    return work
