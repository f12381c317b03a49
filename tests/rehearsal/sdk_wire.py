"""Every AMQP frame and every administration request of the official SDK in this process, written down as it passes.

The SDK is left as it is: two methods of its connection and one of its HTTP transport are looked over the shoulder. What
is written down is all that can be known on the client's side, retries and prefetched messages included; `wire_count`
makes an account of it.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus._pyamqp import _connection, performatives

Connection = _connection.Connection
OUT, IN = "out", "in"
NAMES: dict[int, Any] = {
    0x11: performatives.BeginFrame,
    0x12: performatives.AttachFrame,
    0x13: performatives.FlowFrame,
    0x14: performatives.TransferFrame,
    0x15: performatives.DispositionFrame,
    0x16: performatives.DetachFrame,
}


class WireFrame(NamedTuple):
    """`at_s` is by `time.monotonic`; `connection` tells connections apart, `port` is the namespace's."""

    at_s: float
    connection: int
    port: int
    way: str
    channel: int
    body: Any


class HttpRequest(NamedTuple):
    at_s: float
    port: int
    method: str
    path: str
    status: int


@dataclass(slots=True)
class Wire:
    frames: list[WireFrame] = field(default_factory=list)
    requests: list[HttpRequest] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _connections: dict[int, Any] = field(default_factory=dict)

    def frame(self, connection: Any, way: str, channel: int, body: Any) -> None:
        if isinstance(body, performatives.TransferFrame):
            # The SDK reads into memory that it uses again.
            body = body._replace(payload=bytes(body.payload or b""))
        with self.lock:
            # Kept, so that no other connection gets its number.
            self._connections[id(connection)] = connection
            self.frames.append(WireFrame(time.monotonic(), id(connection), connection._port, way, channel, body))

    def request(self, sent: Any, status: int) -> None:
        url = urlsplit(sent.url)
        with self.lock:
            self.requests.append(HttpRequest(time.monotonic(), url.port or 0, sent.method, url.path, status))


@contextmanager
def watched_sdk() -> Iterator[Wire]:
    wire = Wire()
    send, process, ask = Connection._send_frame, Connection._process_incoming_frame, RequestsTransport.send

    def send_frame(self: Any, channel: int, frame: Any, **kwargs: Any) -> None:
        if self._can_write():
            # Before it is sent: the answer may be read by another thread.
            wire.frame(self, OUT, channel, frame)
        send(self, channel, frame, **kwargs)

    def process_incoming_frame(self: Any, channel: int, frame: Any) -> Any:
        if isinstance(frame, Sequence) and len(frame) == 2 and frame[0] in NAMES:
            made = NAMES[frame[0]]
            fields = list(frame[1])[: len(made._fields)]
            wire.frame(self, IN, channel, made(*fields, *[None] * (len(made._fields) - len(fields))))
        return process(self, channel, frame)

    def send_request(self: Any, request: Any, **kwargs: Any) -> Any:
        answer = ask(self, request, **kwargs)
        wire.request(request, answer.status_code)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_send_frame", send_frame)
        patch.setattr(Connection, "_process_incoming_frame", process_incoming_frame)
        patch.setattr(RequestsTransport, "send", send_request)
        yield wire
