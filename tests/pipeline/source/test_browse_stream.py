"""Streams that look at messages and leave them, against a real namespace and its two ways of access."""

import json
from typing import Any

import pytest

from tests.pipeline.source.bus import Bus, bodies, names, rows
from tests.pipeline.source.micro_batches import Query
from twinbus.errors import MessagingError
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.access.connections import CONNECTIONS, Detect
from twinbus.pipeline.source.live_entity import SourceFailed, SourceUnavailable, detected, plain
from twinbus.pipeline.source.offsets import BrowseOffset, OffsetError, lag
from twinbus.testing.local_namespace import STORE_COUNT_DEFAULT

WAYS = [pytest.param(detected, id="own"), pytest.param(plain, id="plain")]


@pytest.mark.parametrize("detect", WAYS)
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_every_message_is_read_once_and_stays(bus: Bus, detect: Detect, is_partitioned: bool) -> None:
    path = bus.queue(enable_partitioning=is_partitioned)
    bus.spread(path, names(60))
    query = Query(lambda: bus.stream(path, detect, maxMessagesPerTrigger="25"))
    query.run()
    assert sorted(query.kept) == sorted(names(60))
    assert query.sizes == [25, 25, 10]
    bus.spread(path, names(5, "later"))
    query.run()
    assert sorted(query.kept) == sorted(names(60) + names(5, "later"))
    assert bus.counts(path) == (65, 0)


@pytest.mark.parametrize("detect", WAYS)
def test_what_comes_after_the_start_of_a_run_is_left_for_the_next(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    reader = bus.stream(path, detect)
    reader.prepareForTriggerAvailableNow()
    bus.send(path, names(3, "later"))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert bodies(rows(reader, reader.partitions({}, end))) == names(3)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_elsewhere_a_limit_is_shared_equally_by_the_fragments(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.send(path, names(100), partition_key="a")
    bus.send(path, names(3), partition_key="b")
    reader = bus.stream(path, plain, maxMessagesPerTrigger="10")
    end = BrowseOffset.from_json(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()), path)
    assert end is not None
    assert sorted(last - first for first, last in end.ranges()) == [3, 7]


def test_a_limit_in_bytes_is_kept_by_mean_size(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, [f"{number:01000}" for number in range(30)])
    query = Query(lambda: bus.stream(path, maxBytesPerTrigger="11000"))
    query.run()
    assert len(query.kept) == 30
    assert max(query.sizes) <= 11
    assert query.sizes[0] >= 8


@pytest.mark.parametrize("detect", WAYS)
def test_latest_is_where_the_entity_ends_when_the_query_is_new_whatever_happens_then(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    query = Query(lambda: bus.stream(path, detect, startingOffsets="latest"))
    query.run()
    assert query.kept == []
    bus.send(path, names(3, "later"))
    query.run()  # in another process, so to speak
    assert query.kept == names(3, "later")


def test_a_query_may_start_at_numbers(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(6))
    query = Query(lambda: bus.stream(path, startingOffsets='{"0": 4}'))
    query.run()
    assert query.kept == ["m3", "m4", "m5"]


def test_a_query_cannot_start_at_a_number_that_is_yet_to_come(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(6))
    query = Query(lambda: bus.stream(path, startingOffsets='{"0": 7}'))
    query.run()
    bus.send(path, names(1, "later"))
    query.run()
    assert query.kept == names(1, "later")
    with pytest.raises(OptionError, match=r"startingOffsets has 9 for fragment 0, but the next message .* gets 8"):
        bus.stream(path, startingOffsets='{"0": 9}').latestOffset()


def test_a_new_query_over_nothing_logs_nothing(bus: Bus) -> None:
    path = bus.queue()
    query = Query(lambda: bus.stream(path))
    query.run()
    assert query.log == []


def test_only_the_states_asked_for_are_shown(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    bus.defer(path, 1)
    for states, shown in (("active", names(4)[1:]), ("deferred", ["m0"]), ("active,deferred", names(4))):
        query = Query(lambda states=states: bus.stream(path, includeStates=states))  # type: ignore[misc]
        query.run()
        assert query.kept == shown


def test_messages_that_others_took_are_passed_over_or_fail_the_query(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    lenient, strict = (
        Query(lambda fails=fails: bus.stream(path, failOnDataLoss=fails, maxMessagesPerTrigger="1"))  # type: ignore[misc]
        for fails in ("false", "true")
    )
    for query in (lenient, strict):
        query.run(batches_max=1)
    bus.take(path, 3)
    lenient.run()
    assert lenient.kept == ["m0", "m3"]
    with pytest.raises(SourceFailed, match="up to 2 messages were removed or expired"):
        strict.run()


def test_fragments_can_be_chosen_and_have_to_be_there(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    reader = bus.stream(path, fragments="1,2")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert {row["fragment"] for row in rows(reader, reader.partitions({}, end))} == {1, 2}
    with pytest.raises(ValueError, match=r"fragments has 1; .* has fragments 0 to 0"):
        bus.stream(bus.queue(), fragments="1").latestOffset()


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_a_number_for_a_fragment_that_the_entity_does_not_have_is_refused(bus: Bus, name: str) -> None:
    """It would be ignored, and all messages would be read."""
    given: Any = {name: json.dumps({"3": (3 << 48) + 17})}
    with pytest.raises(ValueError, match=rf"{name} has 3; .* has fragments 0 to 0"):
        bus.batch(bus.queue(), **given).partitions()


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_run_that_is_to_read_all_reads_what_it_can_and_fails_if_a_fragment_is_unhealthy(bus: Bus, mode: str) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    query = Query(lambda: bus.stream(path, mode=mode, retryTotal="0"))
    store = bus.namespace.store_of(path)
    bus.namespace.store_down(store)
    try:
        with pytest.raises(
            SourceUnavailable, match=r"^Fragments 0, .* of '.*' do not answer.*Everything else was; start"
        ):
            query.run()
        assert 0 < len(query.kept) < 64
    finally:
        bus.namespace.store_up(store)
    query.run()
    assert sorted(query.kept) == sorted(names(64))


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_fragment_that_becomes_unhealthy_during_a_run_fails_it_if_there_is_more_to_read(bus: Bus, mode: str) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    query = Query(lambda: bus.stream(path, mode=mode, retryTotal="0", maxMessagesPerTrigger="32"))

    def fall_ill(step: str) -> None:
        if step == "committed" and len(query.kept) == 32:
            bus.namespace.store_down(0)

    try:
        with pytest.raises(SourceUnavailable):
            query.run(fall_ill)
    finally:
        bus.namespace.store_up(0)
    query.run()
    assert sorted(query.kept) == sorted(names(64))


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_an_empty_fragment_that_becomes_unhealthy_during_a_run_does_not_fail_it(bus: Bus, mode: str) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, ["only"])
    (head,) = (each for each in bus.ask(path, lambda access: access.heads()) if each.waiting)
    store = (bus.namespace.store_of(path) + head.fragment + 1) % STORE_COUNT_DEFAULT
    query = Query(lambda: bus.stream(path, mode=mode, retryTotal="0"))

    def fall_ill(step: str) -> None:
        if step == "committed" and query.kept:
            bus.namespace.store_down(store)

    try:
        query.run(fall_ill)
    finally:
        bus.namespace.store_up(store)
    assert query.kept == ["only"]


def test_a_stream_without_end_goes_on_without_a_fragment_that_is_unhealthy_and_reads_it_later(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    reader = bus.stream(path)
    bus.namespace.store_down(0)
    try:
        some = reader.latestOffset()
        found = bodies(rows(reader, reader.partitions({}, some)))
        assert 0 < len(found) < 64
        assert reader.latestOffset(some) == some
    finally:
        bus.namespace.store_up(0)
    rest = reader.latestOffset(some)
    found += bodies(rows(reader, reader.partitions(some, rest)))
    assert sorted(found) == sorted(names(64))


def test_a_fragment_that_was_unhealthy_at_first_starts_where_the_options_say(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    ahead = str(4_000_000_000_000)  # behind all messages
    query = Query(lambda: bus.stream(path, startingTimestamp=ahead, retryTotal="0"))
    bus.namespace.store_down(0)
    try:
        with pytest.raises(SourceUnavailable):
            query.run()
    finally:
        bus.namespace.store_up(0)
    query.run()
    assert query.kept == []
    bus.spread(path, names(64, "later"))
    query.run()
    assert sorted(query.kept) == sorted(names(64, "later"))


def test_a_query_does_not_start_at_ends_that_are_not_known(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    query = Query(lambda: bus.stream(path, startingOffsets="latest", retryTotal="0"))
    bus.namespace.store_down(0)
    try:
        with pytest.raises(
            SourceUnavailable, match=r"cannot report where its fragments .* end: .* Start it again later"
        ):
            query.run()
    finally:
        bus.namespace.store_up(0)
    query.run()
    assert query.kept == []


def test_numbers_that_others_consumed_take_no_batches(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(40))
    query = Query(lambda: bus.stream(path, maxMessagesPerTrigger="2"))
    query.run(batches_max=1)
    bus.take(path, 36)
    query.run()
    assert query.sizes == [2, 2, 2]
    assert query.kept == ["m0", "m1", "m36", "m37", "m38", "m39"]


def test_what_others_consume_during_a_run_does_not_prolong_it(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    reader = bus.stream(path)
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    bus.send(path, names(4, "later"))
    bus.take(path, 6)
    assert reader.latestOffset(end, limit) == end


def test_lag_is_reported_without_asking_again(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    reader = bus.stream(path, maxMessagesPerTrigger="4")
    assert reader.reportLatestOffset() is None
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert lag(end, reported) == {0: 6}


def test_an_idle_stream_asks_once_in_an_interval(bus: Bus) -> None:
    path = bus.queue()
    reader = bus.stream(path, minPollInterval="1h")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    bus.send(path, names(1))
    assert reader.latestOffset(start) == start


def test_a_stream_that_finds_something_asks_again_at_once(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(2))
    query = Query(lambda: bus.stream(path, minPollInterval="1h", maxMessagesPerTrigger="1"))
    query.run()
    assert query.kept == names(2)


def test_a_checkpoint_of_another_entity_is_refused(bus: Bus) -> None:
    first, second = bus.queue(), bus.queue()
    bus.send(first, names(1))
    end = bus.stream(first).latestOffset()
    with pytest.raises(OffsetError, match=f"of '{first}', not to mode=browse of '{second}'"):
        bus.stream(second).latestOffset(end)


def test_data_loss_cannot_be_detected_in_other_namespaces(bus: Bus) -> None:
    with pytest.raises(MessagingError, match="failOnDataLoss needs a twinbus namespace"):
        bus.stream(bus.queue(), plain, failOnDataLoss="true").latestOffset()


def test_messages_of_sessions_are_browsed_like_others(bus: Bus) -> None:
    path = bus.queue(requires_session=True)
    bus.send(path, names(3), session_id="s")
    query = Query(lambda: bus.stream(path))
    query.run()
    assert query.kept == names(3)


def test_a_queue_that_was_made_again_is_read_anew_or_fails_the_query(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    lenient, strict = (
        Query(lambda fails=fails: bus.stream(path, failOnDataLoss=fails))  # type: ignore[misc]
        for fails in ("false", "true")
    )
    lenient.run()
    strict.run()
    bus.namespace.administration.delete_queue(path)
    bus.namespace.create_queue(path)
    bus.send(path, names(2, "new"))
    lenient.run()
    assert lenient.kept == names(5) + names(2, "new")
    with pytest.raises(SourceFailed, match="was deleted and created again"):
        strict.run()


@pytest.mark.parametrize("count", [5, 9])
def test_a_queue_that_was_made_again_is_read_from_its_first_message_however_many_it_has_by_now(
    bus: Bus, count: int
) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    query = Query(lambda: bus.stream(path))
    query.run()
    make_again(bus, path)
    bus.send(path, names(count, "new"))
    query.run()
    assert query.kept == names(5) + names(count, "new")
    query.run()
    assert query.kept == names(5) + names(count, "new")


@pytest.mark.parametrize("count", [2, 5, 9])
def test_a_queue_elsewhere_that_was_made_again_between_two_runs_is_known_by_its_messages(bus: Bus, count: int) -> None:
    """There nobody says when it was created."""
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(40))
    query = Query(lambda: bus.stream(path, plain))
    query.run()
    CONNECTIONS.close()  # another run is another process
    query.run()
    assert sorted(query.kept) == sorted(names(40))
    CONNECTIONS.close()
    make_again(bus, path, enable_partitioning=True)
    new = [f"new{number}" for number in range(20 * count)]
    bus.spread(path, new)
    query.run()
    assert sorted(query.kept) == sorted(names(40) + new)
    CONNECTIONS.close()
    bus.spread(path, ["last"])
    query.run()
    assert sorted(query.kept) == sorted([*names(40), *new, "last"])


def test_a_queue_elsewhere_is_the_same_although_its_first_messages_were_taken(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    query = Query(lambda: bus.stream(path, plain))
    query.run()
    CONNECTIONS.close()
    bus.take(path, 5)
    bus.send(path, ["last"])
    query.run()
    assert query.kept == [*names(5), "last"]


def test_where_a_query_was_told_to_start_holds_for_the_queue_of_that_time_alone(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    query = Query(lambda: bus.stream(path, startingOffsets='{"0": 4}'))
    query.run()
    make_again(bus, path)
    bus.send(path, names(2, "new"))
    query.run()
    assert query.kept == [*names(5)[3:], *names(2, "new")]


def test_a_query_that_must_not_lose_anything_fails_if_its_queue_was_made_again(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    query = Query(lambda: bus.stream(path, failOnDataLoss="true"))
    query.run()
    make_again(bus, path)
    bus.send(path, names(9, "new"))
    with pytest.raises(SourceFailed, match="was deleted and created again"):
        query.run()


def test_a_queue_that_is_made_again_between_two_batches_of_a_run_is_read_from_its_first_message(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(2))
    reader = bus.stream(path)
    first = reader.latestOffset()
    make_again(bus, path)
    bus.send(path, names(4, "new"))
    second = reader.latestOffset(first)
    assert bodies(rows(reader, reader.partitions(second, second))) == names(4, "new")


def make_again(bus: Bus, path: str, **properties: Any) -> None:
    bus.namespace.administration.delete_queue(path)
    bus.namespace.create_queue(path, **properties)
