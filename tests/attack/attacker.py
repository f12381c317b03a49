"""A client that only harms: connects, proves a right or none, and sends the same frames again and again as fast as it can.

Its answers are read and dropped, so that nothing but the frames themselves is felt. What it is closed with is kept.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, FrameReader, encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
    decode_performative,
)
from twinbus.amqp.codec.sasl import Init, SaslCredentials
from twinbus.amqp.codec.sections import Sections, ValueBody, encode_sections
from twinbus.amqp.codec.terminus import Coordinator, Declare, Source, Target
from twinbus.amqp.codec.types import Described, ULong

BLOB_SIZE = 512 * 1024
WEBSOCKET_SIZE = 64 * 1024
WAIT_S = 60.0


def frame(performative: Composite, payload: bytes = b"", channel: int = 0) -> bytes:
    return encode_frame(channel, encode_composite(performative) + payload)


def hello(credentials: SaslCredentials) -> bytes:
    """Everything up to an open connection with a session on channel 0, without waiting for answers."""
    init = Init(mechanism=credentials.mechanism, initial_response=credentials.initial_response)
    return b"".join(
        (
            SASL_HEADER,
            encode_frame(0, encode_composite(init), SASL_FRAME),
            AMQP_HEADER,
            frame(Open(container_id="attacker", hostname="localhost")),
            frame(Begin(next_outgoing_id=0, incoming_window=5_000, outgoing_window=5_000)),
        )
    )


def attach(name: str, handle: int, target: Target | Coordinator) -> bytes:
    return frame(
        Attach(name=name, handle=handle, role=SENDER, source=Source(), target=target, initial_delivery_count=0)
    )


def _repeated(piece: bytes) -> bytes:
    return piece * (BLOB_SIZE // len(piece))


_BEGIN = Begin(next_outgoing_id=0, incoming_window=5_000, outgoing_window=5_000)
_DECLARE = encode_sections(Sections(body=ValueBody(Described(ULong(Declare.CODE), []))))

NOISES: dict[str, tuple[bytes, bytes]] = {
    "begin and end": (b"", _repeated(frame(_BEGIN, channel=1) + frame(End(), channel=1))),
    "empty frames": (b"", _repeated(EMPTY_FRAME)),
    "flows": (b"", _repeated(frame(Flow(incoming_window=5_000, next_outgoing_id=0, outgoing_window=5_000, echo=True)))),
    "refused attaches": (
        b"",
        _repeated(attach("a", 0, Target(address="nothing")) + frame(Detach(handle=0, closed=True))),
    ),
    "cbs attaches": (b"", _repeated(attach("c", 0, Target(address="$cbs")) + frame(Detach(handle=0, closed=True)))),
    "declares": (
        attach("t", 0, Coordinator()),
        _repeated(frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), _DECLARE)),
    ),
    "dispositions": (b"", _repeated(frame(Disposition(role=RECEIVER, first=7, last=1_000, settled=True)))),
}
"""By name: frames that prepare the attack, and those that are repeated."""


WEBSOCKET_HELLO = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
)


def websocket_frames(data: bytes) -> bytes:
    """Binary frames of a client. Their mask is zero, so that the data stays as it is."""
    pieces = [data[start : start + WEBSOCKET_SIZE] for start in range(0, len(data), WEBSOCKET_SIZE)]
    return b"".join(struct.pack(">BBQI", 0x82, 0xFF, len(piece), 0) + piece for piece in pieces)


class Attacker:
    """Attacks from `with` on, and connects again when it is closed, until the end of the block.

    The block begins when the namespace has answered for the first time, so that what is measured in it is under attack.
    """

    def __init__(self, port: int, noise: str, credentials: SaslCredentials) -> None:
        self._port = port
        prepare, self._blob = NOISES[noise]
        self._hello = hello(credentials) + prepare
        self._is_over, self._is_answered, self._is_closed = threading.Event(), threading.Event(), threading.Event()
        self.sent_bytes = self.connection_count = 0
        self.closed_with: list[ErrorCondition | None] = []
        self._threads = [threading.Thread(target=self._run, daemon=True)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        if not self._is_answered.wait(WAIT_S):
            self._end()
            raise TimeoutError("The namespace has not answered the attacker.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait_until_closed(self) -> ErrorCondition | None:
        """Until the namespace has closed a connection of it; returns what the first one was closed with."""
        if not self._is_closed.wait(WAIT_S):
            raise TimeoutError("The namespace has closed no connection of the attacker.")
        return self.closed_with[0]

    def _end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with socket.create_connection(("127.0.0.1", self._port), WAIT_S) as connected:
                self._greet(connected)
                connected.settimeout(0.2)
                self.connection_count += 1
                reading = threading.Thread(target=self._read, args=(connected,), daemon=True)
                reading.start()
                with contextlib.suppress(OSError):
                    self._send(connected)
                with contextlib.suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)
                reading.join(WAIT_S)

    def _greet(self, connected: socket.socket) -> None:
        """What comes before AMQP: nothing."""

    def _send(self, connected: socket.socket) -> None:
        data = memoryview(self._hello + self._blob)
        while not self._is_over.is_set():
            try:
                size = connected.send(data)
            except TimeoutError:
                continue
            self.sent_bytes += size
            data = data[size:] if size < len(data) else memoryview(self._blob)

    def _read(self, connected: socket.socket) -> None:
        reader = FrameReader(1 << 20)
        for data in self._answers(connected):
            for frame_type, _, _, read, start, end in reader.frames(data):
                if frame_type == SASL_FRAME:
                    # The outcome is the second frame; the header of AMQP follows it.
                    reader.expects_header = read[start : start + 3] == b"\x00\x53\x44"
                elif end > start and read[start : start + 3] == b"\x00\x53\x18":
                    closed, _ = decode_performative(read[start:end])
                    assert isinstance(closed, Close)
                    self._note_close(closed.error)

    def _answers(self, connected: socket.socket) -> Iterator[bytes]:
        """Until the connection or the attack ends."""
        while True:
            try:
                data = connected.recv(1 << 18)
            except TimeoutError:
                if self._is_over.is_set():
                    return
                continue
            except OSError:
                return
            if not data:
                return
            self._is_answered.set()
            yield data

    def _note_close(self, error: ErrorCondition | None) -> None:
        self.closed_with.append(error)
        self._is_closed.set()


class WebSocketAttacker(Attacker):
    """The same over a WebSocket. What it is answered is read and dropped, and what it is closed with is not decoded."""

    def __init__(self, port: int, noise: str, credentials: SaslCredentials) -> None:
        super().__init__(port, noise, credentials)
        self._hello = websocket_frames(self._hello)
        self._blob = websocket_frames(self._blob)

    def _greet(self, connected: socket.socket) -> None:
        connected.sendall(WEBSOCKET_HELLO)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += connected.recv(1)
        assert answer.startswith(b"HTTP/1.1 101")

    def _read(self, connected: socket.socket) -> None:
        for data in self._answers(connected):
            if b"\x00\x53\x18" in data:
                self._note_close(None)
