"""The same pair for asyncio: the shell differs, so the ways that go through it are tried once more."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS, PATIENCE_S
from twinbus.client.administration import async_administration_client
from twinbus.pairing import (
    UNNUMBERED,
    Availability,
    EventKind,
    PairFaulted,
    PairingEvent,
    Partner,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.pairing.aio import PairedNamespaceClient, PairedSender, pair_namespaces


@asynccontextmanager
async def paired(spaces: Spaces, **options: Any) -> AsyncIterator[PairedNamespaceClient]:
    chosen = SendAvailabilityPairedNamespaceOptions(
        backlog_queue_count=2,
        failover_interval=timedelta(seconds=0.3),
        ping_primary_interval=timedelta(seconds=1),
        **options,
    )
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
        client = await pair_namespaces(
            spaces.primary.connection_string,
            spaces.secondary.connection_string,
            chosen,
            secondary_administration=administration,
            **CLIENT_OPTIONS,
        )
    async with client:
        yield client


class Sending:
    def __init__(self, sender: PairedSender) -> None:
        self._sender = sender
        self._numbers = count()
        self.accepted: list[str] = []

    async def send(self, timeout: float = 10) -> bool:
        body = f"m{next(self._numbers)}"
        try:
            await self._sender.send_messages(ServiceBusMessage(body, message_id=body), timeout=timeout)
        except ServiceBusError:
            return False
        self.accepted.append(body)
        return True


async def until(condition: Callable[[], bool], meanwhile: Callable[[], Any] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await (meanwhile() if meanwhile is not None else asyncio.sleep(0.01))


def is_in(client: PairedNamespaceClient, availability: Availability) -> Callable[[], bool]:
    return lambda: client.state().entities[0].availability is availability


async def test_a_killed_primary_costs_no_accepted_message(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    async with paired(spaces) as client, client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        assert await sending.send()
        spaces.primary.kill()
        await until(is_in(client, Availability.FAILED_OVER), sending.send)
        assert all(await asyncio.gather(*(sending.send() for _ in range(10))))
        later = datetime.now(UTC) + timedelta(hours=1)
        assert await sender.schedule_messages(ServiceBusMessage("later"), later) == [UNNUMBERED]
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("batched", message_id="batched"))
        await sender.send_messages(batch)
        sending.accepted += ["later", "batched"]
        spaces.primary.revive()
        await until(is_in(client, Availability.HEALTHY))
        assert await sending.send()
    async with paired(spaces, enable_syphon=True):
        wanted = len(sending.accepted)
        await until(lambda: spaces.primary.count(path) >= wanted)
    assert set(await asyncio.to_thread(spaces.primary.take_all, path)) | {"later"} == set(sending.accepted)


async def test_a_hung_primary_is_failed_over_within_the_timeouts(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    async with paired(spaces) as client, client.get_queue_sender(path) as sender:
        sending = Sending(sender)
        assert await sending.send()
        spaces.primary.hang()
        await until(is_in(client, Availability.FAILED_OVER), lambda: sending.send(timeout=0.3))
        started = time.monotonic()
        assert all([await sending.send() for _ in range(5)])
        assert time.monotonic() - started < 5
        spaces.primary.revive()
        await until(is_in(client, Availability.HEALTHY))
        assert await sending.send()


async def test_a_faulted_partner_takes_the_other_with_it_at_once(spaces: Spaces) -> None:
    async with paired(spaces, enable_syphon=True) as client:
        sender = client.get_queue_sender("orders")
        await client.fault(Partner.SECONDARY, ConnectionError("broken"))
        with pytest.raises(PairFaulted):
            await sender.send_messages(ServiceBusMessage("x"))


async def test_both_partners_closed_within_the_grace_fault_nobody(spaces: Spaces) -> None:
    events: list[PairingEvent] = []
    async with paired(spaces, enable_syphon=True, on_event=events.append) as client:
        await client.secondary.close()
        await client.primary.close()
    assert not any(event.kind is EventKind.FAULTED for event in events)
