"""A primary and a secondary namespace as two processes of their own, watched until one ends or Ctrl-C.

Each is `twinbus serve --json`; its first line of output says that it is ready and where. Its log goes to a file.
"""

import json
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from twinbus.cli.failure import CommandFailed
from twinbus.cli.output import Output
from twinbus.cli.running import RunningNamespace, namespace_folder

LOG_NAME = "server.log"
STOP_WAIT_S = 40.0
FAULT_PREFIX = "twinbus: "


@dataclass(frozen=True, slots=True)
class Seat:
    name: str
    amqp_port: int
    http_port: int
    tls_port: int = 0


SEATS = (Seat("primary", 5672, 5300, 5671), Seat("secondary", 5673, 5301, 5674))

SNIPPET = """
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from twinbus.client.administration import administration_client

primary = "{primary}"
administration_client(primary).create_queue("orders", enable_partitioning=True)
with ServiceBusClient.from_connection_string(primary) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver:
            print(message)
            receiver.complete_message(message)
"""


class _Child:
    def __init__(self, seat: Seat, data: Path, options: Sequence[str], *, with_tls: bool) -> None:
        folder = namespace_folder(data, seat.name)
        folder.mkdir(parents=True, exist_ok=True)
        self.name = seat.name
        self.log = folder / LOG_NAME
        ports = ["--amqp-port", str(seat.amqp_port), "--http-port", str(seat.http_port)]
        ports += ["--tls-port", str(seat.tls_port)] if with_tls else []
        command = [sys.executable, "-m", "twinbus", "serve", seat.name, *ports, *options, "--json"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_ready(self) -> RunningNamespace:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.fail()
        return RunningNamespace(**json.loads(line))

    def fail(self) -> NoReturn:
        self.process.wait()
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith(FAULT_PREFIX)]
        reason = lines[-1].removeprefix(FAULT_PREFIX) if lines else f"see {self.log}"
        raise CommandFailed(f"The namespace '{self.name}' stopped: {reason}")

    def stop(self) -> None:
        """Ask it to end in good order; it has what it needs to lose nothing even if it does not."""
        if self.process.poll() is None:
            self.process.terminate()

    def wait(self) -> None:
        try:
            self.process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_two(
    data: Path, options: Sequence[str], output: Output, seats: Sequence[Seat] = SEATS, *, with_tls: bool = False
) -> None:
    """Returns after Ctrl-C or SIGTERM; raises CommandFailed if a namespace cannot be served or ends by itself."""
    children: list[_Child] = []
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        children += [_Child(seat, data, options, with_tls=with_tls) for seat in seats]
        _tell(output, [child.wait_ready() for child in children])
        _wait_for_end(children).fail()
    except KeyboardInterrupt:
        output.console.print("", end="")
    finally:
        for child in children:
            child.stop()
        for child in children:
            child.wait()
        signal.signal(signal.SIGTERM, before)


def _wait_for_end(children: Sequence[_Child]) -> _Child:
    """The first child that closes its output, which it does when it ends."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            assert child.process.stdout is not None
            selector.register(child.process.stdout, selectors.EVENT_READ, child)
        while True:
            for key, _ in selector.select():
                if not key.fileobj.read(1):  # type: ignore[union-attr]
                    ended: _Child = key.data
                    return ended


def _tell(output: Output, namespaces: Sequence[RunningNamespace]) -> None:
    if output.as_json:
        output.table((), [asdict(each) for each in namespaces])
        sys.stdout.flush()
        return
    for each in namespaces:
        output.console.print(f"[bold]{each.name}[/bold]  administration {each.endpoint}")
        for line in each.ways_in:
            output.console.print(line, markup=False)
    output.console.print(SNIPPET.format(primary=namespaces[0].connection_string), markup=False)
    output.console.print("Ctrl-C stops both.")
