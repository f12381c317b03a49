"""What may be under way at the same time: messages in order in, waves of them out.

A sender has many batches under way and hears of the fate of one when others have long arrived. If a batch has to be
sent again, a later one of the same key must not be there yet: so a wave holds one batch's worth of each key, and the next
wave waits for it. Keys do not wait for each other, and messages without a key, which have no order to keep on a
partitioned entity, are all in the first wave.
"""

from collections.abc import Iterable

from twinbus.pipeline.sink.messages import Outgoing

Wave = dict[str, list[bytes]]
"""Payloads by entity."""

MESSAGE_OVERHEAD = 8
ENVELOPE_ALLOWANCE = 1024
"""What a batch has around its messages: two ids of 128 characters and their frame."""


def waves_of(messages: Iterable[Outgoing], size_max: int) -> list[Wave]:
    """`size_max` is that of a batch, in bytes. A larger message is in its wave as well: whoever sends it finds out."""
    waves: list[Wave] = []
    filled: dict[tuple[str, str], tuple[int, int]] = {}
    room = size_max - ENVELOPE_ALLOWANCE
    for entity, key, payload in messages:
        number = 0
        if key is not None:
            size = len(payload) + MESSAGE_OVERHEAD
            number, total = filled.get((entity, key), (0, 0))
            if total and total + size > room:
                number, total = number + 1, 0
            filled[entity, key] = number, total + size
        if number == len(waves):
            waves.append({})
        waves[number].setdefault(entity, []).append(payload)
    return waves
