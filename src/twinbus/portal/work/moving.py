"""Repair where the namespace has no operation for it, such as Azure: receive, change, send, complete.

Without transactions over two entities this is not exact, and the page says so: a crash between sending and completing leaves a
copy, and messages that were looked at and not chosen are given back, which raises their delivery count.
"""

from contextlib import suppress
from dataclasses import dataclass

from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError

from twinbus.amqp.codec.delivery_state import Released
from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import FilterError, MessagingError
from twinbus.portal.messages.filters import Matches, compiled_action, payload_to_send
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work.jobs import Job, Work, counted
from twinbus.portal.work.purge import count_messages
from twinbus.portal.work.repairing import grace

STEP = 200
WAIT_S = 3.0
HELD_MAX = 2_000
"""Messages that are not chosen stay locked until the end, or they would come again and again."""
DIFFERENCES = (
    "This namespace has no repair operation, so messages are received, sent and completed one after the other: a message whose "
    "completion is lost stays as a copy, repaired messages get new numbers and start with a delivery count of 0, and the delivery "
    "count of those that are looked at and not chosen rises by one."
)


NEEDS_NEW_ID = (
    "The destination may detect duplicates, and drop a message whose id it knows. Give it a new one with the action: "
    "SET sys.MessageId = newid()"
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
        is_detecting = move.destination is not None and await _may_detect_duplicates(bus, move.destination)
        # A message that fails again and again comes back while its fellows are moved, and would be moved for ever.
        waiting = (await count_messages(bus, path)).count or None
        left: list[ReceivedMessage] = []
        looked_at = faults = unremoved = 0
        async with bus.own_amqp() as namespace:
            receiver = await namespace.receiver(path, credit=STEP + HELD_MAX)
            sender = None if move.destination is None else await namespace.sender(move.destination)
            while not job.is_stopping and len(left) < HELD_MAX and (waiting is None or looked_at < waiting):
                found = await receiver.receive(STEP if waiting is None else min(STEP, waiting - looked_at), WAIT_S)
                if not found:
                    break
                looked_at += len(found)
                ready, payloads = [], []
                for message in found:
                    try:
                        if chosen(message):
                            payload = payload_to_send(message, action)
                            if is_detecting and ReceivedMessage(payload).message_id == message.message_id:
                                raise FilterError(NEEDS_NEW_ID)
                            payloads.append(payload)
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
                for message, fault in zip(taken, await receiver.complete(taken), strict=True):
                    if fault is None:
                        job.done += 1
                    else:
                        unremoved += 1
                        job.note(f"{message.sequence_number}: not removed: {fault}")
                job.tell()
            await receiver.settle(left, Released())
            await receiver.close()
        text = f"{counted(job.done)} {'removed' if move.destination is None else f'moved to {move.destination}'}."
        if faults:
            text += f" {faults:,} were refused and stay; the reasons are below."
        if unremoved and move.destination is None:
            text += f" {unremoved:,} were not removed; the reasons are below."
        elif unremoved:
            text += f" {unremoved:,} were sent and not removed here, so they exist twice; the reasons are below."
        if len(left) >= HELD_MAX:
            text += f" Stopped after {HELD_MAX:,} others that were not chosen. Repair again to continue, or choose those too."
        return text

    return work


async def _may_detect_duplicates(bus: Bus, path: str) -> bool:
    """A copy that is dropped as a duplicate is accepted all the same, and then the message would be completed."""
    async with bus.administration() as administration:
        try:
            with suppress(ResourceNotFoundError):
                return bool((await administration.get_queue(path)).requires_duplicate_detection)
            return bool((await administration.get_topic(path)).requires_duplicate_detection)
        except ClientAuthenticationError:
            return True  # the key may not ask
