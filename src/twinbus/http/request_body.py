"""The body of a request, up to a limit: the HTTP server itself reads bodies of any length."""

from starlette.requests import Request

from twinbus.errors import ArgumentError, MessagingError


async def read_body(request: Request, size_max: int, too_large: type[MessagingError] = ArgumentError) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_max:
            raise too_large(
                f"The body of the request is larger than {size_max} bytes, which is the limit. Send less at once."
            )
    return bytes(body)
