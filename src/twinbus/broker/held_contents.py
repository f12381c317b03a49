"""The contents of locked messages that stay in memory: those that were locked last, up to a limit for a whole namespace.

Most messages are settled soon after they were handed over, and none of that needs their content. A receiver that takes a million
and settles none would keep a million contents in memory. So what was locked longest ago is left to the store: the lock keeps a
row without content, and whoever needs it reads it again. That is when the message is dead-lettered, gets new properties, or
is free and goes out again.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, cast
from weakref import ref

from twinbus.store.changes import StoredMessage

HELD_BYTES_MAX = 64 << 20
"""Of contents, and of their rows, which count as much as a small message."""
ROW_BYTES = 512


class UnreadContent:
    """In the place of a content that only the store has. It has its size, and nothing else can be done with it."""

    __slots__ = ("key", "size")

    def __init__(self, size: int, key: str | None) -> None:
        self.size = size
        self.key = key  # that keeps the message in its fragment, where somebody may ask for it

    def __len__(self) -> int:
        return self.size


@lru_cache(1_024)
def unread(size: int, key: str | None) -> UnreadContent:
    """The same one for all of a size: most messages of a queue are of a few sizes, and one for each of a million would take
    more memory than their tokens."""
    return UnreadContent(size, key)


def without_content(message: StoredMessage, key: str | None) -> StoredMessage:
    """A row of its own: whoever the message was handed to may not have written it yet."""
    # Everything that looks at a content of a locked message asks `unread_content` first.
    return replace(message, content=cast(bytes, unread(len(message.content), key)))


def unread_content(message: StoredMessage) -> UnreadContent | None:
    content: object = message.content
    return content if isinstance(content, UnreadContent) else None


class ContentHolder(Protocol):
    """`twinbus.broker.fragment.locks.LockTable`."""

    def leave_contents(self, tokens: Sequence[bytes]) -> None:
        """Those of them that are still locked keep a row without content."""
        ...


class HeldContents:
    """In bursts, as messages are locked. What was settled meanwhile counts until its burst comes up; who holds nothing any more,
    because its store was lost, is forgotten."""

    __slots__ = ("_bursts", "size_bytes")

    def __init__(self) -> None:
        self._bursts: deque[tuple[ref[ContentHolder], Sequence[bytes], int]] = deque()
        self.size_bytes = 0

    def add(self, holder: "ref[ContentHolder]", tokens: Sequence[bytes], size_bytes: int) -> None:
        """These were locked, with so many bytes of content."""
        size_bytes += ROW_BYTES * len(tokens)
        self._bursts.append((holder, tokens, size_bytes))
        self.size_bytes += size_bytes
        while self.size_bytes > HELD_BYTES_MAX:
            oldest, tokens, size_bytes = self._bursts.popleft()
            self.size_bytes -= size_bytes
            found = oldest()
            if found is not None:
                found.leave_contents(tokens)
