"""The syphon as a process: several pairs at once, until it is stopped or nothing is left to move."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.clock import Clock
from twinbus.pairing.backlog.queues import backlog_queue_path, existing_indexes, primary_name
from twinbus.pairing.errors import PairingError
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.syphon.tasks import BulkSyphon

EMPTY_LOOK_S = 1.0
SERVER_ERROR = 500


@dataclass(slots=True)
class Tally:
    """What a syphon has done so far. A message that was left counts each time."""

    moved: int = 0
    left: int = 0
    dead_lettered: int = 0
    last_error: BaseException | None = None

    def count(self, event: PairingEvent) -> None:
        if event.kind is EventKind.SYPHON_MOVED:
            self.moved += event.count
        elif event.kind is EventKind.SYPHON_SKIPPED:
            self.left += event.count
        elif event.kind is EventKind.SYPHON_DEAD_LETTERED:
            self.dead_lettered += event.count
        self.last_error = event.error or self.last_error


@dataclass(slots=True)
class PairToDrain:
    """A primary, its secondary, and the backlog queues between them."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    administration: ServiceBusAdministrationClient
    queues: tuple[str, ...]
    tally: Tally = field(default_factory=Tally)

    def waiting_count(self) -> int:
        """Messages in the backlog queues that a syphon can still take. Blocks."""
        properties = [self.administration.get_queue_runtime_properties(queue) for queue in self.queues]
        return sum(each.active_message_count or 0 for each in properties)


def find_backlog(
    primary: str, secondary: str, administration: ServiceBusAdministrationClient, name: str | None = None
) -> PairToDrain:
    """The backlog queues of a primary that exist on the secondary. Raises PairingError if there are none."""
    known_as = name or name_in(primary)
    found = existing_indexes(known_as, (queue.name for queue in administration.list_queues()))
    if not found:
        raise PairingError(
            f"The secondary has no backlog queues of '{known_as}'. They are created when an application pairs the two; "
            "give the name that it uses if it is another."
        )
    queues = tuple(backlog_queue_path(known_as, index) for index in sorted(found))
    return PairToDrain(primary, secondary, administration, queues)


def name_in(connection_string: str) -> str:
    """The name under which an application with this connection string pairs its primary."""
    parsed = parse_connection_string(connection_string)
    # As the SDK names a namespace: without its port, but for an emulator's that is given.
    has_port = parsed.is_port_given and not parsed.uses_tls
    return primary_name(f"{parsed.host}:{parsed.port}" if has_port else parsed.host)


async def run_syphons(
    pairs: Sequence[PairToDrain],
    options: SendAvailabilityPairedNamespaceOptions,
    clock: Clock,
    stop: asyncio.Event,
    *,
    until_empty: bool,
) -> None:
    """Until `stop` is set, or with `until_empty` until no backlog queue has a message to take.

    Raises AzureError if that cannot be found out, after all passes under way are finished.
    """
    syphons = [
        BulkSyphon(pair.primary, pair.secondary, pair.queues, replace(options, on_event=pair.tally.count), clock)
        for pair in pairs
    ]
    failure: AzureError | None = None
    async with asyncio.TaskGroup() as group:
        for syphon in syphons:
            group.create_task(syphon.run())
        try:
            await (_wait_until_empty(pairs, stop) if until_empty else stop.wait())
        except AzureError as error:
            failure = error
        for syphon in syphons:
            syphon.stop()
    if failure is not None:
        raise failure


async def _wait_until_empty(pairs: Sequence[PairToDrain], stop: asyncio.Event) -> None:
    while not stop.is_set():
        if not any(await asyncio.gather(*(asyncio.to_thread(_may_wait, pair) for pair in pairs))):
            return
        try:
            async with asyncio.timeout(EMPTY_LOOK_S):
                await stop.wait()
        except TimeoutError:
            continue


def _may_wait(pair: PairToDrain) -> bool:
    """Whether messages wait in its backlog, or the secondary does not answer: the pumps keep trying, too."""
    try:
        return pair.waiting_count() > 0
    except (ServiceRequestError, ServiceResponseError):
        return True
    except HttpResponseError as error:
        if error.status_code is None or error.status_code < SERVER_ERROR:
            raise
        return True
