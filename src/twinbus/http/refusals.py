"""Errors on their way out: a MessagingError in, a response out. Nothing a caller sends ends in an error that is not one of ours.

The service's own APIs answer with its `<Error>`: status, sub-code and a text that says what to do. Our own pages answer with
`{"error": text}`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from twinbus.clock import Clock, Millis
from twinbus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityNotFound,
    ForwardTargetMissing,
    InternalError,
    MessagingError,
    NotAllowed,
    OperationInProgress,
    PreconditionFailed,
    QuotaExceeded,
    ServerBusy,
    Unauthorized,
)
from twinbus.http.atom.xml_writer import leaf, node
from twinbus.model.iso8601 import write_time

log = logging.getLogger(__name__)

# Most special class first. What is not here gets its status with two zeros.
SUB_CODES: Sequence[tuple[type[MessagingError], int]] = (
    (ForwardTargetMissing, 40400),
    (OperationInProgress, 40901),
    (EntityAlreadyExists, 40900),
    (EntityNotFound, 40400),
    (QuotaExceeded, 40300),
    (Unauthorized, 40100),
    (PreconditionFailed, 41200),
    (ServerBusy, 50300),
    (ArgumentError, 40000),
    (NotAllowed, 40000),
)


def json_refusal(error: MessagingError) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status)


@dataclass(frozen=True, slots=True)
class XmlResponder:
    """Answers a request of one of the service's APIs, whatever happens. `statuses` are those in which the API differs."""

    new_id: Callable[[], str]
    clock: Clock
    statuses: Sequence[tuple[type[MessagingError], int]] = ()

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, respond: Callable[[Request], Awaitable[Response]]
    ) -> None:
        request = Request(scope, receive)
        try:
            response = await respond(request)
        except ClientDisconnect:
            return
        except MessagingError as error:
            response = self._refusal(error)
        except Exception:
            log.exception("request_failed", extra={"fields": {"method": request.method, "path": scope["path"]}})
            response = self._refusal(InternalError("The server failed to handle the request. Its log says more."))
        await response(scope, receive, send)

    def _refusal(self, error: MessagingError) -> Response:
        status = next((status for kind, status in self.statuses if isinstance(error, kind)), error.status)
        xml = write_error(error, status, self.new_id(), self.clock.now())
        return Response(xml, status, media_type="application/xml; charset=utf-8")


def write_error(error: MessagingError, status: int, tracking_id: str, at: Millis) -> str:
    detail = f"SubCode={sub_code(error)}. {error} TrackingId:{tracking_id}, Timestamp:{write_time(at)}"
    return node("Error", leaf("Code", status) + leaf("Detail", detail))


def sub_code(error: MessagingError) -> int:
    return next((code for kind, code in SUB_CODES if isinstance(error, kind)), error.status * 100)
