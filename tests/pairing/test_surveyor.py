"""What becomes of the SDK's receivers that a look into backlog queues uses."""

import asyncio
import threading
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusServerBusyError

from twinbus.clock import SteadyClock
from twinbus.meter.operation import NO_METER
from twinbus.pairing.aio.backlog_survey import Surveyor as AioSurveyor
from twinbus.pairing.backlog.survey import Surveyor
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.pair_meter import PairMeter

LATE_S = 10.0


class BusyReceiver:
    """Of a queue whose namespace is busy: its link stays open, with a thread of the SDK that sends heartbeats."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def peek_messages(self, **_: object) -> list[Any]:
        raise ServiceBusServerBusyError

    def close(self) -> None:
        self.closed.set()


class AioBusyReceiver(BusyReceiver):
    async def peek_messages(self, **_: object) -> list[Any]:  # type: ignore[override]
        return super().peek_messages()

    async def close(self) -> None:  # type: ignore[override]
        super().close()


class BusySecondary:
    def __init__(self, new_receiver: type[BusyReceiver]) -> None:
        self._new_receiver = new_receiver
        self.opened: list[BusyReceiver] = []

    def get_queue_receiver(self, _: str) -> BusyReceiver:
        self.opened.append(self._new_receiver())
        return self.opened[-1]


def test_a_receiver_that_could_not_look_is_closed() -> None:
    """Else each of the looks of an outage, one a second, would leave a connection behind."""
    secondary, reported, has_reported = BusySecondary(BusyReceiver), list[Survey | None](), threading.Event()

    def report(survey: Survey | None) -> None:
        reported.append(survey)
        has_reported.set()

    surveyor = Surveyor(secondary, SteadyClock(), PairMeter(NO_METER))  # type: ignore[arg-type]
    surveyor.start({0: "p/x-servicebus-transfer/0"}, report)
    assert has_reported.wait(LATE_S)
    assert reported == [None]
    (receiver,) = secondary.opened
    assert receiver.closed.wait(LATE_S)


def test_a_look_for_which_there_is_no_thread_is_over(no_threads: list[str]) -> None:
    """Nobody would look again before it is, and all sessions would go on through the backlog."""
    reported: list[Survey | None] = []
    surveyor = Surveyor(BusySecondary(BusyReceiver), SteadyClock(), PairMeter(NO_METER))  # type: ignore[arg-type]
    no_threads.append("twinbus-survey")
    surveyor.start({0: "p/x-servicebus-transfer/0"}, reported.append)
    assert reported == [None]


async def test_aio_a_receiver_that_could_not_look_is_closed() -> None:
    secondary = BusySecondary(AioBusyReceiver)
    surveyor = AioSurveyor(secondary, SteadyClock(), PairMeter(NO_METER))  # type: ignore[arg-type]
    with pytest.raises(ServiceBusServerBusyError):
        await surveyor.survey({0: "p/x-servicebus-transfer/0"})
    (receiver,) = secondary.opened
    assert await asyncio.to_thread(receiver.closed.wait, LATE_S)
