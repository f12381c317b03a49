"""How often a message was forwarded, kept beside the number it had at its first point of submission.

A row has one integer for where a message came from. While the message lies in a queue that forwards it, where no
receiver sees it, the bits above every sequence number hold the count of hops; everywhere else they are empty.

    bits 0-53  sequence number with its fragment        bits 56-58  hops
"""

HOPS_MAX = 4
_SHIFT = 56
_NUMBER = (1 << _SHIFT) - 1


def with_hops(number: int, hops: int) -> int:
    assert 0 <= hops <= HOPS_MAX
    return number & _NUMBER | hops << _SHIFT


def hops_of(origin: int) -> int:
    return origin >> _SHIFT


def without_hops(origin: int) -> int:
    return origin & _NUMBER
