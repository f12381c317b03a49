"""Pings over one connection, for threads and for tasks: a hundred entities are back within one interval of the heal."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess, until
from tests.pairing.relay_thread import RelayThread
from tests.pairing.trial import Trial, options
from twinbus.client.async_administration import async_administration_client
from twinbus.client.blocking import BlockingNamespace
from twinbus.clock import SystemClock
from twinbus.pairing import Availability, PairState
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.pings import Pings, PingThread, ping_timeout_s
from twinbus.server.listening.sockets import bind, port_of

ENTITIES = 100
INTERVAL = timedelta(seconds=5)
LOADED_S = 5.0
"""What a loaded machine may take beyond that, for a hundred links."""


@pytest.fixture(scope="module")
def paths(processes: Spaces) -> list[str]:
    with processes.primary.administration() as administration:
        names = [f"pinged-{number}" for number in range(ENTITIES)]
        for name in names:
            administration.create_queue(name)
    return names


@contextmanager
def relayed(primary: NamespaceProcess) -> Iterator[tuple[RelayThread, str]]:
    with RelayThread(primary.amqp_port) as relay:
        yield relay, primary.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")


def fail_all(availability: SendAvailability, paths: list[str], now: int) -> None:
    for path in paths:
        availability.primary_failed(path, ConnectionError("down"), now)


def all_healthy(state: PairState) -> bool:
    return all(each.availability is Availability.HEALTHY for each in state.entities)


def heal(relay: RelayThread) -> float:
    """What was under way is lost, as after a partition of the network."""
    relay.cut()
    relay.pass_on()
    return time.monotonic()


@pytest.mark.rule("B7")
def test_a_hundred_entities_are_back_within_one_interval_of_the_heal(spaces: Spaces, paths: list[str]) -> None:
    trial = Trial(spaces, path=paths[0])
    with (
        relayed(spaces.primary) as (relay, primary),
        trial.paired(
            primary, failover_interval=timedelta(0), ping_primary_interval=INTERVAL, ping_jitter=0.9
        ) as client,
    ):
        relay.hold()
        fail_all(client._life.availability, paths, client._clock.now())
        assert len(client.state().entities) == ENTITIES
        until(lambda: any(event.error is not None for event in trial.events if event.kind.value == "ping"))
        before = relay.connections
        healed_at = heal(relay)
        until(lambda: all_healthy(client.state()))
        assert time.monotonic() - healed_at < INTERVAL.total_seconds() + LOADED_S
        assert relay.connections - before <= 3, "they share one connection; what hung is given up for a new one"


@pytest.mark.rule("B7")
async def test_aio_a_hundred_entities_are_back_within_one_interval_of_the_heal(
    spaces: Spaces, paths: list[str]
) -> None:
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    chosen = options(failover_interval=timedelta(0), ping_primary_interval=INTERVAL, ping_jitter=0.9)
    with relayed(spaces.primary) as (relay, primary):
        async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
            client = await aio_pair_namespaces(
                primary, spaces.secondary.connection_string, chosen, secondary_administration=administration
            )
        async with client:
            relay.hold()
            fail_all(client._life.availability, paths, client._clock.now())
            await asyncio.sleep(1)
            before = relay.connections
            healed_at = heal(relay)
            await asyncio.to_thread(until, lambda: all_healthy(client.state()))
            assert time.monotonic() - healed_at < INTERVAL.total_seconds() + LOADED_S
            assert relay.connections - before <= 3


@pytest.mark.rule("B7")
def test_a_ping_is_for_nobody_and_its_connection_is_closed_once_all_is_well(spaces: Spaces) -> None:
    trial = Trial(spaces, requires_session=True)
    with (
        relayed(spaces.primary) as (relay, primary),
        trial.paired(primary, failover_interval=timedelta(0)) as client,
    ):
        client._life.availability.primary_failed(trial.path, ConnectionError("down"), client._clock.now())
        until(lambda: all_healthy(client.state()))
        until(lambda: relay.open_connections == 0)
    with BlockingNamespace.connect(spaces.primary.connection_string) as namespace:
        assert namespace.run(namespace.entity(trial.path).peek(10)) == []


def test_a_ping_gets_the_time_until_the_next_one_but_never_too_little_to_connect() -> None:
    seconds = (1, 5, 60, 600)
    assert [ping_timeout_s(timedelta(seconds=each)) for each in seconds] == [5, 5, 60, 120]


def test_the_thread_of_the_pings_leaves_nothing_open_when_it_is_stopped() -> None:
    availability = SendAvailability(options(), {}, Random(1))
    with bind("127.0.0.1", 0) as nobody:  # bound and not listened on: every connection is refused
        primary = f"Endpoint=sb://127.0.0.1:{port_of(nobody)};SharedAccessKeyName=n;SharedAccessKey=k;"
        pings = PingThread(Pings(primary, availability, SystemClock()))
        pings.send(Ping("orders", None, "s"))
        loop = pings._loop
        assert loop is not None
        pings.stop()
    until(loop.is_closed)
