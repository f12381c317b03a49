"""A primary and a secondary namespace, each in a process of its own, until one ends or Ctrl-C.

Each is `twinbus serve --json`; its log goes to a file.
"""

import selectors
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twinbus.cli.namespaces.next_steps import next_steps
from twinbus.cli.namespaces.running import RunningNamespace
from twinbus.cli.output import Output
from twinbus.client.connection_string import TLS_PORT
from twinbus.rehearsal.interruption import ending_signals_interrupt
from twinbus.rehearsal.namespace_process import NamespaceProcess
from twinbus.server.server_settings import AMQP_PORT_DEFAULT, HTTP_PORT_DEFAULT


@dataclass(frozen=True, slots=True)
class Seat:
    name: str
    amqp_port: int
    http_port: int
    tls_port: int = 0


SEATS = (
    Seat("primary", AMQP_PORT_DEFAULT, HTTP_PORT_DEFAULT, TLS_PORT),
    Seat("secondary", AMQP_PORT_DEFAULT + 1, HTTP_PORT_DEFAULT + 1, AMQP_PORT_DEFAULT + 2),
)


def run_two(
    data: Path, options: Sequence[str], output: Output, seats: Sequence[Seat] = SEATS, *, with_tls: bool = False
) -> None:
    """Returns after Ctrl-C or SIGTERM; raises NamespaceStopped if one cannot be served or ends by itself."""
    children = [_child(seat, data, options, with_tls=with_tls) for seat in seats]
    with ending_signals_interrupt():
        try:
            for child in children:
                child.start()
            _print_ready(output, [RunningNamespace(**child.wait_ready()) for child in children], data)
            _wait_for_end(children).fail()
        except KeyboardInterrupt:
            output.console.print("", end="")
        finally:
            for child in children:
                child.ask_to_stop()
            for child in children:
                child.wait()


def _child(seat: Seat, data: Path, options: Sequence[str], *, with_tls: bool) -> NamespaceProcess:
    ports = ["--amqp-port", str(seat.amqp_port), "--http-port", str(seat.http_port)]
    ports += ["--tls-port", str(seat.tls_port)] if with_tls else []
    return NamespaceProcess(seat.name, data, [*ports, *options])


def _wait_for_end(children: Sequence[NamespaceProcess]) -> NamespaceProcess:
    """The first child to close its output, which happens when it ends."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            assert child.process.stdout is not None
            selector.register(child.process.stdout, selectors.EVENT_READ, child)
        while True:
            for key, _ in selector.select():
                if not key.fileobj.read(1):  # type: ignore[union-attr]
                    ended: NamespaceProcess = key.data
                    return ended


def _print_ready(output: Output, namespaces: Sequence[RunningNamespace], data: Path) -> None:
    if output.as_json:
        output.table((), [asdict(each) for each in namespaces])
        sys.stdout.flush()
        return
    for each in namespaces:
        output.console.print(f"[bold]{each.name}[/bold]  administration {each.endpoint}")
        for line in each.ways_in:
            output.console.print(line, markup=False)
    output.console.print(next_steps(namespaces, data), markup=False)
    output.console.print("Ctrl-C stops both.")
