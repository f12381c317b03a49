"""What every `$management` operation is given and how it answers.

An operation is a plain function: it reads its arguments, asks the broker, and calls `respond` exactly once, at once
or when the broker answers. It raises MessagingError where the request makes no sense; the node turns that into the reply.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.fragment_transaction import FragmentTransaction
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import MessagingError, NotAllowed, SessionLockLost
from twinbus.gateway.addresses import Node
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.nodes.request_counts import as_request
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import Right

T = TypeVar("T")

Respond: TypeAlias = Callable[[Response], None]

Count: TypeAlias = Callable[["Call", Any], None]
AfterCommit: TypeAlias = Callable[[Callable[[], None]], None]

LOCK_TOKENS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the management node of an entity."""

    node: Node
    arguments: Arguments
    now: Millis
    control: ControlPlane
    meter: LinkMeter
    billed_as: Count  # what the request is on the bill, once it is done
    after_commit: AfterCommit  # have something done when the transaction is committed
    check_room: Callable[[int], None]  # raises if a transaction cannot hold so many bytes more
    session: SessionLock | None  # what the link named in the request holds, if it holds a message session
    message_size_max: int
    new_id: Callable[[], str]
    respond: Respond
    transaction: FragmentTransaction | None = None  # what the request is part of

    def queue(self) -> MessageQueue:
        if self.node.queue is None:
            raise NotAllowed(f"'{self.node.path}' is a topic: ask one of its subscriptions.")
        return self.node.queue

    def target(self) -> QueueEntity | TopicEntity:
        if self.node.target is None:
            raise NotAllowed(f"Messages cannot be sent to '{self.node.path}': send to its queue or topic.")
        return self.node.target

    def answer(self, body_of: Callable[[Any], Response]) -> Reply[Any]:
        """A reply for the broker that responds with the error, or with what `body_of` makes of the result."""

        def reply(result: Any) -> None:
            if isinstance(result, MessagingError):
                self.respond(Response.failed(result))
            else:
                self.billed_as(self, result)
                self.respond(body_of(result))

        return reply

    def require_session(self, session_id: str) -> None:
        """The link that the request speaks for may have lost its session to another receiver meanwhile."""
        if self.session is not None and self.session.session_id == session_id and not self.session.is_held:
            raise SessionLockLost(f"The lock on session '{session_id}' is lost. Accept the session again.")


Operation: TypeAlias = Callable[[Call], None]


class OperationEntry(NamedTuple):
    run: Operation
    right: Right
    billed_as: Count = as_request
    can_be_in_transaction: bool = False


def lock_tokens(arguments: Arguments) -> list[bytes]:
    """Lock tokens as the broker has them: the bytes of delivery tags."""
    return [token.bytes_le for token in arguments.sequence("lock-tokens", UUID, "UUIDs", LOCK_TOKENS_MAX)]


def done(_: object) -> Response:
    return Response.ok()
