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
old place at once; above it, the scan or the next one finds it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from twinbus.store.changes import StoredMessage

READY_COUNT_MAX = 1_000
READY_BYTES_MAX = 1024 * 1024


def _number_of(message: StoredMessage) -> int:
    return message.sequence_number


class Lane:
    __slots__ = (
        "beyond",
        "filter_below",
        "first",
        "is_filling",
        "is_open",
        "ready",
        "ready_bytes",
        "session_id",
        "tail",
    )

    def __init__(self, session_id: str | None, beyond: int, *, is_open: bool, first: int = 0) -> None:
        self.session_id = session_id
        self.ready: deque[StoredMessage] = deque()
        self.ready_bytes = 0
        self.tail = 0
        self.beyond = beyond
        self.first = first  # of a closed lane: the lowest number in it, or a little below
        self.is_open = is_open
        self.is_filling = False
        self.filter_below = 0
        """Locked messages may be found by a scan that starts below this number, for memory once covered up to it."""

    @property
    def wants_fill(self) -> bool:
        return (
            self.beyond > 0
            and self.is_open
            and not self.is_filling
            # A scan is asked for when half of the room is free: the rest feeds the receivers until it comes.
            and len(self.ready) < READY_COUNT_MAX // 2
            and self.ready_bytes < READY_BYTES_MAX // 2
        )

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes a scan may bring."""
        return max(1, READY_COUNT_MAX - len(self.ready)), max(1, READY_BYTES_MAX - self.ready_bytes)

    def admit(self, messages: Sequence[StoredMessage], size_bytes: int) -> None:
        """New messages, numbered above every other of the lane, became active."""
        # While a scan is under way it is not known whether it will find these too.
        if (
            self.beyond
            or self.is_filling
            or not self.is_open
            or len(self.ready) + len(messages) > READY_COUNT_MAX
            or self.ready_bytes + size_bytes > READY_BYTES_MAX
        ):
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
            return taken
        taken = [ready.popleft() for _ in range(count_max)]
        self.ready_bytes -= sum([len(message.content) for message in taken])
        return taken

    def put_back(self, message: StoredMessage) -> None:
        """A message that was handed over is free again and takes its old place."""
        number = message.sequence_number
        if not self.is_open or number > self.tail:
            self.beyond += 1
            self.first = min(self.first or number, number)
            return
        ready = self.ready
        if not ready or number < ready[0].sequence_number:
            ready.appendleft(message)
        else:
            insort(ready, message, key=_number_of)
        self.ready_bytes += len(message.content)
        self._trim()

    def remove(self, number: int) -> None:
        """A message that is not handed over leaves the lane for good."""
        position = bisect_left(self.ready, number, key=_number_of)
        if position < len(self.ready) and self.ready[position].sequence_number == number:
            self.ready_bytes -= len(self.ready[position].content)
            del self.ready[position]
        elif self.beyond > 0:
            self.beyond -= 1

    def open(self) -> None:
        """Somebody took hold of the message session: its messages may be kept in memory from now on."""
        self.is_open = True

    def start_fill(self) -> None:
        """The store is being asked for more; `fill` follows, or the lane is dropped with its fragment."""
        self.is_filling = True

    def fill(self, found: Sequence[StoredMessage], free: Sequence[StoredMessage]) -> None:
        """A scan from the tail on found these rows, of which some are free and the others handed over."""
        self.is_filling = False
        if not found:
            self.beyond = 0
            return
        self.tail = found[-1].sequence_number
        self.ready.extend(free)
        self.ready_bytes += sum([len(message.content) for message in free])
        self.beyond = max(0, self.beyond - len(free))

    def closed(self, returned: Sequence[StoredMessage]) -> "Lane":
        """The same messages with nothing in memory, and those besides that were handed over and are free again.

        A new object, so that a scan still under way for this one changes nothing any more.
        """
        self.is_open = False
        known = sorted([*returned, self.ready[0]] if self.ready else returned, key=_number_of)
        numbers = [message.sequence_number for message in known[:1]]
        if not self.ready:
            numbers.append(self.tail + 1)
        count = self.beyond + len(self.ready) + len(returned)
        # Who held the session may have asked for it in another case than that of its messages.
        session_id = known[0].session_id if known else self.session_id
        return Lane(session_id, count, is_open=False, first=min(numbers))

    def _trim(self) -> None:
        # Not during a scan: what it brings is to follow on the tail it was asked for.
        if self.is_filling or (len(self.ready) <= READY_COUNT_MAX and self.ready_bytes <= READY_BYTES_MAX):
            return
        self.filter_below = max(self.filter_below, self.tail)
        while len(self.ready) > 1 and (len(self.ready) > READY_COUNT_MAX or self.ready_bytes > READY_BYTES_MAX):
            self.ready_bytes -= len(self.ready.pop().content)
            self.beyond += 1
        self.tail = self.ready[-1].sequence_number
