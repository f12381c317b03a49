"""How the credit of one receiver is shared out among the parts of a queue. Pure: numbers in, numbers out.

What is given to a part is its *demand*: it may hand over that much without asking. All demand together never exceeds the credit that the
receiver gave, so nothing is locked, let alone removed, for a receiver that did not ask for it. The price is that credit lies at a part
that has nothing while another one has more than its share: that one says so (it is *ready*), and the idle ones are asked to give
back what they have not used.

    no credit is left over: it is of no use here
    every part gets one, those that are ready first; the rest goes to those that are ready, or evenly if none is
    a ready part has less than an idle one --> the idle one is asked to give back, unless it has one and there is one for each
"""

from collections.abc import Sequence
from typing import NamedTuple


class DemandPlan(NamedTuple):
    given: list[int]  # by part: how much more it may hand over
    recalled: list[int]  # parts that are asked to give back what they have not used


def plan_demand(credit: int, parts: int, ready: Sequence[bool], outstanding: Sequence[int]) -> DemandPlan:
    """`credit`: what is not given to any part. `outstanding`: what the parts have and have not used, as far as is known."""
    assert len(ready) == len(outstanding) == parts
    if not parts:
        return DemandPlan([], [])
    given = [0] * parts
    order = sorted(range(parts), key=lambda part: (not ready[part], outstanding[part]))
    for part in order:
        if credit > 0 and not outstanding[part]:
            given[part] = 1
            credit -= 1
    if credit > 0:
        takers = [part for part in order if ready[part]] or order
        _level(given, outstanding, takers, credit)
    least = min([outstanding[part] + given[part] for part in range(parts) if ready[part]], default=None)
    if least is None:
        return DemandPlan(given, [])
    is_scarce = credit + sum(given) + sum(outstanding) < parts
    kept = max(least, 0 if is_scarce else 1)
    recalled = [part for part in range(parts) if not ready[part] and outstanding[part] > kept]
    return DemandPlan(given, recalled)


def _level(given: list[int], outstanding: Sequence[int], takers: Sequence[int], credit: int) -> None:
    """Share credit out so that those who have least get most."""
    levels = sorted(takers, key=lambda part: outstanding[part] + given[part])
    for place, part in enumerate(levels, 1):
        # Raise all up to this one to the level of the next, as far as the credit goes.
        level = outstanding[part] + given[part]
        following = outstanding[levels[place]] + given[levels[place]] if place < len(levels) else None
        step = credit // place if following is None else min(following - level, credit // place)
        for each in levels[:place]:
            given[each] += step
        credit -= step * place
        if following is None or step < following - level:
            for each in levels[:credit]:
                given[each] += 1
            return
