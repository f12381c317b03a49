"""The error that one peer reports to the other (AMQP 1.0 part 2, section 2.8.14)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from twinbus.amqp.codec.composites import MAP, STRING, SYMBOL, Composite, one_of
from twinbus.errors import MessagingError

DESCRIPTION_LENGTH_MAX = 4_000
"""Of a description of ours: it may quote what the peer sent, and its frame has to be one that the peer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCondition(Composite):
    CODE: ClassVar[int] = 0x1D
    NAME: ClassVar[str] = "amqp:error:list"

    condition: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[dict[Any, Any] | None, MAP] = None

    @classmethod
    def of(cls, error: MessagingError) -> "ErrorCondition":
        return cls(condition=error.condition, description=str(error)[:DESCRIPTION_LENGTH_MAX])

    def __str__(self) -> str:
        return self.condition if not self.description else f"{self.condition}: {self.description}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOfPeer(ErrorCondition):
    """Found on this side, and sent like any other. For whoever uses the connection it is no answer of the peer's."""


ERROR = one_of("an error", ErrorCondition)
