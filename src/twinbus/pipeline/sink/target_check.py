"""Whether a job can write at all: its options in, an error before the first task starts out.

What may pass is left to the tasks, which try again: a namespace that does not answer does not keep a job from starting.
"""

import asyncio

from twinbus.client.namespace import Namespace
from twinbus.errors import MessagingError
from twinbus.pipeline.connection_options import ConnectionOptions, OptionError
from twinbus.pipeline.sink.options import SinkOptions

TIMEOUT_S = 5.0


def check_targets(options: SinkOptions) -> None:
    """Raises OptionError where an entity that the options name is missing, or may not be sent to."""
    paths = [path for path in (options.target, options.oversize_queue) if path is not None]
    try:
        options.connection.resolve()
    except OptionError:
        return  # it is for the executors, and need not be here
    if paths:
        asyncio.run(_check(options.connection, paths))


async def _check(connection: ConnectionOptions, paths: list[str]) -> None:
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            await connection.connect(timeout_s=TIMEOUT_S) as namespace,
        ):
            for path in paths:
                await _check_one(namespace, path)
    except TimeoutError:
        return
    except OptionError:
        raise
    except MessagingError as failure:
        if not failure.is_transient:
            raise OptionError(f"The namespace cannot be written to ({failure.condition}): {failure}") from None


async def _check_one(namespace: Namespace, path: str) -> None:
    try:
        await (await namespace.sender(path)).close()
    except MessagingError as failure:
        if not failure.is_transient:
            raise OptionError(f"'{path}' cannot be written to ({failure.condition}): {failure}") from None
