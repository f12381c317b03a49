import os
import signal
import sys
from types import SimpleNamespace

import pytest

from twinbus.__main__ import main
from twinbus.cli.pipeline.spark_job import stop_by_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_one_is_as_ever(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_by_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before


def test_an_interrupt_ends_a_command_that_has_hardly_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "twinbus.cli.app", SimpleNamespace(main=interrupted))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
