"""A limited batch whose fragments advance together in time: where they stand and a limit in, how far each is read out.

Fragments are not equally full. With equal shares of the limit a batch would reach the newest messages of a quiet fragment
while a busy one is hours behind, and a watermark over the enqueued times, which follows the newest, would drop what the busy
one still has. So a time is searched before which there are at most as many messages as the limit allows, and every fragment
is read up to it: no message of a later batch is older than one of an earlier batch.

In a fragment times rise with numbers, so a time has one place in it. Places are bracketed by asking for the times of a few
numbers of all fragments in one request, and the brackets narrowed by asking again.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.model.message_limits import TIMES_COUNT_MAX
from twinbus.pipeline.source.planning import fair_shares
from twinbus.pipeline.source.ranges import Range

Ask: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[tuple[int, Millis] | None]]]
"""For each number, the first message with it or above in its fragment: its number, and when it was enqueued."""

ROUNDS_MAX = 24
"""Of questions for one batch. With eight numbers of each fragment in a round, three are enough for a batch of thousands."""
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

    def to_ask(self, low: int, high: int, count: int) -> list[int]:
        """Numbers that cut the bracket; what is known already is not asked for again."""
        width = high - low
        if width <= 0:
            return []
        known = set(self.numbers)
        places = (low + width * place // (count + 1) for place in range(count + 1))
        return [number for number in dict.fromkeys(places) if number not in known]


async def time_shares(room: Mapping[int, Range], limit: int, turn: int, ask: Ask) -> dict[int, int]:
    """How many numbers each fragment may advance; `room` has where it stands and where it ends.

    More messages of one millisecond than the limit allows are shared equally: none of them is older than another.
    """
    fragments = {fragment: _Times(*span, limit) for fragment, span in sorted(room.items()) if span[0] < span[1]}
    if sum(each.end - each.first for each in fragments.values()) <= limit or len(fragments) == 1:
        return fair_shares({fragment: each.end - each.first for fragment, each in fragments.items()}, limit, turn)
    count = max(1, min(8, TIMES_COUNT_MAX // len(fragments)))
    wanted = {f: [*each.to_ask(each.first, each.reach, count), each.reach - 1] for f, each in fragments.items()}
    time = later = float("-inf")
    for _ in range(ROUNDS_MAX):
        await _learn(fragments, wanted, ask)
        time, later = _best_time(fragments, limit)
        reached = {fragment: each.bracket(time)[1] - each.first for fragment, each in fragments.items()}
        if sum(reached.values()) >= FILLED * limit:
            break
        wanted = {f: each.to_ask(each.bracket(time)[0], each.bracket(later)[1], count) for f, each in fragments.items()}
        if not any(wanted.values()):
            break
    if sum(each.bracket(time)[1] - each.first for each in fragments.values()) == 0:
        time = later
    for _ in range(ROUNDS_MAX):
        wanted = {f: each.to_ask(*each.bracket(time), count) for f, each in fragments.items()}
        if not any(wanted.values()):
            break
        await _learn(fragments, wanted, ask)
    return fair_shares({f: each.bracket(time)[1] - each.first for f, each in fragments.items()}, limit, turn)


async def _learn(fragments: Mapping[int, _Times], wanted: Mapping[int, Sequence[int]], ask: Ask) -> None:
    asked = [(fragments[fragment], number) for fragment, numbers in wanted.items() for number in numbers]
    for start in range(0, len(asked), TIMES_COUNT_MAX):
        some = asked[start : start + TIMES_COUNT_MAX]
        for (times, number), found in zip(some, await ask([number for _, number in some]), strict=True):
            times.learn(number, found)


def _best_time(fragments: Mapping[int, _Times], limit: int) -> tuple[float, float]:
    """The latest known time before which there are surely not more messages than the limit, and the next known one."""
    known = sorted({time for each in fragments.values() for time in each.times})
    best = known[0]
    for time in known:
        if sum(each.bracket(time)[1] - each.first for each in fragments.values()) > limit:
            return best, time
        best = time
    return best, float("inf")
