"""docs/how-to/spark-on-azure.md: every option against a namespace that refuses what Azure would refuse."""

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.source.bus import NOW, Bus, names, rows
from tests.pipeline.source.micro_batches import Query
from twinbus.errors import NotAllowed
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.pipeline.source import option_table
from twinbus.pipeline.source.access import plain_access
from twinbus.pipeline.source.access.connections import CONNECTIONS
from twinbus.pipeline.source.access.entity_access import EntityAccess
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.option_table import BATCH, SOURCE_OPTIONS, STREAM
from twinbus.pipeline.source.options import Mode
from twinbus.pipeline.source.starting_points import preflight

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "spark-on-azure.md"
COUNT = 30
ENTITY = {
    option_table.QUEUE,
    option_table.QUEUES,
    option_table.TOPIC,
    option_table.SUBSCRIPTION,
    option_table.SUB_QUEUE,
}
VALUES = {
    "startingOffsets": '{"0": 1}',
    "endingOffsets": "latest",
    "startingTimestamp": "2020-01-01T00:00:00Z",
    "maxMessagesPerTrigger": "7",
    "maxBytesPerTrigger": "2000",
    "minPartitions": "3",
    "maxPartitions": "2",
    "fragments": ",".join(map(str, range(16))),
    "prefetchCount": "4",
    "minPollInterval": "0",
    "includeBody": "true",
    "includeStates": "active,deferred",
    "failOnDataLoss": "true",
    "adoptDeferred": "true",
    "visibilityLag": "0s",
    "filter": "sys.Label = 'new'",
}


def promises() -> dict[str, tuple[str, str]]:
    """By option, what the page says of browsing and of consuming."""
    table = PAGE.read_text().partition("## Progress")[0]
    found: dict[str, tuple[str, str]] = {}
    for line in re.findall(r"^\| (`.*)$", table, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), (cells[1], cells[2]))
    return found


@pytest.fixture
def azure(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Bus:
    for name in [name for name in HANDLERS if name.startswith("com.twinbus:")]:
        monkeypatch.delitem(HANDLERS, name)
    monkeypatch.setattr(plain_access, "CLAIM_WAIT_S", 0.02)
    CONNECTIONS.close()
    return bus


def filled(bus: Bus) -> str:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(COUNT))
    return path


def refusal(bus: Bus, path: str, used_by: str, **given: str) -> NotAllowed | None:
    """As the data source asks when a query is defined."""
    options = bus.options(path, used_by, **given)

    async def ask(access: EntityAccess) -> NotAllowed | None:
        assert not access.is_own
        try:
            await preflight(access, options)
        except NotAllowed as refused:
            return refused
        return None

    return LiveEntity(options.connection, path).call(ask)


def read(bus: Bus, path: str, mode: Mode, name: str) -> list[str]:
    given: Any = {name: VALUES[name]} if name in VALUES else {}
    option = next(option for option in SOURCE_OPTIONS if option.name == name)
    if option.used_by == BATCH or name == "visibilityLag":
        reader = bus.batch(path, NOW * 2, **given)
        return [row["body"].decode() for row in rows(reader, reader.partitions())]
    query = Query(lambda: bus.stream(path, mode=mode.value, **given))
    query.run()
    return query.kept


def test_the_page_has_every_option_of_the_source() -> None:
    assert set(promises()) == {option.name for option in SOURCE_OPTIONS}


@pytest.mark.rule("C4.1")
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", [option.name for option in SOURCE_OPTIONS if option.name not in ENTITY])
def test_an_option_does_what_the_page_says(azure: Bus, mode: Mode, name: str) -> None:
    promise = promises()[name][mode is Mode.CONSUME]
    if promise == "-":
        return
    path = filled(azure)
    given: Any = {"mode": mode.value, **({name: VALUES[name]} if name in VALUES else {})}
    option = next(option for option in SOURCE_OPTIONS if option.name == name)
    refused = refusal(azure, path, BATCH if option.used_by == BATCH else STREAM, **given)
    assert (refused is not None) == (promise == "refused"), refused
    if promise == "works":
        assert sorted(read(azure, path, mode, name)) == sorted(names(COUNT))


def test_dead_letters_are_read_like_a_queue(azure: Bus) -> None:
    from twinbus.client.blocking import BlockingNamespace

    path = azure.queue()
    azure.send(path, names(3))
    with BlockingNamespace.connect(azure.namespace.connection_string) as client:
        receiver = client.receiver(path, credit=3)
        assert not any(receiver.dead_letter(receiver.collect(3, 5), "Tired"))
        receiver.close()
    reader = azure.batch(path, subQueue="deadLetter")
    assert {row["deadLetterReason"] for row in rows(reader, reader.partitions())} == {"Tired"}
    for mode in Mode:
        query = Query(lambda mode=mode: azure.stream(path, subQueue="deadLetter", mode=mode.value))  # type: ignore[misc]
        query.run()
        assert sorted(query.kept) == names(3)


def test_several_queues_and_a_subscription_are_read_like_a_queue(azure: Bus) -> None:
    paths, topic = [azure.queue(), azure.queue()], f"t-{uuid.uuid4().hex[:8]}"
    azure.namespace.create_topic(topic, "all")
    for path in (*paths, topic):
        azure.send(path, names(3, prefix=path))
    reader = azure.batch(queues=",".join(paths))
    found = [row["body"].decode() for row in rows(reader, reader.partitions())]
    assert sorted(found) == sorted([name for path in paths for name in names(3, prefix=path)])
    for mode in Mode:
        query = Query(lambda mode=mode: azure.stream("", topic=topic, subscription="all", mode=mode.value))  # type: ignore[misc]
        query.run()
        assert sorted(query.kept) == names(3, prefix=topic)
