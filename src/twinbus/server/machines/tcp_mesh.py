"""The lines of a node to nodes on other machines: TCP with TLS, on which both ends have shown who they are.

    wanted and missing --the lower number dials, every DIAL_EVERY_S--> TLS --HELLO--> open --silence, end--> missing

Whom to have a line to is told from outside (`follow`), with the address at which each node listens. Beats, silence, versions and limits of
what is unanswered are those of a `Line`.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

from twinbus.clock import Clock, Millis
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line, Listener
from twinbus.errors import ArgumentError
from twinbus.server.listening.host_names import ALL_ADDRESSES
from twinbus.server.listening.refusal_log import RefusalLog
from twinbus.server.machines.identity import LineContexts, host_of, number_in
from twinbus.server.nodes.mesh import LineSocket

log = logging.getLogger(__name__)

AGAIN_S = 0.1
"""After a line broke."""
DIAL_EVERY_S = 0.5
DIAL_TIMEOUT_S = 3.0
"""For TCP and TLS together: a host that is gone answers nothing at all."""
HANDSHAKES_MAX = 128
"""Connections at a time that have not shown who they are: two for each of the other nodes."""
TOO_MANY_HANDSHAKES = "connections to the port for nodes, too many have not shown who they are"
STRANGERS = "connections to the port for nodes without a certificate of this namespace"


class NodeAddress(NamedTuple):
    """Where a node listens for the others, or where they reach it."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str, *, is_reached: bool = True) -> "NodeAddress":
        """`is_reached`: others connect to it. Raises ArgumentError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ArgumentError(f"'{text}' is not an address for other nodes. Write HOST:PORT, such as 10.0.0.1:5680.")
        if is_reached and host in ALL_ADDRESSES:
            raise ArgumentError(
                f"Other nodes cannot connect to {host}. Name an address that they reach, such as 10.0.0.1:{port}, with --listen-nodes "
                "or with --advertise-nodes."
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TcpMesh:
    """Lives on the event loop and ticks with everything else."""

    def __init__(self, me: Hello, contexts: LineContexts, listener: Listener, clock: Clock) -> None:
        self._me = me
        self._contexts = contexts
        self._listener = listener
        self._clock = clock
        self.names: Mapping[int, str] = {}
        """Of nodes, for the log: an operator knows no numbers."""
        self._wanted: dict[int, NodeAddress] = {}
        self._lines: dict[int, LineSocket] = {}
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._said: dict[int, str] = {}
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._sent_before = self._received_before = 0  # on lines that are gone
        self._greeted: set[asyncio.Task[None]] = set()
        self.refusals = RefusalLog()

    @property
    def sent_bytes(self) -> int:
        return self._sent_before + sum(each.sent_bytes for each in self._lines.values())

    @property
    def received_bytes(self) -> int:
        return self._received_before + sum(each.received_bytes for each in self._lines.values())

    async def listen(self, address: NodeAddress) -> NodeAddress:
        """Returns the address with the port that was chosen, if that was left open. Raises ArgumentError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Knock(self), address.host, address.port)
        except OSError as fault:
            raise ArgumentError(
                f"Other nodes cannot be listened for at {address}: {fault.strerror or fault}. Choose another --listen-nodes."
            ) from fault
        return NodeAddress(address.host, self._server.sockets[0].getsockname()[1])

    def follow(self, addresses: Mapping[int, NodeAddress]) -> None:
        """Have a line to each of these; those to others are left to end by themselves."""
        self._wanted = {number: address for number, address in addresses.items() if number != self._me.node}
        self._dial_missing()

    def _dial_missing(self) -> None:
        if self._is_closed:
            return
        for number in self._wanted:
            if number > self._me.node and number not in self._lines and number not in self._dialling:
                task = asyncio.get_running_loop().create_task(self._dial(number))
                self._dialling[number] = task
                task.add_done_callback(lambda _, number=number: self._dialling.pop(number, None))  # type: ignore[misc]

    @property
    def lines(self) -> dict[int, Line]:
        """Those that are open, by number."""
        return {number: each.line for number, each in self._lines.items() if each.line.is_open}

    def tick(self, now: Millis) -> None:
        self.refusals.tick(now)
        for each in list(self._lines.values()):
            each.line.tick(now)

    def cut(self, number: int) -> bool:
        """End the line to this node at once, as when the network does. Whether there was one."""
        shell = self._lines.get(number)
        if shell is not None:
            shell.line.end("it was cut on purpose", self._clock.now())
        return shell is not None

    def close(self) -> None:
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for task in [*self._dialling.values(), *self._greeted]:
            task.cancel()
        for each in list(self._lines.values()):
            each.say_goodbye()

    async def _dial(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_closed and number in self._wanted and number not in self._lines:
            address = self._wanted[number]
            try:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    shell = self._shell(number)
                    await loop.create_connection(
                        lambda shell=shell: shell,  # type: ignore[misc]
                        address.host,
                        address.port,
                        ssl=self._contexts.dialling,
                        server_hostname=host_of(number),
                    )
            except (OSError, TimeoutError, ssl.SSLError) as fault:
                self._say(number, f"{address}: {str(fault) or 'no answer'}")
                await asyncio.sleep(DIAL_EVERY_S)
            else:
                if shell.line.is_broken:  # before anybody knew of it: the other end may have closed at once
                    await asyncio.sleep(DIAL_EVERY_S)
                else:
                    self._put(number, shell)

    def _say(self, number: int, reason: str) -> None:
        """Once for each reason: it is tried twice a second."""
        if self._said.get(number) != reason:
            self._said[number] = reason
            log.warning("node_not_reached", extra={"fields": {**self._named(number), "reason": reason}})

    def _named(self, number: int) -> dict[str, object]:
        return {"node": self.names.get(number, ""), "number": number}

    # Those who dial

    def greet(self, connection: socket.socket) -> None:
        """Somebody has connected, and has to show who it is. Strangers can connect too: not many at a time."""
        if self._is_closed or len(self._greeted) >= HANDSHAKES_MAX:
            self.refusals.note(TOO_MANY_HANDSHAKES)
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._greet(connection))
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)

    async def _greet(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Arrival(self),
                connection,
                ssl=self._contexts.listening,
                ssl_handshake_timeout=DIAL_TIMEOUT_S,
            )
        except OSError:
            self.refusals.note(STRANGERS)

    def welcome(self, transport: asyncio.Transport) -> None:
        """Its TLS is done."""
        number = number_in(transport.get_extra_info("peercert"))
        shell = None if number is None else self._arrived(number)
        if shell is None:
            self.refusals.note(STRANGERS)
            transport.abort()
            return
        transport.set_protocol(shell)
        shell.connection_made(transport)

    def _arrived(self, number: int) -> LineSocket | None:
        """None: whoever it is, there is no line to it."""
        if number == self._me.node or self._is_closed:
            return None
        shell = self._shell(number)
        self._put(number, shell)
        return shell

    def _shell(self, number: int) -> LineSocket:
        return LineSocket(self._me, self._listener, self._clock, number, self._broken)

    def _put(self, number: int, shell: LineSocket) -> None:
        self._said.pop(number, None)
        before = self._lines.pop(number, None)
        self._lines[number] = shell
        if before is not None:
            before.line.end("another line takes its place", self._clock.now())

    def _broken(self, shell: LineSocket) -> None:
        number = shell.peer
        if self._lines.get(number) is shell:
            del self._lines[number]
        self._sent_before += shell.sent_bytes
        self._received_before += shell.received_bytes
        log.info("line_broken", extra={"fields": {**self._named(number), "reason": shell.line.fault}})
        if not self._is_closed:
            asyncio.get_running_loop().call_later(AGAIN_S, self._dial_missing)


class _Knock(asyncio.Protocol):
    """A connection that was just accepted. Its socket is taken out of its transport, which would read the beginning of TLS before
    anybody could ask for TLS on it."""

    def __init__(self, mesh: TcpMesh) -> None:
        self._mesh = mesh

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        accepted = cast(asyncio.Transport, transport)
        connection = socket.socket(fileno=os.dup(accepted.get_extra_info("socket").fileno()))
        accepted.abort()
        self._mesh.greet(connection)


class _Arrival(asyncio.Protocol):
    """A connection whose TLS is done, until it is known whose it is."""

    def __init__(self, mesh: TcpMesh) -> None:
        self._mesh = mesh

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._mesh.welcome(cast(asyncio.Transport, transport))
