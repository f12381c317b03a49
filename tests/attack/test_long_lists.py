"""A namespace with very much in it: to list it, and to change a part of it, holds nobody up."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.longest_turn import LongestTurn
from tests.measured import Measured
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import CorrelationFilter, QueueDescription, RuleDescription, SubscriptionDescription
from twinbus.server.data.holdings import CATALOG_NAME
from twinbus.testing.local_namespace import LocalNamespace

TURN_MAX_S = 0.04
"""Of processor time, on a machine whose caches others use too. To write a thousand entries takes three times as long."""
QUEUES = 1_000
RULES = 35_000
NOON = 1_700_000_000_000


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    folder: Path = tmp_path_factory.mktemp("full")
    with LocalNamespace(folder, store_count=1) as started:
        yield started


def get(namespace: LocalNamespace, path: str) -> bytes:
    parsed = parse_connection_string(namespace.connection_string)
    token = sign("sb://localhost/", parsed.key_name, parsed.key, int(time.time()) + 600)
    connection = http.client.HTTPConnection("127.0.0.1", parsed.http_port, timeout=60)
    connection.request("GET", path, headers={"Authorization": token})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200
    return content


@pytest.mark.timeout(600)
def test_a_page_of_a_thousand_entities_is_written_in_steps(namespace: LocalNamespace) -> None:
    control = namespace._running.control

    async def fill() -> None:
        for start in range(0, QUEUES, 20):
            names = [f"q{number}" for number in range(start, start + 20)]
            await asyncio.gather(*[control.create_queue(QueueDescription(name)) for name in names])

    namespace._run(fill(), 500)
    get(namespace, "/$Resources/Queues?$top=1")
    with LongestTurn(namespace) as longest:
        page = get(namespace, f"/$Resources/Queues?$top={QUEUES}&api-version=2021-05")
    assert page.count(b"<entry ") == QUEUES
    assert longest.seconds < TURN_MAX_S


@pytest.mark.nightly
def test_a_subscription_with_very_many_rules_holds_nobody_up(namespace: LocalNamespace, measured: Measured) -> None:
    namespace.create_topic("t")
    rules = [RuleDescription(f"r{number}", CorrelationFilter(label=f"l{number}")) for number in range(RULES)]
    # As if they had been added before: one by one each of them is synced, which is the disk's time.
    namespace.stop()
    catalog = Catalog.in_file(namespace._folder / CATALOG_NAME, "local", NOON)
    catalog.add(catalog.new_id(), SubscriptionDescription("t", "s"), NOON, rules)
    catalog.close()
    namespace.start()
    control = namespace._running.control

    async def change() -> None:
        for number in range(20):
            await control.create_rule("t", "s", RuleDescription(f"new{number}", CorrelationFilter(label="new")))
            await control.update_rule("t", "s", RuleDescription(f"new{number}", CorrelationFilter(label="newer")))
            await control.delete_rule("t", "s", f"new{number}")

    turns = dict[str, int]()
    with LongestTurn(namespace) as longest:
        namespace._run(change(), 100)
    turns["longest turn of a change, us"] = int(longest.seconds * 1e6)
    with LongestTurn(namespace) as longest:
        assert get(namespace, "/t/Subscriptions/s/rules?$top=1000&$skip=30000").count(b"<entry ") == 1_000
    turns["longest turn of a page, us"] = int(longest.seconds * 1e6)
    with LongestTurn(namespace) as longest:
        namespace._run(control.delete_subscription("t", "s"), 100)
    turns["longest turn of a deletion, us"] = int(longest.seconds * 1e6)
    measured(f"{RULES} rules", turns)
    assert max(turns.values()) < TURN_MAX_S * 1e6
