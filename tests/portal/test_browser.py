"""The portal in a real Chromium: flows by mouse and keyboard, live parts, hostile content, both widths and themes, accessibility."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from tests.portal.accessibility import problems_of
from tests.portal.chromium import Chromium, Tab, find_chromium
from tests.portal.running_portal import RunningPortal, known
from tests.portal.test_access import key_of
from twinbus.clock import SystemClock
from twinbus.portal.screens import ROUTES
from twinbus.portal.settings import PortalSettings
from twinbus.server.tls import development_certificate
from twinbus.testing.local_namespace import LocalNamespace

pytestmark = [
    pytest.mark.skipif(
        find_chromium() is None, reason="there is no Chromium on this machine (apt-get install chromium)"
    ),
    pytest.mark.timeout(240),
]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><svg onload=alert(3)>"
HOSTILE_JSON = json.dumps({"html": HOSTILE, "</script><script>alert(4)//": 1})


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Tab]:
    opened = chromium.tab()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def filled(namespace: LocalNamespace) -> LocalNamespace:
    """Entities with hostile texts wherever texts can be: bodies, properties, ids, sessions, reasons, metadata, rules."""
    namespace.create_queue("orders", enable_partitioning=True, user_metadata=HOSTILE)
    namespace.create_queue("in-sessions", requires_session=True)
    namespace.create_topic("events", "audit")
    from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

    rule = SqlRuleFilter(f"colour = '{HOSTILE.replace(chr(39), chr(39) * 2)}'")
    namespace.administration.create_rule(
        "events", "audit", "hostile", filter=rule, action=SqlRuleAction("SET seen = '<b>'")
    )
    message = ServiceBusMessage(
        HOSTILE_JSON,
        message_id=HOSTILE,
        subject=HOSTILE,
        correlation_id=HOSTILE,
        application_properties={"n": 1, HOSTILE: HOSTILE},
    )
    with namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([message, ServiceBusMessage(HOSTILE)])
            sender.send_messages(
                [ServiceBusMessage(HOSTILE_JSON, message_id="dead", application_properties={"dead": True})]
            )
        with client.get_queue_sender("in-sessions") as sender:
            sender.send_messages(ServiceBusMessage("x", session_id=HOSTILE))
        with client.get_topic_sender("events") as sender:
            sender.send_messages(message)
        done = False
        while not done:
            with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
                for received in receiver.receive_messages(max_message_count=5, max_wait_time=5):
                    if received.message_id == "dead":
                        receiver.dead_letter_message(received, reason=HOSTILE, error_description=HOSTILE)
                        done = True
                    else:
                        receiver.abandon_message(received)
    return namespace


PAGES = [
    "/",
    "/ns/contoso/entities?open=events",
    "/ns/contoso/new?kind=queue",
    "/ns/contoso/entity?path=orders",
    "/ns/contoso/edit?path=orders",
    "/ns/contoso/rules?path=events/Subscriptions/audit&rule=hostile",
    "/ns/contoso/messages?path=orders",
    f"/ns/contoso/messages?path=orders&q={quote(HOSTILE)}&sql={quote(HOSTILE)}",
    "/ns/contoso/send?path=orders",
    "/ns/contoso/sessions?path=in-sessions",
    f"/ns/contoso/session?path=in-sessions&id={quote(HOSTILE)}",
    "/ns/contoso/held-back?path=orders",
    "/ns/contoso/dead-letters",
    "/ns/contoso/dead-letters?path=orders",
    "/ns/contoso/repair?path=orders/$DeadLetterQueue&action=SET%20n=2",
    f"/ns/contoso/repair?path=orders/$DeadLetterQueue&sql={quote(HOSTILE)}",
    "/ns/contoso/purge?path=orders",
    "/ns/contoso/stores",
    "/pairing",
    f"/bill?message={quote(HOSTILE)}&do=estimate&queues={quote(HOSTILE)}",
    "/jobs",
    f"/ns/contoso/messages?path={quote(HOSTILE)}",
    f"/ns/{quote(HOSTILE)}/entities",
]


NOT_PAGES = ("live", "events", "report", "download")


def test_every_screen_of_the_portal_is_looked_at() -> None:
    """In the list above, or by name in a test below."""
    seen = {urlsplit(page.replace("/contoso/", "/{namespace}/")).path for page in PAGES}
    shown = {path for method, path, _ in ROUTES if method == "GET" and not {*NOT_PAGES} & set(path.split("/"))}
    assert shown - seen == {"/ns/{namespace}/message", "/jobs/{job}"}


@pytest.mark.parametrize("page", PAGES)
def test_every_screen_is_safe_fits_both_widths_and_can_be_used_by_everyone(
    filled: LocalNamespace, portal: RunningPortal, tab: Tab, page: str
) -> None:
    """No script of a message runs, no other host is asked, nothing is wider than the screen, and no rule of use is broken."""
    tab.open(portal.address + page)
    assert (
        tab.run("document.querySelectorAll('main script, main img, main iframe, main [onerror], main [onload]').length")
        == 0
    )
    assert problems_of(tab) == []
    tab.dark(True)
    assert problems_of(tab, contrast_alone=True) == []
    tab.resize(390, 844)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert problems_of(tab) == []
    assert tab.dialogs == []
    assert tab.hosts == {portal.address.removeprefix("http://")}
    assert [text for text in tab.complaints if "favicon" not in text] == []


def test_a_message_is_shown_as_text_in_every_view(
    filled: LocalNamespace, portal: RunningPortal, tab: Tab, pages: httpx.Client
) -> None:
    lines = pages.get("/ns/contoso/download", params={"path": "orders"}).text.splitlines()
    numbers = [json.loads(line)["sequence_number"] for line in lines]
    for number in numbers:
        for view in ("", "json", "xml", "text", "hex"):
            tab.open(f"{portal.address}/ns/contoso/message?path=orders&number={number}&view={view}")
            assert "Body" in tab.text()
            assert tab.run("document.querySelectorAll('main img, main script, main svg').length") == 0
        assert problems_of(tab) == []
    tab.open(f"{portal.address}/ns/contoso/send?path=orders&source=orders&number={numbers[0]}")
    assert tab.run("document.querySelector('[name=message_id]').value") in (HOSTILE, "")
    assert tab.dialogs == []


def test_a_queue_is_created_a_message_sent_found_and_copied(
    namespace: LocalNamespace, portal: RunningPortal, tab: Tab
) -> None:
    tab.open(f"{portal.address}/ns/contoso/entities")
    tab.follow("a[href$='kind=queue']")
    tab.fill("[name=name]", "from-the-browser")
    tab.click("[name=enable_partitioning]")
    tab.fill("[name=max_size_mb]", "5120")
    assert "80 GB (16 fragments)" in tab.text()
    tab.follow("main button[type=submit]")
    assert "16 fragments" in tab.text()
    tab.follow("a[href*='/send?']")
    tab.fill("[name=body]", '{"colour": "red"}')
    tab.fill("[name=message_id]", "typed")
    tab.follow("form[action*='/send?'] button[type=submit]")
    assert "1 message sent" in tab.text()
    tab.follow("a[href*='/messages?']")
    tab.fill("[name=sql]", "sys.MessageId = 'typed'")
    tab.follow("form[role=search] button")
    assert "1 match" in tab.text()
    tab.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.click("[data-copy]")
    tab.wait("window.copied")
    assert json.loads(tab.run("window.copied"))[0]["Message id"] == "typed"
    tab.run("history.back()")
    tab.wait("!location.search.includes('sql')")


def test_a_rule_is_parsed_while_it_is_typed(filled: LocalNamespace, portal: RunningPortal, tab: Tab) -> None:
    tab.open(f"{portal.address}/ns/contoso/rules?path=events/Subscriptions/audit")
    tab.wait("document.getElementById('rule-result').innerText.includes('Valid')")
    tab.fill("[name=filter]", "n = = 1")
    tab.wait("document.querySelector('#rule-result .notice.bad')")
    tab.fill("[name=filter]", "n = 1")
    tab.fill("[name=action]", "SET n = 5")
    tab.wait("Array.from(document.querySelectorAll('#rule-result ins')).some((each) => each.innerText === '5')")
    assert tab.dialogs == []


def test_live_parts_follow_what_happens(namespace: LocalNamespace, portal: RunningPortal, tab: Tab) -> None:
    namespace.create_queue("followed", enable_partitioning=True)
    tab.open(f"{portal.address}/ns/contoso/entity?path=followed")
    assert tab.run("document.querySelectorAll('.heat li').length") == 16
    with namespace.client() as client, client.get_queue_sender("followed") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(7)])
    tab.wait("document.querySelector('.heat').innerText.includes('7 messages')")
    namespace.store_down(0)
    try:
        tab.wait("document.querySelectorAll('.heat-gone').length === 8")
    finally:
        namespace.store_up(0)


def test_dead_letters_are_chosen_previewed_and_repaired(
    namespace: LocalNamespace, portal: RunningPortal, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.portal.test_dead_letters import dead_letters

    path = dead_letters(namespace, "in-browser", "late", "wrong", "late")
    tab.open(f"{portal.address}/ns/contoso/dead-letters?path={path}")
    tab.click("tbody tr input[type=checkbox]")
    tab.fill("[name=action]", "SET attempt = 0")
    tab.follow("main form button[type=submit]")
    assert "attempt" in tab.text()
    tab.follow("form[action$='/repair'] button")
    tab.wait("document.getElementById('job').innerText.includes('2 messages moved')")
    assert problems_of(tab) == []
    assert namespace.message_count("in-browser") == 2


def test_a_key_is_typed_in_where_other_machines_can_connect(
    namespace: LocalNamespace, tab: Tab, tmp_path: Path
) -> None:
    files = development_certificate(tmp_path, [], SystemClock().now())
    settings = PortalSettings("0.0.0.0", 0, (), files.certificate, files.key)
    tab.call("Security.setIgnoreCertificateErrors", ignore=True)
    with RunningPortal([known(namespace)], settings) as portal:
        tab.open(f"{portal.address}/ns/contoso/stores")
        assert problems_of(tab) == []
        tab.fill("[name=namespace]", "contoso")
        tab.fill("[name=key]", HOSTILE)
        tab.follow("main button[type=submit]")
        assert "is unknown here, or the key is not one of its keys" in tab.text()
        assert problems_of(tab) == []
        tab.fill("[name=key]", key_of(namespace))
        tab.follow("main button[type=submit]")
        assert "Stores and faults" in tab.text()
        assert tab.run("location.pathname") == "/ns/contoso/stores"
    assert tab.dialogs == []


def test_the_keyboard_and_the_theme_switch(portal: RunningPortal, tab: Tab) -> None:
    tab.open(f"{portal.address}/ns/contoso/entities")
    tab.run("document.activeElement.blur()")
    tab.key("/")
    assert tab.run("document.activeElement.name") == "q"
    tab.run("document.activeElement.blur()")
    tab.run("window.leaving = true")
    tab.key("g")
    tab.key("o")
    tab.wait("!window.leaving && location.pathname === '/' && document.readyState === 'complete'")
    before = tab.run("getComputedStyle(document.body).backgroundColor")
    tab.click("[data-theme-switch]")
    tab.click("[data-theme-switch]")
    tab.wait(f"getComputedStyle(document.body).backgroundColor !== {json.dumps(before)}")
    tab.open(f"{portal.address}/jobs")
    assert tab.run("document.documentElement.dataset.theme") == "dark"
    tab.resize(390, 844)
    assert tab.run("getComputedStyle(document.getElementById('screens')).display") == "none"
    tab.click("[data-menu-switch]")
    assert tab.run("getComputedStyle(document.getElementById('screens')).display") == "block"


def test_pictures_can_be_taken(portal: RunningPortal, tab: Tab, tmp_path: Path) -> None:
    """`docs/record_portal.py` uses this for the pages."""
    tab.open(portal.address)
    tab.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
