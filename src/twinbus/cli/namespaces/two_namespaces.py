"""A primary and a secondary namespace, each in a process of its own, until one ends or Ctrl-C; and the portal beside them.

Each is `twinbus serve --json`; its log goes to a file.
"""

import selectors
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twinbus.cli.namespaces.next_steps import next_steps
from twinbus.cli.namespaces.portal_process import PortalProcess
from twinbus.cli.namespaces.running import RunningNamespace
from twinbus.cli.output import Output
from twinbus.rehearsal.interruption import ending_signals_interrupt
from twinbus.rehearsal.namespace_process import NamespaceProcess
from twinbus.server.server_settings import AMQP_PORT_DEFAULT, HTTP_PORT_DEFAULT, ServerSettings, read_extra_ports

TLS_PORT_STEP = 3
"""From the TLS port of the primary to that of the secondary: 5671 and 5674, with the two AMQP ports between them."""


@dataclass(frozen=True, slots=True)
class Seat:
    name: str
    amqp_port: int
    http_port: int
    tls_port: int | None = None
    also_listen: str = ""


@dataclass(frozen=True, slots=True)
class PrimaryPorts:
    """Port 0 chooses a free one, for the secondary too."""

    amqp: int = AMQP_PORT_DEFAULT
    http: int = HTTP_PORT_DEFAULT
    tls: int | None = None
    also_listen: str = ""

    def check(self) -> None:
        """Here as well as in the processes, so that what is wrong is said at once."""
        extra = read_extra_ports(self.also_listen)
        for seat in self.seats():
            also = extra if seat.also_listen else ()
            ServerSettings(
                seat.name,
                Path(),
                amqp_port=seat.amqp_port,
                http_port=seat.http_port,
                tls_port=seat.tls_port,
                also_listen=also,
            )

    def seats(self) -> tuple[Seat, Seat]:
        return (
            Seat("primary", self.amqp, self.http, self.tls, self.also_listen),
            Seat(
                "secondary",
                _next(self.amqp, 1),
                _next(self.http, 1),
                None if self.tls is None else _next(self.tls, TLS_PORT_STEP),
            ),
        )


def _next(port: int, step: int) -> int:
    return port + step if port else 0


SEATS = PrimaryPorts().seats()


def run_two(
    data: Path,
    options: Sequence[str],
    output: Output,
    ports: PrimaryPorts,
    portal_port: int | None = None,
    secrets: Mapping[str, str] | None = None,
) -> None:
    """Returns after Ctrl-C or SIGTERM; raises NamespaceStopped if one cannot be served or ends by itself.

    The portal is served beside them if it has a port.
    """
    children = [_child(seat, data, options, secrets or {}) for seat in ports.seats()]
    portal = None
    with ending_signals_interrupt():
        try:
            for child in children:
                child.start()
            serving = [RunningNamespace(**child.wait_ready()) for child in children]
            if portal_port is not None:
                portal = PortalProcess(data, portal_port)
            _print_ready(output, serving, data, None if portal is None else portal.address)
            if portal is not None:
                portal.start()
            _wait_for_end(children).fail()
        except KeyboardInterrupt:
            output.console.print("", end="")
        finally:
            for child in children:
                child.ask_to_stop()
            if portal is not None:
                portal.stop()
            for child in children:
                child.wait()


def _child(seat: Seat, data: Path, options: Sequence[str], secrets: Mapping[str, str]) -> NamespaceProcess:
    ports = ["--amqp-port", str(seat.amqp_port), "--http-port", str(seat.http_port)]
    ports += ["--tls-port", str(seat.tls_port)] if seat.tls_port is not None else []
    ports += ["--also-listen", seat.also_listen] if seat.also_listen else []
    return NamespaceProcess(seat.name, data, [*ports, *options], secrets)


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


def _print_ready(output: Output, namespaces: Sequence[RunningNamespace], data: Path, portal: str | None) -> None:
    if output.as_json:
        output.table((), [asdict(each) | {"portal": portal} for each in namespaces])
        sys.stdout.flush()
        return
    for each in namespaces:
        output.console.print(f"[bold]{each.name}[/bold]  administration {each.endpoint}")
        for line in each.ways_in:
            output.console.print(line, markup=False)
    output.console.print(next_steps(namespaces, data), markup=False)
    if portal is not None:
        output.console.print(f"[bold]portal[/bold]  {portal}  both namespaces in a browser")
    output.console.print("Ctrl-C stops both, and the portal." if portal is not None else "Ctrl-C stops both.")
