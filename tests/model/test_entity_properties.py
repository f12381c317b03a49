"""The table agrees with the descriptions, and is the only place that names properties."""

from dataclasses import fields

import pytest

from twinbus.model.durations import short_duration
from twinbus.model.entity_properties import (
    ENTITY_KINDS,
    PROPERTIES,
    EntityKind,
    Kind,
    Property,
    default_of,
    elements_of,
    properties_of,
    property_of,
)
from twinbus.model.iso8601 import write_duration

OTHER_FIELDS = {"topic", "name", "authorization_rules", "forward_to_scheme", "forward_dead_letters_to_scheme"}


@pytest.mark.parametrize("kind", ENTITY_KINDS)
def test_every_field_of_a_description_has_a_row(kind: EntityKind) -> None:
    assert {each.name for each in fields(kind)} - OTHER_FIELDS == {each.field for each in properties_of(kind)}


@pytest.mark.parametrize("kind", ENTITY_KINDS)
def test_every_element_of_an_entity_has_a_place_and_a_name_of_its_own(kind: EntityKind) -> None:
    elements = elements_of(kind)
    assert [each.place(kind) for each in elements] == list(range(1, len(elements) + 1))
    assert len({each.element for each in elements}) == len(elements)


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.field)
def test_a_default_is_the_same_everywhere_and_within_its_limits(row: Property) -> None:
    defaults = [each.default for kind in ENTITY_KINDS for each in fields(kind) if each.name == row.field]
    assert set(defaults) == {default_of(row)}
    assert row.allows(default_of(row))


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.field)
def test_a_row_with_an_option_says_what_it_is_for(row: Property) -> None:
    assert bool(row.option) == bool(row.help)
    assert not row.help.endswith(".")
    assert row.is_in_client or not row.option


def test_names_are_unique_within_what_uses_them() -> None:
    keys = [key for row in PROPERTIES for key in (row.field, row.short) if key]
    shown = [row.shown_name for row in PROPERTIES]
    options = [row.option for row in PROPERTIES if row.option]
    for names in (keys, shown, options):
        assert len(set(names)) == len(names)


def test_limits_are_words_for_errors_help_and_the_reference() -> None:
    assert property_of("lock_duration").limits(write_duration) == "PT5S to PT5M"
    assert property_of("lock_duration").limits(short_duration) == "5s to 5m"
    assert property_of("auto_delete_on_idle").limits(short_duration) == "at least 5m"
    assert property_of("max_size_mb").limits(short_duration) == "1024, 2048, 3072, 4096 or 5120"
    assert property_of("user_metadata").limits(short_duration) == "at most 1024 characters"
    assert property_of("enable_express").limits(short_duration) == ""
    assert "Disabled" in property_of("status").limits(short_duration)


def test_the_official_client_spells_an_element_in_small_letters() -> None:
    assert property_of("default_time_to_live").client_name == "default_message_time_to_live"


@pytest.mark.parametrize(("millis", "text"), [(1, "1ms"), (90_000, "90s"), (3_600_000, "1h"), (7 * 86_400_000, "7d")])
def test_a_short_duration_has_one_unit(millis: int, text: str) -> None:
    assert short_duration(millis) == text


def test_a_new_kind_is_read_and_written_everywhere() -> None:
    from twinbus.cli.entities.property_options import TYPES
    from twinbus.http.atom.entity_reader import READERS

    assert set(READERS) == set(TYPES) == set(Kind)


def test_a_property_is_shown_by_the_name_made_for_that_or_its_short_one() -> None:
    shown = {each.field: each.shown_name for each in PROPERTIES}
    assert shown["user_metadata"] == "metadata"
    assert shown["enable_partitioning"] == "partitioned"
