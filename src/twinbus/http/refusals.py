"""Errors of the REST messaging API: the service's `<Error>` with the status that it documents."""

from starlette.responses import Response

from twinbus.clock import Millis
from twinbus.errors import EntityNotFound, MessageLockLost, MessagingError, SessionLockLost
from twinbus.http.atom.envelopes import sub_code
from twinbus.http.atom.xml_writer import leaf, node
from twinbus.model.iso8601 import write_time

# Where messages are sent and received, these two differ from what they are elsewhere.
STATUSES: tuple[tuple[type[MessagingError], int], ...] = (
    (EntityNotFound, 410),
    (MessageLockLost, 404),
    (SessionLockLost, 404),
)


def refusal(error: MessagingError, tracking_id: str, now: Millis) -> Response:
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), error.status)
    detail = f"SubCode={sub_code(error)}. {error} TrackingId:{tracking_id}, Timestamp:{write_time(now)}"
    xml = node("Error", leaf("Code", status) + leaf("Detail", detail))
    return Response(xml, status, media_type="application/xml; charset=utf-8")
