"""The way into a topic: what would take too long at once is taken in steps, in order, and each batch is still one commit.

A batch of a thousand messages for five hundred subscriptions is half a million rows. They are chosen and made in steps, a few
milliseconds in each turn of the loop (`LongWork`), and the last step decides and commits all of them. Nothing is decided before:
if the store is lost in between, nothing has happened yet, and the batch goes to the next fragment as it would have at the start.

    sent, nothing waits, few copies            taken at once
    sent, many copies                          waits in the line of its fragment, then taken in steps
    sent while another is in the line          waits behind it, so that it does not overtake it

Independent messages that arrive together are cut into parts, each with a commit of its own. Transactions wait in the line too: one
with many copies has them made in steps like a batch, keeps its turn until it has decided about everything else that belongs to it,
and is one commit with that. So do scheduled messages that are due, and so is one of them copied if it has very many copies.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence

from twinbus.broker.entity.fan_out import ReadyCopies
from twinbus.broker.entity.placement import Placement, Stage, Work
from twinbus.broker.entity.topic_room import TopicRoom
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.wakeups import WaitingSteps
from twinbus.clock import Millis
from twinbus.model.message import Message

log = logging.getLogger(__name__)

COPIES_AT_ONCE, COPIES_OF_ONE_AT_ONCE = 2_000, 4_000
"""Plain ones, for about five milliseconds; and of a single message: actions may write a large one two hundred times."""

CopyInSteps = Callable[
    [Decision, Sequence[Message], Millis, Sequence[int] | None], Generator[None, Millis, ReadyCopies]
]


class TopicPlacement(Placement):
    """`message_cost`: what a message costs at most, in plain copies. `copy_in_steps`: as `stage`, in steps, up to the decision."""

    takes_steps = True

    def __init__(
        self,
        settings: EntitySettings,
        fragments: Sequence[Fragment],
        stage: Stage,
        copy_in_steps: CopyInSteps,
        room: TopicRoom,
        message_cost: Callable[[], int],
    ) -> None:
        super().__init__(settings, fragments, stage, room.check)
        self._room = room
        self._copy_in_steps = copy_in_steps
        self._message_cost = message_cost
        self._lines: dict[int, deque[Work]] = {}  # by index of the fragment; the first one is under way

    @property
    def count_at_once(self) -> int:
        """How many messages are taken at once, or together where not even one is."""
        return max(1, COPIES_AT_ONCE // (self._message_cost() + 1))

    def is_busy(self, index: int) -> bool:
        return index in self._lines

    def is_long(self, count: int) -> bool:
        return count > self.count_at_once or self._message_cost() > COPIES_OF_ONE_AT_ONCE

    def _check_room(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        """Where copies are made in steps they are counted there: to count them takes as long as to choose them."""
        if self.is_long(len(messages)):
            self._room.check_taken(fragment, messages)
        else:
            super()._check_room(fragment, messages)

    def wait(self, index: int, work: Work) -> None:
        line = self._lines.get(index)
        if line is None:
            line = self._lines[index] = deque()
            self.fragments[index].broker.long_work.add(self._work_off(index, line))
        line.append(work)

    def cut(self, indexes: list[int]) -> Sequence[list[int]]:
        size = self.count_at_once
        if len(indexes) <= size:
            return (indexes,)
        return [indexes[start : start + size] for start in range(0, len(indexes), size)]

    def stage_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
    ) -> Generator[None, Millis, list[int]]:
        if not self.is_long(len(messages)):
            return self.stage(decision, messages, now, origins)
        copies = yield from self._copy_in_steps(decision, messages, now, origins)
        copies.check()
        return copies.decide()

    def copy_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis
    ) -> Generator[None, Millis, ReadyCopies]:
        return self._copy_in_steps(decision, messages, now, None)

    def _work_off(self, index: int, line: deque[Work]) -> WaitingSteps:
        now = yield None
        while line:
            try:
                yield from line[0](now)
            except Exception:
                log.exception("send_broken")
            line.popleft()
            now = yield None
        del self._lines[index]
