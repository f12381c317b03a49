"""The WebSocket door of a namespace under requests and frames that no client would send: bytes to the server's own protocol.

A connection asks for the upgrade, and then says WebSocket frames whose payloads are pieces of a recorded AMQP conversation, whole or
damaged. Opcodes, masks, lengths, fragments and control frames are damaged too. There is no socket: what the server would write
is kept by a transport in memory. A seed decides everything.
"""

import asyncio
import gc
import logging
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from starlette.applications import Starlette

from tests.amqp.damaged_frames import Damager, memory_kb
from tests.gateway.frame_fuzzer import LoggedErrors, fuzzed_namespace, record
from tests.gateway.front import Front
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import Connections, MakeGateway
from twinbus.gateway.turns import Turns
from twinbus.http.websocket import PATH, SUB_PROTOCOL, websocket_routes
from twinbus.server.listening.admission import Admission, SharedLimits
from twinbus.server.listening.http_server import HttpServer
from twinbus.server.listening.refusal_log import RefusalLog

FRAMES_PER_CONNECTION = 40
CONNECTIONS_PER_NAMESPACE = 500
TURNS_MAX = 2_000
"""Of the loop, for what was fed to come to rest."""
BINARY, CLOSE, PING = 2, 8, 9
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {SUB_PROTOCOL}\r\n\r\n"
).encode()


class Counts(NamedTuple):
    frames: int
    connections: int
    upgraded: int
    ended: int  # by the server
    memory_grown_kb: int


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; a client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self._is_closing = False
        self._is_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5_672) if name in ("sockname", "peername") else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol


class WebSocketFuzz:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = Random(seed)
        front = fuzzed_namespace(folder / "recorded")
        recorded = record(front)
        front.catalog.close()
        self._openings = recorded.openings
        self._damager = Damager(recorded.frames, self._random)
        self._faults: list[dict[str, Any]] = []
        self._errors = LoggedErrors()
        self._upgraded = self._ended = 0

    async def run(self, frame_count: int) -> Counts:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._faults.append(context))
        for name in ("uvicorn.error", "twinbus"):
            logging.getLogger(name).addHandler(self._errors)
            # Kept by whoever looks at the log of a test, they would be the memory that grows.
            logging.getLogger(name).propagate = False
        frames = connections = 0
        memory = list[int]()
        while frames < frame_count:
            front = fuzzed_namespace(self._folder / str(connections))
            server = self._server(front)
            for _ in range(CONNECTIONS_PER_NAMESPACE):
                connections += 1
                try:
                    frames += await self._converse(front, server)
                    assert not self._faults, self._faults
                    self._errors.check()
                except BaseException as error:
                    error.add_note(f"connection {connections}")
                    raise
                if frames >= frame_count:
                    break
            front.catalog.close()
            gc.collect()
            memory.append(memory_kb())
        return Counts(frames, connections, self._upgraded, self._ended, memory[-1] - memory[min(2, len(memory) - 1)])

    def _server(self, front: Front) -> HttpServer:
        loop, clock = asyncio.get_running_loop(), front.sim.clock
        connections = Connections(1_000)
        turns = Turns(loop.call_soon, loop.time, time.thread_time)
        make_gateway: MakeGateway = lambda wake: ConnectionGateway(  # noqa: E731
            Connection(Role.SERVER, ConnectionSettings(container_id="server"), clock.now()),
            front.view,
            clock.now(),
            wake,
        )
        application = Starlette(routes=websocket_routes(make_gateway, connections, turns, clock))
        admission = Admission(SharedLimits(), connections, RefusalLog(), 1_000)
        return HttpServer(application, admission)

    async def _converse(self, front: Front, server: HttpServer) -> int:
        random, transport = self._random, MemoryTransport()
        protocol = server.protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        request = UPGRADE
        if random.random() < 0.1:
            request = self._damaged_request()
        await self._feed(front, transport, request)
        is_upgraded = b" 101 " in transport.written[:20]
        self._upgraded += is_upgraded
        count = 0
        if is_upgraded and random.random() < 0.9:
            await self._feed(front, transport, _frame(random.choice(self._openings)))
        while count < FRAMES_PER_CONNECTION and not transport.is_closing():
            some = [self._websocket_frame() for _ in range(random.randrange(1, 4))]
            count += len(some)
            await self._feed(front, transport, b"".join(some))
        self._ended += transport.is_closing()
        lost = transport.get_protocol()
        assert isinstance(lost, asyncio.Protocol)
        lost.connection_lost(None)
        await self._rest(front)
        return count

    async def _feed(self, front: Front, transport: MemoryTransport, data: bytes) -> None:
        for _ in range(TURNS_MAX):
            if transport.is_reading() or transport.is_closing():
                break
            await self._rest(front)
        else:
            raise AssertionError("the server reads no more")
        protocol = transport.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        if not transport.is_closing():
            protocol.data_received(data)
        await self._rest(front)

    async def _rest(self, front: Front) -> None:
        for _ in range(6):
            await asyncio.sleep(0)
            front.sim.run()

    def _damaged_request(self) -> bytes:
        random = self._random
        data = bytearray(UPGRADE)
        for _ in range(random.randrange(1, 4)):
            place = random.randrange(len(data))
            way = random.randrange(3)
            if way == 0:
                data[place] = random.randrange(256)
            elif way == 1:
                del data[place : place + random.randrange(1, 20)]
            else:
                data[place:place] = random.randbytes(random.randrange(1, 20))
        return bytes(data)

    def _websocket_frame(self) -> bytes:
        random = self._random
        payload = self._damager.draw()
        chance = random.random()
        if chance < 0.5:
            return _frame(payload)
        if chance < 0.6:  # in pieces, maybe with a control frame between them
            cut = random.randrange(len(payload) + 1)
            between = _frame(b"ping", PING) if random.random() < 0.5 else b""
            return _frame(payload[:cut], is_last=False) + between + _frame(payload[cut:], 0)
        if chance < 0.7:
            return _frame(payload[:125], random.choice((PING, 10)))
        if chance < 0.72:
            return _frame(random.choice((b"", b"\x03", b"\x03\xe8", b"\x03\xe8\xff\xfe", b"\xff\xff")), CLOSE)
        if chance < 0.76:
            return _frame(payload, random.choice((0, 1, 3, 7, 11, 15)), is_last=random.random() < 0.5)
        data = bytearray(_frame(payload))
        if chance < 0.85:
            data[random.randrange(2)] ^= 1 << random.randrange(8)
        elif chance < 0.9:
            data[1:2] = random.choice((b"\xfe\x00\x01", b"\xff" + b"\xff" * 8, b"\xff" + b"\x00" * 8, b"\x7e", b"\xfd"))
        else:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)


def _frame(payload: bytes, opcode: int = BINARY, *, is_last: bool = True) -> bytes:
    """Masked with zeros, so the payload is in it as it is."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2)
    else:
        length = b"\xff" + size.to_bytes(8)
    return bytes([0x80 * is_last | opcode]) + length + bytes(4) + payload
