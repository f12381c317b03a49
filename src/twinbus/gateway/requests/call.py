"""What the handler of a `$management` request is given, how it answers, and what the request is on the bill.

A handler is a plain function: it reads its arguments, asks the broker, and calls `respond` exactly once, at once or when
the broker answers. It raises MessagingError where the request makes no sense; the node turns that into the reply. A request
that succeeds is reported to the meter by one of the `as_...` functions, from its result; one that fails is not billed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from twinbus.broker.commands import Command, RangePage, RepairPage
from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target
from twinbus.broker.transaction import Transaction
from twinbus.clock import Millis
from twinbus.errors import MessageNotFound, MessagingError, NotAllowed, SessionLockLost
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.operation import Cause
from twinbus.model.descriptions import Right
from twinbus.model.packed_payloads import unpack_numbers
from twinbus.model.session_key import is_same_session
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import PackedRows

T = TypeVar("T")

Respond: TypeAlias = Callable[[Response], None]

Bill: TypeAlias = Callable[["Call", Any], None]
AfterCommit: TypeAlias = Callable[[Callable[[], None]], None]

LOCK_TOKENS_MAX = 4_096
NO_MESSAGES = Response(204, "No messages", None, MessageNotFound.condition)


class NamedReceiver(Protocol):
    """A receiver of the same connection: a request that names its link speaks for it."""

    session: SessionLock | None

    def failed(self, now: Millis) -> None:
        """A message that was delivered to it was abandoned."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the management node of an entity."""

    node: EntityNode
    arguments: Arguments
    now: Millis
    control: ControlPlane
    meter: LinkMeter
    billed_as: Bill  # what the request is on the bill, once it is done
    after_commit: AfterCommit  # runs something when the transaction is committed
    check_room: Callable[[int], None]  # raises if the transactions cannot hold this many bytes more
    named: NamedReceiver | None  # the receiver whose link the request names
    is_held_here: Callable[[SessionLock], bool]  # whether a receiver of the same connection has this session
    new_id: Callable[[], str]
    respond: Respond
    require: Callable[[Right, str], None]  # raises Unauthorized unless the caller has this right on an address
    transaction: Transaction | None = None  # that the request is part of
    home: Target | None = None  # of the transaction

    @property
    def session(self) -> SessionLock | None:
        """The message session held by the link that the request names."""
        return None if self.named is None else self.named.session

    def queue(self) -> Source:
        if self.node.queue is None:
            raise NotAllowed(f"'{self.node.path}' is a topic: ask one of its subscriptions.")
        return self.node.queue

    def target(self) -> Target:
        if self.node.target is None:
            raise NotAllowed(f"'{self.node.path}' has no scheduled messages: ask its queue or topic.")
        return self.node.target

    def ask(self, command: Command[T], body_of: Callable[[T], Response]) -> None:
        """Ask the queue, and respond with what `body_of` makes of the reply."""
        self.queue().ask(command, self.now, self.answer(body_of))

    def answer(self, body_of: Callable[[Any], Response]) -> Reply[Any]:
        """A reply for the broker: it responds with the error, or with what `body_of` returns for the result."""

        def reply(result: Any) -> None:
            if isinstance(result, MessagingError):
                self.respond(Response.failed(result))
            else:
                self.billed_as(self, result)
                self.respond(body_of(result))

        return reply

    def enlisted(self, error: MessagingError | None) -> None:
        """The reply of the transaction: it is part of it, which is answered, and billed once that is committed; or not."""
        if error is None:
            self.after_commit(partial(self.billed_as, self, None))
            self.respond(Response.ok())
        else:
            self.respond(Response.failed(error))

    def session_id(self) -> str | None:
        """The message session that the request is about: the one that it names, else the one of the link that it names, for
        SDKs that name the link alone."""
        named = self.arguments.optional_text("session-id")
        return named if named is not None or self.session is None else self.session.session_id

    def is_of_link(self, session_id: str | None) -> bool:
        """Whether the link that the request names accepted this session, and may have lost it since."""
        return self.session is not None and is_same_session(self.session.session_id, session_id)

    def session_meant(self) -> SessionLock | None:
        """What holds the message session that the request speaks for: the one it names, or that of the link it names."""
        session_id = self.session_id()
        if session_id is None or self.is_of_link(session_id):
            return self.session
        return self.queue().session_lock(session_id, self.now)

    def is_of_caller(self, session_id: str) -> bool:
        """Whether the caller holds this session. Not every client names its link, so any receiver of the connection will do."""
        lock = self.queue().session_lock(session_id, self.now)
        return lock is not None and self.is_held_here(lock)

    def require_session(self, session_id: str) -> None:
        """Raise SessionLockLost if the link that the request names has lost this session."""
        if self.session is not None and self.is_of_link(session_id) and not self.session.is_held:
            raise SessionLockLost(f"The lock on session '{session_id}' is lost. Accept the session again.")

    def require_own_session(self, session_id: str) -> None:
        """Raise SessionLockLost if the link that the request names has lost this session, or another connection has it.

        Whether anybody has the session is for the broker to say.
        """
        self.require_session(session_id)
        lock = self.queue().session_lock(session_id, self.now)
        if lock is not None and not self.is_held_here(lock):
            raise SessionLockLost(
                f"The message session '{session_id}' is held by a receiver of another connection. Accept it here first."
            )


def lock_tokens(arguments: Arguments) -> list[bytes]:
    """Lock tokens as the broker has them: the bytes of delivery tags."""
    return [token.bytes_le for token in arguments.sequence("lock-tokens", UUID, "UUIDs", LOCK_TOKENS_MAX)]


def done(_: object) -> Response:
    return Response.ok()


# What a request is on the bill


def as_request(call: Call, _: Any) -> None:
    call.meter.counted(Cause.MANAGEMENT)


def as_peek(call: Call, messages: Sequence[StoredMessage]) -> None:
    call.meter.peeked(messages)


def as_range_peek(call: Call, page: RangePage | PackedRows) -> None:
    if isinstance(page, RangePage) or not page.sizes:
        call.meter.peeked(page.rows if isinstance(page, RangePage) else ())
    else:
        fragment = call.arguments.number("first-sequence-number") >> SEQUENCE_BITS
        call.meter.paged(unpack_numbers(page.sizes), fragment)


def as_receive(call: Call, deliveries: Sequence[TakenMessage]) -> None:
    call.meter.handed_out([delivery.message for delivery in deliveries])


def as_claim(call: Call, numbers: Sequence[int]) -> None:
    """A receive of messages whose contents stay where they are: each is one unit, whatever its size."""
    if not numbers:
        call.meter.counted(Cause.EMPTY_RECEIVE)
    for fragment, count in Counter(number >> SEQUENCE_BITS for number in numbers).items():
        call.meter.counted(Cause.RECEIVE, count, messages=count, fragment=fragment)


def as_removal(call: Call, numbers: Sequence[int]) -> None:
    for fragment, count in Counter(number >> SEQUENCE_BITS for number in numbers).items():
        call.meter.counted(Cause.SETTLE, count, messages=count, fragment=fragment)


def as_repair(call: Call, page: RepairPage) -> None:
    """The request, and each message that it settled; what goes to another entity is a forward as well, once it is sent on."""
    as_request(call, page)
    as_removal(call, page.numbers)


def as_settlement(call: Call, _: Any) -> None:
    count = len(call.arguments.values("lock-tokens"))
    call.meter.counted(Cause.SETTLE, count, messages=count)


def as_renewal(call: Call, ends: Sequence[Millis]) -> None:
    call.meter.counted(Cause.RENEW, len(ends), messages=len(ends))


def as_session_renewal(call: Call, _: Any) -> None:
    call.meter.counted(Cause.RENEW)


def as_session_request(call: Call, state: Any) -> None:
    """Its size is that of the state, read or written."""
    written = call.arguments.fields.get("session-state")
    shown = state if isinstance(state, bytes) else written if isinstance(written, bytes) else b""
    call.meter.counted(Cause.SESSION, size=len(shown))


def as_cancellation(call: Call, _: Any) -> None:
    count = len(call.arguments.values("sequence-numbers"))
    call.meter.counted(Cause.CANCEL, count, messages=count)


def by_itself(call: Call, _: Any) -> None:
    """The handler reports to the meter itself: its result does not say enough."""
