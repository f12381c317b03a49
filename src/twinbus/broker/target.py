"""Where messages are sent to: what gateways ask of a queue or topic, wherever its fragments are.

`QueueEntity` and `TopicEntity` of `twinbus.broker.entity` are targets whose fragments all have their stores at this node;
`twinbus.cluster.fronts.target.FrontTarget` is one with fragments at several nodes.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Millis
from twinbus.model.message import Message


class TargetName(NamedTuple):
    """Tells one target from all others, at any node."""

    path: str
    destination: str | None = None  # where messages go that are only sent via it


class WayIn(Protocol):
    """Takes messages; they may end up elsewhere."""

    @property
    def name(self) -> TargetName: ...

    @property
    def settings(self) -> EntitySettings:
        """Of the entity that takes them."""
        ...

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None: ...

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None: ...


class Target(WayIn, Protocol):
    """A queue or topic."""

    def schedule(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None: ...

    def cancel_scheduled(self, numbers: Sequence[int], now: Millis, reply: Reply[None]) -> None: ...

    def via(self, destination: str) -> WayIn: ...
