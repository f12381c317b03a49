"""One end of the connection between two nodes: questions and answers, and what one simply tells the other. Bytes in, bytes out.

    new --HELLO came, versions fit--> open --BYE, garbage, silence, end of the connection--> broken
     '--garbage, another namespace, no common version----------------------------------------> broken

A line is first in, first out in each direction, and nothing is sent twice. Answers come in any order. A question is answered exactly
once: with what the other node answered, or, when the line breaks first, with OutcomeUnknown, because the other node may have
done it. What is asked of a line that is not open is answered with FragmentUnavailable at once: it was certainly not done.

Each end beats when it has sent nothing for a while. An end that hears nothing for `SILENCE_MAX` gives the line up. Time in which this
end did not look at its clock does not count: a node that stood still itself would otherwise take all others for dead.

Questions that carry messages are bulk: with more than `UNANSWERED_BYTES_MAX` of them unanswered the next is refused with
ServerBusy, so that a node that is behind slows down its own fragments alone. Everything else is small, or makes room.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias

from twinbus.broker.replies import Reply
from twinbus.broker.telling import tell
from twinbus.clock import NEVER, Millis
from twinbus.cluster.lines.error_values import decode_error, encode_error
from twinbus.cluster.lines.frames import (
    FrameReader,
    Hello,
    Kind,
    LineBroken,
    common_version,
    decode_hello,
    encode_frame,
    encode_hello,
)
from twinbus.errors import (
    FragmentUnavailable,
    InternalError,
    MessagingError,
    NotImplementedHere,
    OutcomeUnknown,
    ServerBusy,
)

log = logging.getLogger(__name__)

BEAT_EVERY: Millis = 500
SILENCE_MAX: Millis = 2_000
UNANSWERED_BYTES_MAX = 32 << 20

Answer: TypeAlias = Callable[[bytes | MessagingError], None]
"""To be called once, now or later. After the line is broken it does nothing."""


class Listener(Protocol):
    """What a node does with what it is asked and told on its lines."""

    def asked(self, line: "Line", topic: int, payload: bytes, now: Millis, answer: Answer) -> None:
        """Raises MessagingError, or answers."""
        ...

    def told(self, line: "Line", topic: int, payload: bytes, now: Millis) -> None: ...

    def line_opened(self, line: "Line", now: Millis) -> None: ...

    def line_broken(self, line: "Line", now: Millis) -> None:
        """Those who wait for answers have been told before."""
        ...


class Topics:
    """A listener that gives every topic to whoever registered for it. One for each node, for all of its lines."""

    def __init__(self) -> None:
        self.asks: dict[int, Callable[[Line, bytes, Millis, Answer], None]] = {}
        self.tells: dict[int, Callable[[Line, bytes, Millis], None]] = {}
        self.when_opened: list[Callable[[Line, Millis], None]] = []
        self.when_broken: list[Callable[[Line, Millis], None]] = []

    def asked(self, line: "Line", topic: int, payload: bytes, now: Millis, answer: Answer) -> None:
        handle = self.asks.get(topic)
        if handle is None:
            raise NotImplementedHere(f"This node knows no question {topic}. Run the same release on all nodes.")
        handle(line, payload, now, answer)

    def told(self, line: "Line", topic: int, payload: bytes, now: Millis) -> None:
        handle = self.tells.get(topic)
        if handle is not None:  # a newer node may say more than this one understands
            handle(line, payload, now)

    def line_opened(self, line: "Line", now: Millis) -> None:
        for call in self.when_opened:
            tell(call, line, now)

    def line_broken(self, line: "Line", now: Millis) -> None:
        for call in self.when_broken:
            tell(call, line, now)


class Line:
    """`wake` is called whenever there is output that was not there before: the shell then takes and writes it."""

    def __init__(
        self, me: Hello, listener: Listener, now: Millis, wake: Callable[[], None], peer: int | None = None
    ) -> None:
        """`peer`: the node that must be at the other end, where that is known."""
        self.peer: Hello | None = None
        self.version = 0
        self.is_open = False
        self.is_broken = False
        self.fault = ""
        self._me = me
        self._expected = peer
        self._listener = listener
        self._wake = wake
        self._reader = FrameReader()
        self._output: list[bytes] = []
        self._waiting: dict[int, tuple[Callable[[bytes | MessagingError], None], int]] = {}
        self._unanswered_bytes = 0
        self._last_request = 0
        self._heard_at = self._ticked_at = self._spoke_at = now
        self._send(Kind.HELLO, payload=encode_hello(me))

    # Talking

    def ask(self, topic: int, payload: bytes, reply: Reply[bytes], *, is_bulk: bool = False) -> None:
        if not self.is_open:
            reply(self.unavailable())
            return
        size = len(payload) if is_bulk else 0
        if size and self._unanswered_bytes and self._unanswered_bytes + size > UNANSWERED_BYTES_MAX:
            reply(
                ServerBusy(
                    f"Node {self._peer_name} is behind: {self._unanswered_bytes >> 20} MB are not answered. Try again later."
                )
            )
            return
        self._last_request = request = self._last_request % 0xFFFF_FFFF + 1
        self._waiting[request] = (reply, size)
        self._unanswered_bytes += size
        self._send(Kind.ASK, topic, request, payload)

    def tell(self, topic: int, payload: bytes) -> None:
        """Nothing is answered, and nothing happens if the line is not open."""
        if self.is_open:
            self._send(Kind.TELL, topic, payload=payload)

    def unavailable(self) -> FragmentUnavailable:
        return FragmentUnavailable(
            f"Node {self._peer_name} cannot be reached, and neither can what lies in its messaging stores. Try again later."
        )

    @property
    def _peer_name(self) -> str:
        if self.peer is not None:
            return str(self.peer.node)
        return "?" if self._expected is None else str(self._expected)

    # The connection

    def take_output(self) -> list[bytes]:
        """What is to be written, in this order."""
        output, self._output = self._output, []
        return output

    def receive(self, data: bytes, now: Millis) -> None:
        """Bytes have come. An end that sends garbage finds the line broken, and those who wait are told."""
        if self.is_broken:
            return
        self._heard_at = now
        try:
            for kind, topic, request, payload in self._reader.feed(data):
                self._take(kind, topic, request, payload, now)
                if self.is_broken:
                    return
        except LineBroken as error:
            self.end(str(error), now)

    def end(self, reason: str, now: Millis) -> None:
        """The connection is closed, or has to be."""
        if self.is_broken:
            return
        was_open, self.is_open, self.is_broken, self.fault = self.is_open, False, True, reason
        self._output.clear()
        waiting, self._waiting = self._waiting, {}
        self._unanswered_bytes = 0
        error = OutcomeUnknown(
            f"The line to node {self._peer_name} broke before it confirmed this: it may have been done. Try again later."
        )
        for reply, _ in waiting.values():
            tell(reply, error)
        if was_open:
            self._listener.line_broken(self, now)
        self._wake()

    def say_goodbye(self) -> None:
        """This node ends in good order: the other one need not wait for its silence."""
        if not self.is_broken:
            self._send(Kind.BYE)

    def tick(self, now: Millis) -> Millis:
        """Beats if it is time to; returns when to call again."""
        if self.is_broken:
            return NEVER
        # The clock may have been set back, or this node may have stood still.
        stood_still = now - self._ticked_at - BEAT_EVERY
        if stood_still > 0:
            self._heard_at += stood_still
        self._heard_at = min(self._heard_at, now)
        self._ticked_at = now
        if now - self._heard_at > SILENCE_MAX:
            self.end(f"node {self._peer_name} has been silent for {SILENCE_MAX} ms", now)
            return NEVER
        if not 0 <= now - self._spoke_at < BEAT_EVERY:
            self._spoke_at = now
            self._send(Kind.BEAT)
        return now + BEAT_EVERY // 2

    def _send(self, kind: Kind, topic: int = 0, request: int = 0, payload: bytes = b"") -> None:
        was_empty = not self._output
        self._output += encode_frame(kind, topic, request, payload)
        if was_empty:
            self._wake()

    def _take(self, kind: Kind, topic: int, request: int, payload: bytes, now: Millis) -> None:
        if kind is Kind.HELLO:
            self._greeted(decode_hello(payload), now)
        elif not self.is_open:
            raise LineBroken("The other end says something before it has said hello.")
        elif kind is Kind.ANSWER or kind is Kind.ERROR:
            self._answered(request, payload if kind is Kind.ANSWER else decode_error(payload))
        elif kind is Kind.ASK:
            self._asked(topic, request, payload, now)
        elif kind is Kind.TELL:
            self._told(topic, payload, now)
        elif kind is Kind.BYE:
            self.end(f"node {self._peer_name} has ended", now)

    def _greeted(self, hello: Hello, now: Millis) -> None:
        me = self._me
        if self.peer is not None:
            raise LineBroken("The other end says hello twice.")
        if (hello.namespace, hello.node_count) != (me.namespace, me.node_count):
            raise LineBroken(
                f"The other end is a node of '{hello.namespace}' with {hello.node_count} nodes, and this one of "
                f"'{me.namespace}' with {me.node_count}."
            )
        if hello.node == me.node or hello.node >= hello.node_count or self._expected not in (None, hello.node):
            raise LineBroken(f"The other end says that it is node {hello.node}, which cannot be.")
        self.version = common_version(me, hello)
        self.peer = hello
        self.is_open = True
        self._listener.line_opened(self, now)

    def _answered(self, request: int, result: bytes | MessagingError) -> None:
        reply, size = self._waiting.pop(request, (None, 0))
        if reply is None:
            raise LineBroken("The other end answers what it was not asked.")
        self._unanswered_bytes -= size
        tell(reply, result)

    def _told(self, topic: int, payload: bytes, now: Millis) -> None:
        try:
            self._listener.told(self, topic, payload, now)
        except LineBroken:
            raise
        except Exception:
            log.exception("news_broken")

    def _asked(self, topic: int, request: int, payload: bytes, now: Millis) -> None:
        is_answered = False

        def answer(result: bytes | MessagingError) -> None:
            nonlocal is_answered
            assert not is_answered, "answered twice"
            is_answered = True
            if self.is_broken:
                return
            if isinstance(result, MessagingError):
                self._send(Kind.ERROR, 0, request, encode_error(result))
            else:
                self._send(Kind.ANSWER, 0, request, result)

        try:
            self._listener.asked(self, topic, payload, now, answer)
        except MessagingError as error:
            answer(error)
        except Exception:
            log.exception("question_broken")
            if not is_answered:
                answer(InternalError("The other node could not do this. Its log says why."))
