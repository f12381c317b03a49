"""What a rehearsal is made of: ports, signals, processes."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from twinbus.errors import ArgumentError
from twinbus.rehearsal.drain import end
from twinbus.rehearsal.interruption import WaitedThread, ending_signals_interrupt, uninterrupted
from twinbus.rehearsal.namespace_process import NamespaceProcess
from twinbus.rehearsal.throwaway_stage import PORTS, free_ports


def test_ports_are_free_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(4)
    assert len(set(ports)) == 4
    assert all(port in PORTS for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_ports_that_one_process_was_given_are_given_to_no_other() -> None:
    ports = free_ports(4)
    ask = f"from twinbus.rehearsal import throwaway_stage as t; t.PORTS = {ports}; t.free_ports(1)"
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert "no 1 free ports" in asked.stderr


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


def test_what_is_started_while_cleaning_up_hears_signals() -> None:
    """A program inherits what its parent ignores, and a namespace that is told to stop while it starts would not hear it."""
    look = "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    with uninterrupted():
        done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_thread_is_waited_for_again_after_ctrl_c_broke_off_the_first_time() -> None:
    may_end = threading.Event()
    thread = WaitedThread(target=may_end.wait)
    thread.start()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupting = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.wait_end()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not thread.wait_end(0.01)
    may_end.set()
    assert thread.wait_end()


def test_a_thread_that_was_never_started_is_not_waited_for() -> None:
    assert WaitedThread(target=None).wait_end()


def test_a_process_that_does_not_end_when_it_is_asked_to_is_ended_by_force() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); signal.pause()"
    with subprocess.Popen([sys.executable, "-uc", deaf], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end(process, 0.05)
        assert process.returncode == -signal.SIGKILL


def test_a_namespace_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = NamespaceProcess("x", tmp_path, ["--amqp-port", port, "--http-port", "0", "--stores", "1"])
        process.start()
        with pytest.raises(ArgumentError, match=f"Port {port} on 127.0.0.1 is in use"):
            process.wait_ready()
        process.wait()
    assert not process.is_running
