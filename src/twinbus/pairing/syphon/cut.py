"""How the messages for one destination are cut into chunks that one batch can hold."""

from enum import IntEnum
from typing import TypeAlias

from twinbus.pairing.syphon.transport import Chunk, Taken, Transfer

CHUNK_SIZE_MAX = 240 * 1024
"""Of one batch; the rest of 256 KB is for the envelope."""

Group: TypeAlias = list[tuple[Taken, Transfer]]


class Cut(IntEnum):
    """Coarse to fine; a refused chunk makes the next finer cut be used for its destination.

    A partitioned destination takes a batch only of messages with one key, and where it detects
    duplicates the message id is a key too. Nobody tells us which kind a destination is.
    """

    WHOLE = 0
    BY_KEY = 1
    SINGLE = 2


def first_chunk(path: str, group: Group, cut: Cut) -> Chunk:
    """By key a run of equal ones, not all of one key: taking later ones would overtake those between."""
    count, size = 1, group[0][1].size
    key = group[0][1].key
    for _, transfer in group[1:]:
        size += transfer.size
        if size > CHUNK_SIZE_MAX or cut is Cut.SINGLE or (cut is Cut.BY_KEY and transfer.key != key):
            break
        count += 1
    return Chunk(path, [taken for taken, _ in group[:count]], [transfer for _, transfer in group[:count]])
