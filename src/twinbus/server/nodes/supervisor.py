"""The process that serves a namespace with several nodes: it holds folder and ports, and starts the nodes and starts them again.

    starting --it says ready--> ready --it ends, or its loop stands still--> ended --at once, or after a pause--> starting

At the start of the namespace every node has to become ready; if one cannot, the others are stopped and its reason is the
namespace's. Later a node that ends is replaced, again and again: the others go on meanwhile, and its stores are lost to them.

The supervisor does nothing for a message. It introduces nodes to each other: a line between two of them is a pair of sockets
that it makes and hands to both, so there is no socket that anybody else could connect to.
"""

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import count as count_from
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from twinbus.clock import SystemClock
from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.errors import InternalError, MessagingError
from twinbus.management.catalog import Catalog
from twinbus.server.data.copy_marks import read_mark, require_whole
from twinbus.server.data.data_folder import DataFolder
from twinbus.server.data.holdings import CATALOG_NAME, keep_root_rule
from twinbus.server.listening.ports import Ports, plain_connection_string, tls_connection_string, tls_files
from twinbus.server.nodes.leash import LINE_DOOR, read_error
from twinbus.server.nodes.node import PREPARE
from twinbus.server.nodes.reception import Reception
from twinbus.server.nodes.seat import Seat, settings_of_one
from twinbus.server.nodes.shared_counts import BEAT, SharedCounts, make_shared_memory
from twinbus.server.nodes.switchboard import Switchboard, Words
from twinbus.server.nodes.totals import Totals
from twinbus.server.nodes.word_line import WordLine
from twinbus.server.patience import Patience, said_while_it_lasts
from twinbus.server.process_setup import set_up_process
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.host_process import PACKAGE_PLACE
from twinbus.server.stores.served_store import STOP_WAIT_S

log = logging.getLogger(__name__)

PROGRAM = "import sys; sys.path.append(sys.argv[1]); from twinbus.server.nodes.node import main; main(sys.argv[2:])"
START_WAIT_S = 60.0
"""For the next node to be ready at the start, and for one that takes the place of another."""
PREPARE_WAIT_S = 600.0
LOOK_EVERY_S = 0.5
SILENT_S = 2.0
"""A node whose loop has stood still for this long gets no new connections."""
STUCK_S = 15.0
"""One that has for this long is killed: as long as a messaging store may be silent."""
SETTLED_S = 10.0
"""A node that has lived for this long is started again at once; those that end sooner, from the second on, after a pause that grows."""
PAUSE_S_MAX = 10.0
KILL_WAIT_S = 5.0
RESERVE_PAUSE_S = 3.0
"""After a node was replaced: it comes first."""


class _Hired(NamedTuple):
    """A process that waits to be told which node it is."""

    process: "subprocess.Popen[bytes]"
    leash: socket.socket
    arrivals: socket.socket

    def dismiss(self) -> None:
        """Without a seat it ends by itself."""
        for each in (self.process.stdin, self.leash, self.arrivals):
            if each is not None:
                each.close()


@dataclass(slots=True)
class _Node:
    """A process, from its start to its end."""

    index: int
    life: int  # the number of the process among all that there have been
    process: "subprocess.Popen[bytes]"
    leash: "LeashEnd"
    arrivals: socket.socket
    started_at: float
    is_ready: bool = False
    is_over: bool = False
    beat: int = 0
    silent_s: float = 0.0

    @property
    def is_heard(self) -> bool:
        return self.is_ready and self.silent_s < SILENT_S


class Supervisor:
    def __init__(self, settings: ServerSettings, count: int, wanted: WantedEntities) -> None:
        self.settings = settings
        self._count = count
        self._wanted = wanted
        self._nodes: dict[int, _Node] = {}
        self._reserve: _Hired | None = None
        self._early_ends: dict[int, int] = {}  # in a row, of nodes that had not settled
        self._closers: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._switchboard = Switchboard(self._send)
        self._totals = Totals(self._switchboard.ask, lambda: list(self._nodes.values()))
        self._closers.append(self._totals.close)
        self._lives = count_from(1)
        self._changed = asyncio.Event()  # a node has become ready, or has ended
        self._failure: MessagingError | None = None
        self._is_started = self._is_stopping = False
        self.tls_authority: Path | None = None
        self.on_new_root_key: Callable[[], None] = lambda: None

    # What clients are told

    @property
    def amqp_port(self) -> int:
        return self._numbers.amqp

    @property
    def http_port(self) -> int:
        return self._numbers.http

    @property
    def tls_port(self) -> int | None:
        return self._numbers.tls

    @property
    def connection_string(self) -> str:
        return plain_connection_string(self.settings, self._numbers, self._root_rule)

    @property
    def tls_connection_string(self) -> str | None:
        return tls_connection_string(self.settings, self._numbers, self._root_rule)

    @property
    def process_ids(self) -> dict[int, int]:
        """Of the nodes that live."""
        return {node.index: node.process.pid for node in self._nodes.values() if not node.is_over}

    # Start and stop

    async def start(self) -> None:
        """Raises MessagingError, with nothing left running, if the namespace cannot be served."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings, clock = self.settings, SystemClock()
        with said_while_it_lasts("waiting_for_data_folder", folder=str(settings.data_folder)):
            self._folder = DataFolder(settings.data_folder)
            self._closers.append(self._folder.close)
            require_whole(
                read_mark(self._folder.copy_mark(), str(self._folder.copy_mark_file)), str(self._folder.copy_mark_file)
            )
            ports = Ports(settings, self._closers.append)
            self._numbers = ports.numbers
            self._root_rule = self._folder.root_rule(settings.shared_access_key)
            catalog = Catalog.in_file(
                settings.data_folder / CATALOG_NAME, settings.name, clock.now(), was_in_use=self._folder.was_in_use
            )
            self._root_rule = keep_root_rule(catalog, self._root_rule)
            catalog.close()
            self._folder.store_paths(settings.store_count)
        self.tls_authority = tls_files(settings, clock.now()).authority
        self._memory = make_shared_memory(self._count)
        self._closers.append(lambda: os.close(self._memory))
        self._counts = SharedCounts(self._memory, self._count)
        self._closers.append(self._counts.close)
        self.doors = ports.doors
        self._reception = Reception(self.doors, self._counts)
        self._closers.append(self._reception.close)
        await asyncio.gather(*map(self._begin, range(self._count)))
        await self._until_ready()
        await self._ask_first_node(PREPARE)
        self._reception.open()
        self._is_started = True
        self._keep_reserve()
        self._spawn_task(self._watch())
        fields = {"namespace": settings.name, "processes": self._count, "amqp": self.amqp_port, "http": self.http_port}
        log.info("serving", extra={"fields": fields})

    async def _until_ready(self) -> None:
        clock = asyncio.get_running_loop().time
        began_at, count = clock(), self._count
        patience = Patience("waiting_for_processes", count, self._not_ready, START_WAIT_S, began_at)
        while (ready_count := sum(node.is_ready for node in self._nodes.values())) < self._count:
            if self._failure is not None:
                raise self._failure
            if patience.is_over(ready_count, clock()):
                waited_s = clock() - began_at
                raise InternalError(
                    f"After {waited_s:.0f} s these processes of the namespace are not ready: {self._not_ready()}. "
                    "Log lines with the same node say what each of them waits for."
                )
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0)

    def _not_ready(self) -> str:
        """As their log lines and the system name them."""
        waiting = [node for node in self._nodes.values() if not node.is_ready]
        return ", ".join(f"node {node.index} (process {node.process.pid})" for node in waiting)

    async def _ask_first_node(self, what: str) -> None:
        answered: asyncio.Future[Words] = asyncio.get_running_loop().create_future()
        self._switchboard.ask([0], what, {}, answered.set_result)
        answer = (await asyncio.wait_for(answered, PREPARE_WAIT_S)).get("0")
        if answer is None or "error" in answer:
            raise self._failure or (read_error(answer["error"]) if answer else InternalError("A process has ended."))

    async def stop(self) -> None:
        """In good order: each node closes its connections and its stores."""
        self._is_stopping = True
        for task in tuple(self._tasks):
            task.cancel()
        if hasattr(self, "_reception"):
            self._reception.close()
        if self._reserve is not None:
            self._reserve.dismiss()
            await asyncio.to_thread(_wait_for, self._reserve.process)
        living = [node for node in self._nodes.values() if not node.is_over]
        for node in living:
            node.leash.say({"stop": True})
        await asyncio.gather(*(asyncio.to_thread(_wait_for, node.process) for node in living))
        for node in self._nodes.values():
            node.leash.close()
            node.arrivals.close()
        while self._closers:
            self._closers.pop()()
        if self._is_started:
            log.info("stopped", extra={"fields": {"namespace": self.settings.name}})

    # Nodes

    def _hire(self) -> _Hired:
        """Raises InternalError if the system starts no more processes."""
        (leash, their_leash), (arrivals, their_arrivals) = socket.socketpair(), socket.socketpair()
        try:
            given = [each.fileno() for each in (their_leash, their_arrivals)] + [self._memory, self._folder.lock]
            # A session of its own: Ctrl-C must reach the supervisor only. -P: as for the store process.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, PACKAGE_PLACE, *map(str, given)],
                stdin=subprocess.PIPE,
                pass_fds=given,
                start_new_session=True,
            )
        except OSError as fault:
            leash.close()
            arrivals.close()
            raise InternalError(f"A process for the namespace cannot be started: {fault.strerror}.") from fault
        finally:
            their_leash.close()
            their_arrivals.close()
        # A node that reads nothing must not keep the supervisor waiting.
        arrivals.setblocking(False)
        return _Hired(process, leash, arrivals)

    def _keep_reserve(self) -> None:
        """Most of a process's start is reading its program: one that has done so, and has a store process that has, waits to replace
        a node."""
        if self._reserve is None and not self._is_stopping:
            with suppress(InternalError):
                self._reserve = self._hire()

    async def _begin(self, index: int) -> None:
        """A process becomes the node of this number."""
        loop = asyncio.get_running_loop()
        reserve, self._reserve = self._reserve, None
        if reserve is not None and reserve.process.poll() is not None:
            reserve.dismiss()
            reserve = None
        process, leash, arrivals = reserve or self._hire()
        end = LeashEnd()
        node = _Node(index, next(self._lives), process, end, arrivals, loop.time())
        end.told, end.lost = (lambda words: self._told(node, words)), (lambda: self._ended(node))
        self._counts.clear(index)
        self._nodes[index] = node
        for other in self.process_ids:
            if other != index:
                self._introduce(index, other)
        await loop.create_unix_connection(lambda: end, sock=leash)
        # From here on it learns of changes: it looks at the catalog only later, so it misses none.
        self._switchboard.joined(index)
        seat = Seat(settings_of_one(self.settings, self._count), index, self._count, self._numbers, self._wanted)
        await asyncio.to_thread(_write_seat, process, seat)
        if self._is_started:
            loop.call_later(RESERVE_PAUSE_S, self._keep_reserve)

    def _introduce(self, one: int, other: int) -> None:
        ends = socket.socketpair()
        with ends[0], ends[1]:
            for node, end, peer in ((one, ends[0], other), (other, ends[1], one)):
                with suppress(OSError):  # it is ending
                    socket.send_fds(self._nodes[node].arrivals, [bytes([LINE_DOOR + peer])], [end.fileno()])

    def _send(self, index: int, words: Words) -> None:
        self._nodes[index].leash.say(words)

    def _told(self, node: _Node, words: Words) -> None:
        if node.is_over:
            return  # said before its end and read after it: its number is that of its successor
        if "ready" in words:
            node.is_ready = True
            self._reception.add(node.index, node.arrivals)
            self._changed.set()
        elif "failed" in words:
            self._failure = read_error(words["failed"])
            log.error("node_not_started", extra={"fields": {"node": node.index, "reason": str(self._failure)}})
        elif "line" in words:
            if words["line"] in self.process_ids:
                self._introduce(node.index, words["line"])
        elif "totals" in words:
            self._spawn_task(self._tell_totals(node, words))
        elif "root_key" in words:
            self._root_rule = self._folder.root_rule(None)
            self._spawn_task(asyncio.to_thread(self.on_new_root_key))
        else:
            self._switchboard.told(node.index, words)

    async def _tell_totals(self, node: _Node, words: Words) -> None:
        node.leash.say({"answers": words["totals"], "of": {"text": await self._totals.text(words["with"])}})

    def _ended(self, node: _Node) -> None:
        """Its leash is closed: it has ended, or is about to."""
        if node.is_over or self._is_stopping:
            return
        node.is_over = True
        node.is_ready = False
        self._reception.remove(node.index)
        node.arrivals.close()
        self._counts.clear(node.index)
        self._switchboard.left(node.index)
        self._totals.ended(node)
        if self._is_started:
            self._spawn_task(self._replace(node))
        else:
            self._failure = self._failure or InternalError("A process of the namespace ended while it was starting.")
        self._changed.set()

    async def _replace(self, node: _Node) -> None:
        loop, index = asyncio.get_running_loop(), node.index
        code = await asyncio.to_thread(_end, node.process)
        early = 0 if loop.time() - node.started_at >= SETTLED_S else self._early_ends.get(index, 0) + 1
        self._early_ends[index] = early
        # One that ends soon after its start may have had bad luck; the next one has not.
        pause_s = 0.0 if early <= 1 else min(0.25 * 2**early, PAUSE_S_MAX)
        log.error("node_ended", extra={"fields": {"node": index, "code": code, "again_in_s": pause_s}})
        await asyncio.sleep(pause_s)
        while True:
            try:
                await self._begin(index)
            except (MessagingError, OSError) as fault:
                log.error("node_not_started", extra={"fields": {"node": index, "reason": str(fault)}})
                await asyncio.sleep(PAUSE_S_MAX)
            else:
                return

    async def _watch(self) -> None:
        """A process may live and do nothing: stopped by a signal, or by a disk in the wrong place."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for node in list(self._nodes.values()):
                if node.is_ready:
                    self._look_at(node)
                elif not node.is_over:
                    self._look_at_start(node)

    def _look_at_start(self, node: _Node) -> None:
        """One that takes the place of another may hang before it is ready, and then nobody has its stores."""
        waited_s = asyncio.get_running_loop().time() - node.started_at
        if waited_s >= START_WAIT_S:
            self._kill_stuck(node, waited_s)

    def _look_at(self, node: _Node) -> None:
        beat = self._counts.get(node.index, BEAT)
        if beat != node.beat:
            if node.silent_s >= SILENT_S:
                self._reception.add(node.index, node.arrivals)
            node.beat, node.silent_s = beat, 0.0
            return
        node.silent_s += LOOK_EVERY_S
        if node.silent_s == SILENT_S:
            self._reception.remove(node.index)
            log.warning("node_silent", extra={"fields": {"node": node.index}})
        if node.silent_s >= STUCK_S:
            self._kill_stuck(node, node.silent_s)

    def _kill_stuck(self, node: _Node, seconds: float) -> None:
        log.error("node_stuck", extra={"fields": {"node": node.index, "seconds": round(seconds, 1)}})
        node.process.kill()
        self._ended(node)

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class LeashEnd(WordLine):
    """The supervisor's."""

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def _write_seat(process: "subprocess.Popen[bytes]", seat: Seat) -> None:
    assert process.stdin is not None
    with process.stdin, suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps(seat))


def _end(process: "subprocess.Popen[bytes]") -> int | None:
    """It has closed its leash, so it is ending or does not belong to us any more."""
    try:
        return process.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _wait_for(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_WAIT_S + KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        log.warning("node_not_stopped", extra={"fields": {"pid": process.pid}})
        process.kill()
        process.wait()


def serve_in_processes(
    settings: ServerSettings, count: int, wanted: WantedEntities, on_ready: Callable[[Supervisor], None]
) -> None:
    """Serve a namespace until SIGINT or SIGTERM. Raises MessagingError if it cannot be served."""
    set_up_process(settings.log_format, settings.log_level)
    uvloop.run(_serve(Supervisor(settings, count, wanted), on_ready))


async def _serve(supervisor: Supervisor, on_ready: Callable[[Supervisor], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await supervisor.start()
    try:
        on_ready(supervisor)
        await stop.wait()
    finally:
        await supervisor.stop()
