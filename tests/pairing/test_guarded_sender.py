"""What becomes of a stock sender whose call was broken off."""

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import SteadyClock
from twinbus.pairing.aio import guarded_sender
from twinbus.pairing.aio.guarded_sender import GuardedSender as AioGuardedSender
from twinbus.pairing.stock.guarded_sender import GuardedSender

NOBODY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"


def test_a_sender_that_ctrl_c_broke_into_is_not_used_again() -> None:
    """It may be in the middle of a frame, and what is written next would be taken for the rest of it."""

    def interrupted(stock: ServiceBusSender, timeout_s: float) -> None:
        raise KeyboardInterrupt

    with ServiceBusClient.from_connection_string(NOBODY) as client:
        sender = GuardedSender(lambda: client.get_queue_sender("orders"), SteadyClock())
        first = sender.stock
        with pytest.raises(KeyboardInterrupt):
            sender.run(interrupted, 5)
        assert sender.run(lambda stock, _: stock, 5) is not first
        sender.close()


def test_a_sender_whose_call_failed_stays() -> None:
    def fail(stock: ServiceBusSender, timeout_s: float) -> None:
        raise ConnectionError

    with ServiceBusClient.from_connection_string(NOBODY) as client:
        sender = GuardedSender(lambda: client.get_queue_sender("orders"), SteadyClock())
        first = sender.stock
        with pytest.raises(ConnectionError):
            sender.run(fail, 5)
        assert sender.run(lambda stock, _: stock, 5) is first
        sender.close()


class AioStock:
    """A stock sender for asyncio of which only the close matters."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_aio_a_close_lets_the_call_under_way_finish_even_if_the_close_is_cancelled() -> None:
    """Closed in the middle of a send, the SDK reports as lost what was accepted, or opens another connection and sends it twice."""
    stock, may_end, has_begun = AioStock(), asyncio.Event(), asyncio.Event()
    sender = AioGuardedSender(lambda: stock, SteadyClock())  # type: ignore[arg-type,return-value]

    async def send(_: Any, timeout_s: float) -> bool:
        has_begun.set()
        await may_end.wait()
        return stock.is_closed

    sending = asyncio.create_task(sender.run(send, 30))
    await has_begun.wait()
    closing = asyncio.create_task(sender.close())
    for _ in range(3):  # turns of the loop, for the close to begin
        await asyncio.sleep(0)
    closing.cancel()
    may_end.set()
    assert await sending is False
    await asyncio.gather(*guarded_sender._closing)
    assert stock.is_closed
    assert sender.line.take()


async def test_aio_a_close_ends_a_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_sender, "TURN_WAIT_S", 0.01)
    opened: list[AioStock] = []

    def open_stock() -> AioStock:
        opened.append(AioStock())
        return opened[-1]

    sender = AioGuardedSender(open_stock, SteadyClock())  # type: ignore[arg-type]
    has_begun = asyncio.Event()

    async def hang(_: Any, timeout_s: float) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(sender.run(hang, 30))
    await has_begun.wait()
    await sender.close()
    with pytest.raises(OperationTimeoutError):
        await sending
    await asyncio.gather(*guarded_sender._closing)
    assert all(stock.is_closed for stock in opened)
