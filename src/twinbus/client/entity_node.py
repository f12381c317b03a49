"""An entity's `$management` node by its verbs: Python values in, messages, numbers and times out.

For operations that need no link: browsing, locks by token, deferred and scheduled messages, the state of message sessions. Every
method raises the error of the namespace. One request must stay within one fragment of a partitioned entity, so requests are split
by fragment here: each part is done or refused on its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from twinbus.amqp.codec.types import Array, Int, Long, Timestamp, UInt, Value
from twinbus.client.batches import read_identity_of
from twinbus.client.received_message import ReceivedMessage, time_of
from twinbus.client.request_node import Answer, Ask
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.model import wire_names
from twinbus.model.wire_names import SEQUENCE_BITS

T = TypeVar("T")
R = TypeVar("R")

ALL_SESSIONS: Millis = 253_402_300_800_000
"""Asks for every message session that has messages or a state, instead of those whose state was set recently."""
_RECEIVE_AND_DELETE, _PEEK_LOCK = UInt(0), UInt(1)


class EntityNode:
    """Created by `Namespace.entity`. `path` may also be that of a subscription or a dead-letter queue."""

    def __init__(self, path: str, ask: Ask) -> None:
        self.path = path
        self._ask = ask

    async def peek(
        self, count_max: int, *, from_number: int = 0, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Messages from a sequence number on, whatever their state; none are locked. May be fewer than there are."""
        body: dict[str, Value] = {"from-sequence-number": Long(from_number), "message-count": Int(count_max)}
        answer = await self._request(wire_names.PEEK_MESSAGE, body, session_id)
        return [ReceivedMessage(found["message"]) for found in _list(answer, "messages")]

    async def receive_deferred(
        self, numbers: Sequence[int], *, deletes: bool = False, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Deferred messages by their sequence numbers; they are settled here by their locks, not on a link."""

        async def receive(part: list[int]) -> list[ReceivedMessage]:
            mode = _RECEIVE_AND_DELETE if deletes else _PEEK_LOCK
            body = {"sequence-numbers": _longs(part), "receiver-settle-mode": mode}
            return [_deferred(found) for found in _list(await self._by_number(body, session_id), "messages")]

        return await _in_parts(numbers, _fragment_of, receive)

    async def renew_locks(self, messages: Sequence[ReceivedMessage]) -> list[datetime]:
        """Returns until when each of them is locked now. Raises MessageLockLost if a lock had ended already."""

        async def renew(part: list[ReceivedMessage]) -> list[datetime]:
            answer = await self._request(wire_names.RENEW_LOCK, {"lock-tokens": _tokens(part)})
            return [time_of(end) for end in _list(answer, "expirations")]

        return await _in_parts(messages, _fragment_of_message, renew)

    async def complete(self, messages: Sequence[ReceivedMessage]) -> None:
        await self._settle(messages, {"disposition-status": "completed"})

    async def abandon(self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None) -> None:
        await self._settle(messages, {"disposition-status": "abandoned", **_modified(properties)})

    async def abandon_locks(self, tokens: Mapping[int, bytes]) -> None:
        """By sequence number and lock token, where the messages themselves are no longer at hand."""

        async def abandon(part: list[int]) -> list[None]:
            locks = Array([UUID(bytes_le=tokens[number]) for number in part])
            await self._request(
                wire_names.UPDATE_DISPOSITION, {"disposition-status": "abandoned", "lock-tokens": locks}
            )
            return [None] * len(part)

        await _in_parts(list(tokens), _fragment_of, abandon)

    async def defer(self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None) -> None:
        # Misspelled in the protocol.
        await self._settle(messages, {"disposition-status": "defered", **_modified(properties)})

    async def dead_letter(
        self,
        messages: Sequence[ReceivedMessage],
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        fields = {"deadletter-reason": reason, "deadletter-description": description, **_modified(properties)}
        given = {name: value for name, value in fields.items() if value is not None}
        await self._settle(messages, {"disposition-status": "suspended", **given})

    async def schedule(self, payloads: Sequence[bytes]) -> list[int]:
        """Schedule encoded messages that have a scheduled time. Returns the sequence numbers for cancelling them."""

        async def schedule(part: list[bytes]) -> list[int]:
            body: dict[str, Value] = {"messages": [_scheduled(payload) for payload in part]}
            return [
                int(number)
                for number in _list(await self._request(wire_names.SCHEDULE_MESSAGE, body), "sequence-numbers")
            ]

        return await _in_parts(payloads, _key_of, schedule)

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        async def cancel(part: list[int]) -> list[None]:
            await self._request(wire_names.CANCEL_SCHEDULED_MESSAGE, {"sequence-numbers": _longs(part)})
            return [None] * len(part)

        await _in_parts(numbers, _fragment_of, cancel)

    async def sessions(self, *, skip: int = 0, top: int = 100, updated_after: Millis = ALL_SESSIONS) -> list[str]:
        body = {"last-updated-time": Timestamp(updated_after), "skip": Int(skip), "top": Int(top)}
        return [str(name) for name in _list(await self._request(wire_names.GET_MESSAGE_SESSIONS, body), "sessions-ids")]

    async def renew_session(self, session_id: str) -> datetime:
        """Returns until when the message session is locked now."""
        answer = await self._request(wire_names.RENEW_SESSION_LOCK, {}, session_id)
        return time_of(answer.body["expiration"])

    async def session_state(self, session_id: str) -> bytes | None:
        answer = await self._request(wire_names.GET_SESSION_STATE, {}, session_id)
        state = answer.fields.get("session-state")
        return None if state is None else bytes(state)

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """None clears it."""
        await self._request(wire_names.SET_SESSION_STATE, {"session-state": state}, session_id)

    async def _settle(self, messages: Sequence[ReceivedMessage], body: dict[str, Value]) -> None:
        async def settle(part: list[ReceivedMessage]) -> list[None]:
            await self._request(wire_names.UPDATE_DISPOSITION, {**body, "lock-tokens": _tokens(part)})
            return [None] * len(part)

        await _in_parts(messages, _fragment_of_message, settle)

    async def _by_number(self, body: dict[str, Value], session_id: str | None) -> Answer:
        return await self._request(wire_names.RECEIVE_BY_SEQUENCE_NUMBER, body, session_id)

    async def _request(self, operation: str, body: dict[str, Value], session_id: str | None = None) -> Answer:
        if session_id is not None:
            body = {**body, "session-id": session_id}
        return (await self._ask(self.path, operation, body)).require_ok()


async def _in_parts(
    items: Sequence[T], part_of: Callable[[T], Hashable], act: Callable[[list[T]], Awaitable[list[R]]]
) -> list[R]:
    """Act on each part separately, all parts at once. Returns the results in the order of the items."""
    places: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(part_of(item), []).append(place)
    results = await asyncio.gather(*(act([items[place] for place in part]) for part in places.values()))
    found: dict[int, R] = {}
    for part, result in zip(places.values(), results, strict=True):
        found.update(zip(part, result, strict=True))
    return [found[place] for place in range(len(items))]


def _fragment_of(number: int) -> int:
    return number >> SEQUENCE_BITS


def _fragment_of_message(message: ReceivedMessage) -> int:
    return _fragment_of(message.sequence_number or 0)


def _key_of(payload: bytes) -> str | None:
    _, session_id, partition_key = read_identity_of(payload)
    return session_id or partition_key


def _tokens(messages: Sequence[ReceivedMessage]) -> Array:
    tokens = [message.lock_token for message in messages]
    if None in tokens:
        raise ArgumentError("A message that is not locked cannot be settled or renewed: it was peeked, or deleted.")
    return Array(list(tokens))


def _longs(numbers: Sequence[int]) -> Array:
    return Array([Long(number) for number in numbers])


def _list(answer: Answer, name: str) -> Sequence[Any]:
    found = answer.fields.get(name)
    values: Sequence[Any] = found.values if isinstance(found, Array) else found or []
    return values


def _deferred(found: Mapping[str, Value]) -> ReceivedMessage:
    token = found.get("lock-token")
    return ReceivedMessage(found["message"], token.bytes_le if isinstance(token, UUID) else b"")


def _modified(properties: Mapping[str, Value] | None) -> dict[str, Value]:
    return {} if properties is None else {"properties-to-modify": dict(properties)}


def _scheduled(payload: bytes) -> dict[str, Value]:
    message_id, session_id, partition_key = read_identity_of(payload)
    entry = {"message-id": message_id, "session-id": session_id, "partition-key": partition_key}
    return {"message": payload, **{name: value for name, value in entry.items() if value is not None}}
