"""What nodes say to each other about messages: the topics of a line, and the frames of those that come in bursts.

    topic            from    to      payload                                             answer
    SEND             front   part    name, together or each; messages by column          numbers, and errors by index
    SEND_AGAIN       front   part    as SEND, for one fragment; names                    as SEND
    PLACED, SETTLED  part    front   what is known so far of a SEND or SETTLE of many
    RECEIVER         front   part    id, queue, mode, hold on a message session
    DEMAND           front   part    id, how much more it may hand over
    RECALL           front   part    id, whether to wait for what is being read          how much was not used
    CLOSE            front   part    id                                                  when nothing more comes
    DELIVER          part    front   id; messages by column
    READY            part    front   queue: it has more than it has demand for, and how much of that is for this node
    LOST             part    front   id, error: the receiver is gone
    BROUGHT, TAKEN   front   front   queue or topic: how many messages its own clients brought to its part, or took from it
    ALIVE            front   front                                                       nothing: that it comes says enough
    HOLD_OVER        part    front   hold: the message session is not held any more
    SETTLE           front   part    queue, outcome, hold; tokens by column              errors by index
    SETTLE_ALL, RENEW, ACCEPT, RELEASE, CANCEL_WAIT, RENEW_SESSION, ASK, CANCEL_SCHEDULED, COUNT, TRANSACT       values

A queue is named by the key of its first fragment, which names the entity by its id: one that was deleted and created again is another
one. An entity that messages are sent to is named by its path: no node has fragments of one that was deleted.

The `run` of a SEND, SEND_AGAIN or SETTLE tells its frames from those of others that are under way. Runs, receivers and holds are
counted for as long as a node lives, so their numbers have 64 bits.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.fragment.names import SecondTry
from twinbus.broker.target import TargetName
from twinbus.cluster.lines import values
from twinbus.cluster.lines.columns import (
    ColumnReader,
    ColumnWriter,
    read_messages,
    read_taken,
    write_messages,
    write_taken,
)
from twinbus.cluster.lines.error_values import decode_error, encode_error
from twinbus.errors import MessagingError
from twinbus.model.message import Message

DELIVERED_BYTES_MAX = 4 << 20
"""Of contents in one frame, or a single message: a line carries answers and beats in between."""


class Topic(IntEnum):
    SEND = 1
    PLACED = 2
    SETTLE = 3
    SETTLED = 4
    SETTLE_ALL = 5
    RENEW = 6
    RECEIVER = 7
    DEMAND = 8
    RECALL = 9
    CLOSE = 10
    DELIVER = 11
    READY = 12
    LOST = 13
    ACCEPT = 14
    CANCEL_WAIT = 15
    RELEASE = 16
    RENEW_SESSION = 17
    ASK = 18
    CANCEL_SCHEDULED = 19
    COUNT = 20
    TRANSACT = 21
    HOLD_OVER = 22
    HOLD = 23
    MOVED_LOCKS = 24
    HOLD_MOVED = 25
    BROUGHT = 26
    TAKEN = 27
    ALIVE = 28
    SEND_AGAIN = 29


class SendFrame(NamedTuple):
    run: int
    name: TargetName
    is_together: bool
    failed: int | None
    messages: list[Message]
    origins: list[int] | None


def encode_send(
    run: int,
    name: TargetName,
    messages: Sequence[Message],
    origins: Sequence[int] | None,
    *,
    is_together: bool,
    failed: int | None = None,
) -> bytes:
    """`failed`: see `Placement`."""
    writer = ColumnWriter()
    writer.blob(values.encode((run, name, is_together, failed)))
    write_messages(writer, messages, origins)
    return writer.done()


def decode_send(payload: bytes) -> SendFrame:
    reader = ColumnReader(payload)
    run, name, is_together, failed = values.decode(reader.blob())
    messages, origins = read_messages(reader)
    reader.end()
    return SendFrame(run, name, is_together, failed, messages, origins)


class SendAgainFrame(NamedTuple):
    run: int
    name: TargetName
    is_together: bool
    second: SecondTry
    messages: list[Message]
    origins: list[int] | None


def encode_send_again(
    run: int,
    name: TargetName,
    messages: Sequence[Message],
    second: SecondTry,
    origins: Sequence[int] | None,
    *,
    is_together: bool,
) -> bytes:
    writer = ColumnWriter()
    writer.blob(values.encode((run, name, is_together, second.fragment, list(second.names))))
    write_messages(writer, messages, origins)
    return writer.done()


def decode_send_again(payload: bytes) -> SendAgainFrame:
    reader = ColumnReader(payload)
    run, name, is_together, fragment, names = values.decode(reader.blob())
    messages, origins = read_messages(reader)
    reader.end()
    return SendAgainFrame(run, name, is_together, SecondTry(fragment, names), messages, origins)


class Progress(NamedTuple):
    """What is known of a run: of what is sent with numbers, of a SETTLE without."""

    run: int
    indexes: list[int]
    numbers: list[int]
    errors: list[tuple[int, MessagingError]]


_PROGRESS = Struct("<QIII")


def encode_progress(
    run: int, indexes: Sequence[int], numbers: Sequence[int], errors: Sequence[tuple[int, MessagingError]]
) -> bytes:
    writer = ColumnWriter(_PROGRESS.pack(run, len(indexes), len(numbers), len(errors)))
    writer.small(indexes)
    writer.integers(numbers)
    if errors:
        writer.small([index for index, _ in errors])
        writer.blobs([encode_error(error) for _, error in errors])
    return writer.done()


def decode_progress(payload: bytes) -> Progress:
    reader = ColumnReader(payload)
    run, index_count, number_count, error_count = reader.unpack(_PROGRESS)
    indexes, numbers = reader.small(index_count), reader.integers(number_count)
    errors: list[tuple[int, MessagingError]] = []
    if error_count:
        places = reader.small(error_count)
        errors = [*zip(places, map(decode_error, reader.blobs(error_count)), strict=True)]
    reader.end()
    return Progress(run, indexes, numbers, errors)


class SettleFrame(NamedTuple):
    run: int
    key: int
    outcome: Any
    hold: int | None
    tokens: list[bytes]


def encode_settle(run: int, key: int, outcome: object, hold: int | None, tokens: Sequence[bytes]) -> bytes:
    writer = ColumnWriter()
    writer.blob(values.encode((run, key, outcome, hold, len(tokens))))
    writer.blobs(tokens)
    return writer.done()


def decode_settle(payload: bytes) -> SettleFrame:
    reader = ColumnReader(payload)
    run, key, outcome, hold, count = values.decode(reader.blob())
    tokens = reader.blobs(count)
    reader.end()
    return SettleFrame(run, key, outcome, hold, tokens)


_RECEIVER_ID = Struct("<Q")


def encode_deliver(receiver: int, taken: Sequence[TakenMessage]) -> bytes:
    writer = ColumnWriter(_RECEIVER_ID.pack(receiver))
    write_taken(writer, taken)
    return writer.done()


def decode_deliver(payload: bytes) -> tuple[int, list[TakenMessage]]:
    reader = ColumnReader(payload)
    (receiver,) = reader.unpack(_RECEIVER_ID)
    taken = read_taken(reader)
    reader.end()
    return receiver, taken


DEMAND = Struct("<QI")
RECALL = Struct("<Q?")
COUNTED = Struct("<Q")
HOLD = Struct("<Iq")
HOLD_MOVED = Struct("<HQQ")
QUEUE = Struct("<qI")
