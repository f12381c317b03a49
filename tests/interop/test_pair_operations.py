"""A message on its way round by a backlog queue, in the operations logs of both namespaces."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.interop.running_server import RunningServer
from tests.meter.operation_rows import read_log
from twinbus.clock import SystemClock
from twinbus.pairing.rewriting.transfer import set_aside
from twinbus.pairing.stock.failures import classify
from twinbus.pairing.stock.steps import run, run_async
from twinbus.pairing.syphon.bulk_transport import BulkTransport, syphon_links
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.stock_transport import DestinationSenders, StockTransport, as_syphon

QUEUE = "contoso/x-servicebus-transfer/0"
POLL_S = 0.5


class Pair(NamedTuple):
    primary: RunningServer
    secondary: RunningServer


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    servers = Pair(*(RunningServer(tmp_path / name, store_count=2, is_metered=True) for name in Pair._fields))
    servers.primary.create_queue("orders")
    servers.secondary.create_queue(QUEUE)
    yield servers
    for server in servers:
        server.stop()


def billed(server: RunningServer) -> list[tuple[object, ...]]:
    """What was billed, in order."""
    assert server.server.metering is not None
    server.run(server.server.metering.flush())
    rows = [row for row in read_log(server.server.metering.folder) if row["units"]]
    return [(row["cause"], row["entity"], row["path"], row["operations"], row["message_id"]) for row in rows]


def fail_over(server: RunningServer) -> None:
    """What a paired sender does with a message while its entity is failed over."""
    aside = set_aside(ServiceBusMessage("hello", message_id="m-1"), "orders", lambda: "new", 0)
    with server.client() as client, client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(aside)


def receive(server: RunningServer) -> None:
    with server.client() as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        receiver.complete_message(message)


def syphon_in_bulk(pair: Pair, passes: int) -> None:
    async def work() -> None:
        primary, secondary = (syphon_links(server.connection_string) for server in pair)
        transport = BulkTransport(QUEUE, primary, secondary, lambda: False)
        for _ in range(passes):
            await run_async(pump().do_pass(POLL_S), transport.perform)
        await transport.close()
        await primary.drop()
        await secondary.drop()

    asyncio.run(work())


def syphon_with_stock_clients(pair: Pair, passes: int) -> None:
    with pair.primary.client() as primary, pair.secondary.client() as secondary:
        _syphon(primary, secondary, passes)


def _syphon(primary: ServiceBusClient, secondary: ServiceBusClient, passes: int) -> None:
    clock = SystemClock()
    destinations = DestinationSenders(primary, clock)
    transport = StockTransport(
        as_syphon(secondary.get_queue_receiver(QUEUE)),
        destinations,
        lambda _: None,
        clock,
        secondary.get_queue_receiver,
    )
    for _ in range(passes):
        run(pump().do_pass(POLL_S), transport.perform)
    transport.close()
    destinations.close()


def pump() -> Pump:
    return Pump(QUEUE, classify, RateCap(None), SystemClock(), lambda _: None)


@pytest.mark.rule("D4.1")
@pytest.mark.parametrize("syphon", [syphon_in_bulk, syphon_with_stock_clients])
def test_a_failed_over_message_costs_four_operations_and_an_empty_poll_one(
    pair: Pair, syphon: Callable[[Pair, int], None]
) -> None:
    fail_over(pair.secondary)
    syphon(pair, 1)
    receive(pair.primary)
    there = [row for row in billed(pair.secondary) if row[0] != "empty_receive"]
    assert there == [("send", QUEUE, "backlog", 1, "m-1"), ("receive", QUEUE, "syphon", 1, "m-1")]
    assert billed(pair.primary) == [
        ("send", "orders", "syphon", 1, "m-1"),
        ("receive", "orders", "primary", 1, "m-1"),
    ]


@pytest.mark.rule("D1.3", "D2")
@pytest.mark.parametrize("syphon", [syphon_in_bulk, syphon_with_stock_clients])
def test_each_poll_of_an_idle_backlog_queue_is_one_empty_receive(
    pair: Pair, syphon: Callable[[Pair, int], None]
) -> None:
    syphon(pair, 3)
    found = billed(pair.secondary)
    assert sum(int(str(row[3])) for row in found) == 3
    assert {row[:3] for row in found} == {("empty_receive", QUEUE, "syphon")}
