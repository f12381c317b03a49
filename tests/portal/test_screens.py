"""Every screen over HTTP, without a browser: what it shows and what its forms do."""

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from tests.cli.conftest import serve
from tests.portal.running_portal import RunningPortal
from twinbus.amqp.codec.sections import DataBody, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.types import Symbol, Timestamp
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names
from twinbus.portal.html.parts import table
from twinbus.portal.messages.records import payload_of
from twinbus.portal.namespaces.directory import KnownNamespace
from twinbus.testing.local_namespace import LocalNamespace

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
WAIT_S = 20.0


def send(namespace: LocalNamespace, path: str, *messages: ServiceBusMessage) -> None:
    with namespace.client() as client, client.get_queue_sender(path) as sender:
        for message in messages:
            sender.send_messages(message)


def text_of(answer: httpx.Response, status: int = 200) -> str:
    assert answer.status_code == status, answer.text
    return answer.text


def finished(pages: httpx.Client, answer: httpx.Response) -> str:
    """The page of the work that an answer leads to, when it has ended."""
    for _ in range(200):
        page = text_of(pages.get(answer.url.path))
        if ">running<" not in page:
            return page
        time.sleep(0.05)
    raise AssertionError("the work did not end")


def test_the_overview_shows_health_stores_and_sums(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("seen-in-overview")
    page = text_of(pages.get("/"))
    assert "healthy" in page
    assert "2 of 2 work" in page
    assert "contoso" in page


def test_entities_are_found_by_a_part_of_their_name(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("orders-north", enable_partitioning=True)
    namespace.create_topic("weather", "orders-south")
    page = text_of(pages.get("/ns/contoso/entities", params={"q": "ORDERS"}))
    assert "orders-north" in page
    assert "weather" in page, "the topic above a subscription that was found"
    assert "seen-in-overview" not in page
    opened = text_of(pages.get("/ns/contoso/entities", params={"open": "weather"}))
    assert "$Default" in opened


def test_a_queue_is_created_with_every_property_and_edited(namespace: LocalNamespace, pages: httpx.Client) -> None:
    form = text_of(pages.get("/ns/contoso/new", params={"kind": "queue"}))
    assert "Enable partitioning" in form
    assert "data-partition-size" in form
    sent = {
        "kind": "queue",
        "name": "made-here",
        "enable_partitioning": "on",
        "max_size_mb": "2048",
        "lock_duration": "30s",
    }
    page = text_of(pages.post("/ns/contoso/new", data=sent))
    assert "made-here" in page
    assert "32 GB in 16 fragments" in page
    created = namespace.administration.get_queue("made-here")
    assert (created.enable_partitioning, created.lock_duration) == (True, timedelta(seconds=30))
    shown = text_of(pages.get("/ns/contoso/edit", params={"path": "made-here"}))
    assert 'value="2048" selected' in shown
    edited = {
        "lock_duration": "1m",
        "max_size_mb": "1024",
        "max_delivery_count": "3",
        "status": "ReceiveDisabled",
        "user_metadata": HOSTILE,
    }
    text_of(pages.post("/ns/contoso/edit", params={"path": "made-here"}, data=edited))
    after = namespace.administration.get_queue("made-here")
    assert (after.max_delivery_count, after.lock_duration, after.status) == (3, timedelta(minutes=1), "ReceiveDisabled")
    assert after.user_metadata == HOSTILE
    assert after.max_size_in_megabytes == 16 * 1024


def test_what_is_wrong_with_a_form_is_said_and_what_was_typed_stays(pages: httpx.Client) -> None:
    sent = {"kind": "queue", "name": "half-made", "lock_duration": "soon"}
    page = text_of(pages.post("/ns/contoso/new", data=sent), 400)
    assert "is not a duration" in page
    assert 'value="half-made"' in page


def test_an_entity_is_deleted_only_if_its_name_is_typed(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("short-lived")
    refused = pages.post("/ns/contoso/delete", params={"path": "short-lived"}, data={"confirm": "short"})
    assert "Nothing was deleted" in text_of(refused, 400)
    text_of(pages.post("/ns/contoso/delete", params={"path": "short-lived"}, data={"confirm": "short-lived"}))
    assert "short-lived" not in [queue.name for queue in namespace.administration.list_queues()]


def test_rules_are_created_tried_and_deleted(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_topic("colours", "red")
    path = "colours/Subscriptions/red"
    with namespace.client() as client, client.get_topic_sender("colours") as sender:
        sender.send_messages(ServiceBusMessage("a", message_id="m1", application_properties={"colour": "red", "n": 1}))
        sender.send_messages(ServiceBusMessage("b", message_id="m2", application_properties={"colour": "blue", "n": 2}))
    where = {"path": path}
    wrong = text_of(pages.post("/ns/contoso/rules/check", params=where, data={"filter": "colour = = 1"}))
    assert "notice bad" in wrong
    tried = text_of(
        pages.post("/ns/contoso/rules/check", params=where, data={"filter": "colour = 'red'", "action": "SET n = 7"})
    )
    assert "1 of 2 sample messages match" in tried
    assert "<del>1</del> <ins>7</ins>" in tried
    text_of(
        pages.post("/ns/contoso/rules", params=where, data={"name": "reds", "filter": "colour = 'red'", "action": ""})
    )
    text_of(pages.post("/ns/contoso/rules/delete", params=where, data={"name": "$Default"}))
    rules = list(namespace.administration.list_rules("colours", "red"))
    assert [(rule.name, getattr(rule.filter, "sql_expression", None)) for rule in rules] == [("reds", "colour = 'red'")]
    again = text_of(pages.post("/ns/contoso/rules", params=where, data={"name": "reds", "filter": "TRUE"}), 400)
    assert "notice bad" in again


def test_a_queue_is_browsed_over_all_fragments_in_pages(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("many", enable_partitioning=True)
    with namespace.client() as client, client.get_queue_sender("many") as sender:
        sender.send_messages([ServiceBusMessage(f"body {n}", message_id=f"id-{n:03}") for n in range(120)])
        sender.send_messages([ServiceBusMessage("other", message_id="other")])
    seen: list[str] = []
    address = "/ns/contoso/messages?path=many"
    for _ in range(5):
        page = text_of(pages.get(address))
        seen += re.findall(r"<td>(id-\d+|other)</td>", page)
        onward = re.search(r'<a href="([^"]+)" class="button small" data-next>', page)
        if onward is None:
            break
        address = onward[1].replace("&amp;", "&")
    assert sorted(seen) == sorted([*(f"id-{n:03}" for n in range(120)), "other"])
    assert "Go to:" in page


def test_messages_are_searched_by_text_property_and_filter(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("searched")
    send(
        namespace,
        "searched",
        ServiceBusMessage('{"price": 12}', message_id="a1", application_properties={"colour": "red"}),
        ServiceBusMessage("plain", message_id="b2", application_properties={"colour": "blue"}),
    )
    for query, found in (
        ({"q": "PRICE"}, ["a1"]),
        ({"q": "blue"}, ["b2"]),
        ({"sql": "colour = 'red'"}, ["a1"]),
        ({"state": "deferred"}, []),
    ):
        page = text_of(pages.get("/ns/contoso/messages", params={"path": "searched", **query}))
        assert re.findall(r"<td>(a1|b2)</td>", page) == found, query
    wrong = text_of(pages.get("/ns/contoso/messages", params={"path": "searched", "sql": "colour ="}), 400)
    assert "notice bad" in wrong


@pytest.mark.parametrize(
    ("body", "view", "shown"),
    [
        ('{"a": [1]}', "json", "&quot;a&quot;: ["),
        ("<a><b/></a>", "xml", "  &lt;b/&gt;"),
        ("grüße", "text", "grüße"),
        (b"\xff\x00", "hex", "ff 00"),
        (HOSTILE, "text", "&lt;script&gt;"),
    ],
)
def test_a_body_is_shown_as_what_it_is_and_always_as_text(
    namespace: LocalNamespace, pages: httpx.Client, body: str | bytes, view: str, shown: str
) -> None:
    name = f"bodies-{view}-{len(body)}"
    namespace.create_queue(name)
    send(namespace, name, ServiceBusMessage(body))
    page = text_of(pages.get("/ns/contoso/message", params={"path": name, "number": 1}))
    assert shown in page
    assert f'aria-current="page">{view}</a>' in page
    assert "<script>alert" not in page


def test_a_message_is_sent_edited_and_sent_again(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("typed")
    sent = {
        "body": "hello",
        "body_type": "text",
        "message_id": "m-1",
        "properties": '{"n": 1, "s": "x"}',
        "property_types": '{"n": "int"}',
        "time_to_live": "1h",
    }
    assert "1 message sent" in text_of(pages.post("/ns/contoso/send", params={"path": "typed"}, data=sent))
    form = text_of(pages.get("/ns/contoso/send", params={"path": "typed", "source": "typed", "number": 1}))
    assert 'value="m-1"' in form
    assert "&quot;n&quot;: 1" in form
    with namespace.client() as client, client.get_queue_receiver("typed", max_wait_time=5) as receiver:
        (received,) = receiver.receive_messages()
        assert (str(received), received.message_id, received.time_to_live) == ("hello", "m-1", timedelta(hours=1))
        assert received.application_properties == {b"n": 1, b"s": b"x"}
    wrong = text_of(
        pages.post("/ns/contoso/send", params={"path": "typed"}, data={"body": "x", "properties": "{"}), 400
    )
    assert "this is not JSON" in wrong


def test_messages_go_down_and_up_as_json_lines_unchanged(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("from")
    namespace.create_queue("to")
    properties: Any = {"n": 1, "f": 0.1, "t": datetime(2026, 1, 2, tzinfo=UTC), "ok": True, "s": "grüße"}
    send(
        namespace,
        "from",
        ServiceBusMessage("one", message_id="1", application_properties=properties),
        ServiceBusMessage(b"\xff", message_id="2"),
    )
    assert "could not be found" in text_of(pages.get("/ns/contoso/download", params={"path": "nowhere"}), 404)
    lines = text_of(pages.get("/ns/contoso/download", params={"path": "from"}))
    assert [json.loads(line)["message_id"] for line in lines.splitlines()] == ["1", "2"]
    answer = pages.post("/ns/contoso/upload", params={"path": "to"}, files={"file": ("m.jsonl", lines.encode())})
    assert "2 messages sent to to" in finished(pages, answer)
    with namespace.client() as client, client.get_queue_receiver("to", max_wait_time=5) as receiver:
        first, second = receiver.receive_messages(max_message_count=2, max_wait_time=5)
    with namespace.client() as client, client.get_queue_receiver("from", max_wait_time=5) as receiver:
        original = receiver.peek_messages(2)
    assert [each.application_properties for each in (first, second)] == [
        each.application_properties for each in original
    ]
    assert [b"".join(each.body) for each in (first, second)] == [b"one", b"\xff"]


ODD_MESSAGES = {
    "a map with keys that are no texts": Sections(body=ValueBody({b"k": 1, UUID(int=7): [b"v"]})),
    "a time beyond the calendar": Sections(application_properties={"t": Timestamp(2**62)}, body=DataBody([b"x"])),
    "due beyond the calendar": Sections(
        message_annotations={Symbol(wire_names.SCHEDULED_ENQUEUE_TIME): Timestamp(2**62)}, body=DataBody([b"x"])
    ),
    "a reason of bytes": Sections(
        application_properties={wire_names.DEAD_LETTER_REASON: b"\xff"}, body=DataBody([b"x"])
    ),
}
DAMAGED_BODY = encode_sections(Sections()) + b"\x00\x53\x77\xa1\x01\xff"
"""A text that is not UTF-8. A namespace does not read bodies."""


def test_a_message_with_odd_values_spoils_no_page_and_no_download(
    namespace: LocalNamespace, pages: httpx.Client
) -> None:
    namespace.create_queue("odd")

    async def fill() -> None:
        async with await Namespace.connect(namespace.connection_string) as connected:
            sender = await connected.sender("odd")
            payloads = [*map(encode_sections, ODD_MESSAGES.values()), DAMAGED_BODY, encode_message("after them")]
            assert await sender.send(payloads) == [None] * len(payloads)

    asyncio.run(fill())
    for query in ({}, {"q": "after"}, {"sql": "t IS NULL"}):
        assert "after them" in text_of(pages.get("/ns/contoso/messages", params={"path": "odd", **query}))
    assert "9999-12-31" in text_of(pages.get("/ns/contoso/held-back", params={"path": "odd"}))
    for number in range(1, len(ODD_MESSAGES) + 2):
        text_of(pages.get("/ns/contoso/message", params={"path": "odd", "number": number}))
    lines = [
        json.loads(line) for line in text_of(pages.get("/ns/contoso/download", params={"path": "odd"})).splitlines()
    ]
    assert [line["sequence_number"] for line in lines if "cannot_be_read" in line] == [len(ODD_MESSAGES) + 1]
    assert lines[-1]["body"] == "after them"
    far = next(line for line in lines if "t" in line.get("properties", {}))
    again = ReceivedMessage(payload_of(far))
    assert again.application_properties == {"t": Timestamp(2**62)}
    assert isinstance(again.application_properties["t"], Timestamp)


def test_nothing_is_sent_if_a_line_is_wrong(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("untouched")
    page = pages.post(
        "/ns/contoso/upload",
        params={"path": "untouched"},
        data={"lines": '{"body": "x"}\nnot json'},
        files={"file": ("", b"")},
    )
    assert "Line 2: This line is not JSON. Nothing was sent." in text_of(page, 400)
    assert namespace.message_count("untouched") == 0


def test_a_purge_needs_the_count_and_removes_everything(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("full", enable_partitioning=True)
    send(namespace, "full", *(ServiceBusMessage(str(n)) for n in range(7)))
    assert "Type 7 to confirm" in text_of(pages.get("/ns/contoso/purge", params={"path": "full"}))
    refused = pages.post("/ns/contoso/purge", params={"path": "full"}, data={"count": "7", "confirm": "6"})
    assert "Nothing was removed" in text_of(refused, 400)
    answer = pages.post("/ns/contoso/purge", params={"path": "full"}, data={"count": "7", "confirm": "7"})
    assert "7 messages removed" in finished(pages, answer)
    assert namespace.message_count("full") == 0


def test_the_state_of_a_session_is_viewed_and_edited_and_no_message_is_delivered_for_it(
    namespace: LocalNamespace, pages: httpx.Client
) -> None:
    namespace.create_queue("in-sessions", requires_session=True)
    send(namespace, "in-sessions", ServiceBusMessage("x", session_id="s-1"))
    page = text_of(pages.get("/ns/contoso/sessions", params={"path": "in-sessions"}))
    assert "s-1" in page
    where = {"path": "in-sessions", "id": "s-1"}
    assert "No state is set" in text_of(pages.get("/ns/contoso/session", params=where))
    text_of(pages.post("/ns/contoso/session", params=where, data={"state": "half done"}))
    assert "half done" in text_of(pages.get("/ns/contoso/session", params=where))
    with (
        namespace.client() as client,
        client.get_queue_receiver("in-sessions", session_id="s-1", max_wait_time=5) as receiver,
    ):
        assert receiver.session.get_state() == b"half done"
        (message,) = receiver.receive_messages()
        assert message.delivery_count == 0
        held = text_of(pages.get("/ns/contoso/session", params=where))
        assert "only be read while no other receiver holds the session" in held


def test_scheduled_messages_are_rescheduled_and_cancelled(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("later")
    due = datetime.now(UTC) + timedelta(hours=1)
    send(namespace, "later", ServiceBusMessage("x", message_id="due", scheduled_enqueue_time_utc=due))
    page = text_of(pages.get("/ns/contoso/held-back", params={"path": "later"}))
    number = re.search(r'name="number" value="(\d+)"', page)
    assert number is not None
    later = {"do": "reschedule", "at": "2030-01-02T03:04", "number": number[1]}
    page = text_of(pages.post("/ns/contoso/scheduled", params={"path": "later"}, data=later))
    assert "2030-01-02 03:04:00" in page
    assert page.count('name="number"') == 1
    number = re.search(r'name="number" value="(\d+)"', page)
    assert number is not None
    page = text_of(
        pages.post("/ns/contoso/scheduled", params={"path": "later"}, data={"do": "cancel", "number": number[1]})
    )
    assert 'name="number"' not in page


def test_deferred_messages_are_made_active_again(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("aside")
    send(namespace, "aside", ServiceBusMessage("x", message_id="deferred"))
    with namespace.client() as client, client.get_queue_receiver("aside", max_wait_time=5) as receiver:
        receiver.defer_message(receiver.receive_messages()[0])
    page = text_of(pages.get("/ns/contoso/held-back", params={"path": "aside"}))
    number = re.search(r'name="number" value="(\d+)"', page)
    assert number is not None
    text_of(pages.post("/ns/contoso/deferred", params={"path": "aside"}, data={"do": "chosen", "number": number[1]}))
    assert namespace.message_count("aside") == 1


def test_what_is_missing_among_numbers_stands_where_they_do() -> None:
    shown = table(("Name", "Size"), [("a", None), ("b", 3)], "Sizes")
    assert shown.count('class="number"') == 3, "the head, what is missing, and the number"


def test_an_entity_shows_its_sixteen_fragments(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("in-parts", enable_partitioning=True)
    send(namespace, "in-parts", ServiceBusMessage("x", partition_key="a"))
    page = text_of(pages.get("/ns/contoso/entity", params={"path": "in-parts"}))
    assert "16 fragments" in page
    assert page.count('<li class="heat-') == 16
    assert page.count("1 message<") == 1
    assert len(re.findall(r"Served by [^<]+, process \d+\.<", page)) == 1
    assert page.count(">store 0<") == page.count(">store 1<") == 8
    assert "Max size, MB" in page, "as in the form that changes it"


def test_each_fragment_says_which_process_serves_it_if_there_are_several(tmp_path: Path) -> None:
    with serve(tmp_path, "contoso", "--processes", "2", "--queue", "in-parts:partitioned") as served:
        ready = served.ready
        endpoint = f"http://127.0.0.1:{ready['http_port']}"
        known = KnownNamespace("contoso", ready["connection_string"], endpoint, (), is_local=True)
        with RunningPortal([known]) as portal, portal.client() as pages:
            page = text_of(pages.get("/ns/contoso/entity", params={"path": "in-parts"}))
            listed = text_of(pages.get("/ns/contoso/stores"))
    in_cells = re.findall(r"store (\d)</span><span>([^<]+, process \d+)</span>", page)
    assert len(in_cells) == 16
    assert len({node for _, node in in_cells}) == len(set(in_cells)) == 2
    assert all(node in listed for _, node in in_cells)


def test_what_is_not_there_is_said_in_a_sentence(pages: httpx.Client) -> None:
    assert "could not be found" in text_of(pages.get("/ns/contoso/messages", params={"path": "nowhere"}), 404)
    assert "has nothing at" in text_of(pages.get("/ns/contoso/entity", params={"path": "nowhere"}), 404)
    assert "does not know the namespace" in text_of(pages.get("/ns/other/entities"), 404)
    assert "There is no such page" in text_of(pages.get("/nothing"), 404)
