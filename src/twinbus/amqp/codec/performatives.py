"""The performatives, which are the bodies of AMQP frames (AMQP 1.0 part 2, section 2.7).

Fields are in wire order. A null on the wire reads as the default given here.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, TypeAlias

from twinbus.amqp.codec.composites import (
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOLS,
    UINT,
    ULONG,
    USHORT,
    Composite,
    enumeration,
    one_of,
)
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.delivery_state import DELIVERY_STATE, DeliveryState
from twinbus.amqp.codec.error_condition import ERROR, ErrorCondition
from twinbus.amqp.codec.terminus import SOURCE, TARGET, Coordinator, Source, Target
from twinbus.amqp.codec.types import UByte

UINT_MAX = 0xFFFFFFFF

SENDER, RECEIVER = False, True
"""Values of `role`, a boolean on the wire."""


class SenderSettleMode(IntEnum):
    UNSETTLED = 0
    SETTLED = 1
    MIXED = 2


class ReceiverSettleMode(IntEnum):
    FIRST = 0
    SECOND = 1


_SENDER_SETTLE_MODE = enumeration("0, 1 or 2", SenderSettleMode, UByte)
_RECEIVER_SETTLE_MODE = enumeration("0 or 1", ReceiverSettleMode, UByte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Composite):
    CODE: ClassVar[int] = 0x10
    NAME: ClassVar[str] = "amqp:open:list"

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = UINT_MAX
    channel_max: Annotated[int, USHORT] = 0xFFFF
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    incoming_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Composite):
    CODE: ClassVar[int] = 0x11
    NAME: ClassVar[str] = "amqp:begin:list"

    remote_channel: Annotated[int | None, USHORT] = None
    next_outgoing_id: Annotated[int, UINT]
    incoming_window: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle_max: Annotated[int, UINT] = UINT_MAX
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(Composite):
    CODE: ClassVar[int] = 0x12
    NAME: ClassVar[str] = "amqp:attach:list"

    name: Annotated[str, STRING]
    handle: Annotated[int, UINT]
    role: Annotated[bool, BOOLEAN]
    snd_settle_mode: Annotated[SenderSettleMode, _SENDER_SETTLE_MODE] = SenderSettleMode.MIXED
    rcv_settle_mode: Annotated[ReceiverSettleMode, _RECEIVER_SETTLE_MODE] = ReceiverSettleMode.FIRST
    source: Annotated[Source | None, SOURCE] = None
    target: Annotated[Target | Coordinator | None, TARGET] = None
    unsettled: Annotated[dict[Any, Any] | None, MAP] = None
    incomplete_unsettled: Annotated[bool, BOOLEAN] = False
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Composite):
    CODE: ClassVar[int] = 0x13
    NAME: ClassVar[str] = "amqp:flow:list"

    next_incoming_id: Annotated[int | None, UINT] = None
    incoming_window: Annotated[int, UINT]
    next_outgoing_id: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool, BOOLEAN] = False
    echo: Annotated[bool, BOOLEAN] = False
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Composite):
    CODE: ClassVar[int] = 0x14
    NAME: ClassVar[str] = "amqp:transfer:list"

    handle: Annotated[int, UINT]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool, BOOLEAN] = False
    rcv_settle_mode: Annotated[ReceiverSettleMode | None, _RECEIVER_SETTLE_MODE] = None
    state: Annotated[DeliveryState | None, DELIVERY_STATE] = None
    resume: Annotated[bool, BOOLEAN] = False
    aborted: Annotated[bool, BOOLEAN] = False
    batchable: Annotated[bool, BOOLEAN] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition(Composite):
    CODE: ClassVar[int] = 0x15
    NAME: ClassVar[str] = "amqp:disposition:list"

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[DeliveryState | None, DELIVERY_STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach(Composite):
    CODE: ClassVar[int] = 0x16
    NAME: ClassVar[str] = "amqp:detach:list"

    handle: Annotated[int, UINT]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[ErrorCondition | None, ERROR] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Composite):
    CODE: ClassVar[int] = 0x17
    NAME: ClassVar[str] = "amqp:end:list"

    error: Annotated[ErrorCondition | None, ERROR] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Composite):
    CODE: ClassVar[int] = 0x18
    NAME: ClassVar[str] = "amqp:close:list"

    error: Annotated[ErrorCondition | None, ERROR] = None


Performative: TypeAlias = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close

_PERFORMATIVE = one_of("a performative", Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)


def decode_performative(body: bytes) -> tuple[Performative, int]:
    """The performative of a frame and where its payload starts; DecodeError for anything else."""
    value, end = decode_value(body, 0)
    return _PERFORMATIVE.read(value), end
