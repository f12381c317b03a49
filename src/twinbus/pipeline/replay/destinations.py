"""Where replayed messages go: the path that a message was in, and perhaps an answer for all, in; a path out."""

from collections.abc import Iterable

from twinbus.errors import ArgumentError
from twinbus.model.paths import check_entity_path, parse_address


def destinations_of(paths: Iterable[str], override: str | None) -> dict[str, str]:
    """By path: itself, the queue of a dead-letter queue, or the override. Raises ArgumentError.

    A subscription needs --to: what is sent to its topic would reach all other subscriptions again.
    """
    if override is not None:
        check_entity_path(override, "queue")
        return dict.fromkeys(paths, override)
    found = {}
    for path in paths:
        address = parse_address(path)
        if address.subscription is not None:
            raise ArgumentError(
                f"'{path}' belongs to a subscription: a message sent to '{address.path}' again would reach all of its "
                f"subscriptions. Choose a destination with --to, which may be the topic."
            )
        found[path] = address.path
    return found
