"""POST /$meter/flush: answered when every operation until now is in Parquet. It needs Manage."""

from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.errors import MessagingError
from twinbus.http.access import HttpAccess
from twinbus.http.own.other_nodes import OtherNodes


class OperationsLog(Protocol):
    @property
    def folder(self) -> Path: ...

    async def flush(self) -> None:
        """Raises InternalError where the rows cannot be brought to Parquet; they are kept."""
        ...


FLUSH = "flush"
"""The question that makes a node flush its part of the log."""


def operations_log_routes(operations_log: OperationsLog, access: HttpAccess, others: OtherNodes) -> list[Route]:
    async def flush(_: Request) -> Response:
        await operations_log.flush()
        for answer in (await others.ask_all(FLUSH, {})).values():
            if isinstance(answer, MessagingError):
                raise answer
        # The caller may be in another working directory.
        return JSONResponse({"operations": str(operations_log.folder.absolute())})

    return [Route("/$meter/flush", access.page(flush), methods=["POST"])]
