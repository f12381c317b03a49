"""The tables of `docs/reference/properties.md`, made from the table of entity properties: a page in, the page out.

Run as a module with the path of the page, it replaces the two tables of the page by current ones.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from twinbus.model.descriptions import EntityStatus
from twinbus.model.entity_properties import (
    ENTITY_KINDS,
    OTHER_ELEMENTS,
    PROPERTIES,
    Element,
    Kind,
    Property,
    default_of,
)
from twinbus.model.iso8601 import NEVER_TEXT, write_duration

HEADINGS = {"Properties": PROPERTIES, "Other elements": OTHER_ELEMENTS}
PROPERTY_HEAD = ("Property", "Of", "twinbus", "Values", "Command line", "In files", "Meaning")
ELEMENT_HEAD = ("Element", "Of", "twinbus", "Meaning")
WORDS = dict(zip(ENTITY_KINDS, ("queues", "topics", "subscriptions"), strict=True))


def with_tables(page: str) -> str:
    """The page with a current table below each heading, in the place of the one that is there."""
    for heading, rows in HEADINGS.items():
        table = re.compile(rf"(^## {heading}\n.*?\n)\|.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
        text = _property_table() if rows is PROPERTIES else _element_table()
        page, count = table.subn(lambda found, text=text: found[1] + text, page)  # type: ignore[misc]
        assert count == 1, f"the page has {count} tables below '{heading}'"
    return page


def _property_table() -> str:
    return _table(
        PROPERTY_HEAD,
        [
            (f"`{each.element}`", _of(each), each.use.value, _values(each), _option(each), _keys(each), _meaning(each))
            for each in PROPERTIES
        ],
    )


def _element_table() -> str:
    return _table(
        ELEMENT_HEAD, [(f"`{each.element}`", _of(each), each.use.value, _meaning(each)) for each in OTHER_ELEMENTS]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def _of(each: Element) -> str:
    kinds = [kind for kind in ENTITY_KINDS if each.place(kind)]
    return "all" if len(kinds) == len(ENTITY_KINDS) else ", ".join(WORDS[kind] for kind in kinds)


def _values(each: Property) -> str:
    limits, default = each.limits(write_duration), _default(each)
    return f"{limits}; {default}" if limits and default else limits or default


def _default(each: Property) -> str:
    value = default_of(each)
    match each.kind:
        case Kind.DURATION:
            text = write_duration(value).replace(NEVER_TEXT, "never")
        case Kind.FLAG:
            text = "true" if value else "false"
        case Kind.STATUS:
            assert isinstance(value, EntityStatus)
            text = value.value
        case _:
            text = "" if value is None else str(value)
    return f"{text} by default" if text else ""


def _option(each: Property) -> str:
    return f"`{each.option}`" if each.option else ""


def _keys(each: Property) -> str:
    return ", ".join(f"`{key}`" for key in (each.field, each.short) if key)


def _meaning(each: Element) -> str:
    since = f"From `api-version={each.since}`" if each.since else ""
    return ". ".join(text for text in (each.meaning, since) if text)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_tables(file.read_text(encoding="utf-8")), encoding="utf-8")
