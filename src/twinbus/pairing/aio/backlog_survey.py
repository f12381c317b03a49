"""Looking into backlog queues, for asyncio. What is looked for is that of `twinbus.pairing.backlog.survey`."""

import asyncio
import contextlib
from collections.abc import Sequence

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from twinbus.clock import Clock
from twinbus.pairing.aio.guarded_sender import close_aside
from twinbus.pairing.backlog.survey import SURVEY_MAX, note_failures, pages, peek
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.pair_meter import PairMeter
from twinbus.pairing.stock.steps import run_async

CLOSE_WAIT_S = 5.0


class Surveyor:
    """Links stay open from one survey to the next, until `close`."""

    def __init__(self, secondary: ServiceBusClient, clock: Clock, meter: PairMeter) -> None:
        self._secondary, self._clock, self._meter = secondary, clock, meter
        self._receivers: dict[int, ServiceBusReceiver] = {}

    async def survey(self, queues: dict[int, str]) -> Survey:
        survey = Survey(self._clock.now())
        async with asyncio.timeout(SURVEY_MAX / 1000):
            looks = await asyncio.gather(
                *(self._look(index, path, survey) for index, path in queues.items()), return_exceptions=True
            )
        note_failures(survey, dict(zip(queues, looks, strict=True)))
        return survey

    async def _look(self, index: int, path: str, survey: Survey) -> None:
        receiver = self._receivers.get(index)
        if receiver is None:
            receiver = self._receivers[index] = self._secondary.get_queue_receiver(path)

        async def perform(number: int) -> Sequence[ServiceBusReceivedMessage]:
            page: Sequence[ServiceBusReceivedMessage] = await peek(receiver, number)
            self._meter.peeked(path, len(page), self._clock.now())
            return page

        try:
            await run_async(pages(index, survey), perform)
        except BaseException:
            failed = self._receivers.pop(index, None)
            if failed is not None:
                close_aside(failed)
            raise

    async def close(self) -> None:
        receivers, self._receivers = list(self._receivers.values()), {}
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await asyncio.gather(*(each.close() for each in receivers), return_exceptions=True)
