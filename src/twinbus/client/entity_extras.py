"""Operations of an entity that only a twinbus namespace has: Python values in, messages and counts out.

Everything raises NotImplementedHere if the namespace is another one: that is how to find out. Nothing is split by fragment here,
because the namespace does it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp.codec.types import Array, Int, Long, Timestamp, UInt, Value
from twinbus.client.received_message import ReceivedMessage, split_payload
from twinbus.client.request_node import Ask
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.model.message_limits import RANGE_COUNT_MAX
from twinbus.model.packed_payloads import pack, unpack
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState

REPAIR_COUNT_MAX = 2_000
"""Messages that one request of a repair looks at: few enough to show progress."""

Range = tuple[int, int]
"""First and last sequence number, both included; of one fragment."""


class FragmentHead(NamedTuple):
    fragment: int
    is_available: bool  # if false, nothing is known and everything that follows is 0
    first_number: int  # of the messages in it; one above the last if there is none
    last_number: int  # the highest that was ever given
    active: int
    deferred: int
    scheduled: int
    size_bytes: int
    store: int | None = None  # the messaging store that it is in; None if the namespace does not say
    created_at: Millis | None = None  # the entity; None if the namespace does not say


class RangePage(NamedTuple):
    messages: list[ReceivedMessage]
    next_number: int | None  # where to continue; None if the range has no more


class PackedPage(NamedTuple):
    """Messages as `packed_payloads` packs them; a payload is its front and its body."""

    fronts: bytes
    front_ends: bytes
    bodies: bytes | None  # None: they were not asked for
    body_ends: bytes | None
    next_number: int | None  # where to continue; None if the range has no more

    @classmethod
    def of(cls, payloads: Sequence[bytes], next_number: int | None) -> "PackedPage":
        fronts, bodies = zip(*map(split_payload, payloads), strict=True) if payloads else ((), ())
        return cls(*pack(fronts), *pack(bodies), next_number)

    def payloads(self) -> list[bytes]:
        fronts = unpack(self.fronts, self.front_ends)
        if self.bodies is None or self.body_ends is None:
            return fronts
        return [front + body for front, body in zip(fronts, unpack(self.bodies, self.body_ends), strict=True)]

    def messages(self) -> list[ReceivedMessage]:
        return [ReceivedMessage(payload) for payload in self.payloads()]


class BacklogShare(NamedTuple):
    destination: str | None  # None if no paired sender put it there
    message_count: int
    size_bytes: int


class BacklogPage(NamedTuple):
    shares: list[BacklogShare]
    next_number: int | None  # where to continue; None if the queue has no more


class SessionCount(NamedTuple):
    session_id: str
    active: int
    is_held: bool


class SessionCounts(NamedTuple):
    """The sums are over all message sessions with active messages, whatever the page shows."""

    sessions: int
    held: int
    active: int
    page: list[SessionCount]
    is_all: bool  # False: a part of the entity could not be reached, and is not counted


@dataclass(frozen=True, slots=True)
class Repair:
    """Which messages to move or remove, and how. Says nothing of where to start: see `EntityExtras.repair_range`."""

    filter: str | None = None  # SQL; None: all of them
    action: str | None = None  # SQL: what to change on the way
    destination: str | None = None  # None: the queue or subscription whose dead letters these are
    removes: bool = False  # in place of moving
    resets_delivery_count: bool = False
    states: Sequence[MessageState] = (MessageState.ACTIVE,)


class Refusal(NamedTuple):
    """Why a message stays as and where it is."""

    sequence_number: int
    reason: str


class RepairPage(NamedTuple):
    repaired: int
    examined: int
    held: int  # would have been repaired, but somebody holds them
    refused: int
    refusals: list[Refusal]  # the first ones
    next_number: int | None  # where to continue; None if the range has no more


class RepairPreview(NamedTuple):
    before: ReceivedMessage
    after: ReceivedMessage | None  # None: it would be removed, or stays for the reason given
    refusal: str | None


class PreviewPage(NamedTuple):
    previews: list[RepairPreview]
    next_number: int | None  # where to continue; None if the range has no more


Authorize = Callable[[str], Awaitable[None]]


class EntityExtras:
    """Created by `Namespace.extras`. `path` may also be that of a subscription or a dead-letter queue."""

    def __init__(self, path: str, ask: Ask, authorize: Authorize | None = None) -> None:
        """`authorize` is called with the path of another entity that a request names; None: no token is needed."""
        self.path = path
        self._ask = ask
        self._authorize = authorize

    async def peek_merged(self, count_max: int, positions: Mapping[int, int] | None = None) -> list[ReceivedMessage]:
        """Messages of all fragments, the oldest first; none are locked. May be fewer than there are.

        `positions` has the lowest number wanted, by fragment. See `next_positions`.
        """
        body: dict[str, Value] = {"message-count": Int(count_max)}
        if positions:
            body["from-sequence-numbers"] = Array([Long(number) for number in positions.values()])
        answer = await self._request(wire_names.PEEK_MERGED, body)
        return [ReceivedMessage(found["message"]) for found in answer.get("messages", ())]

    async def peek_range(
        self,
        first: int,
        last: int,
        count_max: int = RANGE_COUNT_MAX,
        *,
        states: Sequence[MessageState] = (),
        with_bodies: bool = True,
        condition: str | None = None,
    ) -> RangePage:
        """Messages of one fragment with these numbers, both included, in large pages; none are locked.

        `states` selects messages; all if empty. `condition` is a SQL filter; with one, a page may be empty although more
        follows.
        """
        page = await self.peek_packed(
            first, last, count_max, states=states, with_bodies=with_bodies, condition=condition
        )
        return RangePage(page.messages(), page.next_number)

    async def peek_packed(
        self,
        first: int,
        last: int,
        count_max: int = RANGE_COUNT_MAX,
        *,
        states: Sequence[MessageState] = (),
        with_bodies: bool = True,
        condition: str | None = None,
    ) -> PackedPage:
        """As `peek_range`, for readers that take many messages apart together."""
        body: dict[str, Value] = {
            **_range(first, last),
            "message-count": Int(count_max),
            "omit-message-body": not with_bodies,
            "packed": True,
        }
        if states:
            body["states"] = Array([state.name.lower() for state in states])
        if condition is not None:
            body["filter"] = condition
        answer = await self._request(wire_names.PEEK_RANGE, body)
        return _packed_page(answer)

    async def purge(self, count_max: int, before: Millis | None = None) -> int:
        """Remove the first messages that nobody holds, whatever their state. Returns how many; 0 if none is left."""
        body: dict[str, Value] = {"message-count": Int(count_max)}
        if before is not None:
            body["enqueued-time-utc"] = Timestamp(before)
        return _count(await self._request(wire_names.PURGE, body))

    async def undefer(self, ranges: Iterable[Range]) -> int:
        """Make the deferred messages with these numbers active again. Returns how many."""
        return _count(await self._request(wire_names.UNDEFER, {"ranges": _ends(ranges)}))

    async def undefer_all(self, count_max: int) -> int:
        return _count(await self._request(wire_names.UNDEFER, {"message-count": Int(count_max)}))

    async def abandon_for(self, lock_tokens: Sequence[UUID], delay: timedelta) -> None:
        """Give back messages of one fragment; nobody receives them before the delay is over."""
        body = {
            "disposition-status": "abandoned",
            "lock-tokens": Array(list(lock_tokens)),
            wire_names.ABANDON_DELAY: UInt(delay // timedelta(milliseconds=1)),
        }
        (await self._ask(self.path, wire_names.UPDATE_DISPOSITION, body)).require_ok()

    async def fragment_heads(self) -> list[FragmentHead]:
        answer = await self._request(wire_names.FRAGMENT_HEADS, {})
        created_at = answer.get("created-at")
        return [_head(found, None if created_at is None else int(created_at)) for found in answer.get("fragments", ())]

    async def enqueued_times(self, numbers: Sequence[int]) -> list[tuple[int, Millis] | None]:
        """For each number, the first message with it or above: its own number, and when it was enqueued; None if its
        fragment has no such message."""
        answer = await self._request(wire_names.ENQUEUED_TIMES, {"sequence-numbers": Array([*map(Long, numbers)])})
        found = zip(answer["sequence-numbers"].values, answer["enqueued-times"].values, strict=True)
        return [None if number < 0 else (int(number), int(time)) for number, time in found]

    async def claim(
        self,
        count_max: int,
        *,
        owner: str | None = None,
        fragment: int | None = None,
        last_number: int | None = None,
    ) -> list[Range]:
        """Set the first messages aside as if they were received and deferred, in one step. Returns their ranges.

        `last_number` goes with `fragment`: messages with higher numbers stay.
        """
        body: dict[str, Value] = {"message-count": Int(count_max)}
        if owner is not None:
            body["owner"] = owner
        if fragment is not None:
            body["fragment"] = Int(fragment)
        if last_number is not None:
            body["last-sequence-number"] = Long(last_number)
        ends = (await self._request(wire_names.CLAIM, body)).get("ranges")
        numbers = [int(end) for end in ends.values] if isinstance(ends, Array) else []
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    async def delete_claimed(self, ranges: Iterable[Range]) -> int:
        """Remove the deferred messages with these numbers. May be repeated: missing messages are not an error."""
        return _count(await self._request(wire_names.DELETE_CLAIMED, {"ranges": _ends(ranges)}))

    async def repair_range(
        self, repair: Repair, first: int, last: int, count_max: int = REPAIR_COUNT_MAX
    ) -> RepairPage:
        """Repair messages of one fragment with these numbers, both included; `count_max` are looked at.

        May be repeated: what has been repaired is gone from here.
        """
        body = await self._repair_body(repair)
        body |= _range(first, last) | {"message-count": Int(count_max)}
        return _repair_page(await self._request(wire_names.REPAIR, body))

    async def repair_numbers(self, repair: Repair, numbers: Sequence[int]) -> RepairPage:
        """Repair messages of one fragment by their sequence numbers."""
        body = await self._repair_body(repair)
        body["sequence-numbers"] = Array([Long(number) for number in numbers])
        return _repair_page(await self._request(wire_names.REPAIR, body))

    async def preview_repair(self, repair: Repair, first: int, last: int, count_max: int = 10) -> PreviewPage:
        """What the repair would do with the first messages of a range that it would touch; a page may be short."""
        body = await self._repair_body(repair)
        body |= _range(first, last) | {"preview-count": Int(count_max)}
        answer = await self._request(wire_names.PREVIEW_REPAIR, body)
        previews = [
            RepairPreview(
                ReceivedMessage(found["message"]),
                ReceivedMessage(found["repaired"]) if "repaired" in found else None,
                found.get("refusal"),
            )
            for found in answer["previews"]
        ]
        return PreviewPage(previews, _following(answer))

    async def _repair_body(self, repair: Repair) -> dict[str, Value]:
        body: dict[str, Value] = {
            "remove": repair.removes,
            "reset-delivery-count": repair.resets_delivery_count,
            "states": Array([state.name.lower() for state in repair.states]),
        }
        texts = {"filter": repair.filter, "action": repair.action, "destination": repair.destination}
        body |= {name: text for name, text in texts.items() if text is not None}
        if repair.destination is not None and self._authorize is not None:
            await self._authorize(repair.destination)
        return body

    async def backlog(self, from_number: int = 0) -> BacklogPage:
        """What waits in a backlog queue, by destination, counted over the next messages."""
        answer = await self._request(wire_names.BACKLOG, {"from-sequence-number": Long(from_number)})
        shares = [
            BacklogShare(found["path"], int(found["message-count"]), int(found["size-in-bytes"]))
            for found in answer.get("destinations", ())
        ]
        return BacklogPage(shares, _following(answer))

    async def count_sessions(self, skip: int = 0, top: int = 1_000) -> SessionCounts:
        """How many active messages each message session has, those with most first."""
        answer = await self._request(wire_names.COUNT_SESSIONS, {"skip": Int(skip), "top": Int(top)})
        page = [
            SessionCount(str(found["session-id"]), int(found["active-message-count"]), bool(found["is-held"]))
            for found in answer["sessions"]
        ]
        return SessionCounts(
            int(answer["session-count"]),
            int(answer["held-session-count"]),
            int(answer["active-message-count"]),
            page,
            is_all=bool(answer["is-all"]),
        )

    async def _request(self, operation: str, body: dict[str, Value]) -> dict[str, Any]:
        return (await self._ask(self.path, operation, body)).require_ok().fields


def next_positions(seen: Iterable[ReceivedMessage], positions: Mapping[int, int] | None = None) -> dict[int, int]:
    """Where `peek_merged` continues after these messages."""
    following = dict(positions or {})
    for message in seen:
        number = message.sequence_number or 0
        following[number >> SEQUENCE_BITS] = number + 1
    return following


def _ends(ranges: Iterable[Range]) -> Array:
    return Array([Long(end) for pair in ranges for end in pair])


def _range(first: int, last: int) -> dict[str, Value]:
    return {"first-sequence-number": Long(first), "last-sequence-number": Long(last)}


def _following(answer: Mapping[str, Any]) -> int | None:
    number = answer.get("next-sequence-number")
    return None if number is None else int(number)


def _packed_page(answer: Mapping[str, Any]) -> PackedPage:
    if "fronts" not in answer:
        # Nothing is there, or the namespace is of a version that does not pack.
        return PackedPage.of([found["message"] for found in answer.get("messages", ())], _following(answer))
    return PackedPage(
        answer["fronts"], answer["front-ends"], answer.get("bodies"), answer.get("body-ends"), _following(answer)
    )


def _repair_page(answer: Mapping[str, Any]) -> RepairPage:
    return RepairPage(
        int(answer["message-count"]),
        int(answer["examined-count"]),
        int(answer["held-count"]),
        int(answer["refused-count"]),
        [Refusal(int(found["sequence-number"]), str(found["reason"])) for found in answer["refusals"]],
        _following(answer),
    )


def _count(body: Mapping[str, Any]) -> int:
    return int(body.get("message-count", 0))


def _head(found: Mapping[str, Any], created_at: Millis | None) -> FragmentHead:
    return FragmentHead(
        fragment=int(found["fragment"]),
        is_available=bool(found["is-available"]),
        first_number=int(found["first-sequence-number"]),
        last_number=int(found["last-sequence-number"]),
        active=int(found["active-message-count"]),
        deferred=int(found["deferred-message-count"]),
        scheduled=int(found["scheduled-message-count"]),
        size_bytes=int(found["size-in-bytes"]),
        store=None if found.get("store") is None else int(found["store"]),
        created_at=created_at,
    )
