"""The properties of entities as fields of a form, and what was typed as values of the official client.

`twinbus.model.entity_properties` is the table of them, so a new property appears here by itself.
"""

from collections.abc import Mapping
from typing import Any

from twinbus.errors import ArgumentError
from twinbus.model.descriptions import FRAGMENT_COUNT, EntityStatus
from twinbus.model.durations import parse_duration, short_duration
from twinbus.model.entity_properties import EntityKind, Kind, Property, Use, default_of, properties_of
from twinbus.model.iso8601 import read_duration
from twinbus.model.paths import strip_authority
from twinbus.portal.html.markup import Markup, el
from twinbus.portal.html.parts import check_box, choice, field, text_area, text_input
from twinbus.portal.namespaces.entity_xml import Entity

SIZE, PARTITIONING = "max_size_mb", "enable_partitioning"


def editable(kind: EntityKind, *, is_new: bool) -> list[Property]:
    """At creation everything but the status, later everything that can change. What nobody can send is not there."""
    return [
        each
        for each in properties_of(kind)
        if each.is_in_client and (each.kind is not Kind.STATUS if is_new else each.use is not Use.AT_CREATION)
    ]


def property_fields(kind: EntityKind, given: Mapping[str, str] | None, *, is_new: bool) -> Markup:
    """`given` are values as they were typed or read; None shows the defaults."""
    found = editable(kind, is_new=is_new)
    values = {each.field: _text(each, default_of(each)) for each in found} if given is None else given
    boxes = [_box(each, values) for each in found if each.kind is Kind.FLAG]
    others = [_field(each, values) for each in found if each.kind is not Kind.FLAG]
    has_size = any(each.field == SIZE for each in found)
    size = el("output", "", data_partition_size=True, class_="notice") if has_size else None
    return el(
        "div", el("fieldset", *boxes, class_="grid plain"), size, el("div", *others, class_="grid"), class_="stack"
    )


def _box(each: Property, values: Mapping[str, str]) -> Markup:
    label = "Enable partitioning" if each.field == PARTITIONING else label_of(each)
    hint = each.help.rstrip(".") or each.meaning
    shown = el("span", label, el("small", hint, class_="faint hint") if hint else None)
    return check_box(each.field, shown, is_checked=bool(values.get(each.field)))


def _field(each: Property, values: Mapping[str, str]) -> Markup:
    value = values.get(each.field, "")
    limits = each.limits(short_duration)
    hint = ". ".join(text for text in (each.help, limits[:1].upper() + limits[1:]) if text)
    if each.kind is Kind.STATUS:
        return field(label_of(each), choice(each.field, [status.value for status in EntityStatus], value), hint)
    if each.choices and each.least is None:
        return field(label_of(each), choice(each.field, [str(number) for number in each.choices], value), hint)
    if each.kind is Kind.TEXT:
        return field(label_of(each), text_area(each.field, value, 2, maxlength=each.most), hint)
    return field(label_of(each), text_input(each.field, value), hint)


def label_of(each: Property) -> str:
    words = each.field.replace("_", " ")
    return (words[:1].upper() + words[1:]).replace(" mb", ", MB").replace(" kb", ", KB")


def _text(each: Property, value: Any) -> str:
    if each.kind is Kind.FLAG:
        return "on" if value else ""
    if each.kind is Kind.DURATION:
        return short_duration(value)
    return "" if value is None else str(getattr(value, "value", value))


def edited_values(entity: Entity) -> dict[str, str]:
    """The properties of an entity as they would be typed."""
    from twinbus.portal.namespaces.entity_xml import DESCRIPTIONS

    values = {}
    for each in editable(DESCRIPTIONS[entity.type], is_new=False):
        text = entity.elements.get(each.element, "")
        if each.kind is Kind.FLAG:
            text = "on" if text.lower() == "true" else ""
        elif each.kind is Kind.DURATION and text:
            text = short_duration(read_duration(text, each.element))
        elif each.kind is Kind.TARGET:
            text = strip_authority(text)
        elif each.field == SIZE and entity.is_partitioned and text.isdigit():
            text = str(int(text) // FRAGMENT_COUNT)
        values[each.field] = text
    return values


def client_values(kind: EntityKind, sent: Mapping[str, str], *, is_new: bool) -> dict[str, Any]:
    """Keywords of the official client. Raises ArgumentError that names the field.

    An empty field is the default of the namespace at creation. Later it unsets what can be unset, and leaves the rest as it is.
    """
    values: dict[str, Any] = {}
    for each in editable(kind, is_new=is_new):
        text = sent.get(each.field, "").strip()
        if each.kind is Kind.FLAG:
            values[each.client_name] = text == "on"
        elif text:
            values[each.client_name] = _value(each, text)
        elif not is_new and each.kind in (Kind.TEXT, Kind.TARGET):
            values[each.client_name] = None
    return values


def _value(each: Property, text: str) -> Any:
    if each.kind is Kind.DURATION:
        try:
            return parse_duration(text)
        except ArgumentError as wrong:
            raise ArgumentError(f"{label_of(each)}: {wrong}") from None
    if each.kind is Kind.NUMBER:
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise ArgumentError(f"{label_of(each)}: '{text}' is not a whole number.")
        return int(text)
    return text
