"""What a rehearsal's clients did: a `Wire` in, the steps of an account out, each sure or not.

It knows the rules of the bill as they are written for users (`twinbus.meter.operation`) and nothing of how a namespace counts. A
step is sure wherever the client was told what became of its request. Where a connection broke first it is not:

* a send, ping or settlement without an answer; the attach to a message session without one
* messages that were handed over and never came: no more than the credit that was out, and only such as were sent by then
  and came for the first time later
* credit given anew just before a message came, which may have been on its way already: an empty receive or none
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from tests.rehearsal.counted_lines import Bounds, LineKey, Step
from tests.rehearsal.sdk_wire import HttpRequest, Wire
from tests.rehearsal.wire_links import Link, LinkReader, Passed
from twinbus.meter.operation import Cause, units_of
from twinbus.model.paths import is_backlog_queue

PING = b"application/vnd.ms-servicebus-ping"
SETTLE_REQUEST = b"com.microsoft:update-disposition"
PEEK_REQUEST = b"com.microsoft:peek-message"
MANAGEMENT_NODE = "/$management"
OK = 200
NOTICED_S = 0.5
"""How long after the client's last word a namespace may have gone on handing over."""

SHELL_BYTES, OWN_BYTES = 16, 400
"""A namespace keeps a message with a header of its own and without the shells of its maps; and hands it over with more
annotations. Sizes on the wire differ from the billed ones by at most that."""

NOTHING = Bounds(0, 0)


class Sent(NamedTuple):
    at_s: float
    session_id: str | None


class WireCount:
    """`namespaces`: names by port. `subscriptions`: paths by the topic that they copy from."""

    def __init__(self, wire: Wire, namespaces: Mapping[int, str], subscriptions: Mapping[str, tuple[str, ...]]) -> None:
        self._namespaces = namespaces
        self._subscriptions = subscriptions
        self._links = [link for link in LinkReader(wire).links if link.port in namespaces]
        self._requests = [request for request in wire.requests if request.port in namespaces]
        self._sent: dict[str, dict[str, Sent]] = defaultdict(dict)
        self._first_came: dict[str, dict[str, float]] = defaultdict(dict)
        self._statuses: dict[str, int] = {}

    def steps(self) -> Iterator[Step]:
        self._note_ways()
        for link in self._links:
            if link.entity.endswith(MANAGEMENT_NODE):
                yield from self._asked(link)
            elif link.entity.startswith("$"):
                continue
            else:
                yield from self._received(link) if link.is_receiver else self._sends(link)
        for request in self._requests:
            if request.status < 400:
                yield self._managed(request)

    def _note_ways(self) -> None:
        """When each message was first sent to each outlet, and when it first came from there; answers to requests."""
        for link in self._links:
            if link.entity.endswith(MANAGEMENT_NODE):
                self._statuses |= {_text(each.message.properties.correlation_id): _status(each) for each in link.came}
            if "$" in link.entity:
                continue
            for passed in link.sent:
                for outlet in self._subscriptions.get(link.entity, (link.entity,)):
                    self._sent[outlet].setdefault(passed.message_id, Sent(passed.at_s, passed.session_id))
            for passed in link.came:
                came = self._first_came[link.entity]
                came[passed.message_id] = min(passed.at_s, came.get(passed.message_id, passed.at_s))

    def _sends(self, link: Link) -> Iterator[Step]:
        for passed in link.sent:
            if passed.is_accepted is False:
                continue
            is_sure, size = passed.is_accepted is True, len(passed.payload)
            kept = Bounds(size - SHELL_BYTES, size + SHELL_BYTES)
            cause = Cause.PING if _is_ping(passed) else Cause.SEND
            yield self._step(link, passed.at_s, link.entity, cause, units_of(size), kept, is_sure=is_sure)
            if cause is Cause.SEND:
                for subscription in self._subscriptions.get(link.entity, ()):
                    yield self._step(link, passed.at_s, subscription, Cause.COPY, 0, kept, is_sure=is_sure)

    def _received(self, link: Link) -> Iterator[Step]:
        for passed in link.came:
            size = len(passed.payload)
            kept = Bounds(size - OWN_BYTES, size)
            yield self._step(link, passed.at_s, link.entity, Cause.RECEIVE, units_of(size), kept)
        for settled in link.settled:
            if settled.is_done is not False:
                is_sure = settled.is_done is True
                yield self._step(link, settled.at_s, link.entity, Cause.SETTLE, 0, NOTHING, is_sure=is_sure)
        for empty in link.empties:
            yield self._step(link, empty.at_s, link.entity, Cause.EMPTY_RECEIVE, is_sure=empty.is_sure)
        if link.session_id is not None and (link.is_attached or not link.is_answered):
            yield self._step(link, link.at_s, link.entity, Cause.SESSION, is_sure=link.is_attached)
        if not link.is_over:
            yield from self._cut_off(link)

    def _cut_off(self, link: Link) -> Iterator[Step]:
        """What may have happened after the last word of the namespace."""
        for size in self._on_the_way(link):
            kept = Bounds(0, size + SHELL_BYTES)
            yield self._step(link, link.last_s, link.entity, Cause.RECEIVE, units_of(size), kept, is_sure=False)
        if (link.is_open and not link.is_served) or not link.is_answered:
            yield self._step(link, link.last_s, link.entity, Cause.EMPTY_RECEIVE, is_sure=False)

    def _on_the_way(self, link: Link) -> list[int]:
        """Sizes of the largest messages that may have been handed over and never came."""
        sizes = []
        came = self._first_came[link.entity]
        for message_id, sent in self._sent[link.entity].items():
            is_of_link = link.session_id is None or link.session_id == sent.session_id
            is_later = came.get(message_id, link.heard_s + 1) > link.heard_s
            if is_of_link and is_later and sent.at_s < link.last_s + NOTICED_S:
                sizes.append(self._size(link.entity, message_id))
        return sorted(sizes, reverse=True)[: max(0, link.credit)]

    def _size(self, outlet: str, message_id: str) -> int:
        return next(
            len(passed.payload)
            for link in self._links
            if outlet in self._subscriptions.get(link.entity, (link.entity,)) and not link.is_receiver
            for passed in link.sent
            if passed.message_id == message_id
        )

    def _asked(self, link: Link) -> Iterator[Step]:
        """Settlements that their link did not answer well: the SDK tries them once more by a request. Peeks are not counted:
        the pair looks into its backlog while sessions catch up, and the rehearsal where it has to wait for long."""
        entity = link.entity.removesuffix(MANAGEMENT_NODE)
        for passed in link.sent:
            operation = (passed.message.application_properties or {}).get(b"operation")
            if operation == PEEK_REQUEST:
                continue
            assert operation == SETTLE_REQUEST, f"{operation!r} is not accounted for"
            status = self._statuses.get(passed.message_id)
            for _ in passed.message.value[b"lock-tokens"] if status in (None, OK) else ():
                yield self._step(link, passed.at_s, entity, Cause.SETTLE, 0, NOTHING, is_sure=status is not None)

    def _managed(self, request: HttpRequest) -> Step:
        entity = _managed_entity(request.path)
        key = LineKey(self._namespaces[request.port], entity, Cause.MANAGEMENT, path_of(entity))
        return Step(request.at_s, key, 1, NOTHING, True)

    def _step(
        self,
        link: Link,
        at_s: float,
        entity: str,
        cause: Cause,
        units: int = 1,
        size: Bounds = NOTHING,
        *,
        is_sure: bool = True,
    ) -> Step:
        return Step(at_s, LineKey(self._namespaces[link.port], entity, cause, path_of(entity)), units, size, is_sure)


def path_of(entity: str) -> str:
    """Of all but the syphon."""
    return "backlog" if is_backlog_queue(entity) else "primary"


def _is_ping(passed: Passed) -> bool:
    properties: Any = passed.message.properties
    return bool(properties is not None and properties.content_type == PING)


def _status(answer: Passed) -> int:
    return int(answer.message.application_properties[b"statusCode"])


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _managed_entity(path: str) -> str:
    """As the bill names it; "" for the namespace as a whole."""
    entity = unquote(path).strip("/")
    if entity.startswith("$"):
        return ""
    topic, separator, name = entity.partition("/subscriptions/")
    return f"{topic}/Subscriptions/{name}" if separator else entity
