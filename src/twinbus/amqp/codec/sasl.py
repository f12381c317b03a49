"""SASL on AMQP: the frames of the security layer and the mechanisms that both roles support (AMQP 1.0 part 5, section 5.3).

server  mechanisms ------------------->            ANONYMOUS  response: none, or a trace (RFC 4505)
client  <------------------------- init            PLAIN      response: [authzid] NUL user NUL password (RFC 4616)
server  outcome(code) ---------------->            MSSBCBS    none: the client authenticates itself on $cbs
                                                   EXTERNAL   none: the client authenticated itself by its certificate
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

from twinbus.amqp.codec.composites import (
    BINARY,
    STRING,
    SYMBOL,
    SYMBOLS,
    Composite,
    enumeration,
    one_of,
)
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.types import UByte
from twinbus.amqp.errors import DecodeError

ANONYMOUS, PLAIN, MSSBCBS, EXTERNAL = "ANONYMOUS", "PLAIN", "MSSBCBS", "EXTERNAL"


class SaslCode(IntEnum):
    OK = 0
    AUTH = 1
    """The credentials are wrong."""
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


_CODE = enumeration("a code from 0 to 4", SaslCode, UByte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms(Composite):
    CODE: ClassVar[int] = 0x40
    NAME: ClassVar[str] = "amqp:sasl-mechanisms:list"

    sasl_server_mechanisms: Annotated[tuple[str, ...], SYMBOLS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Init(Composite):
    CODE: ClassVar[int] = 0x41
    NAME: ClassVar[str] = "amqp:sasl-init:list"

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge(Composite):
    CODE: ClassVar[int] = 0x42
    NAME: ClassVar[str] = "amqp:sasl-challenge:list"

    challenge: Annotated[bytes, BINARY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(Composite):
    CODE: ClassVar[int] = 0x43
    NAME: ClassVar[str] = "amqp:sasl-response:list"

    response: Annotated[bytes, BINARY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Composite):
    CODE: ClassVar[int] = 0x44
    NAME: ClassVar[str] = "amqp:sasl-outcome:list"

    code: Annotated[SaslCode, _CODE]
    additional_data: Annotated[bytes | None, BINARY] = None


SaslFrame: TypeAlias = Mechanisms | Init | Challenge | Response | Outcome

_SASL_FRAME = one_of("a frame of the SASL layer", Mechanisms, Init, Challenge, Response, Outcome)


def decode_sasl(body: bytes) -> SaslFrame:
    value, end = decode_value(body, 0)
    if end != len(body):
        raise DecodeError(f"{len(body) - end} bytes follow the body of the SASL frame")
    frame: SaslFrame = _SASL_FRAME.read(value)
    return frame


class SaslCredentials(NamedTuple):
    """What a client answers when the server offers mechanisms."""

    mechanism: str = ANONYMOUS
    initial_response: bytes = b""


class PlainCredentials(NamedTuple):
    authorization_id: str
    user: str
    password: str


def plain_credentials(user: str, password: str) -> SaslCredentials:
    return SaslCredentials(PLAIN, f"\0{user}\0{password}".encode())


def read_plain(initial_response: bytes) -> PlainCredentials | None:
    """The parts of a PLAIN response; None if it does not have three of them in UTF-8."""
    try:
        parts = initial_response.decode().split("\0")
    except UnicodeDecodeError:
        return None
    return PlainCredentials(*parts) if len(parts) == 3 else None
