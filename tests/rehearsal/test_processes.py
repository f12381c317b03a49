"""What a rehearsal is made of: ports, signals, processes."""

import os
import signal
import socket
from pathlib import Path

import pytest

from twinbus.rehearsal.ending_signals import ending_signals_interrupt, uninterrupted
from twinbus.rehearsal.namespace_process import NamespaceProcess, NamespaceStopped
from twinbus.rehearsal.throwaway_stage import PORTS, free_ports


def test_ports_are_free_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(4)
    assert len(set(ports)) == 4
    assert all(port in PORTS for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_program_interrupt_it_like_ctrl_c(ending: signal.Signals) -> None:
    before = signal.getsignal(ending)
    with pytest.raises(KeyboardInterrupt), ending_signals_interrupt():
        os.kill(os.getpid(), ending)
    assert signal.getsignal(ending) is before


def test_a_program_in_the_background_where_nobody_can_press_ctrl_c_is_ended_by_a_signal() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what has an & behind it
    try:
        with pytest.raises(KeyboardInterrupt), ending_signals_interrupt():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_program_that_is_to_outlive_its_terminal_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with ending_signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_cleaning_up_is_not_interrupted(ending: signal.Signals) -> None:
    before = signal.getsignal(ending)
    with ending_signals_interrupt(), uninterrupted():
        os.kill(os.getpid(), ending)
    assert signal.getsignal(ending) is before


def test_a_namespace_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = NamespaceProcess("x", tmp_path, ["--amqp-port", port, "--http-port", "0", "--stores", "1"])
        process.start()
        with pytest.raises(NamespaceStopped, match=f"Port {port} on 127.0.0.1 is in use"):
            process.wait_ready()
        process.wait()
    assert not process.is_running
