"""The error that one peer reports to the other (AMQP 1.0 part 2, section 2.8.14).

Always written with all three fields: the Python SDK reads the third one without checking the length of the
list, and a send that is refused with a shorter list never returns.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from twinbus.amqp.codec.composites import MAP, STRING, SYMBOL, Composite, one_of
from twinbus.errors import MessagingError


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCondition(Composite):
    CODE: ClassVar[int] = 0x1D
    NAME: ClassVar[str] = "amqp:error:list"
    IS_FULL_LENGTH: ClassVar[bool] = True

    condition: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[dict[Any, Any] | None, MAP] = None

    @classmethod
    def of(cls, error: MessagingError) -> "ErrorCondition":
        return cls(condition=error.condition, description=str(error))

    def __str__(self) -> str:
        return self.condition if not self.description else f"{self.condition}: {self.description}"


ERROR = one_of("an error", ErrorCondition)
