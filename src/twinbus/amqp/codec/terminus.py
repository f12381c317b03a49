"""The two ends of a link, and what is said to one of them (AMQP 1.0 part 3, section 3.5, and part 4, section 4.5).

A link runs from a source to a target. A target can be the coordinator of transactions: messages to it hold a
declare or a discharge as their body.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from twinbus.amqp.codec.composites import ANY, BINARY, BOOLEAN, MAP, SYMBOL, SYMBOLS, UINT, Composite, one_of
from twinbus.amqp.codec.delivery_state import DELIVERY_STATE, DeliveryState
from twinbus.amqp.codec.types import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terminus(Composite):
    """The fields that sources and targets begin with."""

    address: Annotated[str | None, ANY] = None
    durable: Annotated[int, UINT] = 0
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(_Terminus):
    CODE: ClassVar[int] = 0x28
    NAME: ClassVar[str] = "amqp:source:list"

    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[dict[Any, Any] | None, MAP] = None
    default_outcome: Annotated[DeliveryState | None, DELIVERY_STATE] = None
    outcomes: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(_Terminus):
    CODE: ClassVar[int] = 0x29
    NAME: ClassVar[str] = "amqp:target:list"

    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator(Composite):
    """Target of a link that controls transactions."""

    CODE: ClassVar[int] = 0x30
    NAME: ClassVar[str] = "amqp:coordinator:list"

    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare(Composite):
    """Open a transaction; the answer is the state `Declared`."""

    CODE: ClassVar[int] = 0x31
    NAME: ClassVar[str] = "amqp:declare:list"

    global_id: Annotated[Value, ANY] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discharge(Composite):
    """Commit a transaction, or roll it back with `fail`."""

    CODE: ClassVar[int] = 0x32
    NAME: ClassVar[str] = "amqp:discharge:list"

    txn_id: Annotated[bytes, BINARY]
    fail: Annotated[bool, BOOLEAN] = False


SOURCE = one_of("a source", Source)
TARGET = one_of("a target or a coordinator", Target, Coordinator)
