"""Which fragment a message goes to: its ids in, fragments to try out.

Same key, same fragment, always, over restarts and upgrades. So the hash is part of the contract: Bob
Jenkins' lookup3 in its form `hashlittle2`, over the ASCII bytes of the upper-cased key, folded by xor.
"""

from functools import lru_cache
from struct import Struct

from twinbus.errors import NotAllowed

_MASK = 0xFFFFFFFF
_INITIAL = 0xDEADBEEF
_BLOCK = Struct("<III")
_MIX = (4, 6, 8, 16, 19, 4)


def pinning_key(
    session_id: str | None,
    partition_key: str | None,
    message_id: str,
    detects_duplicates: bool,
    has_sessions: bool = False,
) -> str | None:
    """The key that pins a message to one fragment; None if it may go to any.

    An empty value is no key. Only where the entity has message sessions is there one with an empty id, which is in one
    place like any other.
    """
    if session_id or (has_sessions and session_id is not None):
        if partition_key and partition_key != session_id and folded(partition_key) != folded(session_id):
            raise NotAllowed(
                f"The partition key '{partition_key}' differs from the session id '{session_id}'. "
                "Set them to the same value, or set only one of them."
            )
        return session_id
    if partition_key:
        return partition_key
    return message_id if detects_duplicates else None


def candidates(key: str | None, fragment_count: int, turn: int) -> list[int]:
    """A pinned message has one candidate; any other may go to all, `turn` first.

    The caller tries them in order, so "fail if pinned, move on if not" needs no branch of its own.
    """
    assert fragment_count > 0
    if key is None:
        return [(turn + step) % fragment_count for step in range(fragment_count)]
    return [key_hash(key) % fragment_count]


def folded(key: str) -> str:
    """Keys that are equal in this form are in the same fragment, and are the same key."""
    return key.upper()


# Bounded, since message ids are keys where duplicates are detected; large, since sessions come in crowds.
@lru_cache(maxsize=65_536)
def key_hash(key: str) -> int:
    # A character without an ASCII form hashes as a question mark: as good as any, and the same every time.
    first, second = hashlittle2(folded(key).encode("ascii", "replace"))
    return first ^ second


def hashlittle2(data: bytes) -> tuple[int, int]:
    """Both 32-bit results of lookup3 with seeds 0 and 0."""
    a = b = c = (_INITIAL + len(data)) & _MASK
    if not data:
        return c, b
    # All blocks of 12 bytes but the last are mixed; the last, filled up with zeros, goes into the final mix.
    tail_at = (len(data) - 1) // 12 * 12
    for pos in range(0, tail_at, 12):
        x, y, z = _BLOCK.unpack_from(data, pos)
        a, b, c = _mix((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
    x, y, z = _BLOCK.unpack(data[tail_at:].ljust(12, b"\x00"))
    return _final((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    # The three words change places after each step; six steps bring them back to where they were.
    for bits in _MIX:
        a = (a - c & _MASK) ^ _rotated(c, bits)
        c = c + b & _MASK
        a, b, c = b, c, a
    return a, b, c


def _final(a: int, b: int, c: int) -> tuple[int, int]:
    c = (c ^ b) - _rotated(b, 14) & _MASK
    a = (a ^ c) - _rotated(c, 11) & _MASK
    b = (b ^ a) - _rotated(a, 25) & _MASK
    c = (c ^ b) - _rotated(b, 16) & _MASK
    a = (a ^ c) - _rotated(c, 4) & _MASK
    b = (b ^ a) - _rotated(a, 14) & _MASK
    c = (c ^ b) - _rotated(b, 24) & _MASK
    return c, b
