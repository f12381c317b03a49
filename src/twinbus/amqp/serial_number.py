"""Serial numbers of 32 bits that wrap around (AMQP 1.0 part 2, section 2.8.10; RFC 1982): transfer-ids, delivery-ids, delivery-counts.

Of two numbers, the later one is less than half the circle ahead. A session with 50,000 messages a second wraps within a
day, so nothing may compare such numbers with `<`.
"""

MASK = 0xFFFFFFFF
HALF = 0x80000000


def add(number: int, count: int) -> int:
    """The number `count` steps after `number`, or before it if `count` is negative."""
    return (number + count) & MASK


def distance(start: int, end: int) -> int:
    """Steps from `start` to `end`; negative if `end` is the earlier one."""
    steps = (end - start) & MASK
    return steps if steps < HALF else steps - MASK - 1


def span(first: int, last: int) -> int:
    """How many numbers the range first..last holds; 0 if `last` is before `first`."""
    return max(0, distance(first, last) + 1)
