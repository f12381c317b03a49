"""Whether what is sent to an entity may be dropped as a duplicate: an administration client and a path in, the answer out.

An entity that forwards hands its messages to one that may detect duplicates too, and so do the subscriptions of a topic: so
all that a message can reach is looked at. None of it can change later, except by deleting the entity.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from twinbus.model.paths import path_key

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient


def detects_duplicates(administration: "ServiceBusAdministrationClient", path: str) -> bool | None:
    """None where the namespace does not answer, or does not let this key ask, and where the entity cannot be found."""
    from azure.core.exceptions import AzureError

    waiting, seen = [path], {path_key(path)}
    try:
        while waiting:
            is_detecting, following = _look(administration, waiting.pop())
            if is_detecting:
                return True
            for target in following:
                if path_key(target) not in seen:
                    seen.add(path_key(target))
                    waiting.append(target)
    except AzureError:
        return None
    return False


def _look(administration: "ServiceBusAdministrationClient", path: str) -> tuple[bool, list[str]]:
    """Raises AzureError."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        queue = administration.get_queue(path)
    except (ResourceNotFoundError, AttributeError):
        # The latter is what the official client makes of the description of a topic where it asked for a queue.
        topic = administration.get_topic(path)
        return bool(topic.requires_duplicate_detection), list(_targets_of_topic(administration, path))
    return bool(queue.requires_duplicate_detection), _path_of(queue.forward_to)


def _targets_of_topic(administration: "ServiceBusAdministrationClient", path: str) -> Iterator[str]:
    for subscription in administration.list_subscriptions(path):
        yield from _path_of(subscription.forward_to)


def _path_of(target: str | None) -> list[str]:
    """The service returns a target as the address of the entity, whatever it was given as."""
    if not target:
        return []
    return [unquote(urlsplit(target).path).strip("/") if "://" in target else target]
