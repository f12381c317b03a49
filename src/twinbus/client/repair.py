"""A repair of a whole queue or sub-queue: page after page over its fragments, with a standing to show after each page.

    async for standing in repair_all(namespace.extras("orders/$DeadLetterQueue"), Repair(filter="colour = 'red'")):
        print(standing.repaired, "of", standing.total)

Each page is one request, so a repair is stopped by not asking for the next one, and continued by starting again: what has been
repaired is gone from there. Messages that arrive after the start are left alone, or a message that fails again and again would
be repaired for ever. A fragment that is unavailable is passed over and named. Any other fault is raised, and the standing that was
given last says what had been repaired by then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from twinbus.client.entity_extras import EntityExtras, FragmentHead, Refusal, Repair, RepairPage, RepairPreview
from twinbus.errors import InternalError, MessagingError, ServerBusy
from twinbus.model.wire_names import SEQUENCE_BITS

REFUSALS_KEPT = 100
NUMBERS_MAX = 1_000
BUSY_PAUSE_S = 0.5
BUSY_MAX = 120
"""Times in a row that a page may be put off because the namespace is busy: a minute."""

Pause = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class RepairStanding:
    total: int  # messages to look at, as counted at the start
    repaired: int = 0
    examined: int = 0
    held: int = 0  # would have been repaired, but somebody holds them
    refused: int = 0
    refusals: list[Refusal] = field(default_factory=list)  # the first ones
    passed_over: dict[int, MessagingError] = field(default_factory=dict)  # fragments, and why

    def add(self, page: RepairPage) -> None:
        self.repaired += page.repaired
        self.examined += page.examined
        self.held += page.held
        self.refused += page.refused
        self.refusals += page.refusals[: REFUSALS_KEPT - len(self.refusals)]


async def repair_all(
    extras: EntityExtras, repair: Repair, pause: Pause = asyncio.sleep
) -> AsyncIterator[RepairStanding]:
    heads = await extras.fragment_heads()
    standing = RepairStanding(total=sum(map(_count, heads)))
    if not standing.total and heads[0].is_available:
        # There is nothing to look at. A request that makes no sense is refused all the same; no message has this number.
        nothing = heads[0].fragment << SEQUENCE_BITS
        standing.add(await extras.repair_range(repair, nothing, nothing))
    yield standing
    for head in heads:
        following: int | None = head.first_number
        try:
            if not head.is_available:
                raise InternalError(f"Fragment {head.fragment} of '{extras.path}' is unavailable. Try again later.")
            while following is not None and following <= head.last_number:
                ask = partial(extras.repair_range, repair, following, head.last_number)
                page = await _unless_busy(ask, pause)
                standing.add(page)
                following = page.next_number
                yield standing
        except InternalError as error:
            standing.passed_over[head.fragment] = error
            yield standing


async def repair_numbered(
    extras: EntityExtras, repair: Repair, numbers: Sequence[int], pause: Pause = asyncio.sleep
) -> AsyncIterator[RepairStanding]:
    """Messages by their sequence numbers. Those that are gone, or in another state, are not examined."""
    standing = RepairStanding(total=len(numbers))
    by_fragment: dict[int, list[int]] = {}
    for number in numbers:
        by_fragment.setdefault(number >> SEQUENCE_BITS, []).append(number)
    for fragment, chosen in by_fragment.items():
        try:
            for start in range(0, len(chosen), NUMBERS_MAX):
                left = chosen[start : start + NUMBERS_MAX]
                while left:
                    page = await _unless_busy(partial(extras.repair_numbers, repair, left), pause)
                    standing.add(page)
                    yield standing
                    following = page.next_number
                    left = [] if following is None else [number for number in left if number >= following]
        except InternalError as error:
            standing.passed_over[fragment] = error
            yield standing


async def preview_all(extras: EntityExtras, repair: Repair, count_max: int = 10) -> list[RepairPreview]:
    """What a repair would do with the first messages that it would touch, fragment after fragment."""
    previews: list[RepairPreview] = []
    for head in await extras.fragment_heads():
        following: int | None = head.first_number if head.is_available else None
        while following is not None and following <= head.last_number and len(previews) < count_max:
            page = await extras.preview_repair(repair, following, head.last_number, count_max - len(previews))
            previews += page.previews
            following = page.next_number
    return previews


def _count(head: FragmentHead) -> int:
    return head.active + head.deferred + head.scheduled


async def _unless_busy(ask: Callable[[], Awaitable[RepairPage]], pause: Pause) -> RepairPage:
    """A namespace that is busy forwards what was repaired before: it only takes time."""
    for _ in range(BUSY_MAX):
        try:
            return await ask()
        except ServerBusy:
            await pause(BUSY_PAUSE_S)
    return await ask()
