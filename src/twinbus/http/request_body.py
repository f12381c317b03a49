"""The bodies of requests: the HTTP server itself reads bodies of any length, as many as there are connections, and waits for them for
ever.

    incomplete   counts with the incomplete messages of AMQP (`amqp.reassembly`): whoever holds most loses it
    complete     until the request is answered: what came in its body is on its way to a store. Too much of that is refused,
                 but never a body of the usual size, whose sender should not feel those of others
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from twinbus.amqp.reassembly import SharedReassembly
from twinbus.errors import ArgumentError, MessagingError, OperationTimeout, ServerBusy
from twinbus.model.message_limits import MESSAGE_SIZE_MAX

BODY_WAIT_S = 60.0
COMPLETE_SIZE_MAX = 256 * 1024 * 1024
"""A single body may have more."""


class Bodies:
    """Of all requests."""

    def __init__(self, shared: SharedReassembly | None = None) -> None:
        self._shared = shared or SharedReassembly()
        self._complete_size = 0

    @asynccontextmanager
    async def read(
        self, request: Request, size_max: int, too_large: type[MessagingError] = ArgumentError
    ) -> AsyncIterator[bytes]:
        """The body, up to a limit. Raises OperationTimeout if it does not arrive in time, and ServerBusy if there is no room.

        It counts until the end of the block."""
        data = await self._whole(request, size_max, too_large)
        size = len(data)
        if size > MESSAGE_SIZE_MAX and self._complete_size and self._complete_size + size > COMPLETE_SIZE_MAX:
            raise _no_room()
        self._complete_size += size
        try:
            yield data
        finally:
            self._complete_size -= size

    async def _whole(self, request: Request, size_max: int, too_large: type[MessagingError]) -> bytes:
        body = _IncompleteBody(self._shared)
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                async for chunk in request.stream():
                    body.add(chunk)
                    if body.size > size_max:
                        raise too_large(
                            f"The body of the request is larger than {size_max} bytes, which is the limit. Send less at once."
                        )
            return bytes(body.data)
        except TimeoutError:
            raise OperationTimeout(
                f"The body of the request did not arrive within {BODY_WAIT_S:g} s. Send it again, or less at once."
            ) from None
        finally:
            body.drop_all()


class _IncompleteBody:
    """Of one request, as `SharedReassembly` sees it."""

    def __init__(self, shared: SharedReassembly) -> None:
        self.data = bytearray()
        self._shared = shared
        self._is_dropped = False

    @property
    def size(self) -> int:
        return len(self.data)

    def add(self, chunk: bytes) -> None:
        """Raises ServerBusy if there is no room for what it has, or was none a moment ago."""
        if not self._is_dropped:
            self.data += chunk
            self._shared.change(self, len(chunk))
        if self._is_dropped:
            raise _no_room()

    def drop_all(self) -> int:
        size = self.size
        self.data.clear()
        self._is_dropped = True
        self._shared.change(self, -size)
        return 1


def _no_room() -> ServerBusy:
    return ServerBusy("There was no room for the body of this request. Send it again later.")
