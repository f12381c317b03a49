import contextlib
from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.types import Long, Timestamp
from twinbus.clock import NEVER
from twinbus.errors import ArgumentError, ForwardTargetMissing, OperationInProgress, QuotaExceeded, ServerBusy
from twinbus.http.atom.envelopes import AtomEntry, write_entry, write_feed, write_feed_entry
from twinbus.http.atom.rule_xml import read_rule_description, write_rule_description
from twinbus.http.atom.xml_reader import parse_xml
from twinbus.http.refusals import sub_code, write_error
from twinbus.management.typed_values import read_typed, write_typed
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.iso8601 import read_duration, write_duration, write_time
from twinbus.model.rules.values import understood

XML_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), min_size=1, max_size=20).filter(
    lambda text: text == text.strip()
)
VALUES = st.one_of(
    XML_TEXT,
    st.booleans(),
    st.uuids(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(allow_nan=False),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.integers(0, 10**14).map(lambda ms: timedelta(milliseconds=ms)),
)
PAIRS = st.dictionaries(XML_TEXT, VALUES, max_size=4).map(lambda pairs: tuple(pairs.items()))
RULES = st.builds(
    RuleDescription,
    XML_TEXT,
    st.one_of(
        st.just(TrueFilter()),
        st.just(FalseFilter()),
        st.builds(SqlFilter, XML_TEXT, PAIRS),
        st.builds(CorrelationFilter, label=XML_TEXT, reply_to=st.none() | XML_TEXT, properties=PAIRS),
    ),
    st.none() | st.builds(SqlAction, XML_TEXT, PAIRS),
    st.just(0),
)


@given(RULES)
def test_every_rule_comes_back_from_xml_as_it_was(rule: RuleDescription) -> None:
    assert read_rule_description(rule.name, parse_xml(write_rule_description(rule).encode())) == rule


def test_blanks_around_what_a_correlation_filter_compares_with_count() -> None:
    rule = RuleDescription("r", CorrelationFilter(label=" a ", to="b\n", properties=((" p ", " v "),)), created_at=0)
    assert read_rule_description(rule.name, parse_xml(write_rule_description(rule).encode())) == rule


@given(VALUES)
def test_every_value_keeps_its_type(value: object) -> None:
    back = read_typed(*write_typed(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("long", "3"),
        ("int", "3"),
        ("dateTime", "2026-11-17T04:05:06.1234567Z"),
        ("dateTime", "2026-11-17T04:05:06.1234567"),
        ("dateTime", "2026-11-17T04:05:06.1234567+02:00"),
        ("duration", "PT0.1234567S"),
        ("duration", "-P1DT0.1234S"),
        ("duration", "P1D"),
    ],
)
def test_every_text_of_a_value_comes_back_as_it_was_sent(type_name: str, text: str) -> None:
    assert write_typed(read_typed(type_name, text)) == (type_name, text)


def test_filters_compute_with_all_of_a_time_that_they_can() -> None:
    moment = read_typed("dateTime", "1970-01-01T00:00:01.2345678Z")
    assert understood(moment) == Timestamp(1_234)
    span = understood(read_typed("duration", "-PT1.2345678S"))
    assert (type(span), span) == (timedelta, -timedelta(seconds=1, microseconds=234_567))


def test_blanks_around_a_sql_expression_are_kept() -> None:
    rule = RuleDescription("r", SqlFilter(" a = 1 "), SqlAction("SET b = 2 "), created_at=0)
    assert read_rule_description(rule.name, parse_xml(write_rule_description(rule).encode())) == rule


@given(st.integers(0, NEVER))
def test_every_duration_comes_back(duration: int) -> None:
    assert read_duration(write_duration(duration), "x") == (duration if duration < 922_337_203_685_477 else NEVER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1M", 60_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P1W", 604_800_000),
        ("PT0S", 0),
        ("P10675199DT2H48M5.4775807S", NEVER),
        ("P999999999D", NEVER),
    ],
)
def test_durations_are_read_as_the_sdks_write_them(text: str, expected: int) -> None:
    assert read_duration(text, "x") == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1M", "-PT1S", "P1Y", "PT1X", "P1.5D", "PT1M ", "P" + "9" * 40 + "D"]
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="x is"):
        read_duration(text, "x")


def test_times_are_written_in_utc_with_a_z() -> None:
    assert write_time(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_the_type_of_a_value_has_a_prefix_of_four_characters() -> None:
    xml = write_rule_description(RuleDescription("r", CorrelationFilter(properties=(("n", 5),))))
    assert ' i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">5</Value>' in xml
    assert '<Action i:type="EmptyRuleAction"/>' in xml


def test_a_feed_has_a_second_link_only_if_there_is_another_page() -> None:
    entry = AtomEntry("t/Subscriptions/s", "s", 0, 0, "<x/>")
    written = [write_feed_entry(entry, "http://h")]
    whole = parse_xml(write_feed("Subscriptions", "http://h/t", None, written, 0).encode())
    assert [child.name for child in whole.children].count("link") == 1
    part = parse_xml(write_feed("Subscriptions", "http://h/t", "http://h/t?$skip=1&$top=1", written, 0).encode())
    links = [child for child in part.children if child.name == "link"]
    assert links[1].attributes == {"rel": "next", "href": "http://h/t?$skip=1&$top=1"}
    assert part.child("entry").text_of("id") == "http://h/t/Subscriptions/s"  # type: ignore[union-attr]


def test_what_xml_cannot_hold_is_replaced_and_the_rest_is_escaped() -> None:
    entry = AtomEntry("a", "a\x00<&\ud800", 0, 0, "")
    assert parse_xml(write_entry(entry, "http://h").encode()).text_of("title") == "a\ufffd<&\ufffd"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArgumentError("x"), 40000),
        (QuotaExceeded("x"), 40300),
        (ForwardTargetMissing("x"), 40400),
        (OperationInProgress("x"), 40901),
        (ServerBusy("x"), 50300),
    ],
)
@pytest.mark.rule("A20.2")
def test_errors_carry_the_sub_codes_of_the_service(error: ArgumentError, code: int) -> None:
    assert sub_code(error) == code
    xml = parse_xml(write_error(error, error.status, "id", 0).encode())
    assert xml.text_of("Code") == str(error.status)
    assert (xml.text_of("Detail") or "").startswith(f"SubCode={code}. x TrackingId:id")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<a>",
        b"<a></b>",
        b"no xml",
        b"\xff\xfe\x00",
        b"<a>&undefined;</a>",
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><a>&z;</a>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b"<a>" * 33 + b"</a>" * 33,
        b"<a>" + b"<b/>" * 10_001 + b"</a>",
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        b'<?xml version="1.0" encoding="utf-7"?><a/>',
        b'<x:a xmlns:x="u"><y:b/></x:a>',
    ],
)
def test_xml_that_is_malformed_or_dangerous_is_refused(body: bytes) -> None:
    with pytest.raises(ArgumentError):
        parse_xml(body)


@given(st.binary(max_size=64) | st.text(alphabet="<>/a&;!D[]\"'= ?x:", max_size=64).map(str.encode))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    with contextlib.suppress(ArgumentError):
        parse_xml(body)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [("int", "x"), ("int", "9" * 40), ("long", str(2**63)), ("double", "one"), ("boolean", "yes"), ("dateTime", "today"),
     ("duration", "1 day"), ("guid", "x"), ("anything", "x")],
)  # fmt: skip
def test_a_value_that_does_not_fit_its_type_is_refused(type_name: str, text: str) -> None:
    with pytest.raises(ArgumentError):
        read_typed(type_name, text)
