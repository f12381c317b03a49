"""Paths and names of entities: text in, what it names out; the same rules for AMQP addresses and for HTTP.

[scheme://authority/] path [/Subscriptions/name] [/$Transfer] [/$DeadLetterQueue] [/$management]      or  $cbs

Names keep the case they were created with and are looked up without it. Whether something of that name exists
is not asked here.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from twinbus.errors import ArgumentError
from twinbus.model.wire_names import TRANSFER_SEGMENT

ENTITY_PATH_LENGTH_MAX = 260
SUBSCRIPTION_NAME_LENGTH_MAX = 50
CBS = "$cbs"

_MANAGEMENT = "$management"
_DEAD_LETTER = "$deadletterqueue"
_TRANSFER = "$transfer"
_SUBSCRIPTIONS = "subscriptions"

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")


class SubQueue(IntEnum):
    """The queues that an entity consists of. The transfer queue is the broker's own and has no address."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2
    TRANSFER = 3


_SUFFIXES = {
    SubQueue.MAIN: "",
    SubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}


@dataclass(frozen=True, slots=True)
class Address:
    """What a link or request is for. Names are as written; compare by `key`."""

    path: str  # of the queue or topic
    subscription: str | None = None
    sub_queue: SubQueue = SubQueue.MAIN
    is_management: bool = False

    @property
    def entity_path(self) -> str:
        """The queue, topic or subscription, without sub-queue and node."""
        return self.path if self.subscription is None else subscription_path(self.path, self.subscription)

    @property
    def key(self) -> str:
        return path_key(self.entity_path)

    def __str__(self) -> str:
        return self.entity_path + _SUFFIXES[self.sub_queue] + ("/$management" if self.is_management else "")


def subscription_path(topic: str, name: str) -> str:
    return f"{topic}/Subscriptions/{name}"


def dead_letter_path(entity_path: str) -> str:
    return entity_path + _SUFFIXES[SubQueue.DEAD_LETTER]


def path_key(path: str) -> str:
    """By what paths and names are compared."""
    return path.casefold()


def is_backlog_queue(path: str) -> bool:
    """Whether a queue of this path takes the messages of paired senders during an outage."""
    return f"/{TRANSFER_SEGMENT}/" in path_key(path)


def strip_authority(text: str) -> str:
    """The path of an address; some clients write a whole URL, with any scheme."""
    scheme, separator, rest = text.partition("://")
    if separator and "/" not in scheme:
        text = rest.partition("/")[2]
    return text.strip("/")


def parse_address(text: str) -> Address:
    """Never fails: an address that no rule fits is the path of an entity that will not be found."""
    segments = strip_authority(text).split("/")
    is_management = _drop(segments, _MANAGEMENT)
    sub_queue = SubQueue.MAIN
    if _drop(segments, _DEAD_LETTER):
        sub_queue = SubQueue.TRANSFER_DEAD_LETTER if _drop(segments, _TRANSFER) else SubQueue.DEAD_LETTER
    subscription = None
    if len(segments) > 2 and path_key(segments[-2]) == _SUBSCRIPTIONS:
        subscription = segments[-1]
        del segments[-2:]
    return Address("/".join(segments), subscription, sub_queue, is_management)


def check_entity_path(path: str, what: str) -> None:
    """ArgumentError unless a `what` (queue or topic) can be created under this path."""
    _check_length(path, ENTITY_PATH_LENGTH_MAX, what)
    segments = path.split("/")
    for segment in segments:
        if not segment:
            raise _not_a_name(path, what, "a slash has to stand between two segments")
        _check_segment(segment, path, what)
    # Such a path could not be told from a subscription's, or from a list of them.
    if any(path_key(segment) == _SUBSCRIPTIONS for segment in segments[1:]):
        raise _not_a_name(path, what, "'subscriptions' is not allowed after a slash. Use another word there")


def check_subscription_name(name: str, what: str) -> None:
    """ArgumentError unless a `what` (subscription or rule) can have this name."""
    _check_length(name, SUBSCRIPTION_NAME_LENGTH_MAX, what)
    _check_segment(name, name, what)


def _check_length(name: str, length_max: int, what: str) -> None:
    if not name:
        raise ArgumentError(f"The {what} has no name. Give it one.")
    if len(name) > length_max:
        raise ArgumentError(f"The name of the {what} has {len(name)} characters; at most {length_max} are allowed.")


def _check_segment(segment: str, name: str, what: str) -> None:
    wrong = _NOT_ALLOWED.search(segment)
    if wrong is not None:
        place = "" if segment == name else f" in the segment '{segment}'"
        problem = f"{wrong[0]!r}{place} is not allowed. Use letters, digits, '.', '-' and '_'"
        raise _not_a_name(name, what, problem)
    # Clients take these two out of a URL before they send it.
    if segment in (".", ".."):
        raise _not_a_name(name, what, f"no segment can be '{segment}'")


def _not_a_name(name: str, what: str, problem: str) -> ArgumentError:
    return ArgumentError(f"'{name}' is not a name for a {what}: {problem}.")


def _drop(segments: list[str], last: str) -> bool:
    if len(segments) > 1 and path_key(segments[-1]) == last:
        segments.pop()
        return True
    return False
