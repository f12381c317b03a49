"""The same pair for asyncio: the shell differs, so the ways that go through it are tried once more."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS, PATIENCE_S
from tests.pairing.trial import Trial, options
from twinbus.client.async_administration import async_administration_client
from twinbus.pairing import UNNUMBERED, Availability, EventKind, PairFaulted, PairingEvent, Partner
from twinbus.pairing.aio import PairedNamespaceClient, PairedSender, pair_namespaces

TIMEOUT_S = 10


@asynccontextmanager
async def paired(spaces: Spaces, **chosen: Any) -> AsyncIterator[PairedNamespaceClient]:
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
        client = await pair_namespaces(
            spaces.primary.connection_string,
            spaces.secondary.connection_string,
            options(**chosen),
            secondary_administration=administration,
            **CLIENT_OPTIONS,
        )
    async with client:
        yield client


async def send(trial: Trial, sender: PairedSender, timeout: float = TIMEOUT_S, **properties: Any) -> bool:
    messages = trial.messages(1, **properties)
    try:
        await sender.send_messages(messages[0], timeout=timeout)
    except ServiceBusError as error:
        return trial.concluded(messages, error)
    return trial.concluded(messages, None)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)


def is_in(client: PairedNamespaceClient, availability: Availability) -> Callable[[], bool]:
    return lambda: client.state().entities[0].availability is availability


@pytest.mark.rule("B5.5", "B3", "B7")
async def test_a_killed_primary_costs_no_accepted_message(spaces: Spaces) -> None:
    trial = Trial(spaces)
    async with paired(spaces) as client, client.get_queue_sender(trial.path) as sender:
        assert await send(trial, sender)
        spaces.primary.kill()
        assert not await send(trial, sender)
        await until(is_in(client, Availability.FAILED_OVER))
        assert all(await asyncio.gather(*(send(trial, sender) for _ in range(10))))
        later, batched = trial.messages(2)
        at = datetime.now(UTC) + timedelta(hours=1)
        assert await sender.schedule_messages(later, at) == [UNNUMBERED]
        batch = await sender.create_message_batch()
        batch.add_message(batched)
        await sender.send_messages(batch)
        trial.concluded([later, batched], None)
        spaces.primary.revive()
        await until(is_in(client, Availability.HEALTHY))
        assert await send(trial, sender)
    await asyncio.to_thread(trial.bring_home)
    assert (await asyncio.to_thread(trial.audit)).waiting == []


@pytest.mark.rule("B4", "B5")
async def test_a_hung_primary_is_failed_over_within_the_timeouts(spaces: Spaces) -> None:
    trial = Trial(spaces)
    async with paired(spaces) as client, client.get_queue_sender(trial.path) as sender:
        assert await send(trial, sender)
        spaces.primary.hang()
        assert not await send(trial, sender, timeout=0.3)
        await until(is_in(client, Availability.FAILED_OVER))
        started = time.monotonic()
        assert all([await send(trial, sender) for _ in range(5)])
        assert time.monotonic() - started < TIMEOUT_S
        spaces.primary.revive()
        await until(is_in(client, Availability.HEALTHY))
        assert await send(trial, sender)
    assert len((await asyncio.to_thread(trial.audit)).waiting) == 5


async def send_and_cancel_some(trial: Trial, sender: PairedSender) -> list[bool]:
    """Tasks that share a sender; every third is cancelled, each a little further on its way than the one before."""
    kept: list[asyncio.Task[bool]] = []
    cancelled: list[asyncio.Task[bool]] = []
    for number in range(30):
        task = asyncio.create_task(send(trial, sender))
        (cancelled if number % 3 == 2 else kept).append(task)
    for number, task in enumerate(cancelled):
        await asyncio.sleep(0.002 * number)
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    return await asyncio.gather(*kept)


@pytest.mark.rule("B5")
async def test_tasks_that_are_cancelled_cost_those_that_share_their_sender_nothing(spaces: Spaces) -> None:
    trial = Trial(spaces)
    async with paired(spaces) as client, client.get_queue_sender(trial.path) as sender:
        assert all(await send_and_cancel_some(trial, sender))
        spaces.primary.kill()
        assert not await send(trial, sender)
        await until(is_in(client, Availability.FAILED_OVER))
        assert all(await send_and_cancel_some(trial, sender))
        spaces.primary.revive()
    await asyncio.to_thread(trial.bring_home)
    assert (await asyncio.to_thread(trial.audit)).waiting == []


@pytest.mark.rule("B9")
async def test_a_faulted_partner_takes_the_other_with_it_at_once(spaces: Spaces) -> None:
    async with paired(spaces, enable_syphon=True) as client:
        sender = client.get_queue_sender("orders")
        await client.fault(Partner.SECONDARY, ConnectionError("broken"))
        with pytest.raises(PairFaulted):
            await sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.rule("B9")
async def test_both_partners_closed_within_the_grace_fault_nobody(spaces: Spaces) -> None:
    events: list[PairingEvent] = []
    async with paired(spaces, enable_syphon=True, on_event=events.append) as client:
        await client.secondary.close()
        await client.primary.close()
    assert not any(event.kind is EventKind.FAULTED for event in events)
