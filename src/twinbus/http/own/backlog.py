"""How many messages wait in the backlog queues of a namespace for which destination, as JSON. It needs Manage.

GET /$backlog                  of every backlog queue
GET /$backlog?primary=NAME     of those that the pairs of one primary use

A row for each queue and destination: `queue`, `destination` (null: no paired sender put it there), `waiting`, `size_bytes`, and
`is_all`, which is false if the queue has more messages than were counted, or some that cannot be reached. A queue of which
nothing can be reached has one row, where all but its name are null.
"""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.broker.commands import SHARES_COUNT_MAX, CountShares
from twinbus.broker.directory import Directory
from twinbus.broker.replies import Holdings
from twinbus.broker.source import Source
from twinbus.clock import Clock
from twinbus.errors import FragmentUnavailable, OperationTimeout
from twinbus.http.access import HttpAccess
from twinbus.management.waiting import answer_of
from twinbus.model import wire_names
from twinbus.model.paths import is_backlog_queue, path_key
from twinbus.store.reads import BacklogShares

ANSWER_WAIT_S = 60.0
LOOKED_AT_MAX = 100_000
"""Messages of one queue: counting by reading must end, and shares of this many say what there is to know."""


class BacklogPage:
    def __init__(self, entities: Directory, clock: Clock, access: HttpAccess) -> None:
        self._entities = entities
        self._clock = clock
        self._access = access
        self._counting = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [Route("/$backlog", self._access.page(self._show))]

    async def _show(self, request: Request) -> Response:
        async with self._counting:  # one at a time: counting for many callers at once must not become a load
            return JSONResponse(await self._rows(request.query_params.get("primary")))

    async def _rows(self, primary: str | None) -> list[dict[str, Any]]:
        prefix = "" if primary is None else path_key(f"{primary}/{wire_names.TRANSFER_SEGMENT}/")
        rows: list[dict[str, Any]] = []
        for queue in self._entities.queues():
            name = queue.description.name
            if is_backlog_queue(name) and path_key(name).startswith(prefix):
                try:
                    rows += _records(name, *await self._count(name, queue.main))
                except FragmentUnavailable:
                    rows.append(_record(name, None, None, None, is_all=False))
        return rows

    async def _count(self, name: str, queue: Source) -> tuple[BacklogShares, bool]:
        """The shares of a queue, and whether they are those of all its messages."""
        found = BacklogShares(next_number=0)
        seen = 0
        while found.next_number is not None and seen < LOOKED_AT_MAX:
            page = await self._page(queue, found.next_number)
            for destination, share in page.by_destination.items():
                found.add(destination, share.message_count, share.size_bytes)
                seen += share.message_count
            found.next_number = page.next_number
        counts: Holdings = await answer_of(
            lambda reply: self._entities.count(name, self._clock.now(), reply), ANSWER_WAIT_S, _late()
        )
        return found, found.next_number is None and not counts.main.is_limited

    async def _page(self, queue: Source, number: int) -> BacklogShares:
        command = CountShares(number, SHARES_COUNT_MAX)
        return await answer_of(lambda reply: queue.ask(command, self._clock.now(), reply), ANSWER_WAIT_S, _late())


def _late() -> OperationTimeout:
    return OperationTimeout("A messaging store did not answer in time. Look at its state and try again.")


def _records(queue: str, found: BacklogShares, is_all: bool) -> list[dict[str, Any]]:
    shares = sorted(found.by_destination.items(), key=lambda share: (-share[1].message_count, share[0] or ""))
    return [
        _record(queue, destination, share.message_count, share.size_bytes, is_all=is_all)
        for destination, share in shares
    ]


def _record(
    queue: str, destination: str | None, waiting: int | None, size_bytes: int | None, *, is_all: bool
) -> dict[str, Any]:
    return {
        "queue": queue,
        "destination": destination,
        "waiting": waiting,
        "size_bytes": size_bytes,
        "is_all": is_all,
    }
