"""One entity for code that blocks: what to ask of it in, the answer out, tried again where that can help.

Spark does not repeat a call to a streaming source that fails, it ends the query: so short outages are waited out here.
What ends in an error ends in one line that says which entity it is about.
"""

import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import cached_property
from typing import Any, NoReturn, TypeVar

from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost
from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    MessagingError,
    NotImplementedHere,
    OperationTimeout,
    QuotaExceeded,
    Unauthorized,
)
from twinbus.pipeline.connection_options import ConnectionOptions, OptionError
from twinbus.pipeline.source.access.connections import CONNECTIONS, Connection, ConnectionCache, Detect
from twinbus.pipeline.source.access.entity_access import EntityAccess
from twinbus.pipeline.source.access.own_access import OwnAccess
from twinbus.pipeline.source.access.plain_access import PlainAccess

T = TypeVar("T")
Work = Callable[[EntityAccess], Coroutine[Any, Any, T]]

BACK_OFF_S = 0.5
BACK_OFF_S_MAX = 5.0


class SourceFailed(MessagingError):
    """What a source was asked to read cannot be read."""


class SourceUnavailable(SourceFailed):
    """It cannot be read just now: the same query may run later."""

    is_transient = True


async def detected(namespace: Namespace, path: str) -> EntityAccess:
    """By the operations of twinbus where the namespace knows them, else by those of the service."""
    own = OwnAccess(namespace, path)
    try:
        await own.heads()
    except NotImplementedHere:
        return PlainAccess(namespace, path)
    except (EntityNotFound, EntityDisabled, Unauthorized, QuotaExceeded):
        raise
    except MessagingError as error:
        # How a foreign namespace refuses what it does not know is its own affair; that it cannot answer now is not.
        if error.is_transient:
            raise
        return PlainAccess(namespace, path)
    return own


async def plain(namespace: Namespace, path: str) -> EntityAccess:
    return PlainAccess(namespace, path)


async def own(namespace: Namespace, path: str) -> EntityAccess:
    return OwnAccess(namespace, path)


class LiveEntity:
    def __init__(
        self,
        options: ConnectionOptions,
        path: str,
        *,
        detect: Detect = detected,
        connections: ConnectionCache = CONNECTIONS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path = path
        self._options = options
        self._detect = detect
        self._connections = connections
        self._sleep = sleep

    def call(self, work: Work[T]) -> T:
        """What `work` returns; if it fails and may succeed later, `work` is run again from its beginning."""
        attempt = 0
        while True:
            try:
                return self._once(work)
            except OptionError:
                raise
            except MessagingError as error:
                if not error.is_transient or attempt >= self._options.retry_total:
                    self._fail(error)
            self._sleep(min(BACK_OFF_S * 2**attempt, BACK_OFF_S_MAX))
            attempt += 1

    @cached_property
    def is_own(self) -> bool:
        """Whether it is in a twinbus namespace."""

        async def ask(access: EntityAccess) -> bool:
            return access.is_own

        return self.call(ask)

    def start(self, work: Work[T]) -> "Future[T]":
        """Once, while the caller does something else; `call` is for when it fails."""
        connection = self._connections.get(self._options)
        return connection.start(self._on(connection, work))

    def _once(self, work: Work[T]) -> T:
        with self._connections.use(self._options) as connection:
            try:
                return connection.start(self._on(connection, work)).result()
            except OperationTimeout:
                # Half-dead connections look like this.
                self._connections.drop(self._options, connection)
                raise
            except CancelledError:
                raise ConnectionLost(
                    "The connection was closed here, as others of its requests were not answered."
                ) from None

    async def _on(self, connection: Connection, work: Work[T]) -> T:
        access = connection.accesses.get(self.path)
        if access is None:
            access = connection.accesses[self.path] = await self._detect(connection.namespace, self.path)
        return await work(access)

    def _fail(self, error: MessagingError) -> NoReturn:
        text = " ".join(str(error).split())
        kind = SourceUnavailable if error.is_transient else SourceFailed
        raise kind(text if self.path in text else f"'{self.path}': {text}") from None
