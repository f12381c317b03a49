"""From the first byte to the open frame: protocol headers and SASL, both roles (AMQP 1.0 part 2, section 2.2, part 5).

server   FIRST_HEADER --SASL header--> SASL --init--> DECIDING --outcome ok--> AMQP_HEADER --AMQP header--> DONE
              '---------------------------AMQP header, unless SASL is required------------------------------^
client   FIRST_HEADER --SASL header--> SASL --mechanisms, outcome ok---------> AMQP_HEADER --AMQP header--> DONE

A wrong header is answered with the right one, and ends the connection (section 2.2). A failed outcome ends it as well.
Neither is followed by a close frame, because AMQP frames have not started by then.
"""

from enum import Enum, auto

from twinbus.amqp.codec import sasl
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from twinbus.amqp.codec.sasl import SaslCode, SaslFrame
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.errors import ILLEGAL_STATE, NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, ConnectionFault
from twinbus.amqp.events import SaslInit


class Role(Enum):
    SERVER = auto()
    CLIENT = auto()


class Stage(Enum):
    FIRST_HEADER = auto()
    SASL = auto()
    DECIDING = auto()
    AMQP_HEADER = auto()
    DONE = auto()


class Handshake:
    def __init__(self, role: Role, context: ConnectionContext) -> None:
        self.stage = Stage.FIRST_HEADER
        self._role = role
        self._context = context
        self._settings = context.settings

    @property
    def is_deciding(self) -> bool:
        """The application has to decide on the outcome before any further byte is read."""
        return self.stage is Stage.DECIDING

    @property
    def is_amqp_next(self) -> bool:
        """What we send next is AMQP: header and open."""
        return self.stage is Stage.AMQP_HEADER or (
            self.stage is Stage.FIRST_HEADER and self._settings.sasl_credentials is None
        )

    @property
    def is_done(self) -> bool:
        return self.stage is Stage.DONE

    @property
    def expects_header(self) -> bool:
        return self.stage in (Stage.FIRST_HEADER, Stage.AMQP_HEADER)

    def start(self) -> None:
        """Client: send the first header."""
        self._write(AMQP_HEADER if self._settings.sasl_credentials is None else SASL_HEADER)

    def header_received(self, header: bytes) -> None:
        if header not in self._expected():
            if self._role is Role.SERVER:
                self._write(self._expected()[0])
            raise ConnectionFault(f"The peer starts with {header!r}; this side expects {self._expected()[0]!r}.")
        if header == SASL_HEADER:
            self.stage = Stage.SASL
            if self._role is Role.SERVER:
                self._write(SASL_HEADER)
                self._send(sasl.Mechanisms(sasl_server_mechanisms=self._settings.sasl_mechanisms))
        else:
            self.stage = Stage.DONE
            if self._role is Role.SERVER:
                self._write(AMQP_HEADER)

    def frame_received(self, frame: SaslFrame) -> None:
        if self.stage is not Stage.SASL:
            raise ConnectionFault(f"{frame.NAME} arrived outside the SASL exchange.", ILLEGAL_STATE)
        if self._role is Role.SERVER and isinstance(frame, sasl.Init):
            self._init_received(frame)
        elif self._role is Role.CLIENT and isinstance(frame, sasl.Mechanisms):
            self._mechanisms_received(frame)
        elif self._role is Role.CLIENT and isinstance(frame, sasl.Outcome):
            self._outcome_received(frame)
        else:
            raise ConnectionFault(f"{frame.NAME} is not expected at this point.", ILLEGAL_STATE)

    def decide(self, code: SaslCode) -> None:
        """Server: the application's decision on an init. ConnectionFault if it is anything but OK."""
        assert self.stage is Stage.DECIDING, "an outcome answers exactly one SaslInit"
        self._send(sasl.Outcome(code=code))
        self.stage = Stage.AMQP_HEADER
        if code is not SaslCode.OK:
            raise ConnectionFault("The SASL credentials were refused.", UNAUTHORIZED_ACCESS)

    def _expected(self) -> tuple[bytes, ...]:
        if self.stage is Stage.AMQP_HEADER:
            return (AMQP_HEADER,)
        if self._role is Role.CLIENT:
            return (AMQP_HEADER,) if self._settings.sasl_credentials is None else (SASL_HEADER,)
        return (SASL_HEADER,) if self._settings.is_sasl_required else (AMQP_HEADER, SASL_HEADER)

    def _init_received(self, init: sasl.Init) -> None:
        if init.mechanism not in self._settings.sasl_mechanisms:
            self._send(sasl.Outcome(code=SaslCode.AUTH))
            raise ConnectionFault(
                f"The SASL mechanism {init.mechanism!r} is not one of those offered.", NOT_IMPLEMENTED
            )
        self.stage = Stage.DECIDING
        self._context.reports.add(SaslInit(init.mechanism, init.initial_response or b"", init.hostname))

    def _mechanisms_received(self, offer: sasl.Mechanisms) -> None:
        credentials = self._settings.sasl_credentials
        assert credentials is not None
        if credentials.mechanism not in offer.sasl_server_mechanisms:
            offered = ", ".join(offer.sasl_server_mechanisms)
            raise ConnectionFault(
                f"The peer offers the SASL mechanisms {offered}, but not {credentials.mechanism}.", NOT_IMPLEMENTED
            )
        self._send(
            sasl.Init(
                mechanism=credentials.mechanism,
                initial_response=credentials.initial_response,
                hostname=self._settings.hostname,
            )
        )

    def _outcome_received(self, outcome: sasl.Outcome) -> None:
        if outcome.code is not SaslCode.OK:
            raise ConnectionFault(f"The peer refuses the SASL credentials: {outcome.code.name}.", UNAUTHORIZED_ACCESS)
        self.stage = Stage.AMQP_HEADER
        self._write(AMQP_HEADER)

    def _send(self, frame: SaslFrame) -> None:
        self._write(encode_frame(0, encode_composite(frame), SASL_FRAME))

    def _write(self, data: bytes) -> None:
        self._context.outbox.parts.append(data)
