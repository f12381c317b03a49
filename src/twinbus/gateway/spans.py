"""What a tracer is told of messages: bursts that were answered or handed over in, nothing out.

Told once for each burst, and only where somebody traces (`Stopwatch.spans`). `twinbus.server.tracing` makes spans of it.
"""

from collections.abc import Sequence
from typing import Protocol

from twinbus.broker.consumer import TakenMessage
from twinbus.errors import MessagingError
from twinbus.model.message import Message


class Spans(Protocol):
    def sent(self, path: str, messages: Sequence[Message], seconds: float) -> None:
        """They were acknowledged just now, so long after they arrived."""
        ...

    def refused(self, path: str, messages: Sequence[Message], seconds: float, error: MessagingError) -> None: ...

    def delivered(self, path: str, deliveries: Sequence[TakenMessage]) -> None: ...
