"""Repair by the operation of twinbus: exact, in bounded steps, without receiving anything."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from twinbus.amqp.errors import DecodeError
from twinbus.client.entity_extras import EntityExtras, Repair, RepairPreview
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.repair import RepairStanding, preview_all, repair_all, repair_numbered
from twinbus.errors import FilterError
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.portal.messages.browser import peek
from twinbus.portal.messages.filters import Matches
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work.jobs import Job, Work, counted

GRACE_S = 5.0
"""Before the first message is touched: until then stopping undoes everything."""
NUMBERS_AT_ONCE = 10_000


def repairing(bus: Bus, path: str, repair: Repair, chosen: Matches | None) -> Work:
    """`chosen` selects more exactly than a filter can, such as by the body; None leaves it to the filter of the repair."""

    async def work(job: Job) -> str:
        if not await grace(job):
            return "Nothing was changed."
        job.tell("Repairing. Stop it at any time: every message is either where it was or at its destination.")
        async with bus.own_amqp() as namespace:
            extras = namespace.extras(path)
            standings = (
                repair_all(extras, repair) if chosen is None else _by_number(bus, path, extras, repair, chosen, job)
            )
            last: RepairStanding | None = None
            async for standing in standings:
                last = standing
                job.tell(done=standing.repaired, total=standing.total if chosen is None else None)
                if job.is_stopping:
                    break
        return _said(last, repair, job)

    return work


async def grace(job: Job) -> bool:
    """Whether to go on. The job counts down, and can be stopped."""
    for left in range(int(GRACE_S), 0, -1):
        job.tell(f"Starts in {left} s. Stop it now to change nothing.")
        until = asyncio.get_running_loop().time() + 1
        while asyncio.get_running_loop().time() < until and not job.is_stopping:
            await asyncio.sleep(0.1)
        if job.is_stopping:
            return False
    return True


async def _by_number(
    bus: Bus, path: str, extras: EntityExtras, repair: Repair, chosen: Matches, job: Job
) -> AsyncIterator[RepairStanding]:
    """Messages are chosen page by page, and repaired by their numbers."""
    whole = RepairStanding(total=0)
    heads = {head.fragment: head.last_number for head in await extras.fragment_heads()}
    positions: dict[int, int] = {}
    numbers: list[int] = []
    while True:
        found, positions = await peek(bus, path, positions, PEEK_COUNT_MAX)
        numbers += [number for message in found if (number := _chosen(message, chosen, heads)) is not None]
        whole.examined += len(found)
        if len(numbers) >= NUMBERS_AT_ONCE or (not found and numbers):
            before = whole.repaired
            async for standing in repair_numbered(extras, repair, numbers):
                whole.repaired = before + standing.repaired
                yield whole
                if job.is_stopping:
                    return
            whole.held += standing.held
            whole.refused += standing.refused
            whole.refusals += standing.refusals
            whole.passed_over |= standing.passed_over
            numbers = []
        if not found:
            yield whole
            return


def _chosen(message: ReceivedMessage, chosen: Matches, last: dict[int, int]) -> int | None:
    """Its number; None for what is not chosen, and for what came after the start."""
    number = message.sequence_number or 0
    try:
        return number if number <= last.get(number >> 48, 0) and chosen(message) else None
    except (FilterError, DecodeError):
        return None


def _said(standing: RepairStanding | None, repair: Repair, job: Job) -> str:
    if standing is None:
        return "There was nothing to repair."
    verb = "removed" if repair.removes else "moved"
    text = f"{counted(standing.repaired)} {verb}."
    if standing.held:
        text += f" {standing.held:,} are locked by a receiver and stay."
    if standing.refused:
        text += f" {standing.refused:,} stay, because they cannot be changed or moved; the first reasons are below."
        for refusal in standing.refusals:
            job.note(f"{refusal.sequence_number}: {refusal.reason}")
    for fragment, fault in standing.passed_over.items():
        job.note(f"fragment {fragment}: {fault}")
        text += f" Fragment {fragment} could not be reached."
    return text + (" Stopped: repair again to continue with the rest." if job.is_stopping else "")


async def preview(
    bus: Bus,
    path: str,
    repair: Repair,
    chosen: Matches | None,
    first: Callable[[], Awaitable[Sequence[ReceivedMessage]]],
    count_max: int,
) -> list[RepairPreview]:
    """What would become of the first messages. `first` finds those that `chosen` selects."""
    extras = (await bus.amqp()).extras(path)
    if chosen is None:
        return await preview_all(extras, repair, count_max)
    previews: list[RepairPreview] = []
    for message in await first():
        number = message.sequence_number or 0
        previews += (await extras.preview_repair(repair, number, number, 1)).previews
    return previews
