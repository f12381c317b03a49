"""Which entities a capture is for: paths and patterns in, paths out, and a path as options of the source.

    orders    orders/$DeadLetterQueue    prices/Subscriptions/audit    'orders-*'    '*/Subscriptions/audit'

A path without wildcards is taken as it is. Patterns are matched against all queues and subscriptions of the namespace;
with `/$DeadLetterQueue` behind them they stand for the dead-letter sub-queues of what they match.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from twinbus.errors import ArgumentError, EntityNotFound
from twinbus.model.paths import SubQueue, dead_letter_path, parse_address, path_key, subscription_path

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

_WILDCARD = re.compile(r"[*?\[]")
_DEAD_LETTERS = re.compile(r"/\$deadletterqueue$", re.IGNORECASE)


def chosen_entities(
    wanted: Iterable[str], all_paths: Callable[[], Sequence[str]], *, is_each_matched: bool = True
) -> list[str]:
    """In the order of the request, each once. `all_paths` is asked if there is a pattern, and then once.

    Raises ArgumentError for an invalid path, and EntityNotFound for a pattern that matches nothing, unless that is allowed.
    """
    listed: Sequence[str] | None = None
    found: dict[str, str] = {}
    for text in wanted:
        if not _WILDCARD.search(text):
            path = str(parse_address(text))
            source_options(path)
            found.setdefault(path_key(path), path)
            continue
        listed = all_paths() if listed is None else listed
        pattern, suffix = _DEAD_LETTERS.sub("", text), dead_letter_path("") if _DEAD_LETTERS.search(text) else ""
        matching = [path for path in listed if fnmatchcase(path_key(path), path_key(pattern))]
        if not matching and is_each_matched:
            raise EntityNotFound(f"No queue or subscription matches '{pattern}'. See: twinbus queue list")
        found |= {path_key(path + suffix): path + suffix for path in matching}
    return list(found.values())


def all_paths(administration: "ServiceBusAdministrationClient") -> list[str]:
    """The queues and subscriptions of a namespace; needs the right to manage it."""
    paths = [queue.name for queue in administration.list_queues()]
    for topic in administration.list_topics():
        subscriptions = administration.list_subscriptions(topic.name)
        paths += [subscription_path(topic.name, subscription.name) for subscription in subscriptions]
    return paths


def source_options(path: str) -> dict[str, str]:
    """The options by which the source finds the entity. Raises ArgumentError for what it cannot read."""
    address = parse_address(path)
    if address.sub_queue is SubQueue.TRANSFER_DEAD_LETTER or address.is_management:
        raise ArgumentError(f"'{path}' is not a queue, a subscription or the dead-letter queue of one.")
    if address.subscription is None:
        options = {"queue": address.path}
    else:
        options = {"topic": address.path, "subscription": address.subscription}
    if address.sub_queue is SubQueue.DEAD_LETTER:
        options["subQueue"] = "deadLetter"
    return options
