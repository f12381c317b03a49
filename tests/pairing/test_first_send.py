"""An interval of zero saves the very send that meets the outage, with the retries that the SDK makes by itself."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from tests.pairing.conftest import Spaces
from tests.pairing.relay_thread import RelayThread
from tests.pairing.trial import Trial, options
from twinbus.client.async_administration import async_administration_client
from twinbus.pairing import pair_namespaces
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces

Outage = Callable[[Spaces, RelayThread], None]
LATE_S = 0.5
"""Of a loaded machine; the timeout itself is kept to 0.2 s."""


def refused(_: Spaces, relay: RelayThread) -> None:
    relay.refuse()


def reset(spaces: Spaces, relay: RelayThread) -> None:
    """As a machine that dies behind a load balancer: connections are cut, and the next ones too."""
    spaces.primary.kill()
    relay.cut()


def hung(_: Spaces, relay: RelayThread) -> None:
    relay.hold()


def dead_stores(spaces: Spaces, _: RelayThread) -> None:
    for index in range(2):
        spaces.primary.ask("POST", f"/$stores/{index}/down")


OUTAGES = (refused, reset, hung, dead_stores)
TIMEOUTS_S = (3, pytest.param(5, marks=pytest.mark.nightly), pytest.param(10, marks=pytest.mark.nightly))


@contextmanager
def relayed(spaces: Spaces) -> Iterator[tuple[RelayThread, str]]:
    with RelayThread(spaces.primary.amqp_port) as relay:
        try:
            yield relay, spaces.primary.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")
        finally:
            if spaces.primary.is_running:
                for index in range(2):
                    spaces.primary.ask("POST", f"/$stores/{index}/up")


@pytest.mark.rule("B3", "B5")
@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
@pytest.mark.parametrize("outage", OUTAGES)
def test_the_send_that_meets_the_outage_is_accepted_in_its_time(
    spaces: Spaces, outage: Outage, timeout_s: float
) -> None:
    trial = Trial(spaces)
    chosen = options(failover_interval=timedelta(0), primary_name=trial.primary_name)
    with (
        relayed(spaces) as (relay, primary),
        spaces.secondary.administration() as administration,
        pair_namespaces(
            primary, spaces.secondary.connection_string, chosen, secondary_administration=administration
        ) as client,
        trial.sender(client) as sender,
    ):
        assert trial.send(sender)
        outage(spaces, relay)
        started = time.monotonic()
        assert trial.send(sender, timeout=timeout_s)
        assert time.monotonic() - started < timeout_s + LATE_S
    assert len(trial.waiting()) == 1


@pytest.mark.rule("B3", "B5")
@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
@pytest.mark.parametrize("outage", OUTAGES)
async def test_aio_the_send_that_meets_the_outage_is_accepted_in_its_time(
    spaces: Spaces, outage: Outage, timeout_s: float
) -> None:
    trial = Trial(spaces)
    chosen = options(failover_interval=timedelta(0), primary_name=trial.primary_name)
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    with relayed(spaces) as (relay, primary):
        async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
            client = await aio_pair_namespaces(
                primary, spaces.secondary.connection_string, chosen, secondary_administration=administration
            )
        async with client, client.get_queue_sender(trial.path) as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            outage(spaces, relay)
            started = time.monotonic()
            await sender.send_messages(ServiceBusMessage("x", message_id="x"), timeout=timeout_s)
            assert time.monotonic() - started < timeout_s + LATE_S
    assert await asyncio.to_thread(trial.waiting) == ["x"]
