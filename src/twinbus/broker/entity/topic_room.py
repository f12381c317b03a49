"""Whether a topic has room: the size limit counts what lies in it and in all of its subscriptions.

A topic may have thousands of subscriptions, and a sum over all of them is too much for every send. So they are summed
up now and then, and in between what is copied is added. That sum is never too small, except for what receivers add to
messages they give back, which the next one finds; and before it refuses anything, they are summed up again.

All copies of what is sent together are one commit, and a store writes no more than 2 GB at once.
"""

from collections.abc import Callable, Iterable, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.intake import check_history, check_size
from twinbus.errors import MessageTooLarge
from twinbus.model.message import Message

SUM_EVERY = 1_000
"""Sends after which the parts are summed up again in any case."""
COPIES_BYTES_MAX = 1 << 30
"""Of what is sent together."""


class TopicRoom:
    """`parts`: the fragments of all subscriptions with an index. `copy_count`: how many copies of a message are made, and
    `copies_max`: of any message, at most."""

    def __init__(
        self,
        parts: Callable[[int], Iterable[Fragment]],
        copy_count: Callable[[Message], int],
        copies_max: Callable[[], int],
    ) -> None:
        self._parts = parts
        self._copy_count = copy_count
        self._copies_max = copies_max
        self._taken: dict[int, int] = {}  # bytes, or a little more, by index of the fragment
        self._left: dict[int, int] = {}  # sends until the next sum

    def check(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        """Raises QuotaExceeded, ServerBusy or MessageTooLarge where the messages cannot be taken."""
        if self.copied_at_most(messages) > COPIES_BYTES_MAX:
            self.check_copied(sum([len(message.content) * self._copy_count(message) for message in messages]))
        self.check_taken(fragment, messages)

    def copied_at_most(self, messages: Sequence[Message]) -> int:
        """Bytes of all copies of these, if every rule matches."""
        return self._copies_max() * sum([len(message.content) for message in messages])

    def check_taken(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        """As `check`, before the copies are known: `check_copied` follows."""
        check_history(fragment, len(messages))
        index, size_bytes = fragment.index, sum([len(message.content) for message in messages])
        left = self._left.get(index, 0) - 1
        if left < 0 or self._taken[index] + size_bytes > fragment.settings.size_max_bytes:
            left = SUM_EVERY
            self._taken[index] = fragment.tally.size_bytes + sum([part.taken_bytes for part in self._parts(index)])
        self._left[index] = left
        check_size(fragment, self._taken[index], size_bytes)

    def copied(self, fragment: Fragment, size_bytes: int) -> None:
        """This much was added to the topic and its subscriptions."""
        if fragment.index in self._taken:
            self._taken[fragment.index] += size_bytes

    def check_copied(self, size_bytes: int) -> None:
        """Of all copies of what is sent together."""
        if size_bytes > COPIES_BYTES_MAX:
            raise MessageTooLarge(
                f"The copies for all subscriptions that take this have {size_bytes} bytes; {COPIES_BYTES_MAX} are the "
                "limit. Send less at once."
            )
