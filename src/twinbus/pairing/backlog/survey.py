"""Looking into backlog queues without taking anything: which message sessions wait there, for `catching_up`.

Blocking or awaited, the steps are the same: pages of one queue, from its beginning until there are no more or enough were seen.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver

from twinbus.client.received_message import ReceivedMessage
from twinbus.clock import NEVER, Clock, Millis
from twinbus.model import wire_names
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.paths import path_key
from twinbus.pairing.deciding.survey import SURVEYED_MAX, UNSEEN, Survey
from twinbus.pairing.pair_meter import PairMeter
from twinbus.pairing.rewriting.stages import parse_stage
from twinbus.pairing.stock.guarded_sender import close_all, close_aside, interrupt
from twinbus.pairing.stock.side_by_side import side_by_side
from twinbus.pairing.stock.steps import run

PAGE_TIMEOUT_S = 10.0
SURVEY_MAX: Millis = 30_000
QUEUES_AT_ONCE = 4

_NAMES = wire_names.TRANSFER_PATH, wire_names.TRANSFER_SESSION_ID, wire_names.TRANSFER_FOLLOWS


Peeked: TypeAlias = ServiceBusReceivedMessage | ReceivedMessage
"""A message that is looked at, of the SDK's or our own client."""

Pages: TypeAlias = Generator[int, Sequence[Peeked], None]
"""Yields the sequence number to peek from, and is sent the page."""


def pages(index: int, survey: Survey, until: Millis = NEVER) -> Pages:
    """Ends with what came after `until`, which is of no interest."""
    seen, number, came_at = 0, 1, UNSEEN
    while seen < SURVEYED_MAX:
        page = yield number
        if not page:
            return
        for message in page:
            came_at = _enqueued_at(message)
            _note(index, message, came_at, survey)
            number = max(number, (message.sequence_number or 0) + 1)
        if came_at > until:
            return
        seen += len(page)
    survey.unseen_from[index] = came_at


def _note(index: int, message: Peeked, came_at: Millis, survey: Survey) -> None:
    properties: dict[Any, Any] = message.application_properties or {}
    path, session, stage = (_text(properties, name) for name in _NAMES)
    number = message.sequence_number or 0
    survey.add(index, path_key(path or ""), session, number, _number_of(stage), came_at)


def _enqueued_at(message: Peeked) -> Millis:
    """Of what does not say, that it came early: others wait for it."""
    came_at = message.enqueued_time_utc if isinstance(message, ServiceBusReceivedMessage) else message.enqueued_at
    return 0 if came_at is None else round(came_at.timestamp() * 1000)


def _number_of(stage: str | None) -> int:
    """Of what nobody can read, that it is early: others wait for it."""
    try:
        return 0 if stage is None else parse_stage(stage).number
    except ValueError:
        return 0


def _text(properties: dict[Any, Any], name: str) -> str | None:
    """The SDK decodes texts and their names as bytes."""
    value = properties.get(name.encode(), properties.get(name))
    return value.decode(errors="replace") if isinstance(value, bytes) else value if isinstance(value, str) else None


def peek(receiver: Any, number: int) -> Any:
    """With a stock receiver of either kind; the one for asyncio returns what is to be awaited."""
    return receiver.peek_messages(max_message_count=PEEK_COUNT_MAX, sequence_number=number, timeout=PAGE_TIMEOUT_S)


def note_failures(survey: Survey, looks: Mapping[int, BaseException | None]) -> None:
    """Queues that could not be looked into. Raises if that were all of them: then nothing is known."""
    failed = {index: error for index, error in looks.items() if error is not None}
    if failed and len(failed) == len(looks):
        raise next(iter(failed.values()))
    for index in failed:
        survey.unseen_from[index] = UNSEEN


class Surveyor:
    """Of a pair for threads. Links stay open from one survey to the next, until `close`."""

    def __init__(self, secondary: ServiceBusClient, clock: Clock, meter: PairMeter) -> None:
        self._secondary, self._clock, self._meter = secondary, clock, meter
        self._receivers: dict[int, ServiceBusReceiver] = {}
        self._deadline: Millis = NEVER

    def start(self, queues: dict[int, str], report: Callable[[Survey | None], None]) -> None:
        """On a thread of its own; then calls `report`."""
        self._deadline = self._clock.now() + SURVEY_MAX

        def work() -> None:
            survey: Survey | None = None
            with contextlib.suppress(Exception):
                survey = self._survey(queues)
            self._deadline = NEVER
            report(survey)

        try:
            threading.Thread(target=work, name="twinbus-survey", daemon=True).start()
        except RuntimeError:  # the system has none; nobody looks again before this look has ended
            self._deadline = NEVER
            report(None)

    def _survey(self, queues: dict[int, str]) -> Survey:
        survey = Survey(self._clock.now())
        looks = side_by_side(
            lambda index: self._look(index, queues[index], survey), list(queues), QUEUES_AT_ONCE, "twinbus-survey"
        )
        note_failures(survey, dict(zip(queues, looks, strict=True)))
        return survey

    def _look(self, index: int, path: str, survey: Survey) -> Exception | None:
        """Returns why it could not be looked into."""
        try:
            receiver = self._receivers.get(index)
            if receiver is None:
                receiver = self._receivers[index] = self._secondary.get_queue_receiver(path)
            run(pages(index, survey), partial(self._page, receiver, path))
        except Exception as error:
            failed = self._receivers.pop(index, None)
            if failed is not None:
                close_aside(failed)
            return error
        return None

    def _page(self, receiver: ServiceBusReceiver, path: str, number: int) -> Sequence[Peeked]:
        page: Sequence[ServiceBusReceivedMessage] = peek(receiver, number)
        self._meter.peeked(path, len(page), self._clock.now())
        return page

    def interrupt_if_late(self, now: Millis) -> None:
        if now > self._deadline:
            for receiver in list(self._receivers.values()):
                interrupt(receiver)

    def close(self) -> None:
        receivers, self._receivers = list(self._receivers.values()), {}
        close_all(receivers)
