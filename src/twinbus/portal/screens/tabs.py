"""What pages of one entity share: where they lead, and to which of its queues."""

from collections.abc import Sequence

from twinbus.model.paths import SubQueue, dead_letter_path, parse_address
from twinbus.portal.html.markup import Markup, el
from twinbus.portal.html.parts import address, link
from twinbus.portal.visit import Visit


def trail(visit: Visit, path: str) -> Sequence[Markup]:
    entity = parse_address(path)
    found = [link(visit.namespace, f"/ns/{visit.namespace}/entities")]
    if entity.subscription is not None:
        found.append(link(entity.path, f"/ns/{visit.namespace}/entity", path=entity.path))
    return found


def entity_path(path: str) -> str:
    """The queue, topic or subscription that a path leads to, without the sub-queue."""
    return parse_address(path).entity_path


def entity_tabs(visit: Visit, here: str, *, is_topic: bool, has_sessions: bool | None = None) -> Markup:
    """`here` is the last part of this page's address."""
    path = entity_path(visit.path)
    known = visit.services.lists.last(visit.bus, path)
    if has_sessions is None and known is not None:
        has_sessions = known.has_sessions
    dead = dead_letter_path(path)
    places = [("Summary", "entity", path)]
    if is_topic:
        places.append(("Send", "send", path))
    else:
        places += [("Messages", "messages", path), ("Dead letters", "dead-letters", dead)]
        places.append(("Scheduled and deferred", "held-back", path))
        if has_sessions is not False:
            places.append(("Sessions", "sessions", path))
        if parse_address(path).subscription is not None:
            places.append(("Rules", "rules", path))
        else:
            places.append(("Send", "send", path))
    shown = [
        el(
            "a",
            text,
            href=address(f"/ns/{visit.namespace}/{screen}", path=where),
            aria_current="page" if screen == here else None,
        )
        for text, screen, where in places
    ]
    return el("nav", *shown, class_="tabs", aria_label="Pages of this entity")


def is_dead_letter(path: str) -> bool:
    return parse_address(path).sub_queue is not SubQueue.MAIN
