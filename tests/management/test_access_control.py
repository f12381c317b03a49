"""Access rules that are changed while others change the entity: nobody undoes what another one did."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from tests.management.conftest import SteppingClock
from twinbus.clock import Millis
from twinbus.errors import EntityAlreadyExists
from twinbus.management.access_control import AccessControl
from twinbus.management.catalog import Catalog, Entry
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import MINUTE, EntityDescription, QueueDescription, Right, WhichKey


def locked_for(duration: Millis, entry: Entry) -> EntityDescription:
    assert isinstance(entry.description, QueueDescription)
    return replace(entry.description, lock_duration=duration)


@pytest.fixture
def access(control: ControlPlane) -> AccessControl:
    return AccessControl(control, lambda: "a generated key", SteppingClock())


async def test_a_rule_and_an_update_at_the_same_time_both_take_effect(
    control: ControlPlane, access: AccessControl, catalog: Catalog
) -> None:
    await control.create_queue(QueueDescription("q"))
    for name, minutes in (("first", 2), ("second", 3)):
        update = control.change("q", partial(locked_for, minutes * MINUTE))
        create = access.create("q", name, [Right.SEND], None, None)
        await asyncio.gather(*((update, create) if name == "first" else (create, update)))
        after = catalog.get("q").description
        assert isinstance(after, QueueDescription)
        assert after.lock_duration == minutes * MINUTE
        assert after.authorization_rules[-1].name == name
    assert [rule.name for rule in access.rules("q")] == ["first", "second"]


@pytest.mark.parametrize("entity", ["", "q"])
async def test_changes_to_rules_at_the_same_time_all_take_effect(
    control: ControlPlane, access: AccessControl, entity: str
) -> None:
    await control.create_queue(QueueDescription("q"))
    names = [f"rule{number}" for number in range(6)]
    await asyncio.gather(*(access.create(entity, name, [Right.SEND], "one", "two") for name in names))
    await asyncio.gather(
        access.delete(entity, "rule1"),
        access.regenerate(entity, "rule2", WhichKey.PRIMARY),
        access.regenerate(entity, "rule2", WhichKey.SECONDARY),
    )
    rules = {rule.name: rule for rule in access.rules(entity)}
    assert sorted(rules) == ["rule0", "rule2", "rule3", "rule4", "rule5"]
    assert (rules["rule2"].primary_key, rules["rule2"].secondary_key) == ("a generated key", "a generated key")
    assert (rules["rule3"].primary_key, rules["rule3"].secondary_key) == ("one", "two")


async def test_a_name_is_taken_once(control: ControlPlane, access: AccessControl) -> None:
    await control.create_queue(QueueDescription("q"))
    creations = [access.create("q", "r", [Right.LISTEN], None, None) for _ in range(3)]
    results = await asyncio.gather(*creations, return_exceptions=True)
    assert [isinstance(result, EntityAlreadyExists) for result in results] == [False, True, True]
