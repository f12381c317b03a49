"""The links to backlog queues: a few for each queue, shared by all senders of a pair and opened ahead of need.

Senders of their own would each open a link of its own in the first seconds of an outage, all at once and in the time of a
send. Here a link is opened when the first failure of the primary is seen, and another one beside it while callers wait.
"""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from twinbus.pairing.stock.line import Line

LINKS_PER_QUEUE_MAX = 4
WORTH_ANOTHER_LINK = 4
"""So many callers at one link, the one being served included, make another link worth its opening."""


class SharedLink(Protocol):
    @property
    def line(self) -> Line: ...


Link = TypeVar("Link", bound=SharedLink)


class BacklogLinks(Generic[Link]):
    """By index of the queue. `open_link` makes one; it connects when it is first used."""

    def __init__(self, open_link: Callable[[int], Link]) -> None:
        self._open_link = open_link
        self._links: dict[int, list[Link]] = {}
        self._mutex = threading.Lock()

    def at(self, index: int) -> Link:
        """The link with the shortest line."""
        with self._mutex:
            links = self._links.setdefault(index, [])
            shortest = min(links, key=lambda each: each.line.length, default=None)
            if shortest is None or (shortest.line.length >= WORTH_ANOTHER_LINK and len(links) < LINKS_PER_QUEUE_MAX):
                shortest = self._open_link(index)
                links.append(shortest)
            return shortest

    def missing(self, indexes: set[int]) -> list[tuple[int, Link]]:
        """New links, for the caller to open, to those of the queues that have none."""
        with self._mutex:
            made = [(index, self._open_link(index)) for index in sorted(indexes) if not self._links.get(index)]
            for index, link in made:
                self._links[index] = [link]
        return made

    def all(self) -> list[Link]:
        with self._mutex:
            return [link for links in self._links.values() for link in links]

    def take_all(self) -> list[Link]:
        with self._mutex:
            links, self._links = [link for links in self._links.values() for link in links], {}
        return links
