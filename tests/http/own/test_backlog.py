"""Backlog by destination, from the namespace itself: over HTTP and by the bulk client."""

from pathlib import Path

import pytest

from twinbus.client import namespace_http
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.pairing.syphon.survey import Waiting, survey
from twinbus.testing.local_namespace import LocalNamespace

QUEUES = ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1", "fabrikam/x-servicebus-transfer/0")


async def fill(namespace: LocalNamespace, queue: str, destinations: list[str | None]) -> None:
    payloads = [
        encode_message(b"x", application_properties={} if path is None else {"x-ms-path": path})
        for path in destinations
    ]
    async with await Namespace.connect(namespace.connection_string) as client:
        assert not any(await (await client.sender(queue)).send_batches(payloads, keeps_keys_apart=False))


@pytest.fixture
async def namespace(tmp_path: Path) -> LocalNamespace:
    namespace = LocalNamespace(tmp_path)
    for queue in (*QUEUES, "orders"):
        namespace.create_queue(queue)
    await fill(namespace, QUEUES[0], ["orders"] * 3 + ["bills"] + [None])
    await fill(namespace, QUEUES[2], ["mails"])
    await fill(namespace, "orders", ["elsewhere"])
    return namespace


@pytest.mark.rule("B11.3")
def test_the_namespace_shows_its_backlog_by_queue_and_destination(namespace: LocalNamespace) -> None:
    with namespace:
        rows = namespace_http.ask(namespace.connection_string, namespace.endpoint, "GET", "/$backlog")
        assert [(row["queue"], row["destination"], row["waiting"], row["is_all"]) for row in rows] == [
            (QUEUES[0], "orders", 3, True),
            (QUEUES[0], None, 1, True),
            (QUEUES[0], "bills", 1, True),
            (QUEUES[2], "mails", 1, True),
        ]
        rows = namespace_http.ask(namespace.connection_string, namespace.endpoint, "GET", "/$backlog?primary=Fabrikam")
        assert [row["queue"] for row in rows] == [QUEUES[2]]


async def test_a_survey_finds_the_same_where_the_namespace_cannot_count(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with namespace:
        async with await Namespace.connect(namespace.connection_string) as client:
            counted = await survey(client, QUEUES)
            monkeypatch.delitem(HANDLERS, "com.twinbus:backlog")
            peeked = await survey(client, QUEUES)

    def seen(found: list[Waiting]) -> list[tuple[str, str | None, int, bool]]:
        return [(each.queue, each.path, each.count, each.is_all) for each in found]

    assert seen(counted) == seen(peeked)
    assert all(each.size_bytes > 0 for each in counted)
    assert [each.count for each in counted] == [3, 1, 1, 1]
