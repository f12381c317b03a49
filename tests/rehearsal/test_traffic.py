"""The plan of the traffic: what a seed decides."""

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest

from twinbus.errors import ArgumentError
from twinbus.rehearsal.entities import EntityKind, rehearsed_entities
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.traffic import MESSAGES_MAX, PlannedMessage, plan_traffic

ENTITIES = rehearsed_entities("")


def plan(seed: int = 1, rate: float = 50.0, duration_s: float = 20.0) -> list[PlannedMessage]:
    return plan_traffic(Random(seed), ENTITIES, rate, duration_s, lane_count=2)


def test_a_seed_decides_the_whole_plan() -> None:
    assert plan(seed=1) == plan(seed=1)
    assert plan(seed=1) != plan(seed=2)


def test_messages_are_due_in_order_at_the_rate_asked_for() -> None:
    planned = plan(rate=50.0, duration_s=20.0)
    assert len(planned) == 1000
    assert all(before.due_s <= after.due_s for before, after in pairwise(planned))
    assert planned[0].due_s >= 0
    assert planned[-1].due_s <= 20.0


def test_every_kind_of_entity_gets_its_keys() -> None:
    by_kind = defaultdict(list)
    for planned in plan():
        by_kind[planned.entity.kind].append(planned)
    assert set(by_kind) == set(EntityKind)
    assert all(each.session_id is not None for each in by_kind[EntityKind.SESSIONS])
    keys = {each.partition_key is None for each in by_kind[EntityKind.PARTITIONED]}
    assert keys == {True, False}
    assert {each.partition_key for each in by_kind[EntityKind.ORDINARY]} == {None}


def test_a_message_session_keeps_to_one_lane() -> None:
    lanes = defaultdict(set)
    for planned in plan():
        if planned.session_id is not None:
            lanes[planned.session_id].add(planned.lane)
    assert {len(each) for each in lanes.values()} == {1}
    assert {lane for each in lanes.values() for lane in each} == {0, 1}


def test_messages_with_a_partition_key_hold_up_none_without() -> None:
    partitioned = [planned for planned in plan() if planned.entity.kind is EntityKind.PARTITIONED]
    keyed, free = (
        {each.lane for each in partitioned if (each.partition_key is None) is is_free} for is_free in (False, True)
    )
    assert keyed == {2, 3}
    assert free == {0, 1}


def test_no_two_bodies_are_the_same_and_all_have_their_size() -> None:
    first, second = plan()[:2]
    assert len(first.body("paired-1")) == first.size
    assert first.body("paired-1") != first.body("paired-2")
    assert second.body("x") == second.body("x")


@pytest.mark.parametrize("rate", [0.0, -1.0, 501.0])
def test_a_rate_that_one_process_cannot_keep_is_refused(rate: float) -> None:
    with pytest.raises(ArgumentError, match="messages a second"):
        RehearsalSettings(rate=rate)


def test_the_number_of_messages_has_a_limit() -> None:
    with pytest.raises(ArgumentError, match=str(MESSAGES_MAX)):
        plan(rate=500.0, duration_s=10_000.0)
