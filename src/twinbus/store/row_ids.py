"""How the tables of every medium name a row: the slot of its fragment and the counter of its number in one integer."""

from twinbus.store.change_rules import COUNTER_BITS

COUNTER_MASK = (1 << COUNTER_BITS) - 1


def row_id(slot: int, number: int) -> int:
    return slot << COUNTER_BITS | number & COUNTER_MASK
