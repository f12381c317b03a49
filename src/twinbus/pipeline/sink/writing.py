"""What a task does: the Arrow batches of one input partition in, all of them sent, counts out.

    Arrow batch -> messages, in chunks -> delivery on the links' event loop
                       the next chunk is built while this one is being sent

One chunk is under way at a time: memory has a bound, and a message never overtakes one of the same key.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from twinbus.clock import SystemClock
from twinbus.pipeline.sink.delivery import Patience, TaskDelivery
from twinbus.pipeline.sink.links import links_of_process
from twinbus.pipeline.sink.message_ids import TaskPlace
from twinbus.pipeline.sink.messages import MessageMaker, Outgoing
from twinbus.pipeline.sink.options import SinkOptions
from twinbus.pipeline.sink.send_rate import SendRate

if TYPE_CHECKING:
    from pyarrow import RecordBatch

CHUNK_COUNT_MAX = 2_000
CHUNK_SIZE_MAX = 4 * 1_048_576


class Written(NamedTuple):
    messages: int
    set_aside: int
    """Of them, those that were too large and went to the dead-letter queue of the options."""


@dataclass(frozen=True, slots=True)
class Writing:
    """All that a task needs to know; pickled, and the same for all tasks of a job."""

    options: SinkOptions
    places: dict[str, int]

    def write(
        self,
        batches: Iterable["RecordBatch"],
        task: TaskPlace,
        *,
        needs_ids: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Written:
        """Raises WriteFailed, RowError, OptionError."""
        connection = self.options.connection
        loop, links = links_of_process(connection)
        patience = Patience(connection.retry_total, connection.operation_timeout_s)
        delivery = TaskDelivery(links, patience, self.options.batch_bytes, self.options.oversize_queue)
        pace = None if self.options.rate is None else SendRate(self.options.rate)
        under_way: Future[None] | None = None
        count = 0
        try:
            for chunk in chunks_of(self._messages(batches, task, needs_ids), pace):
                if under_way is not None:
                    under_way.result()
                if pace is not None:
                    sleep(pace.wait_s(len(chunk), time.monotonic()))
                under_way = loop.start(delivery.send(chunk))
                count += len(chunk)
            if under_way is not None:
                under_way.result()
        finally:
            # Also where a row is wrong: nothing is under way any more when the next task begins.
            if under_way is not None:
                wait([under_way])
        return Written(count, delivery.set_aside_count)

    def _messages(self, batches: Iterable["RecordBatch"], task: TaskPlace, needs_ids: bool) -> Iterator[Outgoing]:
        maker = MessageMaker(
            self.places,
            self.options.target,
            task,
            SystemClock(),
            has_text_properties=self.options.has_text_properties,
            needs_ids=needs_ids,
        )
        for batch in batches:
            yield from maker.messages(batch)


def chunks_of(messages: Iterable[Outgoing], pace: SendRate | None) -> Iterator[list[Outgoing]]:
    """Messages that are sent together: no more than memory should hold, or the pace allows at once."""
    count_max = CHUNK_COUNT_MAX if pace is None else min(CHUNK_COUNT_MAX, pace.count_max)
    chunk: list[Outgoing] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) == count_max or size + len(message.payload) > CHUNK_SIZE_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.payload)
    if chunk:
        yield chunk
