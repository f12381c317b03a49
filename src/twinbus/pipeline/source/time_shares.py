"""A limited batch whose fragments advance together in time: where they stand and a limit in, how far each is read out.

Fragments are not equally full. With equal shares of the limit a batch would reach the newest messages of a quiet fragment
while a busy one is hours behind, and a watermark over the enqueued times, which follows the newest, would drop what the busy
one still has. So a time is searched before which there are at most as many messages as the limit allows, and every fragment
is read up to it: no message of a later batch is older than one of an earlier batch.

In a fragment times rise with numbers, so a time has one place in it. Places are bracketed by asking for the times of a few
numbers of all fragments in one request, and the brackets narrowed by asking again.

    numbers of a fragment   first ......... low ... high ......... end
    messages before a time  surely those    perhaps those   surely not those

What surely fits decides how far a batch may go, and what surely is in it whether the batch is large enough: in a large backlog
the brackets of all fragments together are at first wider than the limit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.model.message_limits import TIMES_COUNT_MAX
from twinbus.pipeline.source.planning import fair_shares
from twinbus.pipeline.source.ranges import Range

Ask: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[tuple[int, Millis] | None]]]
"""For each number, the first message with it or above in its fragment: its number, and when it was enqueued."""

ROUNDS_MAX = 24
"""Of questions for one batch. With eight numbers of each bracket in a round, five are enough for a backlog of millions."""
NUMBERS_MAX = 8
"""Of one bracket in a round, besides its first."""
FILLED = 0.75
"""Of the limit: a batch that has this share of it is not made larger by further questions."""


class _Times:
    """What is known of one fragment: at each of these numbers, the time of the first message from there on."""

    def __init__(self, first: int, end: int, reach: int) -> None:
        self.first, self.end = first, end
        self.reach = min(end, first + reach)
        """No batch goes further."""
        self.numbers: list[int] = []
        self.times: list[float] = []

    def learn(self, number: int, found: tuple[int, Millis] | None) -> None:
        """Messages may be gone: nothing is between the number and the one that was found."""
        time = float("inf") if found is None else found[1]
        for known in {number, self.end if found is None else min(found[0], self.end)}:
            place = bisect_left(self.numbers, known)
            if place == len(self.numbers) or self.numbers[place] != known:
                self.numbers.insert(place, known)
                self.times.insert(place, time)

    def bracket(self, time: float) -> Range:
        """The first message that is not older than `time` is at the first of these numbers or above, and not above the last."""
        place = bisect_left(self.times, time)
        low = self.first if place == 0 else min(self.numbers[place - 1] + 1, self.end)
        return low, self.numbers[place] if place < len(self.numbers) else self.end

    def to_ask(self, brackets: Iterable[Range], count: int) -> list[int]:
        """Numbers that cut the brackets; what is known already is not asked for again."""
        places = [
            low + (high - low) * place // (count + 1)
            for low, high in brackets
            for place in range(count + 1)
            if low < high
        ]
        known = set(self.numbers)
        return [number for number in dict.fromkeys(places) if number not in known]


async def time_shares(room: Mapping[int, Range], limit: int, turn: int, ask: Ask) -> dict[int, int]:
    """How many numbers each fragment may advance; `room` has where it stands and where it ends.

    More messages of one millisecond than the limit allows are shared equally: none of them is older than another.
    """
    fragments = {fragment: _Times(*span, limit) for fragment, span in sorted(room.items()) if span[0] < span[1]}
    available = {fragment: each.end - each.first for fragment, each in fragments.items()}
    if sum(available.values()) <= limit or len(fragments) == 1:
        return fair_shares(available, limit, turn)
    # Two brackets of each fragment in a request: that of a time, and that of the next one that is known.
    count = max(1, min(NUMBERS_MAX, TIMES_COUNT_MAX // (2 * len(fragments)) - 1))
    wanted = {f: [*each.to_ask([(each.first, each.reach)], count), each.reach - 1] for f, each in fragments.items()}
    time = later = float("-inf")
    for _ in range(ROUNDS_MAX):
        await _learn(fragments, wanted, ask)
        time, later = _best_time(fragments, limit)
        if sum(each.bracket(time)[0] - each.first for each in fragments.values()) >= FILLED * limit:
            break
        wanted = {f: each.to_ask((each.bracket(time), each.bracket(later)), count) for f, each in fragments.items()}
        if not any(wanted.values()):
            break
    if _count_before(fragments, time) == 0:
        time = later
    for _ in range(ROUNDS_MAX):
        wanted = {f: each.to_ask([each.bracket(time)], count) for f, each in fragments.items()}
        if not any(wanted.values()):
            break
        await _learn(fragments, wanted, ask)
    reached = {fragment: each.bracket(time)[1] - each.first for fragment, each in fragments.items()}
    # Where the clock of the namespace was set back, times fall, and there may seem to be nothing before the earliest one.
    return fair_shares(reached if any(reached.values()) else available, limit, turn)


async def _learn(fragments: Mapping[int, _Times], wanted: Mapping[int, Sequence[int]], ask: Ask) -> None:
    asked = [(fragments[fragment], number) for fragment, numbers in wanted.items() for number in numbers]
    for start in range(0, len(asked), TIMES_COUNT_MAX):
        some = asked[start : start + TIMES_COUNT_MAX]
        for (times, number), found in zip(some, await ask([number for _, number in some]), strict=True):
            times.learn(number, found)


def _best_time(fragments: Mapping[int, _Times], limit: int) -> tuple[float, float]:
    """The latest known time before which there are surely not more messages than the limit, and the next known one."""
    known = sorted({time for each in fragments.values() for time in each.times})
    place = bisect_right(known, limit, key=lambda time: _count_before(fragments, time))
    return known[max(0, place - 1)], known[place] if place < len(known) else float("inf")


def _count_before(fragments: Mapping[int, _Times], time: float) -> int:
    """At most; exactly where brackets are closed."""
    return sum(each.bracket(time)[1] - each.first for each in fragments.values())
