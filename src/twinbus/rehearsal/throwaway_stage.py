"""A temporary pair for one rehearsal: two processes with their data in a temporary folder, on free ports."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom

from twinbus.errors import MessagingError
from twinbus.rehearsal.interruption import uninterrupted
from twinbus.rehearsal.namespace_process import NamespaceProcess
from twinbus.rehearsal.script import STORE_COUNT, Fault, FaultKind, Where
from twinbus.rehearsal.stage import Faults, Place, switch_off, switch_on

# Below the ports that systems use for outgoing connections: a client that keeps trying the port of a killed primary could
# otherwise get that very port, connect to itself, and keep the primary from coming back.
PORTS = range(10_000, 15_900)
PORT_TRIES_MAX = 200


class ThrowAwayStage:
    """Every fault is possible here. `throw_away_stage` creates it."""

    possible: Faults = frozenset(FaultKind)
    prefix = ""
    name = "primary"

    def __init__(self, folder: Path) -> None:
        ports = free_ports(4)
        self._primary = _process("primary", folder, ports[:2])
        self._secondary = _process("secondary", folder, ports[2:])
        self.primary = self.secondary = Place("", None)

    def start(self) -> None:
        for process in (self._primary, self._secondary):
            process.start()
        self.primary, self.secondary = (_place(process) for process in (self._primary, self._secondary))

    def begin(self, fault: Fault) -> None:
        process, place = self._at(fault)
        match fault.kind:
            case FaultKind.KILL:
                process.kill()
            case FaultKind.HANG:
                process.hang()
            case _:
                switch_on(place, fault)

    def mend(self, fault: Fault) -> None:
        process, place = self._at(fault)
        match fault.kind:
            case FaultKind.KILL:
                process.start()
                process.wait_ready()
            case FaultKind.HANG:
                process.go_on()
            case _:
                switch_off(place, fault)

    def _at(self, fault: Fault) -> tuple[NamespaceProcess, Place]:
        if fault.where is Where.PRIMARY:
            return self._primary, self.primary
        return self._secondary, self.secondary

    def stop(self) -> None:
        processes = (self._primary, self._secondary)
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def throw_away_stage() -> Iterator[ThrowAwayStage]:
    """A started stage. Whatever happens inside, no process and no folder is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="twinbus-rehearsal-"))
    stage: ThrowAwayStage | None = None
    try:
        stage = ThrowAwayStage(folder)
        stage.start()
        yield stage
    finally:
        with uninterrupted():
            if stage is not None:
                stage.stop()
            shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """For as long as this process lives no other rehearsal takes them, even while nobody listens there: a namespace needs a while
    to start, and one that was killed wants its port back."""
    random = SystemRandom()
    found: list[int] = []
    for _ in range(PORT_TRIES_MAX):
        port = random.choice(PORTS)
        if _is_free(port) and _claim(port):
            found.append(port)
        if len(found) == count:
            return found
    raise MessagingError(
        f"There are no {count} free ports between {PORTS[0]} and {PORTS[-1]}. Stop the programs that use them."
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_claims: dict[int, socket.socket] = {}


def _claim(port: int) -> bool:
    """By the port of the same number for datagrams, which nobody here listens to and the system frees when the process ends."""
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True


def _process(name: str, folder: Path, ports: Sequence[int]) -> NamespaceProcess:
    listening = ["--amqp-port", str(ports[0]), "--http-port", str(ports[1])]
    return NamespaceProcess(name, folder, [*listening, "--stores", str(STORE_COUNT), "--meter"])


def _place(process: NamespaceProcess) -> Place:
    ready = process.wait_ready()
    return Place(ready["connection_string"], f"http://{ready['host']}:{ready['http_port']}")
