"""A connection that says exactly the frames it is told, field by field, and reads the answers as lists.

For what an SDK sends on the wire and our own client would say differently: nulls at the end, links and control links on
one AMQP session, transfers with a state.
"""

from typing import NamedTuple

from tests.gateway.front import Front
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, encode_frame
from twinbus.amqp.codec.types import Described, Symbol, UByte, UInt, ULong, Value
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.gateway.connection_gateway import ConnectionGateway

NAMES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x40: "mechanisms",
    0x41: "init",
    0x44: "outcome",
}
CODES = {name: code for code, name in NAMES.items()}
SOURCE, TARGET, COORDINATOR, DECLARE, DISCHARGE, DECLARED, IN_TRANSACTION = 0x28, 0x29, 0x30, 0x31, 0x32, 0x33, 0x34
ACCEPTED, REJECTED = 0x24, 0x25
ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, VALUE = 0x72, 0x73, 0x74, 0x75, 0x77


def composite(code: int, *fields: Value) -> Described:
    return Described(ULong(code), list(fields))


def section(code: int, value: Value) -> bytes:
    return encode_value(Described(ULong(code), value))


def source(address: str | None, *rest: Value) -> Described:
    return composite(SOURCE, address, *(rest or [None] * 10))


def target(address: str) -> Described:
    return composite(TARGET, address, *[None] * 6)


def in_transaction(txn_id: bytes, outcome: Value = None) -> Described:
    return composite(IN_TRANSACTION, txn_id, outcome)


class Said(NamedTuple):
    channel: int
    name: str
    fields: list[Value]
    payload: bytes


class RawWire:
    def __init__(self, front: Front, settings: ConnectionSettings | None = None) -> None:
        """`settings`: of the server."""
        self._front = front
        server = Connection(Role.SERVER, settings or ConnectionSettings(container_id="net"), front.sim.now)
        self.gateway = ConnectionGateway(server, front.view, front.sim.now, self._wake)
        self._reader = FrameReader(65_536)
        self._answers: list[Said] = []
        self._put_count = 0
        self._feed(SASL_HEADER + _frame(0, "init", Symbol("MSSBCBS"), b"", None, kind=SASL_FRAME))
        self._reader.expects_header = True
        self._feed(AMQP_HEADER + _frame(0, "open", "amqp://127.0.0.1/-1", "127.0.0.1", UInt(65536)))
        self.take()
        # $cbs has a session of its own.
        self.say(0, "begin", None, UInt(1), UInt(5000), UInt(5000), UInt(262143), None, None, {})
        cbs = target("$cbs")
        self.say(0, "attach", "cbs:sender", UInt(0), False, UByte(1), None, source(None), cbs, *[None] * 7)
        reply = target("replies")
        self.say(0, "attach", "cbs:receiver", UInt(1), True, UByte(1), None, source("$cbs"), reply, *[None] * 7)
        self.flow(0, handle=1, credit=50)
        self.take()

    def say(self, channel: int, name: str, *fields: Value, payload: bytes = b"") -> None:
        self._feed(_frame(channel, name, *fields, payload=payload))

    def say_together(self, *frames: tuple[int, str, list[Value]]) -> None:
        """Several frames (channel, name, fields) that arrive in one read."""
        self._feed(b"".join([_frame(channel, name, *fields) for channel, name, fields in frames]))

    def flow(self, channel: int, handle: int, credit: int) -> None:
        window = [UInt(0), UInt(4294967295), UInt(1), UInt(5000)]
        self.say(channel, "flow", *window, UInt(handle), UInt(0), UInt(credit), UInt(0), None, False, None)

    def put_token(self, path: str) -> None:
        properties: list[Value] = [f"request{self._put_count}", None, None, None, "replies", *[None] * 8]
        names: Value = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": f"amqp://127.0.0.1/{path}",
        }
        request = section(PROPERTIES, properties) + section(APPLICATION_PROPERTIES, names)
        request += section(VALUE, self._front.token(path))
        self.transfer(0, 0, self._put_count, request, tag=b"", settled=True)
        self._put_count += 1
        assert b"Accepted" in self.take("transfer")[0].payload

    def transfer(
        self,
        channel: int,
        handle: int,
        delivery_id: int,
        payload: bytes,
        state: Value = None,
        *,
        tag: bytes = b"\x01\x00\x00\x00",
        settled: bool | None = None,
    ) -> None:
        fields: list[Value] = [UInt(handle), UInt(delivery_id), tag, UInt(0), settled, False]
        self.say(channel, "transfer", *fields, None, state, None, None, state is not None, payload=payload)

    def take(self, name: str | None = None) -> list[Said]:
        """The answers since the last time: all of them, or those of one name, and the others are dropped."""
        taken, self._answers = self._answers, []
        return [each for each in taken if name is None or each.name == name]

    def run(self) -> None:
        self._feed(b"")

    def _feed(self, data: bytes) -> None:
        sim = self._front.sim
        if data:
            self.gateway.receive(data, sim.now)
        self._flush()
        self._is_flush_due = False
        sim.run()
        if self._is_flush_due:
            self._flush()

    def _wake(self) -> None:
        self._is_flush_due = True

    def _flush(self) -> None:
        for kind, channel, _, frame, start, end in self._reader.frames(self.gateway.data_to_send()):
            if kind in (AMQP_FRAME, SASL_FRAME) and end > start:
                performative, pos = decode_value(frame, start)
                assert isinstance(performative, Described)
                assert isinstance(performative.value, list)
                name = NAMES[int(performative.descriptor)]
                self._answers.append(Said(channel, name, performative.value, bytes(frame[pos:end])))


def _frame(channel: int, name: str, *fields: Value, payload: bytes = b"", kind: int = AMQP_FRAME) -> bytes:
    return encode_frame(channel, encode_value(composite(CODES[name], *fields)) + payload, kind)
