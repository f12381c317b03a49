"""How nodes name a hold on a message session to each other."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from twinbus.clock import Millis


class Holder(NamedTuple):
    """Who holds a message session: a node, and the number it knows the hold by at the owner."""

    node: int
    number: int


def hold_numbers(now: Millis) -> Iterator[int]:
    """For the holds that a node gives, at any line. Not even a former process of it has given one of them: news that a hold has moved
    comes on another line than the hold itself, and so may come after that line, or that process, has ended."""
    return count(now << 20)
