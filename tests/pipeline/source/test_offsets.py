"""Offsets: there and back, and what does not belong together."""

import json
from dataclasses import replace

import pytest

from twinbus.pipeline.source.access.entity_access import Seen
from twinbus.pipeline.source.offsets import (
    NEW_QUERY,
    BrowseOffset,
    ConsumeOffset,
    JsonOffset,
    OffsetError,
    lag,
    reported_ends,
    reported_waiting,
)

THIRD = 3 << 48
BROWSE = BrowseOffset("q", {0: 1, 3: THIRD + 1}, {0: 5, 3: THIRD + 1}, 2, 1_700, {0: [Seen(1, 1_800), Seen(4, 1_900)]})
CONSUME = ConsumeOffset("q", "me", ((1, 5), (7, 8), (THIRD + 1, THIRD + 3)), 3, 1_700)


def test_offsets_survive_spark_which_keeps_them_as_json() -> None:
    assert BrowseOffset.from_json(json.loads(json.dumps(BROWSE.to_json())), "q") == BROWSE
    assert ConsumeOffset.from_json(json.loads(json.dumps(CONSUME.to_json())), "q") == CONSUME


def test_an_offset_that_says_nothing_of_tasks_is_read_and_still_says_nothing() -> None:
    """As releases wrote it that had one rule for all batches."""
    for each in (BROWSE, CONSUME):
        old = {name: value for name, value in each.to_json().items() if name != "tasks"}
        read = type(each).from_json(old, "q")
        assert read == replace(each, tasks=None)
        assert read is not None
        assert read.to_json() == old


def test_a_new_query_has_no_offset_yet() -> None:
    assert BrowseOffset.from_json(NEW_QUERY, "q") is None
    assert ConsumeOffset.from_json(NEW_QUERY, "q") is None


def test_a_browsing_batch_reads_what_lies_between_its_ends() -> None:
    assert BROWSE.ranges() == [(1, 5)]


def test_a_checkpoint_of_another_mode_or_entity_is_refused() -> None:
    with pytest.raises(OffsetError, match="mode=consume of 'q', not to mode=browse of 'q'"):
        BrowseOffset.from_json(CONSUME.to_json(), "q")
    with pytest.raises(OffsetError, match="checkpointLocation"):
        ConsumeOffset.from_json(CONSUME.to_json(), "other")


def test_a_checkpoint_of_another_version_is_refused() -> None:
    with pytest.raises(OffsetError, match="version 2"):
        BrowseOffset.from_json({"v": 2}, "q")


@pytest.mark.parametrize(
    "damaged",
    [
        {"v": 1, "mode": "browse"},
        {"v": 1, "mode": "browse", "entity": "q", "from": {"0": 1}},
        {"v": 1, "mode": "browse", "entity": "q", "from": {"0": 1}, "to": 5},
        {"v": 1, "mode": "browse", "entity": "q", "from": {"0": 1}, "to": {"0": "x"}},
        {"v": 1, "mode": "consume", "entity": "q", "owner": "me"},
        {"v": 1, "mode": "consume", "entity": "q", "owner": "me", "claim": {"0": [[1]]}},
    ],
)
def test_an_offset_that_is_damaged_is_refused_in_one_line(damaged: JsonOffset) -> None:
    kind = ConsumeOffset if damaged["mode"] == "consume" else BrowseOffset
    with pytest.raises(OffsetError, match=r"The checkpoint is damaged: .*\."):
        kind.from_json(damaged, "q")


def test_lag_is_what_lies_between_the_end_of_a_batch_and_the_end_of_the_entity() -> None:
    latest = reported_ends("q", {0: 9, 3: THIRD + 1, 5: (5 << 48) + 4})
    assert lag(BROWSE.to_json(), latest) == {0: 4, 3: 0, 5: 0}


def test_lag_of_a_consumer_is_what_waits() -> None:
    assert lag(CONSUME.to_json(), reported_waiting("q", {0: 4, 3: 0})) == {0: 4, 3: 0}
