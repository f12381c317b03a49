"""ULIDs: 48 bits of time and 80 of anything, as 26 characters that sort by time."""

from twinbus.clock import Millis

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26
TAIL_BITS = 80
PLACE_BITS = 32
SEED_BITS = TAIL_BITS - PLACE_BITS
"""How the tail of an operation's id is made up: a seed that its run of operations has, and its place in the run."""

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]


def ulid(at: Millis, tail: int) -> str:
    """`tail` is what tells those of the same millisecond apart: below 2 ** 80."""
    value = at << TAIL_BITS | tail
    # Two characters at a time: a log has millions of these.
    return "".join([_PAIRS[value >> shift & 0x3FF] for shift in range(120, -1, -10)])
