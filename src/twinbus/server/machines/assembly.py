"""What the nodes of a namespace ask each other over their lines, and turns for changes, which all of them share.

A question is JSON, as is its answer. Who lives is known from the register: a node that lives and does not answer makes the question fail.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from twinbus.clock import Millis, boot_time
from twinbus.cluster.lines.line import Answer, Line, Topics
from twinbus.errors import (
    FragmentUnavailable,
    InternalError,
    MessagingError,
    OperationInProgress,
    OperationTimeout,
    StoreUnavailable,
)
from twinbus.server.machines.register import Register
from twinbus.server.nodes.leash import Answering
from twinbus.server.nodes.switchboard import Words
from twinbus.store.postgres.lease import LEASE_S

log = logging.getLogger(__name__)

QUESTION: Final = 64
"""Topic of a line, beside those of `twinbus.cluster.lines.talk`."""
POLL_S = 0.05
REACHED_WAIT_S = LEASE_S + 1.0
"""Until it is known of a node that does not live that it does not."""


class Assembly:
    """See `Leash`. `lines`: those that are open, by node; `live`: the numbers of all nodes that live, this one included."""

    def __init__(
        self,
        topics: Topics,
        lines: Callable[[], dict[int, Line]],
        live: Callable[[], list[int]],
        me: int,
        register: Register,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.answering: dict[str, Answering] = {}
        self.changing_at_start: list[str] = []
        self._lines = lines
        self._live = live
        self._me = me
        self._register = register
        self._clock = clock
        self._missed_since: dict[int, float] = {}  # nodes that live and have no line
        self._tasks: set[asyncio.Task[None]] = set()
        topics.asks[QUESTION] = self._asked
        topics.when_opened.append(self._line_opened)

    @property
    def nodes(self) -> list[int]:
        return self._live()

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> dict[int, Any]:
        """All other nodes, or one; a MessagingError where one refused. Raises OperationTimeout or FragmentUnavailable if one of them does
        not answer."""
        if to is None:
            await self._until_all_are_reached()
        nodes = [node for node in self._live() if node != self._me] if to is None else [to]
        answers = await asyncio.gather(*(self._ask_one(node, what, details, timeout_s) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def _until_all_are_reached(self) -> None:
        """A node that has just started has no lines for a moment, and one that ended without a word is known to live for a while. One that
        is missed for longer is cut off, and nobody waits for it again."""
        while self._clock() < self._waits_until():
            await asyncio.sleep(POLL_S)

    def _waits_until(self) -> float:
        now, reached = self._clock(), self._lines()
        missed = {*self._live()} - {self._me, *reached}
        self._missed_since = {node: self._missed_since.get(node, now) for node in missed}
        return max(self._missed_since.values(), default=-REACHED_WAIT_S) + REACHED_WAIT_S

    def _line_opened(self, line: Line, _: Millis) -> None:
        if line.peer is not None:
            self._missed_since.pop(line.peer.node, None)

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]:
        async def one(node: int) -> Any:
            try:
                return await self._ask_one(node, what, details, timeout_s)
            except MessagingError as error:
                return error

        return list(await asyncio.gather(*map(one, nodes)))

    async def _ask_one(self, node: int, what: str, details: Words, timeout_s: float) -> Any:
        line = self._lines().get(node)
        if line is None:
            raise FragmentUnavailable(f"Node {node} cannot be reached. Try again later.")
        answered: asyncio.Future[bytes | MessagingError] = asyncio.get_running_loop().create_future()

        def reply(answer: bytes | MessagingError) -> None:
            if not answered.done():
                answered.set_result(answer)

        line.ask(QUESTION, json.dumps({"what": what, "with": details}).encode(), reply)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answered
        except TimeoutError:
            raise OperationTimeout(f"Node {node} does not answer. Try again later.") from None
        return answer if isinstance(answer, MessagingError) else json.loads(answer)

    def _asked(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        words = json.loads(payload)
        task = asyncio.get_running_loop().create_task(self._answer(words["what"], words["with"], answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, what: str, details: Words, answer: Answer) -> None:
        handle = self.answering.get(what)
        try:
            if handle is None:
                raise InternalError(f"This node knows no question '{what}'. Run the same release on all nodes.")
            answer(json.dumps(await handle(details)).encode())
        except MessagingError as error:
            answer(error)
        except Exception as broken:
            log.exception("question_not_answered", extra={"fields": {"what": what}})
            answer(InternalError(f"A node of the namespace failed: {broken!r}."))

    @asynccontextmanager
    async def turn(self, name: str, wait_s: float) -> AsyncIterator[None]:
        """Raises OperationInProgress if the name is not free in time, or what keeps the register from being read."""
        deadline, ticket = asyncio.get_running_loop().time() + wait_s, secrets.token_hex(8)
        try:
            while (fence := await asyncio.to_thread(self._try_turn, name, ticket)) is None:
                if asyncio.get_running_loop().time() > deadline:
                    raise OperationInProgress(f"Another change to '{name}' is still in progress. Try again later.")
                await asyncio.sleep(POLL_S)
            with self._register.under(fence):
                yield
        finally:
            # Also if it was given and nobody heard of it.
            await asyncio.to_thread(self._register.end_turn, name, ticket)

    def _try_turn(self, name: str, ticket: str) -> str | None:
        try:
            return self._register.try_turn(name, ticket)
        except StoreUnavailable as fault:
            raise InternalError(f"The catalog cannot be changed: {fault} Try again.") from fault
