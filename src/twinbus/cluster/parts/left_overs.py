"""Who has to know that a queue has messages for which no receiver has credit: fronts, which may have some to give."""

from collections.abc import Callable
from typing import TypeAlias

from twinbus.broker.entity.message_queue import MessageQueue

Tell: TypeAlias = Callable[[int], None]


class LeftOvers:
    """Who has to know when a queue has messages that no receiver has credit for: once, until `rearm`."""

    def __init__(self, queue: MessageQueue) -> None:
        self._tells: dict[object, Tell] = {}
        self._told: set[object] = set()
        queue.tell_left_over(self._left_over)

    def add(self, who: object, tell: Tell) -> None:
        self._tells[who] = tell

    def discard(self, who: object) -> None:
        self._tells.pop(who, None)
        self._told.discard(who)

    def rearm(self, who: object) -> None:
        self._told.discard(who)

    def _left_over(self, ready: Callable[[], int]) -> None:
        for who, tell in list(self._tells.items()):
            left = ready()
            if not left:
                break  # somebody gave credit for the rest
            if who not in self._told:
                self._told.add(who)
                tell(left)
