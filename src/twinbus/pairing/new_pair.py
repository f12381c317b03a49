"""Two clients on their way to be a pair: what they must be, which clients are paired already, and what brings messages home.

`pair_namespaces` for threads and for asyncio use it and add only their own calls.
"""

import contextlib
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from azure.servicebus import ServiceBusClient

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.trust import stock_client_options
from twinbus.clock import Clock
from twinbus.pairing.backlog.provision import Steps, check_two, provision
from twinbus.pairing.backlog.queues import backlog_queue_path, primary_name
from twinbus.pairing.errors import PairingError
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_life import RunningSyphon
from twinbus.pairing.syphon.tasks import BulkSyphon, SyphonThread
from twinbus.pairing.syphon.threads import ThreadedSyphon

Client = TypeVar("Client")

_primaries: "weakref.WeakSet[Any]" = weakref.WeakSet()
_secondaries: "weakref.WeakSet[Any]" = weakref.WeakSet()

_NETWORK_OPTIONS = frozenset(
    {"transport_type", "http_proxy", "custom_endpoint_address", "connection_verify", "ssl_context"}
)


class NewPair(Generic[Client]):
    """Raises PairingError where the two cannot be paired. `other_pairing` is the package for clients of the other kind."""

    def __init__(
        self,
        primary: Client | str,
        secondary: Client | str,
        options: SendAvailabilityPairedNamespaceOptions | None,
        client_options: Mapping[str, Any],
        client_class: type[Client],
        other_pairing: str,
    ) -> None:
        self.options = options or SendAvailabilityPairedNamespaceOptions()
        self.owns_clients = isinstance(primary, str)
        self._given = primary, secondary
        self._client_options = client_options
        _check_same_kind(primary, secondary)
        self.primary, self.secondary = (_client(each, client_class, client_options) for each in self._given)
        _check_class((self.primary, self.secondary), client_class, other_pairing)
        _check_places(_place(primary, self.primary), _place(secondary, self.secondary))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Both clients are taken, and given back if anything inside fails."""
        enter_pair(self.primary, self.secondary)
        try:
            yield
        except BaseException:
            leave_pair(self.primary, self.secondary)
            raise

    def may_be_one(self) -> bool:
        """Whether both names lead to the same address: localhost and 127.0.0.1, or a CNAME. Asks the name service, and
        blocks meanwhile."""
        first, second = (
            _addresses(_place(*each)) for each in zip(self._given, (self.primary, self.secondary), strict=True)
        )
        return not first.isdisjoint(second)

    def provision(self, may_be_one: bool = False) -> Steps:
        """The requests to the secondary that make sure that it is another one and that the backlog queues exist."""
        yield from check_two(may_be_one)
        name = self.options.primary_name or primary_name(_host(self.primary))
        check_reach(self.secondary, backlog_queue_path(name, 0))
        return (yield from provision(name, self.options.backlog_queue_count))

    @property
    def reach(self) -> str | None:
        """The primary's connection string, where the bulk client can use it: proxies and the like need the SDK."""
        primary = self._given[0]
        return primary if isinstance(primary, str) and _NETWORK_OPTIONS.isdisjoint(self._client_options) else None

    def syphon(
        self,
        queues: Iterable[str],
        clock: Clock,
        blocking_clients: Callable[[], tuple[ServiceBusClient, ServiceBusClient]],
    ) -> RunningSyphon | None:
        """The syphon of the pair, if it is to have one: over the bulk client where that can connect, otherwise over the SDK."""
        if not self.options.enable_syphon:
            return None
        secondary = self._given[1]
        if self.reach is not None and isinstance(secondary, str):
            return SyphonThread(BulkSyphon(self.reach, secondary, queues, self.options, clock))
        return ThreadedSyphon(*blocking_clients(), queues, self.options, clock)


def check_reach(secondary: Any, backlog_queue: str) -> None:
    """A connection string for one entity cannot be used for others. Better to fail now than in the first outage."""
    try:
        secondary.get_queue_sender(backlog_queue)
    except ValueError:
        raise PairingError(
            "The connection string of the secondary names an EntityPath, so it cannot reach the backlog queues. "
            "Give one of the namespace."
        ) from None


def enter_pair(primary: object, secondary: object) -> None:
    """Take both clients. A client can be in one pair only, and a secondary is never also a primary."""
    if primary in _primaries:
        raise PairingError("This primary client is paired already. Close that pair first, or create another client.")
    if primary in _secondaries:
        raise PairingError("This client is the secondary of a pair, so it cannot be a primary. Create another client.")
    if secondary in _primaries:
        raise PairingError("This secondary is itself paired as a primary. Give a client that is not.")
    if secondary in _secondaries:
        raise PairingError(
            "This secondary client is part of another pair, which may close it. Create another client for the namespace."
        )
    _primaries.add(primary)
    _secondaries.add(secondary)


def leave_pair(primary: object, secondary: object) -> None:
    _primaries.discard(primary)
    _secondaries.discard(secondary)


def credential_of(secondary: Any) -> Any:
    """The credential for managing the secondary, where only its client was given."""
    credential = getattr(secondary, "_credential", None)
    if not has_tokens(credential) or ":" in _host(secondary):
        raise PairingError(
            "Management of this secondary cannot be reached through its client alone. Pass "
            "secondary_administration, for instance from twinbus.client.administration.administration_client."
        )
    return credential


def has_tokens(credential: object) -> bool:
    """False for AzureNamedKeyCredential and AzureSasCredential, which only the SDK's messaging clients take."""
    return hasattr(credential, "get_token")


def _check_same_kind(primary: object, secondary: object) -> None:
    if isinstance(primary, str) != isinstance(secondary, str):
        raise PairingError("Give two clients or two connection strings, not one of each.")


def _check_class(clients: Iterable[object], wanted: type, other_pairing: str) -> None:
    """A client of the other kind returns what nobody awaits, or blocks the loop: messages would be lost silently."""
    for client in clients:
        if hasattr(client, "backlog_queues"):
            raise PairingError("This client is a pair already. Give the two clients that are to be paired.")
        if not isinstance(client, wanted):
            raise PairingError(
                f"A {type(client).__module__}.{type(client).__name__} cannot be paired here. Give clients of "
                f"{wanted.__module__.partition('._')[0]}, or use {other_pairing}.pair_namespaces for yours."
            )


def _check_places(primary: str, secondary: str) -> None:
    if primary.lower() == secondary.lower():
        raise PairingError(f"A namespace cannot be paired with itself: both are {primary}. Give another secondary.")


def _place(given: object, client: Any) -> str:
    """Over TLS the client itself knows no port, and one machine may have two namespaces."""
    if not isinstance(given, str):
        return _host(client)
    parsed = parse_connection_string(given)
    return f"{parsed.host}:{parsed.port}" if parsed.is_port_given else parsed.host


def _addresses(place: str) -> set[tuple[str, int]]:
    """Without a name service there is nothing to compare, and pairing must not fail for it."""
    host, _, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "0")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(str(address[4][0]), int(port)) for address in found}


def _client(given: Client | str, client_class: Any, client_options: Mapping[str, Any]) -> Client:
    if not isinstance(given, str):
        return given
    options = {**stock_client_options(parse_connection_string(given)), **client_options}
    if "connection_verify" in client_options:
        # The caller says whom to trust; the client would take the context instead.
        options.pop("ssl_context", None)
    created: Client = client_class.from_connection_string(given, **options)
    return created


def _host(client: Any) -> str:
    host: str = client.fully_qualified_namespace
    return host
