"""Repair where the namespace has no operation for it, such as Azure: receive, change, send, complete.

Without transactions over two entities this is not exact, and the page says so: a crash between sending and completing leaves a
copy, and messages that were looked at and not chosen are given back, which raises their delivery count.
"""

from dataclasses import dataclass

from twinbus.amqp.codec.delivery_state import Released
from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import FilterError, MessagingError
from twinbus.portal.messages.filters import Matches, compiled_action, payload_to_send
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work.jobs import Job, Work, counted
from twinbus.portal.work.repairing import grace

STEP = 200
WAIT_S = 3.0
HELD_MAX = 2_000
"""Messages that are not chosen stay locked until the end, or they would come again and again."""
DIFFERENCES = (
    "This namespace has no repair of its own, so messages are received, sent and completed one after the other: a message whose "
    "completion is lost stays as a copy, repaired messages get new numbers and start with a delivery count of 0, and the delivery "
    "count of those that are looked at and not chosen rises by one."
)


@dataclass(frozen=True, slots=True)
class Move:
    """`destination` is None where messages are removed."""

    destination: str | None
    action: str = ""


def moving(bus: Bus, path: str, move: Move, chosen: Matches) -> Work:
    async def work(job: Job) -> str:
        if not await grace(job):
            return "Nothing was changed."
        job.tell("Moving by receiving.")
        action = compiled_action(move.action)
        left: list[ReceivedMessage] = []
        faults = 0
        async with bus.own_amqp() as namespace:
            receiver = await namespace.receiver(path, credit=STEP + HELD_MAX)
            sender = None if move.destination is None else await namespace.sender(move.destination)
            while not job.is_stopping and len(left) < HELD_MAX:
                found = await receiver.receive(STEP, WAIT_S)
                if not found:
                    break
                ready, payloads = [], []
                for message in found:
                    try:
                        if chosen(message):
                            payloads.append(payload_to_send(message, action))
                            ready.append(message)
                        else:
                            left.append(message)
                    except (FilterError, DecodeError) as error:
                        left.append(message)
                        job.note(f"{message.sequence_number}: {error}")
                sent: list[MessagingError | None] = (
                    [None] * len(ready) if sender is None else await sender.send(payloads)
                )
                taken = [message for message, fault in zip(ready, sent, strict=True) if fault is None]
                for message, fault in zip(ready, sent, strict=True):
                    if fault is not None:
                        faults += 1
                        left.append(message)
                        job.note(f"{message.sequence_number}: {fault}")
                outcomes = await receiver.complete(taken)
                job.tell(done=job.done + sum(fault is None for fault in outcomes))
            await receiver.settle(left, Released())
            await receiver.close()
        text = f"{counted(job.done)} {'removed' if move.destination is None else f'moved to {move.destination}'}."
        if faults:
            text += f" {faults:,} were refused and stay; the reasons are below."
        if len(left) >= HELD_MAX:
            text += (
                f" Stopped after {HELD_MAX:,} others that were not chosen. Repair again to go on, or choose those too."
            )
        return text

    return work
