"""The syphon on a thread of its own."""

import threading

import pytest

from tests.pairing.namespaces import until
from twinbus.clock import SteadyClock
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
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
