"""The links that replies of `$cbs` and `$management` nodes go out on, and which of them a request means.

A client attaches one link to send requests to a node and one to receive its replies. They belong together when they are
on the same AMQP session and the request's `reply-to` is the reply link's target address or name; a client that gives no
`reply-to` has one reply link for the node there.
"""

from collections import deque

from twinbus.amqp.codec.terminus import Target
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.clock import Millis
from twinbus.errors import QuotaExceeded

WAITING_MAX = 1_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Of replies that wait for credit; a single one may be larger."""


class ResponseLink:
    """Replies wait here until the client gives credit. They are sent settled: no client settles them reliably."""

    __slots__ = ("_link", "_sent_count", "_waiting", "_waiting_bytes", "node")

    def __init__(self, link: OutgoingLink, node: str) -> None:
        self.node = node
        self._link = link
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sent_count = 0

    def send(self, payload: bytes) -> None:
        is_too_much = self._waiting_bytes + len(payload) > WAITING_BYTES_MAX
        if len(self._waiting) >= WAITING_MAX or (self._waiting and is_too_much):
            self._give_up()
            return
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        self.flush()

    def _give_up(self) -> None:
        count, size = len(self._waiting), self._waiting_bytes
        self._waiting.clear()
        self._waiting_bytes = 0
        self._link.detach(
            QuotaExceeded(f"{count} replies of {size} bytes wait for credit on this link. Give it credit.")
        )

    def flush(self) -> None:
        while self._waiting and self._link.credit > 0:
            self._sent_count += 1
            tag = (self._sent_count & 0xFFFFFFFF).to_bytes(4, "big")
            payload = self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            self._link.transfer(payload, tag, settled=True)

    def is_named(self, reply_to: str) -> bool:
        target = self._link.target
        return self._link.name == reply_to or (isinstance(target, Target) and target.address == reply_to)

    def is_on_session_of(self, link: Link) -> bool:
        return self._link.session is link.session

    def credit_changed(self, now: Millis) -> None:
        self.flush()
        if self._link.is_draining:
            self._link.drained()


def find_response_link(
    candidates: list[ResponseLink], request_link: Link, node: str, reply_to: str | None
) -> ResponseLink | None:
    """None where the client has not attached one: then nobody can be told anything."""
    found = [each for each in candidates if each.node == node and each.is_on_session_of(request_link)]
    if reply_to is not None:
        for each in found:
            if each.is_named(reply_to):
                return each
    return found[0] if found else None
