"""What passed on each link, by the frames of the SDK: a `Wire` in, the histories of links out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from azure.servicebus._pyamqp._decode import decode_payload

from tests.rehearsal.sdk_wire import OUT, Wire, WireFrame

SESSION_FILTER = b"com.microsoft:session-filter"
TIMEOUT = b"com.microsoft:timeout"
CROSSING_S = 0.25
"""A message that comes so soon after credit may have been sent before the credit was read."""


@dataclass(slots=True)
class Passed:
    """A message that was sent or came, with what the other end said to it: None where it said nothing."""

    at_s: float
    payload: bytes
    is_accepted: bool | None = None
    _message: Any = None

    @property
    def message(self) -> Any:
        if self._message is None:
            self._message = decode_payload(memoryview(self.payload))
        return self._message

    @property
    def message_id(self) -> str:
        value = self.message.properties.message_id if self.message.properties is not None else None
        return value.decode() if isinstance(value, bytes) else str(value)

    @property
    def session_id(self) -> str | None:
        value = self.message.properties.group_id if self.message.properties is not None else None
        return value.decode() if isinstance(value, bytes) else value


@dataclass(slots=True)
class Settled:
    """`is_done` is None where nobody said so: the answer is lost, or was not asked for."""

    at_s: float
    is_done: bool | None = None
    is_answer_wanted: bool = True


@dataclass(slots=True)
class EmptyReceive:
    at_s: float
    is_sure: bool = True


@dataclass(slots=True)
class Link:
    """`heard_s` and `last_s`: the last frame from the namespace on its connection, and the last one at all."""

    port: int
    entity: str
    at_s: float
    is_receiver: bool
    session_id: str | None
    heard_s: float = 0.0
    last_s: float = 0.0
    is_answered: bool = False
    is_attached: bool = False
    is_over: bool = False
    sent: list[Passed] = field(default_factory=list)
    came: list[Passed] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    empties: list[EmptyReceive] = field(default_factory=list)
    credit: int = 0
    is_open: bool = False
    is_served: bool = False
    _since_credit: int = 0
    _payload: bytearray = field(default_factory=bytearray)

    def piece(self, transfer: Any) -> bytes | None:
        """The whole payload with its last piece."""
        self._payload += transfer.payload
        if transfer.more:
            return None
        whole = bytes(self._payload)
        self._payload.clear()
        return whole

    def credit_given(self, credit: int, at_s: float) -> None:
        """Anew: the receive before is over, and was empty if nothing came. What was only used up ends none."""
        is_top_up = 0 < credit - self.credit <= self._since_credit
        if self.is_open and not self.is_served and not is_top_up:
            self.empties.append(EmptyReceive(at_s))
        self.credit, self._since_credit = credit, 0
        self.is_open, self.is_served = credit > 0, False

    def arrived(self, payload: bytes, at_s: float) -> Passed:
        if self.empties and not self.is_served and at_s - self.empties[-1].at_s < CROSSING_S:
            self.empties[-1].is_sure = False
        self.credit -= 1
        self.is_served = True
        self.came.append(Passed(at_s, payload))
        return self.came[-1]

    def settle(self, settled: Settled) -> None:
        self._since_credit += 1
        self.settled.append(settled)

    def nothing_more_comes(self, at_s: float) -> None:
        """The namespace has said so, after it has read all that was sent to it before."""
        if self.is_open and not self.is_served:
            self.empties.append(EmptyReceive(at_s))
        self.is_open = self.is_served = False
        self.credit = 0
        for settled in self.settled:
            if not settled.is_answer_wanted:
                settled.is_done = True


@dataclass(slots=True)
class _Session:
    remote_channel: int | None = None
    by_name: dict[str, Link] = field(default_factory=dict)
    by_handle: dict[int, Link] = field(default_factory=dict)
    by_remote_handle: dict[int, Link] = field(default_factory=dict)
    sent: dict[int, Passed] = field(default_factory=dict)
    delivered: dict[int, Link] = field(default_factory=dict)
    settling: dict[int, Settled] = field(default_factory=dict)


class LinkReader:
    """`links` are all of them, $cbs and management nodes included."""

    def __init__(self, wire: Wire) -> None:
        self.links: list[Link] = []
        self._sessions: dict[tuple[int, int], _Session] = {}
        for frame in wire.frames:
            self._take(frame)

    def _take(self, frame: WireFrame) -> None:
        kind = type(frame.body).__name__.removesuffix("Frame").lower()
        if kind == "begin" and frame.way == OUT:
            self._sessions[frame.connection, frame.channel] = _Session()
        elif kind == "begin":
            self._sessions[frame.connection, frame.body.remote_channel].remote_channel = frame.channel
        for session in self._sessions_of(frame):
            for link in session.by_name.values():
                link.last_s = frame.at_s
                link.heard_s = link.heard_s if frame.way == OUT else frame.at_s
            step = getattr(self, f"_{kind}_{frame.way}", None)
            if step is not None:
                step(session, frame)

    def _sessions_of(self, frame: WireFrame) -> Iterator[_Session]:
        for (connection, channel), session in list(self._sessions.items()):
            if connection == frame.connection and frame.channel == (
                channel if frame.way == OUT else session.remote_channel
            ):
                yield session

    def _attach_out(self, session: _Session, frame: WireFrame) -> None:
        attach = frame.body
        node = attach.source if attach.role else attach.target
        wanted = (getattr(node, "filters", None) or {}).get(SESSION_FILTER)
        link = Link(frame.port, _entity(node.address), frame.at_s, attach.role, _session_id(wanted))
        session.by_name[attach.name] = session.by_handle[attach.handle] = link
        self.links.append(link)

    def _attach_in(self, session: _Session, frame: WireFrame) -> None:
        link = session.by_name[frame.body.name.decode()]
        session.by_remote_handle[frame.body.handle] = link
        link.is_answered = True
        link.is_attached = (frame.body.source if link.is_receiver else frame.body.target) is not None

    def _transfer_out(self, session: _Session, frame: WireFrame) -> None:
        link = session.by_handle[frame.body.handle]
        if (payload := link.piece(frame.body)) is not None:
            session.sent[frame.body.delivery_id] = passed = Passed(frame.at_s, payload)
            link.sent.append(passed)

    def _transfer_in(self, session: _Session, frame: WireFrame) -> None:
        link = session.by_remote_handle[frame.body.handle]
        if frame.body.delivery_id is not None:
            session.delivered[frame.body.delivery_id] = link
        if (payload := link.piece(frame.body)) is not None:
            link.arrived(payload, frame.at_s)

    def _disposition_out(self, session: _Session, frame: WireFrame) -> None:
        for delivery_id in _range(frame.body):
            settled = Settled(frame.at_s, is_answer_wanted=not frame.body.settled)
            session.delivered[delivery_id].settle(settled)
            session.settling[delivery_id] = settled

    def _disposition_in(self, session: _Session, frame: WireFrame) -> None:
        state = frame.body.state or {}
        for delivery_id in _range(frame.body):
            if frame.body.role and delivery_id in session.sent:
                session.sent.pop(delivery_id).is_accepted = "accepted" in state
            elif not frame.body.role and delivery_id in session.settling:
                session.settling.pop(delivery_id).is_done = not state.get("rejected")

    def _flow_out(self, session: _Session, frame: WireFrame) -> None:
        link = session.by_handle.get(frame.body.handle)
        if link is not None and link.is_receiver and not frame.body.drain:
            link.credit_given(frame.body.link_credit, frame.at_s)

    def _flow_in(self, session: _Session, frame: WireFrame) -> None:
        link = session.by_remote_handle.get(frame.body.handle)
        if link is not None and link.is_receiver and frame.body.drain:
            link.nothing_more_comes(frame.at_s)

    def _detach_in(self, session: _Session, frame: WireFrame) -> None:
        link, error = session.by_remote_handle[frame.body.handle], frame.body.error
        if link.session_id is not None and not link.is_attached and error and error[0] == TIMEOUT:
            link.empties.append(EmptyReceive(frame.at_s))
        link.nothing_more_comes(frame.at_s)
        link.is_over = True


def _range(disposition: Any) -> range:
    return range(disposition.first, (disposition.first if disposition.last is None else disposition.last) + 1)


def _entity(address: str | bytes) -> str:
    text = address.decode() if isinstance(address, bytes) else address
    return urlsplit(text).path.lstrip("/") if "://" in text else text


def _session_id(wanted: Any) -> str | None:
    value = getattr(wanted, "value", wanted)
    return value.decode() if isinstance(value, bytes) else value
