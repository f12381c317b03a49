"""The body of a request, up to a limit: the HTTP server itself reads bodies of any length, and waits for them for ever."""

import asyncio

from starlette.requests import Request

from twinbus.errors import ArgumentError, MessagingError, OperationTimeout

BODY_WAIT_S = 60.0


async def read_body(request: Request, size_max: int, too_large: type[MessagingError] = ArgumentError) -> bytes:
    """Raises OperationTimeout if it does not arrive in time."""
    try:
        async with asyncio.timeout(BODY_WAIT_S):
            return await _read(request, size_max, too_large)
    except TimeoutError:
        raise OperationTimeout(
            f"The body of the request did not arrive within {BODY_WAIT_S:g} s. Send it again, or less at once."
        ) from None


async def _read(request: Request, size_max: int, too_large: type[MessagingError]) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_max:
            raise too_large(
                f"The body of the request is larger than {size_max} bytes, which is the limit. Send less at once."
            )
    return bytes(body)
