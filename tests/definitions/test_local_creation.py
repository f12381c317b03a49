"""Entities that a namespace creates at its start, when one of its starts is interrupted."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tests.management.memory_runtime import MemoryRuntime
from twinbus.clock import SystemClock
from twinbus.definitions.entity_file import read_entity_file
from twinbus.definitions.local_creation import create_entities
from twinbus.definitions.wanted_entities import UNFINISHED, WantedEntities
from twinbus.management.catalog import Catalog, Entry
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    TopicDescription,
)

FILE = """
[[queue]]
name = "here"
forward_dead_letters_to = "there"
user_metadata = "ours"

[[queue]]
name = "there"
forward_to = "here"

[[queue.access_rule]]
name = "sender"
rights = ["Send"]

[[topic]]
name = "events"

[[topic.subscription]]
name = "none"
rule = []

[[topic.subscription]]
name = "some"
rule = [{ name = "red", sql = "colour = 'red'" }, { name = "hot", sql = "heat > 3" }]
"""


class Ends(BaseException):
    """As the process does."""


class EndsAfter:
    """A control plane that lives for a number of changes."""

    def __init__(self, control: ControlPlane, count: int) -> None:
        self.catalog = control.catalog
        self._control = control
        self.left = count

    def __getattr__(self, name: str) -> Callable[..., Any]:
        change = getattr(self._control, name)

        async def changed(*arguments: Any) -> Any:
            result = await change(*arguments)
            self.left -= 1
            if self.left == 0:
                raise Ends
            return result

        return changed


def new_control(folder: Path) -> ControlPlane:
    return ControlPlane(Catalog.in_file(folder / "catalog", "shop", 0), MemoryRuntime(), SystemClock())


def made(control: ControlPlane) -> dict[str, Any]:
    """What there is, without its keys."""
    found: dict[str, Any] = {}
    for entry in [*control.catalog.entries(QueueDescription), *control.catalog.subscriptions("events")]:
        queue = entry.description
        ways = getattr(queue, "forward_to", None), getattr(queue, "forward_dead_letters_to", None)
        found[queue.name] = *ways, queue.user_metadata, sorted(rule.name for rule in entry.rules)
    return found


WHOLE = {
    "here": (None, "there", "ours", []),
    "there": ("here", None, None, []),
    "none": (None, None, None, []),
    "some": (None, None, None, ["hot", "red"]),
}


async def test_a_start_that_was_interrupted_anywhere_is_finished_by_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(FILE)
    wanted = read_entity_file(tmp_path / "file.toml")
    is_interrupted, count = True, 0
    while is_interrupted:
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        control = new_control(folder)
        ends = EndsAfter(control, count)
        try:
            await create_entities(cast("ControlPlane", ends), wanted, lambda: "k")
        except Ends:
            assert all(rules != ["$Default"] for *_, rules in made(control).values()), "it takes what no rule matches"
        is_interrupted = ends.left <= 0
        await create_entities(control, wanted, lambda: "k")
        assert made(control) == WHOLE
        control.catalog.close()
    assert count > len(WHOLE)


async def test_a_subscription_that_an_import_left_unfinished_is_finished_by_a_start_even_an_interrupted_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "file.toml").write_text(FILE)
    wanted = read_entity_file(tmp_path / "file.toml")
    is_interrupted, count = True, 0
    while is_interrupted:
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        control = new_control(folder)
        await control.create_topic(TopicDescription("events"))
        for subscription in wanted.subscriptions:
            await control.create_subscription(replace(subscription, user_metadata=UNFINISHED))
        await control.create_rule("events", "some", RuleDescription("red", SqlFilter("colour = 'yellow'")))
        ends = EndsAfter(control, count)
        with suppress(Ends):
            await create_entities(cast("ControlPlane", ends), wanted, lambda: "k")
        is_interrupted = ends.left <= 0
        await create_entities(control, wanted, lambda: "k")
        assert made(control) == WHOLE
        assert control.rule("events", "some", "red").filter == SqlFilter("colour = 'red'")
        control.catalog.close()
    assert count > len(WHOLE)


async def test_what_is_finished_keeps_the_keys_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(FILE)
    control = new_control(tmp_path)
    wanted = read_entity_file(tmp_path / "file.toml")
    await create_entities(control, wanted, lambda: "k")

    def keys() -> set[str]:
        found = control.catalog.get("there").description
        assert isinstance(found, QueueDescription)
        return {rule.primary_key for rule in found.authorization_rules}

    def begun(entry: Entry) -> EntityDescription:
        assert isinstance(entry.description, QueueDescription)
        return replace(entry.description, forward_to=None, user_metadata=UNFINISHED)

    await control.change("there", begun)
    await create_entities(control, wanted, lambda: "other")
    assert keys() == {"k"}
    assert made(control) == WHOLE
    control.catalog.close()


async def test_a_topic_with_the_name_of_a_wanted_queue_stays_as_it_is(tmp_path: Path) -> None:
    control = new_control(tmp_path)
    topic = TopicDescription("here", user_metadata=UNFINISHED)
    await control.create_topic(topic)
    await create_entities(control, WantedEntities((QueueDescription("here"),)), lambda: "k")
    assert control.catalog.get("here").description == topic
    control.catalog.close()
