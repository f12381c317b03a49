"""Property values in headers and JSON, both ways."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.types import Symbol, Timestamp
from twinbus.errors import ArgumentError
from twinbus.http.messaging.header_values import (
    read_header_value,
    read_json,
    read_json_value,
    read_time,
    read_time_span,
    write_header_value,
    write_http_time,
)

AT = 784_111_777_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"High"', "High"),
        ("High", "High"),
        ('"a \\"b\\""', 'a "b"'),
        ('"C:\\x"', "C:\\x"),
        ('"', '"'),
        ("", ""),
        ("12,ABC", "12,ABC"),
        ("12", 12),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", 9223372036854775808.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("true", True),
        ("True", "True"),
        ('"true"', "true"),
        ('"12"', "12"),
        ('"Sun, 06 Nov 1994 08:49:37 GMT"', Timestamp(AT)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ('"Sun, 99 Nov 1994 08:49:37 GMT"', "Sun, 99 Nov 1994 08:49:37 GMT"),
    ],
)
def test_a_header_is_read_as_what_it_looks_like(text: str, value: Any) -> None:
    found = read_header_value(text)
    assert (type(found), found) == (type(value), value)


@given(st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read_again(value: Any) -> None:
    text = write_header_value(value)
    assert text.isascii()
    assert text.isprintable()
    assert read_header_value(text) == value


def test_values_without_a_form_of_their_own_become_texts() -> None:
    assert write_header_value(Timestamp(AT)) == '"Sun, 06 Nov 1994 08:49:37 GMT"'
    assert write_header_value(UUID(int=1)) == '"00000000-0000-0000-0000-000000000001"'
    assert write_header_value(float("nan")) == '"nan"'
    assert write_header_value(Symbol("s")) == '"s"'
    assert write_header_value(b"\x01\xff") == '"01ff"'
    assert write_header_value(None) == "null"


def test_times_are_read_in_both_forms() -> None:
    for text in (
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
        "1994-11-06T08:49:37",
        "1994-11-06T09:49:37+01:00",
    ):
        assert read_time(text, "it") == AT
    with pytest.raises(ArgumentError, match="it is not a time"):
        read_time("tomorrow", "it")


def test_a_time_beyond_the_calendar_is_its_last_second() -> None:
    assert write_http_time(2**62) == "Fri, 31 Dec 9999 23:59:59 GMT"


def test_spans_of_time_are_read_as_dot_net_writes_them() -> None:
    assert read_time_span("0.00:00:40", "it") == 40_000
    assert read_time_span("7.01:02:03.5", "it") == ((7 * 24 + 1) * 3600 + 123) * 1000 + 500
    with pytest.raises(ArgumentError):
        read_time_span("40", "it")


@pytest.mark.parametrize("text", ["{", "NaN", "[" * 100_000, "9" * 5_000, b"\xff"])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ArgumentError):
        read_json(text, "it")


@pytest.mark.parametrize("value", [2**63, "\ud800", [], {}])
def test_a_property_that_no_message_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError):
        read_json_value(value, "it")
