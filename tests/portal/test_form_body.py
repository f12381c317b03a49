"""What a form sent, whoever sent it."""

import contextlib
import time

import httpx
import pytest
from starlette.requests import Request

from twinbus.errors import ArgumentError
from twinbus.portal.form_body import FIELDS_MAX, read_form
from twinbus.portal.work.loading import read_lines

HEADER = b'Content-Disposition: form-data; name="%s"\r\n\r\n'


async def fields_of(body: bytes, kind: str = "multipart/form-data; boundary=b") -> list[tuple[str, str]]:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return await read_form(Request({"type": "http", "headers": [(b"content-type", kind.encode())]}, receive))


def sent_by_a_client(**files: bytes) -> tuple[bytes, str]:
    request = httpx.Request("POST", "http://localhost/", files={name: ("f", each) for name, each in files.items()})
    return request.read(), request.headers["content-type"]


async def test_a_file_arrives_as_it_is() -> None:
    lines = 'a\r\n\r\n--b\r\n{"body": "é"}\r\n'
    body, kind = sent_by_a_client(file=b"\xef\xbb\xbf" + lines.encode(), other=b"")
    assert await fields_of(body, kind) == [("file", lines), ("other", "")]


@pytest.mark.parametrize(
    "body",
    [
        (b"--b\r\n" + HEADER % b"a" + b"x\r\n") * 60_000,
        b"--b\r\n" + b"A: b\r\n" * 1_000_000,
        b"--b\r\n" + HEADER % b"a" + b"x\n" * 4_000_000,
        b"".join(b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" for _ in range(FIELDS_MAX)),
    ],
    ids=["fields", "headers", "lines", "nested"],
)
async def test_no_form_holds_the_portal_up(body: bytes) -> None:
    before = time.thread_time()
    with contextlib.suppress(ArgumentError):
        assert len(await fields_of(body)) <= FIELDS_MAX
    assert time.thread_time() - before < 1


@pytest.mark.parametrize("kind", ["multipart/form-data", 'multipart/form-data; boundary=""', "text/plain", ""])
async def test_what_is_not_a_form_is_refused(kind: str) -> None:
    with pytest.raises(ArgumentError, match="not a form"):
        await fields_of(b"--b\r\n", kind)


def test_a_line_of_json_ends_with_a_line_feed_alone() -> None:
    assert [number for number, _ in read_lines('{"body": "a\u2028b\x85c"}\r\n\n{"body": "d"}')] == [1, 3]


@pytest.mark.parametrize(
    "line",
    [
        '{"properties": {"n": 99999999999999999999999}}',
        '{"properties": {"n": -1}, "property_types": {"n": "ubyte"}}',
        '{"time_to_live_ms": 1000000000000000000000000}',
        '{"body": 99999999999999999999999, "body_type": "value"}',
    ],
)
def test_a_number_that_no_type_can_hold_is_named_by_its_line(line: str) -> None:
    with pytest.raises(ArgumentError, match=r"Line 1: .* Nothing was sent"):
        read_lines(line)
