"""The nodes of a namespace that several machines serve. All of it needs Manage.

GET  /$nodes                        every node: its name, address, state, stores and connections, as JSON; one that is not heard of any
                                    more has the state "gone"
POST /$nodes/{name}/drain           hand its stores over to the others and end, as SIGTERM does; 202
POST /$stores/{index}/move?node=N   give a store to this node and leave it there while the node lives; without a node it goes where the
                                    namespace puts it; 202
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.errors import MessagingError
from twinbus.http.access import HttpAccess


class NodeFigures(NamedTuple):
    """Of this node, for its metrics."""

    node: str
    epochs: Mapping[int, int]  # of the stores that it serves
    trusted_s: Mapping[int, float]  # for how long their leases are still trusted
    takeovers: int
    moves: int
    times_fenced: int
    sent_bytes: int
    received_bytes: int
    round_trips_s: Mapping[str, float]  # by the name of the other node


class Nodes(Protocol):
    def listed(self) -> list[dict[str, Any]]: ...

    async def drain(self, name: str) -> None:
        """Raises NoSuchNode or FragmentUnavailable."""
        ...

    async def move(self, store: int, name: str | None) -> None:
        """Raises NoSuchNode, or ArgumentError for a store that there is not."""
        ...

    async def switch(self, store: int, *, is_up: bool) -> bool:
        """For all nodes, until it is switched again. Whether it has taken effect. Raises StoreUnavailable if it cannot be written down."""
        ...

    def not_ready(self) -> str:
        """Why clients should be sent to other nodes; empty if they need not."""
        ...

    def figures(self) -> NodeFigures: ...


class NoSuchNode(MessagingError):
    status = 404


class NodesPage:
    """`nodes` is None where one machine serves the namespace."""

    def __init__(self, nodes: Nodes | None) -> None:
        self._nodes = nodes

    def routes(self, access: HttpAccess) -> list[Route]:
        page = access.page
        return [
            Route("/$nodes", page(self._show)),
            Route("/$nodes/{name}/drain", page(self._drain), methods=["POST"]),
            Route("/$stores/{index:int}/move", page(self._move), methods=["POST"]),
        ]

    def _known(self) -> Nodes:
        if self._nodes is None:
            raise NoSuchNode("This namespace is served by one machine. Several need --node and --listen-nodes.")
        return self._nodes

    async def _show(self, _: Request) -> Response:
        return JSONResponse(self._known().listed())

    async def _drain(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._known().drain(name)
        return JSONResponse({"node": name, "state": "draining"}, status_code=202)

    async def _move(self, request: Request) -> Response:
        index, name = request.path_params["index"], request.query_params.get("node") or None
        await self._known().move(index, name)
        return JSONResponse({"store": index, "node": name}, status_code=202)
