"""What is said on a control link (AMQP 1.0 part 4, section 4.5): composites that stand alone in the body of a message."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from twinbus.amqp.codec.composites import ANY, BINARY, BOOLEAN, Composite
from twinbus.amqp.codec.types import Value


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
