"""Whether a destination is available again: a connection string and a path in, None or the failure out.

The probe is the ping of paired namespaces: an empty message that expires after a second and is never delivered. A namespace that
refuses it (the entity is gone, disabled or full) has answered, so it is available. One that is busy is not probed further.
"""

import asyncio
from uuid import uuid4

from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import MessagingError, OperationTimeout
from twinbus.model import wire_names
from twinbus.model.pairing_limits import PING_TIME_TO_LIVE
from twinbus.pairing.stock.failures import FailureKind, classify

PROBE_TIMEOUT_S = 10.0


def probe(connection_string: str, path: str) -> Exception | None:
    return asyncio.run(_probe(connection_string, path))


async def _probe(connection_string: str, path: str) -> Exception | None:
    ping = encode_message(
        b"", content_type=wire_names.PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE, session_id=uuid4().hex
    )
    try:
        async with (
            asyncio.timeout(PROBE_TIMEOUT_S),
            await Namespace.connect(connection_string, timeout_s=PROBE_TIMEOUT_S) as namespace,
        ):
            sender = await namespace.sender(path)
            (error,) = await sender.send([ping])
    except TimeoutError:
        error = OperationTimeout(f"'{path}' did not answer within {PROBE_TIMEOUT_S:g} s.")
    except (MessagingError, OSError) as failure:
        return failure if _is_away(failure) else None
    return error if error is not None and _is_away(error) else None


def _is_away(error: Exception) -> bool:
    kind = classify(error)
    return kind.is_outage or kind is FailureKind.BUSY
