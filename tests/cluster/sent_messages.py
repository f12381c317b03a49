"""A message on its way to the queue `q`, by itself or as a batch, and what has become of it."""

from twinbus.errors import MessagingError
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply


class Sent:
    def __init__(
        self, sim: ClusterSimulation, key: str | None = None, *, is_batch: bool, name: str = "m", body: bytes = b""
    ) -> None:
        self._is_batch = is_batch
        queue, message = sim.entities.queue("q"), make_message(name, partition_key=key, body=body)
        self.each, self.batch = EachReply(), Answer[list[int]]()
        if is_batch:
            queue.send_batch([message], sim.now, self.batch)
        else:
            queue.send_each([message], sim.now, self.each)

    @property
    def is_accepted(self) -> bool:
        return self.batch.has_come and self.batch.error is None if self._is_batch else self.each.good == {0}

    @property
    def error(self) -> MessagingError | None:
        return self.batch.error if self._is_batch else self.each.errors.get(0)

    @property
    def waits(self) -> bool:
        return not self.is_accepted and self.error is None
