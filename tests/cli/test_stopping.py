import os
import signal

import pytest

from twinbus.cli.stopping import stop_by_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_one_is_as_ever(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_by_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before
