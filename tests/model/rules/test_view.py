import pytest

from tests.model.rules.views import content_of
from twinbus.amqp.codec.sections import DataBody, Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Described, Long, Symbol, Timestamp, UInt
from twinbus.model.message import read_message
from twinbus.model.rules.values import TIMESPAN
from twinbus.model.rules.view import SYSTEM_PROPERTIES, FilterView


def read(name: str, view: FilterView) -> object:
    return SYSTEM_PROPERTIES[name].read(view)


def test_a_message_is_decoded_once_for_all_its_filters() -> None:
    view = FilterView(content_of({"A": 1}))
    assert view.user == {"a": 1}
    assert view.user is view.user
    assert view.properties is view.properties
    assert view.facts is view.facts


@pytest.mark.rule("A16.9")
def test_a_view_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        _ = FilterView(b"").body  # type: ignore[attr-defined]


def test_extended_values_of_a_message_are_understood() -> None:
    view = FilterView(content_of({"a": Described(TIMESPAN, Long(10))}))
    assert str(view.user["a"]) == "0:00:00.000001"


def test_system_properties_come_from_every_section_before_the_body() -> None:
    sections = Sections(
        header=Header(ttl=UInt(5_000)),
        message_annotations={
            Symbol("x-opt-partition-key"): "key",
            Symbol("x-opt-via-partition-key"): "via",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(9_000),
        },
        properties=MessageProperties(message_id="m", correlation_id=UInt(7)),
        body=DataBody((b"",)),
    )
    content = read_message(encode_sections(sections), lambda: "").content
    view = FilterView(content, sequence_number=3, enqueued_at=1_000)
    assert (read("partitionkey", view), read("viapartitionkey", view)) == ("key", "via")
    assert read("scheduledenqueuetimeutc", view) == Timestamp(9_000)
    assert str(read("timetolive", view)) == "0:00:05"
    assert (read("expiresatutc", view), read("enqueuedtimeutc", view)) == (6_000, 1_000)
    assert (read("messageid", view), read("correlationid", view), read("sequencenumber", view)) == ("m", "7", 3)


@pytest.mark.parametrize(
    "name", sorted(SYSTEM_PROPERTIES.keys() - {"messageid", "sequencenumber", "enqueuedtime", "enqueuedtimeutc"})
)
def test_a_system_property_that_is_not_set_is_null(name: str) -> None:
    assert read(name, FilterView(content_of())) is None
