"""The administration API as raw HTTP: statuses, headers, and what is refused."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from tests.http.administration.conftest import token
from tests.management.conftest import NOON, SteppingClock
from tests.management.memory_runtime import EMPTY, MemoryRuntime
from twinbus.broker.replies import Holdings, QueueCounts
from twinbus.http.administration.administration_api import AdministrationApi
from twinbus.http.atom.xml_reader import Element, parse_xml
from twinbus.management.access_control import AccessControl
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import DAY, QueueDescription, Right
from twinbus.model.iso8601 import write_time

VERSION = "api-version=2024-05"
NAMESPACE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def entry(kind: str, content: str = "") -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind} xmlns="{NAMESPACE}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{content}</{kind}>'
        "</content></entry>"
    )


def message_size(kind: str, size_kb: int) -> str:
    return entry(kind, f"<MaxMessageSizeInKilobytes>{size_kb}</MaxMessageSizeInKilobytes>")


@pytest.fixture
def client(api: AdministrationApi) -> TestClient:
    return TestClient(api, headers={"authorization": token()})


def put(client: TestClient, path: str, body: str, **headers: str) -> Any:
    separator = "&" if "?" in path else "?"
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.put(f"{path}{separator}{VERSION}", content=body, headers=sent)


def described(response: Any) -> Element:
    content = parse_xml(response.content).child("content")
    assert content is not None
    return content.children[0]


def sub_code(response: Any) -> int:
    found = re.search(r"SubCode=(\d+)\. \S", parse_xml(response.content).text_of("Detail") or "")
    assert found is not None
    return int(found[1])


def test_a_queue_is_created_read_updated_and_deleted(client: TestClient) -> None:
    made = put(client, "/Orders%2Fin", entry("QueueDescription"))
    assert (made.status_code, described(made).name) == (201, "QueueDescription")
    read = client.get(f"/orders/IN?{VERSION}")
    assert read.status_code == 200
    assert parse_xml(read.content).text_of("title") == "Orders/in"
    changed = put(client, "/orders/in", entry("QueueDescription", "<LockDuration>PT2M</LockDuration>"), if_match="*")
    assert (changed.status_code, described(changed).text_of("LockDuration")) == (200, "PT2M")
    assert client.delete("/orders/in").status_code == 200
    assert client.get("/orders/in").status_code == 404


@pytest.mark.parametrize("kind", ["QueueDescription", "TopicDescription"])
def test_an_entity_has_the_message_size_it_was_created_or_updated_with(client: TestClient, kind: str) -> None:
    def shown(response: Any) -> str | None:
        assert response.status_code in (200, 201)
        return described(response).text_of("MaxMessageSizeInKilobytes")

    assert shown(put(client, "/usual", entry(kind))) == "256"
    assert shown(put(client, "/large", message_size(kind, 100_000))) == "100000"
    for size in (102_400, 256, 1_025):
        assert shown(put(client, "/large", message_size(kind, size), if_match="*")) == str(size)


def test_a_client_of_an_older_version_neither_sees_nor_changes_the_message_size(client: TestClient) -> None:
    old = "api-version=2017-04"
    refused = client.put(f"/other?{old}", content=message_size("QueueDescription", 12_345))
    assert (refused.status_code, "api-version=2021-05" in refused.text) == (400, True)
    put(client, "/large", message_size("QueueDescription", 12_345))
    changed = entry("QueueDescription", "<LockDuration>PT2M</LockDuration>")
    answer = client.put(f"/large?{old}", content=changed, headers={"if-match": "*"})
    assert (answer.status_code, described(answer).text_of("MaxMessageSizeInKilobytes")) == (200, None)
    assert described(client.get(f"/large?{VERSION}")).text_of("MaxMessageSizeInKilobytes") == "12345"


def test_a_name_may_start_and_end_with_any_character_that_it_can_hold(client: TestClient) -> None:
    for kind, path in (("TopicDescription", "/MassTransit/Fault--Ns/Msg--"), ("QueueDescription", "/_a.b./-c")):
        assert put(client, path, entry(kind)).status_code == 201
        assert parse_xml(client.get(path).content).text_of("title") == path[1:]
    assert (
        put(client, "/MassTransit/Fault--Ns/Msg--/subscriptions/-s.", entry("SubscriptionDescription")).status_code
        == 201
    )


def test_a_name_is_refused_with_the_rule_it_breaks(client: TestClient) -> None:
    refused = put(client, "/orders/a%20b", entry("QueueDescription"))
    assert (refused.status_code, sub_code(refused)) == (400, 40000)
    assert "' ' in the segment 'a b' is not allowed" in (parse_xml(refused.content).text_of("Detail") or "")


def test_a_new_queue_has_the_defaults_of_the_service_in_their_order(client: TestClient) -> None:
    description = described(put(client, "/q", entry("QueueDescription")))
    values = {child.name: child.text for child in description.children}
    assert values["LockDuration"] == "PT1M"
    assert values["MaxSizeInMegabytes"] == "1024"
    assert values["DefaultMessageTimeToLive"] == values["AutoDeleteOnIdle"] == "P10675199DT2H48M5.4775807S"
    assert values["EnableBatchedOperations"] == values["SupportOrdering"] == "true"
    assert (values["Status"], values["EntityAvailabilityStatus"]) == ("Active", "Available")
    assert list(values)[:6] == [
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
    ]
    assert "ForwardTo" not in values


def test_creating_what_exists_is_a_conflict_and_updating_what_does_not_is_not_found(client: TestClient) -> None:
    put(client, "/q", entry("QueueDescription"))
    again = put(client, "/Q", entry("QueueDescription"))
    assert (again.status_code, sub_code(again)) == (409, 40900)
    missing = put(client, "/other", entry("QueueDescription"), if_match="*")
    assert (missing.status_code, sub_code(missing)) == (404, 40400)


@pytest.mark.parametrize(
    "path",
    ["/$nservicebus-verification-queue", "/$Resources/others", "/$Resources", "/$other/subscriptions/s", "/a%20b"],
)
def test_what_no_entity_can_be_called_is_not_found(client: TestClient, path: str) -> None:
    for method in ("GET", "DELETE"):
        missing = client.request(method, f"{path}?{VERSION}")
        assert (missing.status_code, sub_code(missing)) == (404, 40400)


def test_an_update_with_an_old_etag_is_refused(client: TestClient) -> None:
    etag = put(client, "/q", entry("QueueDescription")).headers["etag"]
    first = put(client, "/q", entry("QueueDescription"), if_match=etag)
    assert first.status_code == 200
    assert put(client, "/q", entry("QueueDescription"), if_match=etag).status_code == 412
    assert client.delete("/q", headers={"if-match": etag}).status_code == 412
    assert client.delete("/q", headers={"if-match": first.headers["etag"]}).status_code == 200


def test_partitioning_needs_an_api_version_that_knows_it(client: TestClient) -> None:
    body = entry("QueueDescription", "<EnablePartitioning>true</EnablePartitioning>")
    for query in ("", "?api-version=2013-08"):
        assert client.put(f"/q{query}", content=body).status_code == 400
    made = client.put("/q?api-version=2013-10", content=body)
    assert (made.status_code, described(made).text_of("MaxSizeInMegabytes")) == (201, "16384")
    old = described(client.get("/q?api-version=2012-03"))
    assert old.child("EnablePartitioning") is None
    assert client.get("/q?api-version=soon").status_code == 400


def test_the_shown_size_of_a_partitioned_queue_can_be_sent_back(client: TestClient) -> None:
    put(client, "/q", entry("QueueDescription", "<EnablePartitioning>true</EnablePartitioning>"))
    same = "<MaxSizeInMegabytes>16384</MaxSizeInMegabytes><EnablePartitioning>true</EnablePartitioning>"
    updated = put(client, "/q", entry("QueueDescription", same), if_match="*")
    assert described(updated).text_of("MaxSizeInMegabytes") == "16384"


def test_what_cannot_change_need_not_be_said_again_but_must_not_differ(client: TestClient) -> None:
    put(client, "/q", entry("QueueDescription", "<RequiresSession>true</RequiresSession>"))
    kept = put(client, "/q", entry("QueueDescription"), if_match="*")
    assert described(kept).text_of("RequiresSession") == "true"
    other = put(client, "/q", entry("QueueDescription", "<RequiresSession>false</RequiresSession>"), if_match="*")
    assert (other.status_code, sub_code(other)) == (400, 40000)


def test_access_rules_keep_their_keys_unless_the_request_speaks_of_them(client: TestClient) -> None:
    rule = (
        '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><Rights>'
        "<AccessRights>Listen</AccessRights></Rights><KeyName>reader</KeyName><PrimaryKey>p</PrimaryKey>"
        "</AuthorizationRule></AuthorizationRules>"
    )
    made = described(put(client, "/q", entry("QueueDescription", rule))).child("AuthorizationRules")
    assert made is not None
    keys = made.children[0]
    assert (keys.text_of("PrimaryKey"), keys.text_of("SecondaryKey")) == ("p", "drawn-key-1")
    kept = described(put(client, "/q", entry("QueueDescription"), if_match="*")).child("AuthorizationRules")
    assert kept is not None
    assert kept.children[0].text_of("SecondaryKey") == "drawn-key-1"
    gone = described(put(client, "/q", entry("QueueDescription", "<AuthorizationRules/>"), if_match="*"))
    assert gone.child("AuthorizationRules").children == []  # type: ignore[union-attr]


def test_access_rules_keep_their_times_and_do_not_show_them(client: TestClient, control: ControlPlane) -> None:
    def rules(*names: str, right: str = "Listen") -> str:
        each = "".join(
            f"<AuthorizationRule><Rights><AccessRights>{right}</AccessRights></Rights><KeyName>{name}</KeyName>"
            "<PrimaryKey>p</PrimaryKey><SecondaryKey>s</SecondaryKey></AuthorizationRule>"
            for name in names
        )
        return entry("QueueDescription", f"<AuthorizationRules>{each}</AuthorizationRules>")

    def times() -> list[tuple[int, int]]:
        queue = control.catalog.get("q").description
        assert isinstance(queue, QueueDescription)
        return [(rule.created_at, rule.modified_at) for rule in queue.authorization_rules]

    shown = described(put(client, "/q", rules("one"))).child("AuthorizationRules")
    assert shown is not None
    assert [child.name for child in shown.children[0].children if child.name.endswith("Time")] == []
    ((created, modified),) = times()
    assert created == modified > 0
    put(client, "/q", rules("one", "two"), if_match="*")
    same, added = times()
    assert same == (created, created)
    assert added[0] == added[1] > created
    put(client, "/q", rules("one", right="Send"), if_match="*")
    ((created_again, modified_again),) = times()
    assert created_again == created < modified_again


async def test_an_update_keeps_the_access_rule_that_is_created_at_the_same_time(
    api: AdministrationApi, control: ControlPlane
) -> None:
    await control.create_queue(QueueDescription("q"))
    access = AccessControl(control, lambda: "generated", SteppingClock())
    transport, headers = httpx.ASGITransport(api), {"authorization": token(), "if-match": "*"}
    async with httpx.AsyncClient(transport=transport, base_url="http://h", headers=headers) as client:
        _, answer = await asyncio.gather(
            access.create("q", "sends", [Right.SEND], None, None),
            client.put("/q", content=entry("QueueDescription", "<LockDuration>PT2M</LockDuration>")),
        )
    assert (answer.status_code, described(answer).text_of("LockDuration")) == (200, "PT2M")
    assert [rule.name for rule in access.rules("q")] == ["sends"]


@pytest.mark.parametrize(
    "path",
    [
        "/q/$DeadLetterQueue",
        "/q/$deadletterqueue",
        "/t/Subscriptions/s/$DeadLetterQueue",
        "/q/$Transfer/$DeadLetterQueue",
    ],
)
def test_a_dead_letter_queue_is_no_entity_of_its_own(client: TestClient, path: str) -> None:
    put(client, "/q", entry("QueueDescription"))
    for answer in (client.get(f"{path}?{VERSION}"), put(client, path, entry("QueueDescription")), client.delete(path)):
        assert (answer.status_code, sub_code(answer)) == (400, 40000)
    assert client.get("/$DeadLetterQueue").status_code == 404


def test_rules_are_listed_in_the_order_of_their_names(client: TestClient) -> None:
    put(client, "/t", entry("TopicDescription"))
    put(client, "/t/Subscriptions/s", entry("SubscriptionDescription"))
    for name in ("b", "C", "a"):
        assert put(client, f"/t/Subscriptions/s/Rules/{name}", entry("RuleDescription")).status_code == 201
    feed = parse_xml(client.get("/t/Subscriptions/s/Rules?$skip=0&$top=3").content)
    assert [child.text_of("title") for child in feed.children if child.name == "entry"] == ["$Default", "a", "b"]


@pytest.mark.rule("A6.5", "A6.6")
def test_counts_are_summed_and_an_unhealthy_fragment_makes_the_queue_limited(
    client: TestClient, runtime: MemoryRuntime
) -> None:
    put(client, "/q", entry("QueueDescription"))
    main, dead = QueueCounts(5, 2, 3, 1000, True), QueueCounts(7, 0, 0, 24, False)
    runtime.queue("q").held = replace(EMPTY, main=main, dead_letter=dead, last_used_at=NOON + DAY)
    description = described(client.get(f"/q?{VERSION}"))
    assert description.text_of("MessageCount") == "17"
    assert description.text_of("SizeInBytes") == "1024"
    assert description.text_of("EntityAvailabilityStatus") == "Limited"
    assert description.text_of("AccessedAt") == write_time(NOON + DAY)
    details = description.child("CountDetails")
    assert details is not None
    assert [child.text for child in details.children] == ["5", "7", "3", "0", "0"]


def test_queues_and_topics_that_nobody_has_used_show_the_zero_time(client: TestClient, runtime: MemoryRuntime) -> None:
    put(client, "/q", entry("QueueDescription"))
    put(client, "/t", entry("TopicDescription"))
    put(client, "/t/subscriptions/s", entry("SubscriptionDescription"))

    def accessed(path: str) -> str | None:
        return described(client.get(f"/{path}?{VERSION}")).text_of("AccessedAt")

    assert (accessed("q"), accessed("t")) == ("0001-01-01T00:00:00Z",) * 2
    subscription = described(client.get(f"/t/subscriptions/s?{VERSION}"))
    assert subscription.text_of("AccessedAt") == subscription.text_of("CreatedAt")
    for path, entity in (
        ("q", runtime.queue("q")),
        ("t", runtime.queue("t")),
        ("t/subscriptions/s", runtime.subscription("t", "s")),
    ):
        entity.held = replace(EMPTY, last_used_at=NOON + DAY)
        assert accessed(path) == write_time(NOON + DAY)


@pytest.mark.rule("A6.7", "A4")
@pytest.mark.parametrize("path", ["q", "t", "t/subscriptions/s"])
def test_an_entity_of_which_nothing_can_be_reached_has_no_counts_instead_of_zeros(
    client: TestClient, runtime: MemoryRuntime, path: str
) -> None:
    put(client, "/q", entry("QueueDescription"))
    put(client, "/t", entry("TopicDescription"))
    put(client, "/t/subscriptions/s", entry("SubscriptionDescription"))
    lost = QueueCounts(0, 0, 0, 0, True, True)
    for entity in (runtime.queue("q"), runtime.queue("t"), runtime.subscription("t", "s")):
        entity.held = Holdings(lost, lost, lost, lost, 0)
    answer = client.get(f"/{path}?{VERSION}")
    assert (answer.status_code, sub_code(answer)) == (500, 50000)
    assert "messaging store of" in answer.text
    listed = {"q": "$Resources/Queues", "t": "$Resources/Topics"}.get(path, "t/subscriptions")
    feed = parse_xml(client.get(f"/{listed}?{VERSION}").content)
    (found,) = [child for child in feed.children if child.name == "entry"]
    content = found.child("content")
    assert content is not None
    description = content.children[0]
    assert description.text_of("EntityAvailabilityStatus") == "Limited"
    assert (description.text_of("MessageCount"), description.text_of("SizeInBytes")) == (None, None)
    details = description.child("CountDetails")
    assert details is not None
    assert details.children == []


def test_a_topic_counts_its_scheduled_messages_and_is_as_unhealthy_as_its_subscriptions(
    client: TestClient, runtime: MemoryRuntime
) -> None:
    put(client, "/t", entry("TopicDescription"))
    put(client, "/t/subscriptions/s", entry("SubscriptionDescription"))
    runtime.queue("t").held = replace(EMPTY, main=QueueCounts(0, 0, 4, 400, False))
    runtime.subscription("t", "s").held = replace(EMPTY, main=QueueCounts(9, 0, 0, 600, True))
    description = described(client.get(f"/t?{VERSION}"))
    details = description.child("CountDetails")
    assert details is not None
    assert details.text_of("ScheduledMessageCount") == "4"
    assert (description.text_of("SizeInBytes"), description.text_of("EntityAvailabilityStatus")) == ("1000", "Limited")


def test_an_unhealthy_fragment_makes_a_change_fail_with_an_internal_error(
    client: TestClient, runtime: MemoryRuntime
) -> None:
    runtime.is_ill = True
    answer = put(client, "/q", entry("QueueDescription"))
    assert (answer.status_code, sub_code(answer)) == (500, 50000)


def test_lists_come_in_pages_sorted_by_name(client: TestClient) -> None:
    for name in ("b", "C", "a"):
        put(client, f"/{name}", entry("QueueDescription"))
    put(client, "/t", entry("TopicDescription"))

    def page(query: str) -> tuple[list[str | None], list[str]]:
        feed = parse_xml(client.get(f"/$Resources/QUEUES?{query}").content)
        names = [child.text_of("title") for child in feed.children if child.name == "entry"]
        return names, [child.attributes["href"] for child in feed.children if child.name == "link"][1:]

    assert page("") == (["a", "b", "C"], [])
    assert page("$skip=0&$top=2") == (["a", "b"], ["http://testserver/$Resources/QUEUES?$skip=2&$top=2"])
    assert page("$skip=2&$top=2") == (["C"], [])
    assert page("$skip=9") == ([], [])
    for query in ("$skip=-1", "$top=0", "$top=x", "$skip=" + "9" * 30):
        assert client.get(f"/$Resources/queues?{query}").status_code == 400


def test_subscriptions_and_rules_live_below_their_topic(client: TestClient) -> None:
    put(client, "/a/t", entry("TopicDescription"))
    made = put(client, "/a/t/subscriptions/S", entry("SubscriptionDescription"))
    assert (made.status_code, parse_xml(made.content).text_of("id")) == (201, "http://testserver/a/t/Subscriptions/S")
    rule = entry("RuleDescription", '<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>')
    made = put(client, "/a/t/Subscriptions/S/Rules/r", rule)
    assert parse_xml(made.content).text_of("id") == "http://testserver/a/t/Subscriptions/S/Rules/r"
    feed = parse_xml(client.get("/a/t/subscriptions/s/rules/").content)
    assert [child.text_of("title") for child in feed.children if child.name == "entry"] == ["$Default", "r"]
    assert put(client, "/a/t/subscriptions/s/rules/r", rule, if_match="*").status_code == 200
    assert client.delete("/a/t/subscriptions/s/rules/$default").status_code == 200
    assert client.delete("/a/t/subscriptions/s/rules/$default").status_code == 404
    assert described(client.get(f"/a/t?{VERSION}")).text_of("SqlFilterCount") == "1"
    assert described(client.get("/a/t?api-version=2021-05")).child("SqlFilterCount") is None
    assert client.delete("/a/t/subscriptions/s").status_code == 200
    assert client.get("/a/t/subscriptions/s").status_code == 404


def test_a_subscription_can_start_with_a_rule_of_its_own(client: TestClient) -> None:
    put(client, "/t", entry("TopicDescription"))
    rule = '<Filter i:type="FalseFilter"/><Action i:type="EmptyRuleAction"/><Name>never</Name>'
    body = entry("SubscriptionDescription", f"<DefaultRuleDescription>{rule}</DefaultRuleDescription>")
    assert put(client, "/t/subscriptions/s", body).status_code == 201
    assert client.get("/t/subscriptions/s/rules/never").status_code == 200
    assert client.get("/t/subscriptions/s/rules/$Default").status_code == 404


@pytest.mark.parametrize("name", ["$Default", "$default", "$DEFAULT"])
def test_the_default_rule_is_known_in_any_case(client: TestClient, name: str) -> None:
    put(client, "/t", entry("TopicDescription"))
    first = f'<DefaultRuleDescription><Filter i:type="FalseFilter"/><Name>{name}</Name></DefaultRuleDescription>'
    assert put(client, "/t/subscriptions/s", entry("SubscriptionDescription", first)).status_code == 201
    rule = entry("RuleDescription", '<Filter i:type="TrueFilter"/>')
    path = f"/t/subscriptions/s/rules/{name}"
    assert put(client, path, rule).status_code == 409
    assert put(client, path, rule, if_match="*").status_code == 200
    assert client.delete(path).status_code == 200
    assert put(client, path, rule).status_code == 201
    assert parse_xml(client.get(path.lower()).content).text_of("title") == name


def test_the_namespace_describes_itself(client: TestClient) -> None:
    info = described(client.get(f"/$namespaceinfo?{VERSION}"))
    assert (info.text_of("Name"), info.text_of("MessagingSKU"), info.text_of("NamespaceType")) == (
        "contoso",
        "Standard",
        "Messaging",
    )


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("shop.servicebus.windows.net", "shop"),
        ("Shop.ServiceBus.usgovcloudapi.net:5671", "Shop"),
        ("localhost:5672", "contoso"),
        ("servicebus.windows.net", "contoso"),
        ("bus.example.com", "contoso"),
        ("[::1]:5672", "contoso"),
    ],
)
def test_a_namespace_is_called_what_a_host_name_of_the_service_says(client: TestClient, host: str, name: str) -> None:
    assert described(client.get(f"/$namespaceinfo?{VERSION}", headers={"host": host})).text_of("Name") == name


def test_forwarding_is_shown_as_a_url_and_needs_its_target(client: TestClient) -> None:
    body = entry("QueueDescription", "<ForwardTo>sb://localhost:5672/target</ForwardTo>")
    missing = put(client, "/q", body)
    assert (missing.status_code, sub_code(missing)) == (400, 40400)
    put(client, "/target", entry("TopicDescription"))
    assert described(put(client, "/q", body)).text_of("ForwardTo") == "sb://testserver/target"


@pytest.mark.parametrize("host", ["localhost", "contoso.servicebus.windows.net", "localhost:5672", "[::1]:5672"])
def test_forwarding_targets_are_shown_with_the_host_that_the_client_used(client: TestClient, host: str) -> None:
    put(client, "/target", entry("QueueDescription"))
    targets = "<ForwardTo>target</ForwardTo><ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>"
    put(client, "/q", entry("QueueDescription", targets))
    put(client, "/t", entry("TopicDescription"))
    put(client, "/t/subscriptions/s", entry("SubscriptionDescription", targets))
    for path in ("/q", "/t/subscriptions/s"):
        shown = described(client.get(f"{path}?{VERSION}", headers={"host": host}))
        assert shown.text_of("ForwardTo") == f"sb://{host}/target"
        assert shown.text_of("ForwardDeadLetteredMessagesTo") == f"sb://{host}/target"


def test_a_target_that_was_shown_may_come_back_as_the_path_of_another_url(client: TestClient) -> None:
    """As the Java client sends it with an update."""
    put(client, "/a/target", entry("QueueDescription"))
    body = entry("QueueDescription", "<ForwardTo>https://testserver/sb://testserver/a/target</ForwardTo>")
    assert described(put(client, "/q", body)).text_of("ForwardTo") == "sb://testserver/a/target"


@pytest.mark.parametrize("scheme", ["https", "http", "sb"])
def test_forwarding_targets_are_shown_with_the_scheme_that_the_client_sent(client: TestClient, scheme: str) -> None:
    put(client, "/target", entry("QueueDescription"))
    put(client, "/t", entry("TopicDescription"))
    targets = (
        f"<ForwardTo>{scheme}://elsewhere/target</ForwardTo>"
        "<ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>"
    )
    for path, kind in (("/q", "QueueDescription"), ("/t/subscriptions/s", "SubscriptionDescription")):
        for answer in (put(client, path, entry(kind, targets)), client.get(f"{path}?{VERSION}")):
            shown = described(answer)
            assert shown.text_of("ForwardTo") == f"{scheme}://testserver/target"
            assert shown.text_of("ForwardDeadLetteredMessagesTo") == "sb://testserver/target"
        dead_letters = f"<ForwardDeadLetteredMessagesTo>{scheme}://testserver/target</ForwardDeadLetteredMessagesTo>"
        changed = described(put(client, path, entry(kind, dead_letters), if_match="*"))
        assert changed.text_of("ForwardTo") is None
        assert changed.text_of("ForwardDeadLetteredMessagesTo") == f"{scheme}://testserver/target"


def test_without_a_host_header_forwarding_targets_are_shown_with_the_address_of_the_namespace(
    client: TestClient,
) -> None:
    put(client, "/target", entry("QueueDescription"))
    body = entry("QueueDescription", "<ForwardTo>target</ForwardTo>")
    assert described(put(client, "/q", body, host="")).text_of("ForwardTo") == "sb://localhost:5672/target"


def test_forwarding_needs_the_right_to_send_to_the_target(client: TestClient) -> None:
    put(client, "/target", entry("QueueDescription"))
    body = entry("QueueDescription", "<ForwardTo>target</ForwardTo>")
    assert put(client, "/q", body, authorization=token("q")).status_code == 401
    both = put(client, "/q", body, authorization=token("q"), ServiceBusSupplementaryAuthorization=token("target"))
    assert both.status_code == 201


def test_nothing_is_answered_without_a_good_token(client: TestClient) -> None:
    put(client, "/q", entry("QueueDescription"))
    for path in ("/q", "/$Resources/queues", "/$namespaceinfo", "/missing", "/t/subscriptions/s"):
        answer = client.get(path, headers={"authorization": "wrong"})
        assert (answer.status_code, sub_code(answer)) == (401, 40100)
    assert client.delete("/q", headers={"authorization": token("other")}).status_code == 401
    assert client.get("/q").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", entry("QueueDescription")),
        ("/t/subscriptions/", entry("SubscriptionDescription")),
        ("/t/subscriptions/s/rules/", entry("RuleDescription")),
        ("/$Resources/queues", entry("QueueDescription")),
        ("/$other", entry("QueueDescription")),
        ("/q%20q", entry("QueueDescription")),
        ("/q", ""),
        ("/q", "<entry/>"),
        ("/q", entry("SubscriptionDescription")),
        ("/q", entry("QueueDescription", "<LockDuration>PT6M</LockDuration>")),
        ("/q", entry("QueueDescription", "<LockDuration>long</LockDuration>")),
        ("/q", entry("QueueDescription", "<MaxSizeInMegabytes>1000</MaxSizeInMegabytes>")),
        ("/q", entry("QueueDescription", "<MaxSizeInMegabytes>many</MaxSizeInMegabytes>")),
        ("/q", entry("QueueDescription", "<RequiresSession>perhaps</RequiresSession>")),
        ("/q", entry("QueueDescription", "<Status>Tired</Status>")),
        ("/q", entry("QueueDescription", "<ForwardTo>ftp://x/y</ForwardTo>")),
        *[("/q", message_size("QueueDescription", size)) for size in (0, 255, 257, 1023, 1024, 102_401)],
        ("/q", message_size("TopicDescription", 1024)),
        ("/q", entry("QueueDescription", "<DuplicateDetectionHistoryTimeWindow>P8D</DuplicateDetectionHistoryTimeWindow>")),
        ("/t/subscriptions/s/rules/r", entry("RuleDescription", '<Filter i:type="OtherFilter"/>')),
        ("/t/subscriptions/s/rules/r", entry("RuleDescription", '<Filter i:type="SqlFilter"/>')),
        ("/t/subscriptions/s/rules/r", entry("RuleDescription", '<Action i:type="OtherAction"/>')),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense_are_refused_with_a_reason(client: TestClient, path: str, body: str) -> None:
    answer = put(client, path, body)
    assert (answer.status_code, sub_code(answer)) == (400, 40000)


def test_unknown_methods_and_huge_bodies_are_refused(client: TestClient) -> None:
    assert client.post("/q").status_code == 405
    assert put(client, "/q", "x" * (1024 * 1024 + 1)).status_code == 400
