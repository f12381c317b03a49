"""How a pair ends: in good order, in the middle of something, by halves. Nobody answers at its namespaces."""

import asyncio
import logging
import threading
from dataclasses import replace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

from tests.pairing.namespaces import until
from twinbus.clock import Millis, SteadyClock
from twinbus.pairing import (
    EventKind,
    PairedNamespaceClient,
    PairingError,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from twinbus.pairing.aio import PairedNamespaceClient as AioPairedNamespaceClient
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces
from twinbus.pairing.backlog.provision import Backlog
from twinbus.pairing.new_pair import check_reach, enter_pair

NOBODY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
QUEUES = {0: "p/x-servicebus-transfer/0"}
OPTIONS = SendAvailabilityPairedNamespaceOptions()


class IdleSyphon:
    """Has nothing to move. `may_stop` is what it waits for when it is told to stop."""

    def __init__(self) -> None:
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.is_stopping = threading.Event()

    def start(self) -> None: ...

    def stop(self) -> None:
        self.is_stopping.set()
        self.may_stop.wait()

    def recovered(self, path: str) -> None: ...

    def interrupt_if_late(self, now: Millis) -> None: ...


def clients() -> tuple[ServiceBusClient, ServiceBusClient]:
    primary, secondary = (ServiceBusClient.from_connection_string(NOBODY, retry_total=0) for _ in range(2))
    enter_pair(primary, secondary)
    return primary, secondary


def aio_clients() -> tuple[AioServiceBusClient, AioServiceBusClient]:
    primary, secondary = (AioServiceBusClient.from_connection_string(NOBODY, retry_total=0) for _ in range(2))
    enter_pair(primary, secondary)
    return primary, secondary


@pytest.mark.rule("B9.3")
@pytest.mark.parametrize("has_syphon", [True, False])
def test_closing_a_pair_stops_its_pumps_and_closes_the_secondary_of_a_syphon_and_no_other_client(
    has_syphon: bool,
) -> None:
    primary, secondary = clients()
    senders = [client.get_queue_sender("own") for client in (primary, secondary)]
    syphon = IdleSyphon()
    pair = PairedNamespaceClient(
        primary, secondary, OPTIONS, Backlog(QUEUES), SteadyClock(), syphon if has_syphon else None, owns_clients=False
    )
    paired = pair.get_queue_sender("orders")
    pair.close()
    assert syphon.is_stopping.is_set() is has_syphon
    assert [sender._shutdown.is_set() for sender in senders] == [False, has_syphon]
    with pytest.raises(ValueError, match="closed"):
        paired.send_messages({"body": b"x"})
    enter_pair(primary, secondary)


def test_a_pair_that_is_closed_while_it_finds_its_backlog_starts_no_syphon() -> None:
    """Nobody would stop it any more."""

    class CountedSyphon(IdleSyphon):
        starts = 0

        def start(self) -> None:
            self.starts += 1

    def close(event: PairingEvent) -> None:
        assert event.kind is EventKind.PROTECTED
        pair.close()

    options = replace(OPTIONS, on_event=close)
    pair = PairedNamespaceClient(*clients(), options, Backlog({}), SteadyClock())
    syphon = CountedSyphon()
    assert not pair._life.backlog_found(Backlog(QUEUES), syphon)
    assert syphon.starts == 0


@pytest.mark.rule("B9")
def test_a_sender_that_cannot_be_closed_keeps_nothing_else_open(monkeypatch: pytest.MonkeyPatch) -> None:
    primary, secondary = clients()
    other = secondary.get_queue_sender("own")
    pair = PairedNamespaceClient(primary, secondary, OPTIONS, Backlog(QUEUES), SteadyClock(), IdleSyphon())
    sender = pair.get_queue_sender("orders")

    def fail() -> None:
        raise RuntimeError("of the SDK")

    monkeypatch.setattr(sender._primary.stock, "close", fail)
    with pytest.raises(RuntimeError, match="of the SDK"):
        pair.close()
    assert other._shutdown.is_set()
    enter_pair(primary, secondary)


@pytest.mark.rule("B9")
async def test_aio_a_close_that_is_cancelled_leaves_nothing_open() -> None:
    primary, secondary = aio_clients()
    other = secondary.get_queue_sender("own")
    syphon = IdleSyphon()
    syphon.may_stop.clear()
    pair = AioPairedNamespaceClient(primary, secondary, OPTIONS, Backlog(QUEUES), SteadyClock(), syphon)
    closing = asyncio.create_task(pair.close())
    assert await asyncio.to_thread(syphon.is_stopping.wait, 20)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    syphon.may_stop.set()
    assert other._shutdown.is_set()
    enter_pair(primary, secondary)


@pytest.mark.rule("B1")
def test_a_secondary_that_another_pair_may_close_is_not_shared() -> None:
    _, secondary = clients()
    with pytest.raises(PairingError, match="another pair"):
        enter_pair(ServiceBusClient.from_connection_string(NOBODY), secondary)


@pytest.mark.rule("B1")
async def test_clients_of_the_other_colour_are_refused() -> None:
    """Their senders would return what nobody awaits, and messages would be gone."""
    own, other = ServiceBusClient.from_connection_string(NOBODY), AioServiceBusClient.from_connection_string(NOBODY)
    elsewhere: Any = AioServiceBusClient.from_connection_string(NOBODY.replace(":1;", ":2;"))
    with pytest.raises(PairingError, match=r"twinbus\.pairing\.aio"):
        pair_namespaces(cast(Any, other), elsewhere)
    with pytest.raises(PairingError, match=r"twinbus\.pairing\."):
        await aio_pair_namespaces(cast(Any, own), elsewhere)


@pytest.mark.rule("B1")
def test_a_secondary_that_reaches_one_entity_only_is_refused() -> None:
    with (
        ServiceBusClient.from_connection_string(NOBODY + "EntityPath=orders") as of_an_entity,
        ServiceBusClient.from_connection_string(NOBODY) as of_the_namespace,
    ):
        check_reach(of_the_namespace, QUEUES[0])
        with pytest.raises(PairingError, match="EntityPath"):
            check_reach(of_an_entity, QUEUES[0])


class BrokenSyphon(IdleSyphon):
    looks = 0

    def interrupt_if_late(self, now: Millis) -> None:
        self.looks += 1
        raise RuntimeError("of the syphon")


def test_a_look_at_the_pair_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread pings and keeps deadlines."""
    syphon = BrokenSyphon()
    caplog.set_level(logging.CRITICAL, "twinbus.pairing.attendant")
    with PairedNamespaceClient(*clients(), OPTIONS, Backlog(QUEUES), SteadyClock(), syphon):
        until(lambda: syphon.looks > 1)


async def test_aio_a_look_at_the_pair_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    syphon = BrokenSyphon()
    caplog.set_level(logging.CRITICAL, "twinbus.pairing.aio.attendant")
    async with AioPairedNamespaceClient(*aio_clients(), OPTIONS, Backlog(QUEUES), SteadyClock(), syphon):
        await asyncio.to_thread(until, lambda: syphon.looks > 1)
