"""Getting messages to their entities: waves of payloads in, all of them acknowledged or one error out.

    send -> wave by wave -> each entity: batches under way together --refused, transient--> wait, send those again
                                                                    '--refused for good--> WriteFailed

Whatever is sent again is the same bytes with the same message id, so an entity that detects duplicates keeps one of
them. One that does not may have a message twice after a connection was lost: at least once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from twinbus.amqp.codec.sections import Sections, decode_sections, encode_sections
from twinbus.client.batches import BATCH_SIZE_DEFAULT
from twinbus.client.message import SCHEDULED_TIME
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.remote_errors import RemoteError
from twinbus.client.sender import Sender
from twinbus.errors import MessageTooLarge, MessagingError, NotAllowed, OperationTimeout
from twinbus.model import wire_names
from twinbus.model.partition_key import folded
from twinbus.model.paths import path_key
from twinbus.pipeline.sink.links import SENDER_COUNT_MAX, SenderLinks
from twinbus.pipeline.sink.messages import Outgoing

BACK_OFF_FIRST_S = 0.5
BACK_OFF_MAX_S = 15.0
OVERSIZE_REASON = "MessageSizeExceeded"
MESSAGE_OVERHEAD = 8
ENVELOPE_ALLOWANCE = 1024
"""What a batch has around its messages: two ids of 128 characters and their frame."""

Errors = list[MessagingError | None]
Wave = dict[str, list[bytes]]
"""Payloads by entity."""
KeyOf = tuple[str, str]
"""An entity, and a key there."""


class WriteFailed(MessagingError):
    """Messages that an entity has refused for good."""


class WriteTimedOut(WriteFailed):
    """Messages that an entity did not take in all the time there was; later it may."""

    is_transient = True


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long what may succeed later is tried."""

    retry_total: int
    timeout_s: float

    def back_off_s(self, retry: int) -> float:
        return float(min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2**retry))


class TaskDelivery:
    """For one task. Its methods run on the links' event loop."""

    def __init__(
        self,
        links: SenderLinks,
        patience: Patience,
        batch_bytes: int,
        oversize_queue: str | None = None,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._links = links
        self._patience = patience
        self._batch_bytes = batch_bytes
        self._oversize_queue = oversize_queue
        self._wait = wait
        self.set_aside_count = 0
        """Messages that were too large, and are in the oversize queue without their bodies."""

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Returns when every message is acknowledged. Raises WriteFailed; what was sent before stays sent."""
        # Every entity takes a batch of that size, so what a wave has of one key is one batch.
        for wave in waves_of(messages, min(self._batch_bytes, BATCH_SIZE_DEFAULT)):
            await self._send_wave(wave)
        await self._links.trim(SENDER_COUNT_MAX)

    async def _send_wave(self, wave: Wave) -> None:
        results = await asyncio.gather(
            *(self._send_all(entity, payloads) for entity, payloads in wave.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _send_all(self, entity: str, payloads: Sequence[bytes]) -> None:
        deadline = asyncio.get_running_loop().time() + self._patience.timeout_s
        retry = 0
        while True:
            outcomes, size_max = await self._attempt(entity, payloads, deadline)
            payloads, refusal = await self._sort_out(entity, payloads, outcomes, size_max)
            if refusal is None:
                return
            if not refusal.is_transient:
                continue  # sent one by one now, which is not a retry
            wait_s = self._patience.back_off_s(retry)
            is_late = asyncio.get_running_loop().time() + wait_s >= deadline
            if retry >= self._patience.retry_total or is_late:
                raise WriteTimedOut(
                    _told(entity, refusal, len(payloads), f"in {retry + 1} attempt{'s' if retry else ''}")
                )
            retry += 1
            await self._wait(wait_s)

    async def _attempt(self, entity: str, payloads: Sequence[bytes], deadline: float) -> tuple[Errors, int | None]:
        """The outcome of each, and the size of the largest message that the entity takes."""
        try:
            async with asyncio.timeout_at(deadline):
                sender = await self._links.sender(entity)
                return await self._submit(sender, entity, payloads), sender.message_size_max
        except TimeoutError:
            # Acknowledgements of this attempt must not be taken for those of the next one.
            await self._links.drop()
            late = OperationTimeout(f"no answer within {self._patience.timeout_s:g} s")
            return [late] * len(payloads), None
        except MessagingError as refusal:
            return [refusal] * len(payloads), None

    async def _submit(self, sender: Sender, entity: str, payloads: Sequence[bytes]) -> Errors:
        if entity in self._links.unbatched:
            return await sender.send(payloads)
        return await sender.submit_batches(payloads, size_max=self._batch_bytes).wait()

    async def _sort_out(
        self, entity: str, payloads: Sequence[bytes], outcomes: Errors, size_max: int | None
    ) -> tuple[list[bytes], MessagingError | None]:
        """What has to be sent again, and why; nothing and None at the end. Raises WriteFailed where that cannot help."""
        again: list[bytes] = []
        oversize: list[bytes] = []
        reason: MessagingError | None = None
        for payload, outcome in zip(payloads, outcomes, strict=True):
            if outcome is None:
                continue
            if isinstance(outcome, MessageTooLarge) and size_max is not None and len(payload) > size_max:
                oversize.append(payload)
                continue
            if reason is None or not outcome.is_transient:
                reason = outcome
            again.append(payload)
        if oversize:
            assert size_max is not None
            await self._set_aside(entity, oversize, size_max)
        if reason is not None and not reason.is_transient and not self._unbatch(entity, reason, len(again)):
            raise WriteFailed(_told(entity, reason, len(again)))
        return again, reason

    def _unbatch(self, entity: str, refusal: MessagingError, count: int) -> bool:
        """Whether sending one by one may help, which is then done from now on.

        A partitioned entity that detects duplicates has message ids as keys where there is no other, and takes no batch
        of several keys. No client can see beforehand that an entity is one.
        """
        if entity in self._links.unbatched:
            self._links.unbatched.discard(entity)
            return False
        if not isinstance(refusal, NotAllowed) or count == 1:
            return False
        self._links.unbatched.add(entity)
        return True

    async def _set_aside(self, entity: str, payloads: Sequence[bytes], size_max: int) -> None:
        queue = self._oversize_queue
        if queue is None or entity == queue:
            refusal = MessageTooLarge(
                f"{_name_of(payloads[0])} is larger than the limit of {size_max}. Make it smaller, filter it out, or "
                f"set onOversize = deadLetter"
            )
            raise WriteFailed(_told(entity, refusal, len(payloads)))
        await self._send_all(queue, [_notice_of(payload, entity, size_max) for payload in payloads])
        self.set_aside_count += len(payloads)


def _told(entity: str, refusal: MessagingError, count: int, when: str = "for good") -> str:
    condition = refusal.remote_condition if isinstance(refusal, RemoteError) else refusal.condition
    what = "a message was" if count == 1 else f"{count} messages were"
    return f"'{entity}': {what} refused {when} ({condition}): {refusal}"


def _notice_of(payload: bytes, entity: str, size_max: int) -> bytes:
    """What the oversize queue gets for a message that is too large: ids, keys and properties without the body, with the
    properties that the service gives to dead letters, and without a schedule or time to live.
    """
    sections = decode_sections(payload)
    description = (
        f"'{entity}' accepts messages of up to {size_max} bytes; this one has {len(payload)}. Its body was removed."
    )
    reasons = {wire_names.DEAD_LETTER_REASON: OVERSIZE_REASON, wire_names.DEAD_LETTER_DESCRIPTION: description}
    annotations = dict(sections.message_annotations or {})
    annotations.pop(SCHEDULED_TIME, None)
    return encode_sections(
        Sections(
            message_annotations=annotations or None,
            properties=sections.properties,
            application_properties={**(sections.application_properties or {}), **reasons},
        )
    )


def _name_of(payload: bytes) -> str:
    """For people."""
    return f"message '{ReceivedMessage(payload).message_id}' of {len(payload)} bytes"


def waves_of(messages: Iterable[Outgoing], size_max: int) -> list[Wave]:
    """Messages in order in, waves of what may be under way at the same time out. `size_max` is that of a batch, in bytes.

    A sender has many batches under way and learns the outcome of one when others have arrived long ago. If a batch has to be sent
    again, a later one of the same key must not be there yet. So a wave holds at most one batch of each key, and the next wave waits
    for it. Keys do not wait for each other. Entity and keys are compared as namespaces do it, without case; but what is written in
    another way is in no batch with what is before it. Messages without a key have no order to keep on a partitioned entity, so all of
    them are in the first wave. A message that is too large is in its wave too: its send fails.
    """
    waves: list[Wave] = []
    folded_keys: dict[KeyOf, KeyOf] = {}
    filled: dict[KeyOf, tuple[int, int, KeyOf]] = {}  # the last wave, bytes in it, and as it is written there
    room = size_max - ENVELOPE_ALLOWANCE
    for entity, key, payload in messages:
        number = 0
        if key is not None:
            written = entity, key
            compared = folded_keys.get(written)
            if compared is None:
                compared = folded_keys[written] = path_key(entity), folded(key)
            size = len(payload) + MESSAGE_OVERHEAD
            number, total, before = filled.get(compared, (0, 0, written))
            if total and (total + size > room or before != written):
                number, total = number + 1, 0
            filled[compared] = number, total + size, written
        if number == len(waves):
            waves.append({})
        waves[number].setdefault(entity, []).append(payload)
    return waves
