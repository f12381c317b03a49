"""A node's end of its connection to the supervisor: what it asks the other nodes, what it is asked, and its turns for changes.

A second socket brings the connections of clients, each with a byte that says by which door it came. If the supervisor is gone, the
process ends at once: what was acknowledged is durable, and somebody who starts the namespace again needs the folder.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from twinbus.cluster.lines.error_values import KINDS
from twinbus.errors import InternalError, MessagingError, OperationInProgress, OperationTimeout
from twinbus.server.listening.ports import Door
from twinbus.server.nodes.switchboard import Words
from twinbus.server.nodes.word_line import WordLine

log = logging.getLogger(__name__)

Answering: TypeAlias = Callable[[Words], Awaitable[Any]]
"""Of a question: its details in, what JSON can express out. Raises MessagingError."""
Answers: TypeAlias = dict[int, Any]
"""By node; a MessagingError where one refused."""

LINE_DOOR = 16
"""With the number of a node: the connection is a line to it."""
ARRIVALS_AT_ONCE_MAX = 4
"""Connections in a turn of the loop: each takes a fraction of a millisecond."""
SUPERVISOR_GONE = 70
"""The exit code of a node whose supervisor has ended."""


class Leash(WordLine):
    def __init__(self) -> None:
        super().__init__()
        self.told, self.lost = self._told, self._lost
        self.nodes: list[int] = []  # that live, this one included
        self.answering: dict[str, Answering] = {}
        self.changing_at_start: list[str] = []
        self.introduced = asyncio.Event()
        """It is known who lives, and what was being changed when this node came."""
        self.stopping = asyncio.Event()
        self._last_number = 0
        self._asked: dict[int, asyncio.Future[Words]] = {}
        self._turns: dict[int, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # To the supervisor

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> Answers:
        """All other nodes, or one. Raises OperationTimeout if one of them does not answer, and InternalError if the one has ended."""
        found = await self._answers("ask", {"to": to, "what": what, "with": details}, timeout_s)
        if to is not None and str(to) not in found:
            raise InternalError("A process of the namespace has just ended and is being restarted. Try again later.")
        return {int(node): _read_answer(answer) for node, answer in found.items()}

    async def totals(self, details: Words, timeout_s: float) -> str:
        """The metrics of all nodes. Raises OperationTimeout."""
        text: str = (await self._answers("totals", {"with": details}, timeout_s))["text"]
        return text

    async def _answers(self, question: str, words: Words, timeout_s: float) -> Words:
        self._last_number = number = self._last_number + 1
        answered: asyncio.Future[Words] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        self.say({question: number, **words})
        try:
            async with asyncio.timeout(timeout_s):
                return await answered
        except TimeoutError:
            raise OperationTimeout("A process of the namespace does not answer. Try again later.") from None
        finally:
            self._asked.pop(number, None)

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]:
        """An answer for each of these nodes; a MessagingError where one refuses, is silent or has ended."""

        async def one(node: int) -> Any:
            try:
                return (await self.ask(what, details, timeout_s, to=node))[node]
            except MessagingError as error:
                return error

        return list(await asyncio.gather(*map(one, nodes)))

    @asynccontextmanager
    async def turn(self, name: str, wait_s: float) -> AsyncIterator[None]:
        """Raises OperationInProgress if the name is not free in time."""
        self._last_number = number = self._last_number + 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns[number] = granted
        self.say({"turn": number, "name": name})
        try:
            try:
                async with asyncio.timeout(wait_s):
                    await granted
            except TimeoutError:
                raise OperationInProgress(
                    f"Another change to '{name}' is still in progress. Try again later."
                ) from None
            yield
        finally:
            del self._turns[number]
            self.say({"done": number})

    # From the supervisor

    def _lost(self) -> None:
        if not self.stopping.is_set():
            log.error("supervisor_gone")
            os._exit(SUPERVISOR_GONE)

    async def close(self) -> None:
        """When everything that was said is written."""
        self.stopping.set()
        while self.transport is not None and self.transport.get_write_buffer_size():
            await asyncio.sleep(0.001)
        if self.transport is not None:
            self.transport.close()

    def _told(self, words: Words) -> None:
        if "asked" in words:
            task = asyncio.get_running_loop().create_task(self._answer(words))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif "answers" in words:
            _resolve(self._asked.get(words["answers"]), words["of"])
        elif "granted" in words:
            _resolve(self._turns.get(words["granted"]), None)
        elif "nodes" in words:
            self.nodes = words["nodes"]
            if not self.introduced.is_set():
                self.changing_at_start = words.get("changing", [])
                self.introduced.set()
        elif "stop" in words:
            self.stopping.set()

    async def _answer(self, words: Words) -> None:
        answer: Words
        try:
            answer = {"value": await self.answering[words["what"]](words["with"])}
        except MessagingError as error:
            answer = {"error": write_error(error)}
        except Exception as broken:
            log.exception("question_not_answered", extra={"fields": {"what": words["what"]}})
            answer = {"error": write_error(InternalError(f"A process of the namespace failed: {broken!r}."))}
        self.say({"answer": words["asked"], **answer})


class Arrivals:
    """The socket that brings connections: `arrived` is called with each of a client, and the door it came in by; `linked` with each
    to another node, and its number."""

    def __init__(
        self,
        line: socket.socket,
        arrived: Callable[[socket.socket, Door], None],
        linked: Callable[[socket.socket, int], None],
    ) -> None:
        self._line = line
        self._arrived = arrived
        self._linked = linked
        line.setblocking(False)
        asyncio.get_running_loop().add_reader(line, self._read)

    def _read(self) -> None:
        # One byte and one descriptor at a time: that way they belong together.
        for _ in range(ARRIVALS_AT_ONCE_MAX):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._line, 1, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self.close()
                return
            for descriptor in descriptors:
                sock = socket.socket(fileno=descriptor)
                sock.setblocking(False)
                if data[0] >= LINE_DOOR:
                    self._linked(sock, data[0] - LINE_DOOR)
                else:
                    self._arrived(sock, Door(data[0]))

    def close(self) -> None:
        if self._line.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line.close()


def write_error(error: MessagingError) -> Words:
    return {"kind": type(error).__name__, "text": str(error)}


def read_error(words: Words) -> MessagingError:
    return KINDS.get(words["kind"], InternalError)(words["text"])


def _read_answer(words: Words) -> Any:
    return read_error(words["error"]) if "error" in words else words["value"]


def _resolve(waiting: "asyncio.Future[Any] | None", value: Any) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)
