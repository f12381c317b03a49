"""How many messages wait in the message sessions of a queue or subscription, as JSON: what a scaler asks. It needs Manage.

GET /$sessions?entity=PATH     [&top=N]: how many sessions are named, 100 if omitted

`sessions`, `held` and `active_messages` are sums over all sessions with active messages; `busiest` names those with most.
`is_all` is false while a part of the entity cannot be reached, which the sums leave out.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.broker.commands import CountSessions, SessionCounts
from twinbus.broker.directory import Directory
from twinbus.clock import Clock
from twinbus.errors import ArgumentError, NotAllowed, OperationTimeout
from twinbus.gateway.addresses import resolve
from twinbus.http.access import HttpAccess
from twinbus.management.waiting import answer_of
from twinbus.model.paths import parse_address

ANSWER_WAIT_S = 60.0
TOP_DEFAULT = 100
TOP_MAX = 1_000


class SessionCountsPage:
    def __init__(self, entities: Directory, clock: Clock, access: HttpAccess) -> None:
        self._entities = entities
        self._clock = clock
        self._access = access

    def routes(self) -> list[Route]:
        return [Route("/$sessions", self._access.page(self._show, at=_path_of))]

    async def _show(self, request: Request) -> Response:
        path, top = _path_of(request), _top_of(request)
        if not path:
            raise ArgumentError("Name the queue or subscription: /$sessions?entity=PATH.")
        found = await self._count(path, top)
        return JSONResponse(
            {
                "sessions": found.sessions,
                "held": found.held,
                "active_messages": found.active,
                "is_all": found.is_all,
                "busiest": [
                    {"session_id": each.session_id, "active_messages": each.active, "is_held": each.is_held}
                    for each in found.page
                ],
            }
        )

    async def _count(self, path: str, top: int) -> SessionCounts:
        queue = resolve(self._entities, parse_address(path)).queue
        if queue is None:
            raise NotAllowed(f"'{path}' is a topic: ask one of its subscriptions.")
        late = OperationTimeout("A messaging store did not answer in time. Look at its state and try again.")
        command = CountSessions(0, top)
        found: SessionCounts = await answer_of(
            lambda reply: queue.ask(command, self._clock.now(), reply), ANSWER_WAIT_S, late
        )
        return found


def _path_of(request: Request) -> str:
    return request.query_params.get("entity", "")


def _top_of(request: Request) -> int:
    text = request.query_params.get("top", str(TOP_DEFAULT))
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 0 <= int(text) <= TOP_MAX:
        raise ArgumentError(f"'top' is '{text[:20]}'. Use a number from 0 to {TOP_MAX}.")
    return int(text)
