"""What becomes of a stock sender whose call was broken off."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusSender

from twinbus.clock import SteadyClock
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
