"""What two clients must be before they can be a pair, and which clients are paired already."""

import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from twinbus.pairing.errors import PairingError

_primaries: "weakref.WeakSet[Any]" = weakref.WeakSet()
_secondaries: "weakref.WeakSet[Any]" = weakref.WeakSet()

_NETWORK_OPTIONS = frozenset(
    {"transport_type", "http_proxy", "custom_endpoint_address", "connection_verify", "ssl_context"}
)


def check_same_kind(primary: object, secondary: object) -> None:
    if isinstance(primary, str) != isinstance(secondary, str):
        raise PairingError("Give two clients or two connection strings, not one of each.")


def check_colour(clients: Iterable[object], wanted: type, pairing: str) -> None:
    """The other colour's senders return what nobody awaits, or block the loop: messages would be gone without a word."""
    for client in clients:
        if not isinstance(client, wanted):
            raise PairingError(
                f"A {type(client).__module__}.{type(client).__name__} cannot be paired here. Give clients of "
                f"{wanted.__module__.partition('._')[0]}, or use {pairing}.pair_namespaces for yours."
            )


def check_hosts(primary: str, secondary: str) -> None:
    if primary.lower() == secondary.lower():
        raise PairingError(f"A namespace cannot be paired with itself: both are {primary}. Give another secondary.")


def check_reach(secondary: Any, backlog_queue: str) -> None:
    """A connection string of one entity is for no other. Better told now than in the first outage."""
    try:
        secondary.get_queue_sender(backlog_queue)
    except ValueError:
        raise PairingError(
            "The connection string of the secondary names an EntityPath, so it cannot reach the backlog queues. "
            "Give one of the namespace."
        ) from None


def enter_pair(primary: object, secondary: object) -> None:
    """Take both clients. A client is paired once, and a secondary is never a primary too."""
    if primary in _primaries:
        raise PairingError("This primary client is paired already. Close that pair first, or make another client.")
    if primary in _secondaries:
        raise PairingError("This client is the secondary of a pair, so it cannot be a primary. Make another client.")
    if secondary in _primaries:
        raise PairingError("This secondary is itself paired as a primary. Give a client that is not.")
    if secondary in _secondaries:
        raise PairingError(
            "This secondary client is part of another pair, which may close it. Make another client for the namespace."
        )
    _primaries.add(primary)
    _secondaries.add(secondary)


def leave_pair(primary: object, secondary: object) -> None:
    _primaries.discard(primary)
    _secondaries.discard(secondary)


def suits_bulk_client(primary: object, secondary: object, client_options: Mapping[str, Any]) -> bool:
    """The bulk client takes connection strings and goes the straight way; proxies and the like are the SDK's."""
    return isinstance(primary, str) and isinstance(secondary, str) and _NETWORK_OPTIONS.isdisjoint(client_options)


def credential_of(secondary: Any) -> Any:
    """The credential to manage the secondary with, where only its client was given."""
    credential = getattr(secondary, "_credential", None)
    if credential is None or ":" in secondary.fully_qualified_namespace:
        raise PairingError(
            "Management of this secondary cannot be reached through its client alone. Pass "
            "secondary_administration, for instance from twinbus.client.administration.administration_client."
        )
    return credential


def on_close(client: Any, tell: Callable[[], None]) -> Callable[[], None]:
    """Hear of it when the application closes its client, which has no event for that. Returns how to stop hearing."""
    close = client.close

    def close_and_tell() -> None:
        close()
        tell()

    return _replace_close(client, close_and_tell)


def on_close_async(client: Any, tell: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    close = client.close

    async def close_and_tell() -> None:
        await close()
        await tell()

    return _replace_close(client, close_and_tell)


def _replace_close(client: Any, replacement: Callable[[], Any]) -> Callable[[], None]:
    """On the one object, not on its class."""
    client.close = replacement

    def restore() -> None:
        del client.close

    return restore
