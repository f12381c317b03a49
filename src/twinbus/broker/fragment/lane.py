"""A lane: active messages in order, the first of them in memory and the rest in the store.

A fragment of an ordinary entity is one lane; a fragment of a session entity has one for each message session.

    handed over (locked)      ready, in memory          beyond: in the store only
    ...................... | head ........... tail | .............................

Every active message is in one of these three. `tail` is the highest number that memory covers: what is numbered above
it is beyond. New messages join the ready ones directly while nothing is beyond, otherwise they wait for a scan, which
is asked for ahead of need. So memory is bounded whatever the depth, and a queue that is kept empty never reads.

A closed lane (a message session nobody holds) keeps nothing in memory: all of it is beyond.

A scan is asked for from the tail on and brings what follows it, so nothing may move the tail while one is under way
(`is_filling`): new messages count as beyond, and a lane that is too long is not trimmed. If the tail moved up, messages
in between would never be found; if it moved down, some would be found twice. What becomes free below the tail takes its
old place at once; above it, the scan or the next one finds it. If its content was left to the store meanwhile, the tail
moves down to it, after the scan if there is one, and the next scan finds it.

How far memory reaches follows demand. A lane is narrow while messages pass through it. When the next scan is asked for and the
last one left messages beyond, a backlog is being drained, and each scan is a wait for the store: the lane becomes wide, is
filled in steps, and is narrow again when the backlog is gone, or nobody takes it any more. `WideLanes` bounds how many lanes
of a namespace are wide at a time.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from twinbus.broker.held_contents import unread_content
from twinbus.broker.wide_lanes import WideLanes
from twinbus.store.changes import StoredMessage

READY_COUNT_MAX = 1_000
READY_BYTES_MAX = 1024 * 1024
"""Of a narrow lane."""
WIDE_COUNT_MAX = 8_000
WIDE_BYTES_MAX = 16 * 1024 * 1024
STEP_COUNT_MAX = 2_000
STEP_BYTES_MAX = 4 * 1024 * 1024
"""Of one scan for a wide lane: it is in one piece, and the loop does nothing else while it is read."""


def _number_of(message: StoredMessage) -> int:
    return message.sequence_number


class Lane:
    __slots__ = (
        "__weakref__",
        "_coming_back",
        "_is_backlog",
        "_returned_count",
        "_returned_first",
        "_wide_lanes",
        "beyond",
        "filter_below",
        "first",
        "is_filling",
        "is_open",
        "is_wide",
        "ready",
        "ready_bytes",
        "session_id",
        "tail",
    )

    def __init__(
        self,
        session_id: str | None,
        beyond: int,
        *,
        is_open: bool,
        first: int = 0,
        wide_lanes: WideLanes | None = None,
    ) -> None:
        """`wide_lanes`: where it asks whether it may be wide; without, it never is."""
        self._wide_lanes = wide_lanes
        self._is_backlog = False  # the last scan did not bring everything
        self.is_wide = False
        self.session_id = session_id
        self.ready: deque[StoredMessage] = deque()
        self.ready_bytes = 0
        self.tail = 0
        self.beyond = beyond
        self.first = first  # of a closed lane: the lowest number in it, or a little below
        self.is_open = is_open
        self.is_filling = False
        self._returned_count = self._returned_first = 0  # messages without content that came back during a scan
        self._coming_back = 0
        """Of a message session: changes under way that free messages of it. Nothing newer is handed over before these."""
        self.filter_below = 0
        """Locked messages may be found by a scan that starts below this number: memory once covered up to it, here or at another node."""

    @property
    def wants_fill(self) -> bool:
        if not self.beyond or not self.is_open or self.is_filling:
            return False
        if self.is_wide:
            step_count, step_bytes = STEP_COUNT_MAX, STEP_BYTES_MAX
            return len(self.ready) < WIDE_COUNT_MAX - step_count and self.ready_bytes < WIDE_BYTES_MAX - step_bytes
        # A scan is asked for when half of the room is free: the rest feeds the receivers until it comes.
        return len(self.ready) < READY_COUNT_MAX // 2 and self.ready_bytes < READY_BYTES_MAX // 2

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes a scan may bring."""
        if self.is_wide:
            return STEP_COUNT_MAX, STEP_BYTES_MAX
        return max(1, READY_COUNT_MAX - len(self.ready)), max(1, READY_BYTES_MAX - self.ready_bytes)

    def _has_room(self, count: int, size_bytes: int) -> bool:
        """For so much besides what is ready."""
        count, size_bytes = count + len(self.ready), size_bytes + self.ready_bytes
        if self.is_wide:
            return count <= WIDE_COUNT_MAX and size_bytes <= WIDE_BYTES_MAX
        return count <= READY_COUNT_MAX and size_bytes <= READY_BYTES_MAX

    @property
    def is_held_back(self) -> bool:
        return self._coming_back > 0

    def hold_back(self) -> None:
        self._coming_back += 1

    def let_go(self) -> None:
        self._coming_back -= 1

    def expect_locked(self, numbers: Sequence[int]) -> None:
        """These are locked, though memory has never covered them."""
        self.filter_below = max([self.filter_below, *numbers])

    def admit(self, messages: Sequence[StoredMessage], size_bytes: int) -> None:
        """New messages, numbered above every other of the lane, became active."""
        # While a scan is under way it is not known whether it will find these too.
        if self.beyond or self.is_filling or not self.is_open or not self._has_room(len(messages), size_bytes):
            self.admit_beyond(len(messages), messages[0].sequence_number)
            return
        self.ready.extend(messages)
        self.ready_bytes += size_bytes
        self.tail = messages[-1].sequence_number

    def admit_beyond(self, count: int, first_number: int) -> None:
        """New messages, numbered above every other of the lane, became active, and wait in the store."""
        self.beyond += count
        self.first = self.first or first_number

    def take(self, count_max: int) -> list[StoredMessage]:
        """The first ready messages, no longer in the lane."""
        ready = self.ready
        if count_max >= len(ready):
            taken = list(ready)
            ready.clear()
            self.ready_bytes = 0
        else:
            taken = [ready.popleft() for _ in range(count_max)]
            self.ready_bytes -= sum([len(message.content) for message in taken])
        # Not while that would give up what was read.
        if self.is_wide and not self.beyond and len(ready) < READY_COUNT_MAX and self.ready_bytes < READY_BYTES_MAX:
            self.narrow()
        return taken

    def narrow(self) -> None:
        """Nobody takes from it any more: keep as little as others do."""
        if self.is_wide:
            assert self._wide_lanes is not None
            self._wide_lanes.dismiss(self)
            self.is_wide = False
            self._trim()

    def put_back(self, message: StoredMessage) -> None:
        """A message that was handed over is free again and takes its old place."""
        number = message.sequence_number
        if not self.is_open or number > self.tail:
            self.beyond += 1
            self.first = min(self.first or number, number)
            return
        if unread_content(message) is not None:
            self._put_back_unread(number)
            return
        ready = self.ready
        if not ready or number < ready[0].sequence_number:
            ready.appendleft(message)
        else:
            insort(ready, message, key=_number_of)
        self.ready_bytes += len(message.content)
        self._trim()

    def _put_back_unread(self, number: int) -> None:
        self.beyond += 1
        if self.is_filling:
            self._returned_count += 1
            self._returned_first = min(self._returned_first or number, number)
        else:
            self._rewind(number)

    def _rewind(self, number: int) -> None:
        """The next scan is to find this number and all above it."""
        self.filter_below = max(self.filter_below, self.tail)
        while self.ready and self.ready[-1].sequence_number > number:
            self.ready_bytes -= len(self.ready.pop().content)
            self.beyond += 1
        self.tail = number - 1

    def remove(self, number: int) -> None:
        """A message that is not handed over leaves the lane for good."""
        position = bisect_left(self.ready, number, key=_number_of)
        if position < len(self.ready) and self.ready[position].sequence_number == number:
            self.ready_bytes -= len(self.ready[position].content)
            del self.ready[position]
        elif self.beyond > 0:
            self.beyond -= 1

    def remove_all(self, numbers: Sequence[int], after: int, seen: int) -> None:
        """As `remove`, of many, which rise. Whatever else is active above `after` and up to `seen` is handed over, being changed or has
        expired, so nobody has to look for it again."""
        ready, leaving = self.ready, set(numbers)
        if ready and numbers and numbers[0] <= ready[-1].sequence_number:
            staying = [message for message in ready if message.sequence_number not in leaving]
            beyond = len(leaving) - (len(ready) - len(staying))
            ready.clear()
            ready.extend(staying)
            self.ready_bytes = sum([len(message.content) for message in staying])
        else:
            beyond = len(leaving)
        self.beyond = max(0, self.beyond - beyond)
        # Below `after` something may have come back since it was looked for, and the tail is below that then.
        if not ready and self.is_open and not self.is_filling and self.tail >= after:
            self.tail = max(self.tail, seen)

    def open(self) -> None:
        """Somebody took hold of the message session: its messages may be kept in memory from now on."""
        self.is_open = True

    def start_fill(self) -> None:
        """The store is being asked for more; `fill` follows, or the lane is dropped with its fragment."""
        self.is_filling = True
        if self._is_backlog and not self.is_wide and self._wide_lanes is not None:
            self.is_wide = self._wide_lanes.admit(self)

    def fill(self, found: Sequence[StoredMessage], free: Sequence[StoredMessage]) -> None:
        """A scan from the tail on found these rows, of which some are free and the others handed over."""
        self.is_filling = False
        if found:
            self.tail = found[-1].sequence_number
            self.ready.extend(free)
            self.ready_bytes += sum([len(message.content) for message in free])
            self.beyond = max(self._returned_count, self.beyond - len(free))
            self._is_backlog = self.beyond > 0
            self._trim()
        else:
            self.beyond = self._returned_count
        if self._returned_count:
            returned, self._returned_count, self._returned_first = self._returned_first, 0, 0
            if returned <= self.tail:
                self._rewind(returned)

    def closed(self, returned: Sequence[StoredMessage]) -> "Lane":
        """The same messages with nothing in memory, and those besides that were handed over and are free again.

        A new object, so that a scan still under way for this one changes nothing any more.
        """
        self.is_open = False
        known = sorted([*returned, self.ready[0]] if self.ready else returned, key=_number_of)
        numbers = [message.sequence_number for message in known[:1]]
        if self._returned_count:
            numbers.append(self._returned_first)
        if not self.ready:
            numbers.append(self.tail + 1)
        count = self.beyond + len(self.ready) + len(returned)
        # Who held the session may have asked for it in another case than that of its messages.
        session_id = known[0].session_id if known else self.session_id
        return Lane(session_id, count, is_open=False, first=min(numbers))

    def _trim(self) -> None:
        # Not during a scan: what it brings is to follow on the tail it was asked for.
        if self.is_filling or self._has_room(0, 0):
            return
        self.filter_below = max(self.filter_below, self.tail)
        while len(self.ready) > 1 and not self._has_room(0, 0):
            self.ready_bytes -= len(self.ready.pop().content)
            self.beyond += 1
        self.tail = self.ready[-1].sequence_number
