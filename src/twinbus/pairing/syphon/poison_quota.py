"""How many messages may be dead-lettered before somebody has to look.

A few messages that can never arrive are poison. Thousands of them are a mistake in the set-up, such as the wrong
primary, and the messages are better off in the backlog queue.
"""

from twinbus.errors import MessagingError


class PoisonQuotaUsedUp(MessagingError):
    """This message is poison too, and stays where it is."""


class PoisonQuota:
    """Counts down; shared by the pumps that have it in common. Without a number it never ends."""

    def __init__(self, count_max: int | None = None) -> None:
        self._left = count_max
        self.is_used_up = False
        """True once a message had to stay because of it."""

    def take(self) -> bool:
        """True if one more may be dead-lettered."""
        if self._left is None:
            return True
        if self._left == 0:
            self.is_used_up = True
            return False
        self._left -= 1
        return True
