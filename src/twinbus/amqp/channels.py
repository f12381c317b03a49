"""The sessions of one connection by their channels: begin and end frames in, sessions out.

Each side numbers sessions by channels of its own: frames that arrive carry the peer's. What arrives on a channel after
its end is ignored, because the Python SDK ends a session first and detaches its links afterwards.
"""

from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.performatives import Begin, Performative
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.errors import ILLEGAL_STATE, RESOURCE_LIMIT_EXCEEDED, ConnectionFault, SessionFault
from twinbus.amqp.session import Session, SessionState


class Channels:
    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self.remote_channel_max = 0xFFFF
        self.by_remote_channel: dict[int, Session] = {}
        self._by_channel: dict[int, Session] = {}
        self._ended: set[int] = set()
        """Channels of the peer whose session has ended; at most channel-max of them."""

    def begin(self) -> Session:
        """Begin a session of our own, on a channel that is free."""
        session = self._make(0)
        session.begin(None)
        return session

    def handle(self, channel: int, performative: Performative, payload: bytes) -> None:
        """Any frame that belongs to a session. SessionFault for faults of the session; ConnectionFault for others."""
        if isinstance(performative, Begin):
            self._begin_received(channel, performative)
            return
        session = self.by_remote_channel.get(channel)
        if session is not None:
            session.handle(performative, payload)
            if session.state is SessionState.FINISHING:
                self._unmap(session)
        elif channel not in self._ended:
            raise ConnectionFault(
                f"{performative.NAME} arrived on channel {channel}, which has no session.", ILLEGAL_STATE
            )

    def fail(self, channel: int, fault: SessionFault) -> None:
        self.by_remote_channel[channel].fail(fault)

    def answer_all(self) -> None:
        """Answer what the peer has ended before it closes the connection."""
        for session in list(self._by_channel.values()):
            session.answer_all()

    def close(self, error: ErrorCondition | None) -> None:
        """The connection is over."""
        sessions = list(self._by_channel.values())
        self._by_channel.clear()
        self.by_remote_channel.clear()
        for session in sessions:
            session.connection_closed(error)

    def _begin_received(self, channel: int, begin: Begin) -> None:
        channel_max = self._context.settings.channel_max
        if channel > channel_max:
            raise ConnectionFault(f"Channel {channel} is over channel-max, {channel_max}.")
        if channel in self.by_remote_channel:
            raise ConnectionFault(f"Channel {channel} already has a session.", ILLEGAL_STATE)
        if begin.remote_channel is None and len(self._by_channel) >= self._context.session_count_max:
            raise ConnectionFault(
                f"The connection has {len(self._by_channel)} sessions, as many as it may have before a token is put on $cbs.",
                RESOURCE_LIMIT_EXCEEDED,
            )
        session = self._answered(begin) if begin.remote_channel is not None else self._make(channel)
        self.by_remote_channel[channel] = session
        if begin.remote_channel is None:
            session.begin(channel)
        session.begin_received(channel, begin)

    def _answered(self, begin: Begin) -> Session:
        assert begin.remote_channel is not None
        session = self._by_channel.get(begin.remote_channel)
        if session is None or session.remote_channel is not None:
            raise ConnectionFault(
                f"A begin answers one on channel {begin.remote_channel}, which was not sent.", ILLEGAL_STATE
            )
        return session

    def _make(self, wanted: int) -> Session:
        channel = wanted
        # The peer's own number if it is free, which it nearly always is; else the lowest.
        if channel in self._by_channel or channel > self.remote_channel_max:
            channel = next(number for number in range(0x10000) if number not in self._by_channel)
        if channel > self.remote_channel_max:
            raise ConnectionFault("All channels that the peer allows are in use.", RESOURCE_LIMIT_EXCEEDED)
        session = self._by_channel[channel] = Session(self._context, channel, self._remove)
        return session

    def _remove(self, session: Session) -> None:
        """Both sides have ended it."""
        self._by_channel.pop(session.channel, None)
        self._unmap(session)

    def _unmap(self, session: Session) -> None:
        """The peer has ended it, and may use its channel for another one from now on."""
        channel = session.remote_channel
        if channel is not None and self.by_remote_channel.get(channel) is session:
            del self.by_remote_channel[channel]
            self._ended.add(channel)
