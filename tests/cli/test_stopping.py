import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from twinbus.__main__ import main
from twinbus.cli.interruption import interruptible
from twinbus.rehearsal.interruption import stop_by_signal


@pytest.fixture(autouse=True)
def _signals_of_a_new_process() -> Iterator[None]:
    """Whatever the test runner or the shell that started it made of them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_one_is_as_ever(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_by_signal() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_work_begins_interrupts_a_job_and_so_does_a_second_one(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: "Half of it is done."):
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: "Half of it is done."):
        _get_twice(number)
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err.splitlines() == ["twinbus: interrupted. Half of it is done."] * 2


def _get_twice(number: signal.Signals) -> None:
    with stop_by_signal() as stop:
        signal.raise_signal(number)
        assert stop.wait(10)
        signal.raise_signal(number)


def test_an_ignored_signal_does_not_stop_a_job() -> None:
    """As with nohup, or in the background of a shell script."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_by_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
