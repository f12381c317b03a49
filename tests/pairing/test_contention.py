"""Many senders at once: they wait for one another in this process, and that is nobody's outage."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS
from tests.pairing.relay_thread import RelayThread
from tests.pairing.trial import Trial, options
from twinbus.client.async_administration import async_administration_client
from twinbus.pairing import EventKind, PairedNamespaceClient, PairedSender, pair_namespaces
from twinbus.pairing.aio import PairedNamespaceClient as AioPairedNamespaceClient
from twinbus.pairing.aio import PairedSender as AioPairedSender
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces

DELAY_S = 0.01
"""One way. A hundred sends by one link take two seconds, which is longer than any of them is given."""
TIMEOUT_S = 1.5
OPENING_S = 10.0
"""For senders that wait for a link to be opened, by another process on a machine that may be loaded, and not in a line."""
FALSE_ALARMS = (EventKind.TIMER_STARTED, EventKind.FAILED_OVER, EventKind.QUEUE_TAKEN_OUT)


class Distant:
    """Both namespaces, some milliseconds away."""

    def __init__(self, trial: Trial, primary: RelayThread, secondary: RelayThread) -> None:
        self.trial = trial
        self.primary, self.secondary = primary, secondary
        self.strings = [
            space.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")
            for space, relay in ((trial.primary, primary), (trial.secondary, secondary))
        ]

    def options(self, **chosen: Any) -> Any:
        quiet = {
            "on_event": self.trial.events.append,
            "primary_name": self.trial.primary_name,
            "ping_primary_interval": timedelta(minutes=1),
        }
        return options(**{**quiet, **chosen})

    @contextmanager
    def paired(self, **chosen: Any) -> Iterator[PairedNamespaceClient]:
        with (
            self.trial.secondary.administration() as administration,
            pair_namespaces(
                self.strings[0],
                self.strings[1],
                self.options(**chosen),
                secondary_administration=administration,
                **CLIENT_OPTIONS,
            ) as client,
        ):
            yield client

    @asynccontextmanager
    async def aio_paired(self, **chosen: Any) -> AsyncIterator[AioPairedNamespaceClient]:
        secondary = self.trial.secondary
        endpoint = f"http://127.0.0.1:{secondary.http_port}"
        async with async_administration_client(secondary.connection_string, endpoint) as administration:
            client = await aio_pair_namespaces(
                self.strings[0],
                self.strings[1],
                self.options(**chosen),
                secondary_administration=administration,
                **CLIENT_OPTIONS,
            )
        async with client:
            yield client

    def false_alarms(self) -> list[EventKind]:
        return [kind for kind in self.trial.kinds() if kind in FALSE_ALARMS]


@contextmanager
def distant(spaces: Spaces) -> Iterator[Distant]:
    with (
        RelayThread(spaces.primary.amqp_port, DELAY_S) as primary,
        RelayThread(spaces.secondary.amqp_port, DELAY_S) as secondary,
    ):
        yield Distant(Trial(spaces), primary, secondary)


def send_by_threads(trial: Trial, senders: list[PairedSender], count_each: int = 1) -> list[bool]:
    """Each of the senders on a thread of its own; whether each send was accepted."""
    outcomes: list[bool] = []

    def send(sender: PairedSender) -> None:
        outcomes.extend(trial.send(sender, timeout=TIMEOUT_S) for _ in range(count_each))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


async def send(trial: Trial, sender: AioPairedSender, timeout_s: float = TIMEOUT_S) -> bool:
    messages = trial.messages(1)
    try:
        await sender.send_messages(messages[0], timeout=timeout_s)
    except ServiceBusError as error:
        return trial.concluded(messages, error)
    return trial.concluded(messages, None)


@pytest.mark.rule("B4", "B5")
@pytest.mark.parametrize(("count", "count_each"), [(10, 10), (25, 4), (40, 3), (200, 1)])
def test_threads_that_share_a_sender_wait_in_line_and_nobody_is_blamed(
    spaces: Spaces, count: int, count_each: int
) -> None:
    """Healthy, then failed over: a hundred sends of 20 ms and more, each with less time than all of them take."""
    with distant(spaces) as away, away.paired(failover_interval=timedelta(0)) as client:
        sender = away.trial.sender(client)
        assert all(send_by_threads(away.trial, [sender] * count, count_each))
        assert away.false_alarms() == []
        away.primary.refuse()
        assert all(send_by_threads(away.trial, [sender] * count, count_each))
        assert away.false_alarms() == [EventKind.TIMER_STARTED, EventKind.FAILED_OVER]
        assert len(away.trial.audit(may_repeat=True).waiting) >= count * count_each


@pytest.mark.rule("B4", "B5")
@pytest.mark.parametrize("count", [40])
def test_threads_with_senders_of_their_own_share_the_links_to_the_backlog(spaces: Spaces, count: int) -> None:
    with distant(spaces) as away, away.paired(failover_interval=timedelta(0)) as client:
        senders = [away.trial.sender(client) for _ in range(count)]
        away.primary.refuse()
        assert all(send_by_threads(away.trial, senders))
        assert away.false_alarms() == [EventKind.TIMER_STARTED, EventKind.FAILED_OVER]


@pytest.mark.rule("B4", "B5")
@pytest.mark.parametrize("count", [10, 200])
async def test_aio_a_burst_on_one_sender_fails_no_healthy_primary_over(spaces: Spaces, count: int) -> None:
    with distant(spaces) as away:
        async with away.aio_paired() as client:
            sender = client.get_queue_sender(away.trial.path)
            assert all(await asyncio.gather(*(send(away.trial, sender) for _ in range(count))))
            assert away.false_alarms() == []


@pytest.mark.rule("B4", "B5")
@pytest.mark.parametrize("count", [10, 25, 40, 200])
async def test_aio_senders_of_their_own_are_all_accepted_in_an_outage(spaces: Spaces, count: int) -> None:
    with distant(spaces) as away:
        async with away.aio_paired(failover_interval=timedelta(0)) as client:
            away.primary.refuse()
            senders = [client.get_queue_sender(away.trial.path) for _ in range(count)]
            assert all(await asyncio.gather(*(send(away.trial, sender, OPENING_S) for sender in senders)))
            assert away.false_alarms() == [EventKind.TIMER_STARTED, EventKind.FAILED_OVER]
