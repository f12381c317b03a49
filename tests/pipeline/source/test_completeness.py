"""Up to which number a capture is complete, by its committed offset and what is in the entity."""

from collections.abc import Sequence

import pytest

from tests.pipeline.source.bus import Bus, names
from twinbus.pipeline.completeness import Complete, complete_fragments, complete_text
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.source.offsets import BrowseOffset, ConsumeOffset, JsonOffset
from twinbus.pipeline.source.ranges import Range, half_open

FRAGMENT_1 = 1 << 48


def complete(bus: Bus, path: str, committed: JsonOffset) -> list[Complete] | None:
    options = ConnectionOptions.from_options({"connectionString": bus.namespace.connection_string, "retryTotal": "0"})
    return complete_fragments(options, path, committed)


def claim(bus: Bus, path: str, count: int) -> list[Range]:
    async def some(access: object) -> list[Range]:
        return half_open(await access._extras.claim(count, owner="me"))  # type: ignore[attr-defined]

    return bus.ask(path, some)


def test_a_browsing_capture_is_complete_up_to_the_end_of_its_last_batch(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    assert complete(bus, path, {}) == [Complete(0, 0, 10)]
    assert complete(bus, path, BrowseOffset(path, {0: 1}, {0: 7}).to_json()) == [Complete(0, 6, 10)]
    assert complete(bus, path, BrowseOffset(path, {0: 7}, {0: 11}).to_json()) == [Complete(0, 10, 10)]


def test_what_the_last_batch_claimed_is_captured_and_what_is_left_behind_it_is_not(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    bus.take(path, 2)
    claimed = tuple(claim(bus, path, 4))
    assert claimed == ((3, 7),)
    assert complete(bus, path, ConsumeOffset(path, "me").to_json()) == [Complete(0, 2, 10)]
    assert complete(bus, path, ConsumeOffset(path, "me", claimed).to_json()) == [Complete(0, 6, 10)]
    rest = claimed + tuple(claim(bus, path, 4))
    assert complete(bus, path, ConsumeOffset(path, "me", rest).to_json()) == [Complete(0, 10, 10)]


def test_nothing_of_an_entity_that_was_made_again_is_complete_because_of_the_one_before(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    claimed = tuple(claim(bus, path, 4))
    (head,) = bus.ask(path, lambda access: access.heads())
    assert head.created_at is not None
    before = head.created_at - 1  # the numbers are those of the one before
    browsed = BrowseOffset(path, {0: 1}, {0: 7}, created_at=before)
    assert complete(bus, path, browsed.to_json()) == [Complete(0, 0, 10)]
    consumed = ConsumeOffset(path, "me", claimed, created_at=before)
    assert complete(bus, path, consumed.to_json()) == [Complete(0, 0, 10)]


@pytest.mark.parametrize(
    "committed",
    [{"mode": "browse"}, {"v": 1, "mode": "browse", "entity": "q"}, {"v": 1, "mode": "consume", "created": "now"}],
)
def test_a_checkpoint_that_is_damaged_has_no_number(bus: Bus, committed: JsonOffset) -> None:
    assert complete(bus, bus.queue(), committed) is None


def test_an_entity_that_is_gone_has_no_number(bus: Bus) -> None:
    assert complete(bus, "nowhere", {}) is None


@pytest.mark.parametrize(
    ("fragments", "text"),
    [
        ([Complete(0, 10, 10)], "up to 10"),
        ([Complete(0, 6, 10)], "up to 6 of 10"),
        ([Complete(0, 6, 6), Complete(1, FRAGMENT_1, FRAGMENT_1)], "all fragments"),
        ([Complete(0, 6, 6), Complete(1, FRAGMENT_1 + 2, FRAGMENT_1 + 5)], "1 of 2 fragments; 1 up to 2 of 5"),
    ],
)
def test_what_is_not_complete_is_named(fragments: Sequence[Complete], text: str) -> None:
    assert complete_text(fragments) == text
