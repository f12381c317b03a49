"""What incoming and outgoing links share: how they begin and end (AMQP 1.0 part 2, section 2.6).

state        what happens                                       next state
(none)       the peer attaches                                  OFFERED
(none)       we attach                                          ATTACHING
OFFERED      accept                                             ATTACHED
OFFERED      refuse, detach: attach and detach are sent         DETACHING
OFFERED      the peer detaches: attach and detach are sent      GONE
ATTACHING    the peer attaches as well                          ATTACHED
ATTACHING    detach                                             DETACHING
ATTACHED     detach, a fault of the peer                        DETACHING
ATTACHED     the peer detaches, answered at once                GONE
ATTACHED     the peer detaches, and `is_answer_held`            ENDING
ENDING       end: the answer is sent                            GONE
DETACHING    the peer detaches                                  GONE
any          the session or the connection ends                 GONE
             (a session that the peer ends waits for links that are ENDING)

Links are identified by their handles. A second link with the same name is simply another link: links here have no state
to resume, so no link can be stolen (section 2.6.1 would detach the first one).
"""

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from twinbus.amqp.codec.error_condition import ErrorCondition, FaultOfPeer
from twinbus.amqp.codec.performatives import Attach, Detach, ReceiverSettleMode, SenderSettleMode
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.events import LinkDetached
from twinbus.errors import MessagingError

if TYPE_CHECKING:
    from twinbus.amqp.session import Session


class LinkState(Enum):
    OFFERED = auto()
    ATTACHING = auto()
    ATTACHED = auto()
    DETACHING = auto()
    ENDING = auto()
    GONE = auto()


class Link(ABC):
    """One link, seen from this side. `attach` is the peer's (ours, until the peer answers)."""

    is_sender: ClassVar[bool]

    def __init__(self, session: "Session", handle: int, attach: Attach, state: LinkState) -> None:
        self.session = session
        self.handle = handle
        self.remote_handle: int | None = None
        self.name = attach.name
        self.attach = attach
        self.state = state
        self.context: Any = None
        """For the application: whatever it attaches to the link."""
        self.is_answer_held = False
        """Set by an application that answers the peer's detach by calling `end`, once it has sent what it still owes."""
        self._is_closed_by_peer = True
        self._is_reported_gone = False

    @property
    def source(self) -> Source | None:
        return self.attach.source

    @property
    def target(self) -> Target | Coordinator | None:
        return self.attach.target

    @property
    def properties(self) -> dict[Any, Any]:
        return self.attach.properties or {}

    @property
    def snd_settle_mode(self) -> SenderSettleMode:
        return self.attach.snd_settle_mode

    @property
    def rcv_settle_mode(self) -> ReceiverSettleMode:
        return self.attach.rcv_settle_mode

    @property
    def is_attached(self) -> bool:
        return self.state is LinkState.ATTACHED

    def refuse(self, error: MessagingError) -> None:
        """Attach without source and target, and detach in the same write: how AMQP refuses a link (section 2.6.3)."""
        if self.state is LinkState.OFFERED:
            self._answer(source=None, target=None, properties=None, max_message_size=None)
            self._send_detach(closed=True, error=ErrorCondition.of(error))

    def refuse_unreported(self, error: MessagingError) -> None:
        """Refuse a link that was never reported to the application, so that its end is not reported either."""
        self._is_reported_gone = True
        self.refuse(error)

    def detach(self, error: MessagingError | None = None, closed: bool = True) -> None:
        """End the link. `LinkDetached` follows when the peer has answered."""
        condition = None if error is None else ErrorCondition.of(error)
        if self.state is LinkState.OFFERED:
            self._answer(source=None, target=None, properties=None, max_message_size=None)
            self._send_detach(closed, condition)
        elif self.state in (LinkState.ATTACHED, LinkState.ATTACHING):
            self._send_detach(closed, condition)

    def fail(self, fault: MessagingError) -> None:
        """The peer violated the protocol on this link: detach it, and report that at once."""
        self.detach(fault)
        self.report_gone(closed=True, error=FaultOfPeer.of(fault))

    def detach_received(self, detach: Detach) -> None:
        """The peer ends the link, or answers our detach; an answer is not answered."""
        if self.state is LinkState.OFFERED:
            # A peer that has not seen our attach cannot relate our detach to a link.
            self._answer(source=None, target=None, properties=None, max_message_size=None)
        if self.state is LinkState.ATTACHED and self.is_answer_held:
            self.state = LinkState.ENDING
            self._is_closed_by_peer = detach.closed
        elif self.state is not LinkState.ENDING:
            if self.state in (LinkState.OFFERED, LinkState.ATTACHED):
                self._send_detach(detach.closed, None)
            self.state = LinkState.GONE
        self.report_gone(detach.closed, detach.error)

    def end(self) -> None:
        """Answer the peer's detach that was held back."""
        if self.state is LinkState.ENDING:
            self._send_detach(self._is_closed_by_peer, None)
            self.state = LinkState.GONE
            self.session.remove(self)

    def session_ended(self, error: ErrorCondition | None) -> None:
        self._forget()
        self.state = LinkState.GONE
        self.report_gone(closed=True, error=error)

    def report_gone(self, closed: bool, error: ErrorCondition | None) -> None:
        if not self._is_reported_gone:
            self._is_reported_gone = True
            self.session.report(LinkDetached(self, closed, error))

    def _answer(
        self,
        *,
        source: Source | None,
        target: Target | Coordinator | None,
        properties: dict[Any, Any] | None,
        max_message_size: int | None,
    ) -> None:
        asked = self.attach
        answer = Attach(
            name=self.name,
            handle=self.handle,
            role=not self.is_sender,
            snd_settle_mode=asked.snd_settle_mode,
            rcv_settle_mode=asked.rcv_settle_mode,
            source=source,
            target=target,
            # The Python SDK gives up on a receiver if the attach has no initial count.
            initial_delivery_count=0 if self.is_sender else None,
            max_message_size=max_message_size,
            properties=properties,
        )
        self.session.send(answer)

    def _send_detach(self, closed: bool, error: ErrorCondition | None) -> None:
        self.session.send(Detach(handle=self.handle, closed=closed, error=error))
        self.state = LinkState.DETACHING
        self._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Drop what the session keeps for this link: nothing of it can be settled or sent anymore."""
