"""Send a message, or an edited copy of one; many as JSON lines, up and down."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from starlette.responses import Response, StreamingResponse

from twinbus.errors import ArgumentError, MessagingError
from twinbus.model.durations import millis_of, parse_duration
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import el
from twinbus.portal.html.parts import (
    address,
    button,
    choice,
    field,
    form,
    notice,
    section,
    text_area,
    text_input,
)
from twinbus.portal.messages.browser import MessagePage, read_one, read_page
from twinbus.portal.messages.records import BASE64, SYSTEM, TEXT, VALUE, json_line, payload_of, record_of
from twinbus.portal.namespaces.entity_list import read_entity
from twinbus.portal.namespaces.entity_xml import EntityType
from twinbus.portal.screens.messages import wanted
from twinbus.portal.screens.tabs import entity_path, entity_tabs, trail
from twinbus.portal.visit import Visit, go_to
from twinbus.portal.work.loading import loading, read_lines

DOWNLOAD_MAX = 100_000
DOWNLOAD_PAGE = 250
BODY_TYPES = {TEXT: "text", BASE64: "base64", VALUE: "AMQP value, as JSON"}
NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


async def show(visit: Visit) -> Response:
    given: dict[str, str] = {}
    source, number = visit.query.get("source"), visit.number("number", 0, 0, 2**63 - 1)
    if source and number:
        given = _as_typed(record_of(await read_one(visit.bus, source, number)))
    return await _page(visit, given)


def _as_typed(record: Mapping[str, object]) -> dict[str, str]:
    typed = {name: str(record[name]) for name in (*SYSTEM, "body_type") if record.get(name) is not None}
    body = record.get("body")
    typed["body"] = (
        body
        if isinstance(body, str) and record.get("body_type") != VALUE
        else json.dumps(body)
        if body is not None
        else ""
    )
    for name in ("properties", "property_types"):
        if record.get(name):
            typed[name] = json.dumps(record[name], indent=2, ensure_ascii=False)
    if record.get("time_to_live_ms"):
        typed["time_to_live"] = f"{record['time_to_live_ms']}ms"
    return typed


async def _page(visit: Visit, given: Mapping[str, str], problem: str = "", sent: str = "") -> Response:
    path = entity_path(visit.path)
    is_topic = await _is_topic(visit, path)
    system = [field(_words(name), text_input(name, given.get(name, ""))) for name in SYSTEM]
    one = form(
        address(f"/ns/{visit.namespace}/send", path=path),
        field("Body", text_area("body", given.get("body", ""), 8)),
        el(
            "div",
            field("Body is", choice("body_type", BODY_TYPES, given.get("body_type", TEXT))),
            *system,
            field("Time to live", text_input("time_to_live", given.get("time_to_live", "")), "Such as 30s, 5m, 7d"),
            field(
                "Scheduled for",
                text_input("scheduled_at", given.get("scheduled_at", "")),
                "UTC, such as 2026-01-31T12:00",
            ),
            field("How many", text_input("count", given.get("count", "1"), type="number", min=1, max=1000)),
            class_="grid",
        ),
        field(
            "Application properties",
            text_area("properties", given.get("properties", ""), 4),
            'JSON, such as {"colour": "red", "n": 1}',
        ),
        field(
            "Types of properties",
            text_area("property_types", given.get("property_types", ""), 2),
            'JSON, for types that JSON does not have: {"n": "int"}',
        ),
        button("Send"),
        class_="stack",
    )
    many = form(
        address(f"/ns/{visit.namespace}/upload", path=path),
        field("File", el("input", type="file", name="file", accept=".jsonl,.ndjson,.json,.txt")),
        field("Or lines", text_area("lines", "", 4, placeholder='{"body": "hello", "message_id": "1"}')),
        button("Send all lines", "quiet"),
        class_="stack",
        enctype="multipart/form-data",
    )
    said = notice("bad", problem) if problem else notice("good", sent) if sent else None
    return page(
        visit.frame("entities"),
        f"Send to {path}",
        entity_tabs(visit, "send", is_topic=is_topic),
        said,
        section("A message", one),
        section(
            "JSON lines",
            el(
                "p",
                "One message per line, as 'Download JSON lines' writes them. All lines are read before the first is sent.",
            ),
            many,
        ),
        trail=trail(visit, path),
        status=400 if problem else 200,
    )


async def _is_topic(visit: Visit, path: str) -> bool:
    try:
        return (await read_entity(visit.bus, path)).type is EntityType.TOPIC
    except MessagingError:
        return False  # the key may send without reading settings


def _words(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


async def send(visit: Visit) -> Response:
    path, typed = visit.path, await visit.form()
    try:
        payload = payload_of(_record(typed))
        count = int(typed.get("count") or 1)
        if not 1 <= count <= 1000:
            raise ArgumentError("Send 1 to 1,000 at a time; for more upload JSON lines.")
        namespace = await visit.bus.amqp()
        sender = await namespace.sender(path)
        try:
            faults = [fault for fault in await sender.send([payload] * count) if fault is not None]
        finally:
            await sender.close()
        if faults:
            raise faults[0]
    except (MessagingError, ValueError) as wrong:
        return await _page(visit, typed, str(wrong))
    what = "1 message" if count == 1 else f"{count:,} messages"
    return await _page(visit, typed, sent=f"{what} sent to {path} at {datetime.now(UTC):%H:%M:%S} UTC.")


def _record(typed: Mapping[str, str]) -> dict[str, object]:
    record: dict[str, object] = {name: typed.get(name, "") for name in SYSTEM}
    kind = typed.get("body_type", TEXT)
    # Browsers send line breaks as two characters.
    body: object = typed.get("body", "").replace("\r\n", "\n")
    record["body_type"] = kind
    record["body"] = _json(typed, "body") if kind == VALUE else body
    for name in ("properties", "property_types"):
        record[name] = _json(typed, name)
    if typed.get("time_to_live", "").strip():
        record["time_to_live_ms"] = millis_of(parse_duration(typed["time_to_live"].strip()))
    record["scheduled_at"] = typed.get("scheduled_at", "").strip() or None
    return record


def _json(typed: Mapping[str, str], name: str) -> object:
    text = typed.get(name, "").strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise ArgumentError(f"{_words(name)}: this is not JSON: {wrong}.") from None


async def upload(visit: Visit) -> Response:
    path = visit.path
    sent = await visit.form()
    text = sent.get("file") or sent.get("lines", "")
    try:
        # Many lines take seconds, in which others are answered.
        messages = await asyncio.to_thread(read_lines, text)
    except ArgumentError as wrong:
        return await _page(visit, {}, str(wrong))
    back = address(f"/ns/{visit.namespace}/send", path=path)
    job = visit.services.jobs.start(
        f"Send {len(messages):,} messages to {path}", back, visit.visitor.token, loading(visit.bus, path, messages)
    )
    return go_to(f"/jobs/{job.id}")


async def download(visit: Visit) -> Response:
    """Messages as JSON lines, the same that the page shows, from its place on; or one of them."""
    path, bus = visit.path, visit.bus
    number = visit.number("number", 0, 0, 2**63 - 1)
    matches = wanted(visit.query.get("q", ""), visit.query.get("sql", ""), visit.query.get("state", ""))
    one = await read_one(bus, path, number) if number else None

    async def read(place: str) -> MessagePage:
        return await read_page(bus, path, place, matches=matches, count_max=DOWNLOAD_PAGE)

    # Before the answer begins: what is wrong with the request can be said on a page.
    first = await read(visit.query.get("after", "")) if one is None else None

    async def lines() -> AsyncIterator[str]:
        if one is not None:
            yield json_line(one) + "\n"
        found, count = first, 0
        while found is not None:
            for message in found.messages:
                yield json_line(message) + "\n"
            count += len(found.messages)
            ends = found.next_place is None or count >= DOWNLOAD_MAX
            found = None if ends else await read(found.next_place or "")

    name = NOT_IN_FILE_NAMES.sub("-", path).strip("-")
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


ROUTES = (
    ("GET", "/ns/{namespace}/send", show),
    ("POST", "/ns/{namespace}/send", send),
    ("POST", "/ns/{namespace}/upload", upload),
    ("GET", "/ns/{namespace}/download", download),
)
