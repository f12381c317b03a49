"""Whether a topic has room: the size limit counts what lies in it and in all of its subscriptions.

A topic may have thousands of subscriptions, and a sum over all of them is too much for every send. So the sum is made
seldom, and in between what is copied is added to it. That is never too little but for what receivers add to messages
they give back, which the next sum finds; and where it would be too much, the sum is made at once.
"""

from collections.abc import Callable, Iterable, Sequence

from twinbus.broker.fragment import Fragment
from twinbus.broker.intake import check_history, check_size
from twinbus.model.message import Message

SUM_EVERY = 1_000
"""Sends after which the sum is made anew in any case."""


class TopicRoom:
    """`parts`: the fragments of all subscriptions with an index."""

    def __init__(self, parts: Callable[[int], Iterable[Fragment]]) -> None:
        self._parts = parts
        self._taken: dict[int, int] = {}  # bytes, or a little more, by index of the fragment
        self._left: dict[int, int] = {}  # sends until the next sum

    def check(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        """Raises QuotaExceeded or ServerBusy where the messages cannot be taken."""
        check_history(fragment, len(messages))
        index, size_bytes = fragment.index, sum([len(message.content) for message in messages])
        left = self._left.get(index, 0) - 1
        if left < 0 or self._taken[index] + size_bytes > fragment.settings.size_max_bytes:
            left = SUM_EVERY
            self._taken[index] = fragment.size_bytes + sum([part.taken_bytes for part in self._parts(index)])
        self._left[index] = left
        check_size(fragment, self._taken[index], size_bytes)

    def copied(self, fragment: Fragment, size_bytes: int) -> None:
        """So much was added to the topic and its subscriptions."""
        if fragment.index in self._taken:
            self._taken[fragment.index] += size_bytes
