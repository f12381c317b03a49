"""A node's process: `main` with LEASH ARRIVALS COUNTS LOCK, descriptors that it inherits, and its seat on standard input.

It tells the supervisor that it is ready, or why it cannot start, and serves until the supervisor says stop, SIGTERM comes, or
the supervisor is gone.
"""

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence

import uvloop

from twinbus.clock import NamespaceClock
from twinbus.definitions.local_creation import create_entities
from twinbus.errors import MessagingError
from twinbus.server.data.holdings import new_key
from twinbus.server.namespace import NamespaceServer
from twinbus.server.nodes.answers import Answers
from twinbus.server.nodes.leash import Arrivals, Leash, write_error
from twinbus.server.nodes.membership import Membership
from twinbus.server.nodes.seat import Seat
from twinbus.server.nodes.shared_counts import SharedCounts
from twinbus.server.nodes.switchboard import Words
from twinbus.server.process_setup import set_up_process
from twinbus.server.stores.host_process import HostProcess
from twinbus.server.tracing import spans_of

PREPARE = "prepare"
"""The supervisor's question: create the entities that are wanted."""


async def run(
    seat: Seat, leash_socket: socket.socket, arrivals: socket.socket, counts: int, lock: int, host: HostProcess
) -> None:
    loop = asyncio.get_running_loop()
    leash = Leash()
    loop.add_signal_handler(signal.SIGTERM, leash.stopping.set)
    answers = Answers(leash)
    clock = NamespaceClock()
    membership = Membership(seat, leash, SharedCounts(counts, seat.count), lock, clock)
    await loop.create_unix_connection(lambda: leash, sock=leash_socket)
    await leash.introduced.wait()
    spans = spans_of(seat.settings.name, os.environ)
    server = NamespaceServer(
        seat.settings, clock=clock, has_store_process=True, spans=spans, membership=membership, store_host=host
    )

    def new_root_key() -> None:
        loop.call_soon_threadsafe(leash.say, {"root_key": True})

    server.on_new_root_key = new_root_key

    async def prepare(_: Words) -> None:
        await server.prepare(lambda server: create_entities(server.control, seat.wanted, new_key))

    leash.answering[PREPARE] = prepare
    tasks: set[asyncio.Task[None]] = set()

    def do(work: Coroutine[None, None, None]) -> None:
        task = loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    line = Arrivals(
        arrivals,
        lambda connection, door: do(server.welcome(connection, door)),
        lambda connection, peer: do(membership.mesh.connect(peer, connection)),
    )
    try:
        await server.start()
    except MessagingError as error:
        leash.say({"failed": write_error(error)})
    else:
        answers.start(server)
        leash.say({"ready": True})
        await leash.stopping.wait()
        line.close()
        membership.mesh.close()
        await server.stop()
    if spans is not None:
        await asyncio.to_thread(spans.close)
    await leash.close()


def main(arguments: Sequence[str]) -> None:
    host = HostProcess()  # it reads its program while this one waits, or reads the catalog
    told = sys.stdin.buffer.read()
    if not told:
        return  # it was in reserve, and is not needed any more
    seat: Seat = pickle.loads(told)
    leash, arrivals, counts, lock = map(int, arguments)
    # Ctrl-C is for the supervisor, which stops its nodes in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up_process(seat.settings.log_format, seat.settings.log_level, node=seat.index)
    uvloop.run(run(seat, socket.socket(fileno=leash), socket.socket(fileno=arrivals), counts, lock, host))
