"""Atom entries and feeds around descriptions.

Clients take names from both `<title>` and `<id>`, and the id from its path, whose fixed parts are `Subscriptions` and
`Rules` with capitals. Two links in a feed mean that the second leads to the next page, so there is never a second one
without a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from twinbus.clock import Millis
from twinbus.http.atom.xml_writer import attribute, leaf, node
from twinbus.model.iso8601 import write_time

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'


@dataclass(frozen=True, slots=True)
class AtomEntry:
    """One entity on its way out. `path` is relative to the namespace and `description` is XML."""

    path: str
    title: str
    created_at: Millis
    updated_at: Millis
    description: str


def write_entry(entry: AtomEntry, base_url: str) -> str:
    return DECLARATION + write_feed_entry(entry, base_url)


def write_feed(title: str, self_url: str, next_url: str | None, entries: Sequence[str], now: Millis) -> str:
    """`entries` as `write_feed_entry` writes them: there may be many, and they need not be written at once."""
    content = [
        leaf("title", title, attribute("type", "text")),
        leaf("id", self_url),
        leaf("updated", write_time(now)),
        node("link", "", attribute("rel", "self") + attribute("href", self_url)),
    ]
    if next_url is not None:
        content.append(node("link", "", attribute("rel", "next") + attribute("href", next_url)))
    return DECLARATION + node("feed", "".join([*content, *entries]), attribute("xmlns", ATOM))


def write_feed_entry(entry: AtomEntry, base_url: str) -> str:
    url = f"{base_url}/{quote(entry.path, safe='/$')}"
    content = [
        leaf("id", url),
        leaf("title", entry.title, attribute("type", "text")),
        leaf("published", write_time(entry.created_at)),
        leaf("updated", write_time(entry.updated_at)),
        node("author", leaf("name", "twinbus")),
        node("link", "", attribute("rel", "self") + attribute("href", url)),
        node("content", entry.description, attribute("type", "application/xml")),
    ]
    return node("entry", "".join(content), attribute("xmlns", ATOM))


def description_node(name: str, content: str) -> str:
    return node(name, content, attribute("xmlns", SERVICE_BUS) + attribute("xmlns:i", SCHEMA_INSTANCE))
