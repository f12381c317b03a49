"""Reads the properties of an entity from XML (`model.entity_properties`).

Returns the fields that the request sets, by the names of the description classes: the caller fills in what is omitted
or empty. Elements that report (counts, times) are ignored.
"""

from collections.abc import Callable
from typing import Any

from twinbus.errors import ArgumentError
from twinbus.http.atom.xml_reader import Element
from twinbus.model.descriptions import FORWARD_SCHEME_DEFAULT, EntityStatus
from twinbus.model.entity_properties import EntityKind, Kind, properties_of, scheme_field
from twinbus.model.iso8601 import read_duration

INTEGER_DIGITS_MAX = 18
TARGET_SCHEMES = (FORWARD_SCHEME_DEFAULT, "http", "https")


def read_integer(text: str, what: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > INTEGER_DIGITS_MAX:
        raise ArgumentError(f"{what} is '{text[:64]}'. Write a whole number.")
    return int(text)


def read_boolean(text: str, what: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ArgumentError(f"{what} is '{text[:64]}'. Use true or false.")
    return text.lower() in ("true", "1")


def read_status(text: str, what: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        choice = ", ".join(status.value for status in EntityStatus)
        raise ArgumentError(f"{what} is '{text[:64]}'. Use one of {choice}.") from None


def read_target(text: str, what: str) -> str:
    """A forwarding target: a bare path, or a URL whose path it is. That may be a URL once more: the Java client does not see
    that a target with `sb`, which it was shown, is one."""
    path = text
    while "://" in path:
        scheme, _, rest = path.partition("://")
        path = rest.partition("/")[2]
        if scheme not in TARGET_SCHEMES or not path.strip("/"):
            raise ArgumentError(
                f"{what} is '{text[:128]}', which does not name an entity. Write its path, or sb://HOST/PATH."
            )
    return path.strip("/")


def read_target_scheme(text: str) -> str:
    """With which a forwarding target that `read_target` takes is shown: that of the URL whose path names the entity."""
    before, separator, _ = text.rpartition("://")
    return before.rpartition("/")[2] if separator else FORWARD_SCHEME_DEFAULT


def _read_text(text: str, _: str) -> str:
    return text


READERS: dict[Kind, Callable[[str, str], Any]] = {
    Kind.FLAG: read_boolean,
    Kind.NUMBER: read_integer,
    Kind.DURATION: read_duration,
    Kind.TEXT: _read_text,
    Kind.STATUS: read_status,
    Kind.TARGET: read_target,
}


def read_fields(element: Element, kind: EntityKind) -> dict[str, Any]:
    """The fields that a description sets. Raises ArgumentError naming the element whose text makes no sense."""
    values: dict[str, Any] = {}
    for each in properties_of(kind):
        text = element.text_of(each.element)
        if text is not None:
            values[each.field] = READERS[each.kind](text, each.element)
            if each.kind is Kind.TARGET:
                values[scheme_field(each.field)] = read_target_scheme(text)
    return values
