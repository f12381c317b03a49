"""Where a rehearsal takes place: two namespaces, and the faults that are possible there."""

import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client import namespace_http
from twinbus.client.administration import administration_client
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.trust import stock_client_options
from twinbus.errors import ArgumentError, MessagingError
from twinbus.rehearsal.script import Fault, FaultKind, Where

Faults = frozenset[FaultKind]


@dataclass(frozen=True, slots=True)
class Place:
    """One namespace. `endpoint` is its HTTP address, None if the official client can derive it."""

    connection_string: str = field(repr=False)
    endpoint: str | None

    def administration(self) -> ServiceBusAdministrationClient:
        return administration_client(self.connection_string, self.endpoint)

    def client(self, **options: Any) -> ServiceBusClient:
        reaching = stock_client_options(parse_connection_string(self.connection_string))
        return ServiceBusClient.from_connection_string(self.connection_string, **{**reaching, **options})


class Stage(Protocol):
    """`prefix` starts the paths of all entities of the rehearsal; `name` is the primary's name in its backlog queues."""

    prefix: str
    name: str
    possible: Faults

    @property
    def primary(self) -> Place: ...

    @property
    def secondary(self) -> Place: ...

    def begin(self, fault: Fault) -> None:
        """Returns once it is in force."""
        ...

    def mend(self, fault: Fault) -> None:
        """Returns once it is over."""
        ...


class GivenStage:
    """Two namespaces that exist already. Only faults that the caller allows are played; everything else stays as it was."""

    def __init__(self, primary: Place, secondary: Place, allowed: Sequence[FaultKind]) -> None:
        own = [kind.value for kind in allowed if kind.is_of_the_process]
        if own:
            raise ArgumentError(
                f"The rehearsal only does this to a namespace that it started: {', '.join(own)}. Stop yours by hand while "
                "the rehearsal runs, or rehearse on a temporary pair."
            )
        if {*allowed} - {FaultKind.COMMAND} and primary.endpoint is None:
            raise ArgumentError("Faults need the HTTP address of a twinbus primary: give --primary-endpoint.")
        self.primary, self.secondary = primary, secondary
        self.possible: Faults = frozenset(allowed)
        self.prefix = f"rehearsal-{uuid.uuid4().hex[:8]}-"
        self.name = self.prefix + "primary"

    def begin(self, fault: Fault) -> None:
        switch_on(self._at(fault), fault)

    def mend(self, fault: Fault) -> None:
        switch_off(self._at(fault), fault)

    def _at(self, fault: Fault) -> Place:
        return self.primary if fault.where is Where.PRIMARY else self.secondary


COMMAND_MAX_S = 120.0


def run_command(words: Sequence[str]) -> None:
    """Raises MessagingError if it fails: what a rehearsal shows would have another cause than it says."""
    if not words:
        return
    text = " ".join(words)
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=COMMAND_MAX_S)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise MessagingError(f"'{text}' cannot be run: {fault}") from None
    if done.returncode:
        raise MessagingError(f"'{text}' ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")


def switch_on(place: Place, fault: Fault) -> None:
    """Through the namespace's own requests for faults, or by the command that the script names."""
    if fault.kind is FaultKind.COMMAND:
        run_command(fault.begin)
        return
    if fault.kind is FaultKind.DISCONNECT:
        _post(place, "/$connections/disconnect")
        return
    action = "down" if fault.kind is FaultKind.STORE_DOWN else f"slow?ms={fault.slow_ms}"
    for index in _stores(place, fault):
        _post(place, f"/$stores/{index}/{action}")


def switch_off(place: Place, fault: Fault) -> None:
    if fault.kind is FaultKind.COMMAND:
        run_command(fault.end)
    elif not fault.kind.is_momentary:
        for index in _stores(place, fault):
            _post(place, f"/$stores/{index}/up")


def _stores(place: Place, fault: Fault) -> list[int]:
    if fault.store is not None:
        return [fault.store]
    return [each["index"] for each in _ask(place, "GET", "/$stores")]


def _post(place: Place, path: str) -> None:
    _ask(place, "POST", path)


def _ask(place: Place, method: str, path: str) -> list[dict[str, int]]:
    if place.endpoint is None:
        raise ArgumentError("A fault needs the HTTP address of its namespace: give --secondary-endpoint.")
    answer: list[dict[str, int]] = namespace_http.ask(place.connection_string, place.endpoint, method, path)
    return answer
