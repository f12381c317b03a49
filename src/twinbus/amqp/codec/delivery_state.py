"""Delivery states: what became of a message (AMQP 1.0 part 3, section 3.4, and part 4, section 4.5).

accepted, rejected, released and modified are outcomes, which end a delivery, and so is declared, on a control link.
received is a step on the way there, and transactional-state wraps an outcome that counts once its transaction commits.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from twinbus.amqp.codec.composites import (
    BINARY,
    BOOLEAN,
    MAP,
    UINT,
    ULONG,
    Composite,
    encode_composite,
    one_of,
)
from twinbus.amqp.codec.error_condition import ERROR, ErrorCondition
from twinbus.errors import MessagingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Composite):
    CODE: ClassVar[int] = 0x23
    NAME: ClassVar[str] = "amqp:received:list"

    section_number: Annotated[int, UINT]
    section_offset: Annotated[int, ULONG]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(Composite):
    CODE: ClassVar[int] = 0x24
    NAME: ClassVar[str] = "amqp:accepted:list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Composite):
    CODE: ClassVar[int] = 0x25
    NAME: ClassVar[str] = "amqp:rejected:list"

    error: Annotated[ErrorCondition | None, ERROR] = None

    @classmethod
    def because(cls, error: MessagingError) -> "Rejected":
        return cls(error=ErrorCondition.of(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Composite):
    CODE: ClassVar[int] = 0x26
    NAME: ClassVar[str] = "amqp:released:list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Modified(Composite):
    CODE: ClassVar[int] = 0x27
    NAME: ClassVar[str] = "amqp:modified:list"

    delivery_failed: Annotated[bool | None, BOOLEAN] = None
    undeliverable_here: Annotated[bool | None, BOOLEAN] = None
    message_annotations: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Composite):
    """Answer to a coordinator's declare: the id of the new transaction."""

    CODE: ClassVar[int] = 0x33
    NAME: ClassVar[str] = "amqp:declared:list"

    txn_id: Annotated[bytes, BINARY]


Outcome: TypeAlias = Accepted | Rejected | Released | Modified | Declared

OUTCOME = one_of("an outcome", Accepted, Rejected, Released, Modified, Declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalState(Composite):
    CODE: ClassVar[int] = 0x34
    NAME: ClassVar[str] = "amqp:transactional-state:list"

    txn_id: Annotated[bytes, BINARY]
    outcome: Annotated[Outcome | None, OUTCOME] = None


DeliveryState: TypeAlias = Outcome | Received | TransactionalState

DELIVERY_STATE = one_of(
    "a delivery state", Accepted, Rejected, Released, Modified, Received, Declared, TransactionalState
)

ACCEPTED = Accepted()
RELEASED = Released()

_ENCODED_ACCEPTED = encode_composite(ACCEPTED)


def encode_state(state: DeliveryState) -> bytes:
    # By far the most frequent state: at least once per burst.
    return _ENCODED_ACCEPTED if state is ACCEPTED else encode_composite(state)
