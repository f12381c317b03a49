"""The syphon on a thread of its own."""

import threading
from datetime import timedelta

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from tests.pairing.trial import Trial
from twinbus.clock import SteadyClock
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.syphon.destinations import RETRY_MAX
from twinbus.pairing.syphon.tasks import BulkSyphon, SyphonThread

NOBODY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"


def syphon(*queues: str) -> SyphonThread:
    return SyphonThread(BulkSyphon(NOBODY, NOBODY, queues, SendAvailabilityPairedNamespaceOptions(), SteadyClock()))


def has_ended() -> bool:
    return not any(thread.name == "twinbus-syphon" for thread in threading.enumerate())


@pytest.mark.rule("B9")
def test_pumps_that_run_can_be_stopped() -> None:
    running = syphon("p/x-servicebus-transfer/0")
    running.start()
    running.stop()
    assert has_ended()


def test_pumps_that_have_ended_by_themselves_can_be_stopped() -> None:
    without_pumps = syphon()
    without_pumps.start()
    until(has_ended)
    without_pumps.stop()


@pytest.mark.rule("B8")
def test_a_primary_that_is_back_is_noticed_before_the_next_try(spaces: Spaces) -> None:
    """After a long outage the next try may be two minutes away; a connection costs nothing."""
    trial = Trial(spaces)
    with trial.paired(failover_interval=timedelta(0)) as client:
        spaces.primary.kill()
        assert trial.send(trial.sender(client))
    events: list[PairingEvent] = []
    options = SendAvailabilityPairedNamespaceOptions(on_event=events.append)
    bulk = BulkSyphon(
        spaces.primary.connection_string,
        spaces.secondary.connection_string,
        client.backlog_queues,
        options,
        SteadyClock(),
    )
    running = SyphonThread(bulk)
    running.start()
    try:
        until(lambda: any(event.path == trial.path and event.error is not None for event in events))
        for pump in bulk._pumps:
            for destination in pump.memory.destinations.values():
                destination.paused_until, destination.retry_after = SteadyClock().now() + RETRY_MAX, RETRY_MAX
            pump._retry_after = RETRY_MAX
        until(lambda: bulk.is_away)
        spaces.primary.start()
        until(lambda: not trial.waiting())
    finally:
        running.stop()
    trial.audit()
