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


def test_cleaning_up_is_not_interrupted() -> None:
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_namespace_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = NamespaceProcess("x", tmp_path, ["--amqp-port", port, "--http-port", "0", "--stores", "1"])
        process.start()
        with pytest.raises(NamespaceStopped, match=f"Port {port} on 127.0.0.1 is in use"):
            process.wait_ready()
        process.wait()
    assert not process.is_running
