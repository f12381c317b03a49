"""Streams that take messages away, against a real namespace and its two ways of access."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.pipeline.source.bus import Bus, bodies, names, rows
from tests.pipeline.source.micro_batches import Died, Query
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.entity_extras import EntityExtras, PackedPage
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost
from twinbus.errors import MessagingError, ServerBusy
from twinbus.pipeline.source.access import own_access, plain_access
from twinbus.pipeline.source.access.connections import ConnectionCache, Detect
from twinbus.pipeline.source.access.entity_access import Claim, EntityAccess, Wanted
from twinbus.pipeline.source.access.own_access import OwnAccess
from twinbus.pipeline.source.access.plain_access import PlainAccess
from twinbus.pipeline.source.claims import release_claims
from twinbus.pipeline.source.consume_stream import ConsumeStream
from twinbus.pipeline.source.live_entity import LiveEntity, SourceFailed, SourceUnavailable, detected, plain
from twinbus.pipeline.source.offsets import lag
from twinbus.pipeline.source.option_table import STREAM
from twinbus.pipeline.source.planning import BatchLimit
from twinbus.pipeline.source.ranges import Range
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader

WAYS = [pytest.param(detected, id="own"), pytest.param(plain, id="plain")]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_access, "CLAIM_WAIT_S", 0.05)


def consume(bus: Bus, path: str, detect: Detect = detected, **given: str) -> Query:
    return Query(lambda: bus.stream(path, detect, mode="consume", **given))


@pytest.mark.parametrize("detect", WAYS)
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_every_message_is_read_once_and_gone(bus: Bus, detect: Detect, is_partitioned: bool) -> None:
    path = bus.queue(enable_partitioning=is_partitioned)
    bus.spread(path, names(60))
    query = consume(bus, path, detect, maxMessagesPerTrigger="25")
    query.run()
    assert sorted(query.kept) == sorted(names(60))
    assert query.sizes == [0, 25, 25, 10]
    assert bus.counts(path) == (0, 0)


@pytest.mark.parametrize("detect", WAYS)
def test_what_is_claimed_reaches_no_receiver_and_stays_until_the_batch_is_committed(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    reader = bus.stream(path, detect, mode="consume", maxMessagesPerTrigger="3")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    second = reader.latestOffset(first, limit)
    assert bus.take(path, 1) == ["m3"]
    assert bus.counts(path) == (0, 3)
    for _ in range(2):  # as often as Spark likes
        assert bodies(rows(reader, reader.partitions(first, second))) == names(3)
    assert reader.latestOffset(second, limit) == second
    assert bus.counts(path) == (0, 0)


def test_a_claim_that_takes_several_requests_is_one_range(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges with gaps between them are read message by message, which costs more than all the rest."""
    monkeypatch.setattr(own_access, "CLAIM_COUNT_MAX", 10)
    path = bus.queue()
    bus.send(path, names(25))
    query = consume(bus, path)
    query.run()
    assert query.sizes == [0, 25]
    assert json.loads(query.log[1])["claim"] == {"0": [[1, 26]]}


def nine_in_three_tasks(
    bus: Bus, path: str, mode: str
) -> tuple[ServiceBusStreamReader, dict[str, Any], dict[str, Any]]:
    """A stream with nine messages, and the offsets around them."""
    bus.send(path, names(9))
    reader = bus.stream(path, mode=mode, minPartitions="3")
    start = reader.initialOffset()
    if mode == "consume":
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
    return reader, start, reader.latestOffset(start, reader.getDefaultReadLimit())


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_batch_that_is_run_again_has_the_tasks_that_it_had_whatever_the_options_say_by_now(
    bus: Bus, mode: str
) -> None:
    """A sink makes ids of where a row stands: with other tasks they would be others."""
    path = bus.queue()
    reader, start, end = nine_in_three_tasks(bus, path, mode)
    tasks = [task.slices for task in reader.partitions(start, end)]
    assert len(tasks) == 3
    again = bus.stream(path, mode=mode, minPartitions="5", maxPartitions="6")
    assert [task.slices for task in again.partitions(start, end)] == tasks


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_batch_whose_offset_does_not_say_its_tasks_has_those_of_the_options(bus: Bus, mode: str) -> None:
    path = bus.queue()
    _, start, end = nine_in_three_tasks(bus, path, mode)
    assert end.pop("tasks") == 3
    assert len(bus.stream(path, mode=mode, minPartitions="4").partitions(start, end)) == 4


@pytest.mark.parametrize("detect", WAYS)
def test_what_comes_after_the_start_of_a_run_is_left_for_the_next(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    query = consume(bus, path, detect)
    sent = False

    def step(name: str) -> None:
        nonlocal sent
        if name == "planned" and not sent:
            bus.send(path, names(3, "later"))
            sent = True

    query.run(step)
    assert query.kept == names(3)
    assert bus.counts(path) == (3, 0)
    query.run()
    assert query.kept == names(3) + names(3, "later")


@pytest.mark.parametrize("detect", WAYS)
def test_two_queries_over_one_queue_share_its_messages(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(40))
    first, second = (consume(bus, path, detect, maxMessagesPerTrigger="5") for _ in range(2))
    for _ in range(4):
        first.run(batches_max=2)
        second.run(batches_max=2)
    first.run()
    second.run()
    assert sorted(first.kept + second.kept) == sorted(names(40))
    assert second.kept


def test_what_others_deferred_before_the_oldest_messages_is_not_in_the_way_of_a_limit(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(30, "theirs"))
    bus.defer(path, 30)
    bus.spread(path, names(20))
    query = Query(lambda: bus.stream(path, mode="consume", maxMessagesPerTrigger="6"))
    query.run()
    assert sorted(query.kept) == sorted(names(20))
    assert all(size <= 6 for size in query.sizes)
    assert bus.counts(path) == (0, 30)


@pytest.mark.parametrize("detect", WAYS)
@pytest.mark.parametrize(("adopts", "kept", "left"), [("false", names(4)[2:], 2), ("true", names(4), 0)])
def test_messages_that_somebody_else_deferred_are_read_only_if_asked_for(
    bus: Bus, detect: Detect, adopts: str, kept: list[str], left: int
) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    bus.defer(path, 2)
    query = consume(bus, path, detect, adoptDeferred=adopts)
    query.run()
    assert query.kept == kept
    assert bus.counts(path) == (0, left)


def test_messages_that_somebody_else_deferred_may_fail_the_query(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    bus.defer(path, 2)
    with pytest.raises(SourceFailed, match="deferred messages that no query claimed"):
        consume(bus, path, adoptDeferred="fail").run()


def test_the_claims_of_another_query_are_never_adopted(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    other = bus.stream(path, mode="consume", maxMessagesPerTrigger="2")
    other.latestOffset(other.latestOffset(), other.getDefaultReadLimit())
    query = consume(bus, path, adoptDeferred="true")
    query.run()
    assert query.kept == ["m2", "m3"]
    assert bus.counts(path) == (0, 2)


def test_a_claim_is_deleted_although_somebody_got_some_of_it(bus: Bus) -> None:
    """On a plain namespace one number that is gone fails a request for many."""
    path = bus.queue()
    bus.send(path, names(9))
    reader = bus.stream(path, plain, mode="consume")
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.latestOffset(), limit)
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        client.run(client.entity(path).receive_deferred([2, 5, 9], deletes=True))
    assert reader.latestOffset(end, limit) == end
    assert bus.counts(path) == (0, 0)


def test_sessions_are_consumed_where_claims_can_do_it(bus: Bus) -> None:
    path = bus.queue(requires_session=True)
    for session in ("a", "b"):
        bus.send(path, names(3, session), session_id=session)
    query = consume(bus, path)
    query.run()
    assert sorted(query.kept) == names(3, "a") + names(3, "b")
    assert bus.counts(path) == (0, 0)


def test_sessions_are_refused_where_messages_have_to_be_received(bus: Bus) -> None:
    path = bus.queue(requires_session=True)
    with pytest.raises(MessagingError, match="mode=consume cannot claim messages of an entity with message sessions"):
        bus.stream(path, plain, mode="consume").latestOffset()


def test_fragments_cannot_be_chosen_where_messages_have_to_be_received(bus: Bus) -> None:
    with pytest.raises(MessagingError, match="fragments needs a twinbus namespace"):
        bus.stream(bus.queue(), plain, mode="consume", fragments="0").latestOffset()


def test_dead_letters_are_consumed_like_others(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        receiver = client.receiver(path, credit=3)
        assert not any(receiver.dead_letter(receiver.collect(3, 5), "why", "how"))
    query = consume(bus, path, subQueue="deadLetter")
    query.run()
    assert query.kept == names(3)
    assert bus.counts(f"{path}/$DeadLetterQueue") == (0, 0)


@pytest.mark.parametrize("detect", WAYS)
@pytest.mark.parametrize(("count_max", "behind"), [("4", 6), ("100", 0)])
def test_a_query_is_behind_by_what_is_not_in_its_batch(bus: Bus, detect: Detect, count_max: str, behind: int) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    reader = bus.stream(path, detect, mode="consume", maxMessagesPerTrigger=count_max)
    end = reader.latestOffset(reader.latestOffset(), reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert lag(end, reported) == {0: behind}


def test_an_idle_stream_asks_once_in_an_interval_but_deletes_at_once(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(2))
    reader = bus.stream(path, mode="consume", minPollInterval="1h", maxMessagesPerTrigger="1")
    limit = reader.getDefaultReadLimit()
    offsets = [reader.latestOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], limit))
    assert offsets[-1] == offsets[-2]
    assert bus.counts(path) == (0, 0)
    bus.send(path, names(1))
    assert reader.latestOffset(offsets[-1], limit) == offsets[-1]


def test_a_claim_that_lies_in_pieces_is_read_without_what_lies_between(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(8))
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        client.run(client.extras(path).claim(1, owner="other"))
        receiver = client.receiver(path, credit=3)
        held = receiver.collect(3, 5)
        query = consume(bus, path, maxMessagesPerTrigger="2")
        query.run(batches_max=2)
        assert not any(receiver.release(held))
        receiver.close()
    query.run()
    assert sorted(query.kept) == names(8)[1:]


def test_a_limit_in_bytes_is_kept_by_mean_size(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, [f"{number:01000}" for number in range(30)])
    query = consume(bus, path, maxBytesPerTrigger="11000")
    query.run()
    assert len(query.kept) == 30
    assert max(query.sizes) <= 11


def test_lost_claims_in_a_fragment_that_is_unhealthy_are_found_when_it_is_healthy_again(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(64))
    reader = bus.stream(path, mode="consume")
    first = reader.latestOffset()
    reader.latestOffset(first, reader.getDefaultReadLimit())  # a claim that never gets into the log
    reader = bus.stream(path, mode="consume")
    bus.namespace.store_down(0)
    try:
        some = reader.latestOffset(first, reader.getDefaultReadLimit())
        found = bodies(rows(reader, reader.partitions(first, some)))
        assert 0 < len(found) < 64
        assert reader.latestOffset(some, reader.getDefaultReadLimit()) == some
    finally:
        bus.namespace.store_up(0)
    rest = reader.latestOffset(some, reader.getDefaultReadLimit())
    found += bodies(rows(reader, reader.partitions(some, rest)))
    assert sorted(found) == sorted(names(64))


def dies_at(step: str, count: int) -> Callable[[str], None]:
    """At the so-manieth time that a query is there."""
    left = count

    def told(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            raise Died

    return told


@pytest.mark.parametrize(("step", "kept"), [("logged", []), ("committed", names(4))])
def test_a_query_that_starts_again_leaves_alone_what_another_has_claimed_since(
    bus: Bus, step: str, kept: list[str]
) -> None:
    """Whether the first query has still to read the batch or only to delete it."""
    path = bus.queue()
    bus.send(path, names(4))
    first, second = consume(bus, path), consume(bus, path)
    with pytest.raises(Died):
        first.run(dies_at(step, 2))
    bus.ask(path, lambda access: release_claims(access, None))
    with pytest.raises(Died):
        second.run(dies_at("logged", 2))
    first.run()
    assert first.kept == kept
    assert bus.counts(path) == (0, 4)
    second.run()
    assert second.kept == names(4)
    assert bus.counts(path) == (0, 0)


@pytest.mark.parametrize("detect", WAYS)
def test_a_batch_whose_messages_another_run_of_the_query_removes_fails_and_is_not_read_in_part(
    bus: Bus, detect: Detect
) -> None:
    """A sink that keeps one version of each batch would lose them: the other run has written all of it, and this one would replace
    that."""
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(40))
    first = consume(bus, path, detect, maxMessagesPerTrigger="20")
    with pytest.raises(Died):
        first.run(dies_at("logged", 2))
    late = bus.stream(path, detect, mode="consume")
    start, end = map(json.loads, first.log[-2:])
    planned = late.partitions(start, end)
    first.run()
    assert first.sizes == [0, 20, 20]
    with pytest.raises(SourceUnavailable, match=f"20 of 20 messages that a batch of '{path}' claimed are gone"):
        rows(late, planned)


@pytest.mark.parametrize("detect", WAYS)
def test_a_batch_that_is_run_again_has_what_is_left_of_its_claim(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    query = consume(bus, path, detect)
    with pytest.raises(Died):
        query.run(dies_at("logged", 2))
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        client.run(client.entity(path).receive_deferred([2, 5], deletes=True))
    query.run()
    assert query.kept == ["m0", "m2", "m3"]


def test_what_a_peek_does_not_show_is_not_removed_with_its_batch(bus: Bus) -> None:
    """Of a namespace elsewhere nobody promises that a peek shows everything."""
    hidden: set[int] = set()

    class Partial(PlainAccess):
        async def page(self, wanted: Wanted) -> PackedPage:
            page = await super().page(wanted)
            shown = [message.payload for message in page.messages() if message.sequence_number not in hidden]
            return PackedPage.of(shown, page.next_number)

    async def detect(namespace: Namespace, path: str) -> EntityAccess:
        return Partial(namespace, path)

    path = bus.queue()
    bus.send(path, names(5))
    query = consume(bus, path, detect)
    with pytest.raises(Died):
        query.run(dies_at("logged", 2))
    hidden.add(3)
    bus.send(path, ["later"])
    query.run()
    hidden.clear()
    assert bus.counts(path) == (0, 1)
    query.run()
    assert sorted(query.written) == ["later", *names(5)]
    assert bus.counts(path) == (0, 0)


def test_what_an_application_deferred_in_an_entity_that_was_made_again_is_not_deleted(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    query = consume(bus, path)
    with pytest.raises(Died):
        query.run(dies_at("committed", 2))
    bus.namespace.administration.delete_queue(path)
    bus.namespace.create_queue(path)
    bus.send(path, names(3, "new"))
    bus.defer(path, 2)
    query.run()
    assert query.kept == [*names(3), "new2"]
    assert bus.counts(path) == (0, 2)


@pytest.mark.parametrize("waited_s", [1.0, 3_600.0])
def test_what_an_application_deferred_in_an_entity_that_was_made_again_while_a_query_runs_is_not_deleted(
    bus: Bus, waited_s: float
) -> None:
    path, now = bus.queue(), [0.0]
    bus.send(path, names(3))
    with closing(ConnectionCache()) as connections:
        stream = lossy(bus, path, OwnAccess, connections, now)
        claimed = stream.latest(stream.latest({"v": 1}, BatchLimit(3, None)), BatchLimit(3, None))
        bus.namespace.administration.delete_queue(path)
        bus.namespace.create_queue(path)
        bus.send(path, names(3, "new"))
        bus.defer(path, 2)
        now.append(waited_s)
        following = stream.latest(claimed, BatchLimit(3, None))
    assert following["claim"] == {"0": [[3, 4]]}
    assert bus.counts(path) == (0, 3)


def test_what_a_query_claimed_in_an_entity_that_was_made_again_is_not_what_it_had_under_the_same_numbers(
    bus: Bus,
) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    query = consume(bus, path)
    with pytest.raises(Died):
        query.run(dies_at("committed", 2))
    bus.namespace.administration.delete_queue(path)
    bus.namespace.create_queue(path)
    bus.send(path, names(3, "new"))
    with pytest.raises(Died):
        query.run(dies_at("planned", 1))
    query.run()
    assert query.kept == names(3) + names(3, "new")
    assert bus.counts(path) == (0, 0)


def lossy(
    bus: Bus, path: str, access: type[OwnAccess], connections: ConnectionCache, now: list[float]
) -> ConsumeStream:
    """A stream of batches of two by such an access, at the last time of `now`."""

    async def detect(namespace: Namespace, path: str) -> EntityAccess:
        return access(namespace, path)

    options = bus.options(path, STREAM, mode="consume", operationTimeout="5")
    entity = LiveEntity(options.connection, path, detect=detect, connections=connections, sleep=lambda _: None)
    return ConsumeStream(options, entity, monotonic=lambda: now[-1], new_owner=lambda: "spark-me")


def batches_of(stream: ConsumeStream, now: list[float]) -> list[int]:
    """Their sizes; each takes half a minute."""
    sizes = []
    offset = stream.latest({"v": 1}, BatchLimit(2, None))
    while (following := stream.latest(offset, BatchLimit(2, None))) != offset:
        sizes.append(sum(end - first for ranges in following["claim"].values() for first, end in ranges))
        offset = following
        now.append(now[-1] + 30)
    return sizes


def test_claims_that_were_lost_are_looked_for_until_none_is_left_however_long_that_takes(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(6))
    is_lost = False

    class Lossy(OwnAccess):
        async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
            nonlocal is_lost
            if is_lost:
                return await super().claim(shares, ends, owner)
            is_lost = True
            await super().claim({0: 6}, ends, owner)
            raise ConnectionLost("the answer")

    with closing(ConnectionCache()) as connections:
        now = [0.0]
        assert batches_of(lossy(bus, path, Lossy, connections, now), now) == [2, 2, 2]
    assert bus.counts(path) == (0, 0)


@pytest.mark.parametrize("is_done", [False, True])
def test_what_was_claimed_beside_a_removal_that_failed_is_the_next_batch(bus: Bus, is_done: bool) -> None:
    path = bus.queue()
    bus.send(path, names(6))
    removals: list[list[Range]] = []

    class Lossy(OwnAccess):
        async def delete(self, ranges: Sequence[Range]) -> None:
            removals.append(list(ranges))
            if len(removals) != 2 or is_done:
                await super().delete(ranges)
            if len(removals) == 2:
                raise ConnectionLost("the request, or its answer")

    with closing(ConnectionCache()) as connections:
        now = [0.0]
        assert batches_of(lossy(bus, path, Lossy, connections, now), now) == [2, 2, 2]
    assert removals == [[(1, 3)], [(3, 5)], [(3, 5)], [(5, 7)]]
    assert bus.counts(path) == (0, 0)


def test_a_number_that_was_gone_in_one_batch_does_not_make_the_next_one_smaller(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(13))
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        bus.defer(path, 2)
        client.run(client.entity(path).receive_deferred([2], deletes=True))
        client.run(client.extras(path).undefer([(1, 1)]))
    query = consume(bus, path, maxMessagesPerTrigger="4")
    query.run()
    assert query.kept == ["m0", *names(13)[2:]]
    assert query.sizes == [0, 3, 4, 4, 1], "the first has four numbers, one of which is gone"


def test_what_a_fragment_claimed_while_it_became_unhealthy_is_found(bus: Bus) -> None:
    """A store that fails may have done what it was asked for: it only cannot tell."""
    path = bus.queue()
    bus.send(path, names(5))
    is_lost = False

    class Ill(EntityExtras):
        async def claim(self, *args: Any, **given: Any) -> list[Range]:
            nonlocal is_lost
            found = await super().claim(*args, **given)
            if not is_lost:
                is_lost = True
                raise ServerBusy("Its store is ill.")
            return found

    class Lossy(OwnAccess):
        def __init__(self, namespace: Namespace, path: str) -> None:
            super().__init__(namespace, path)
            self._extras = Ill(path, namespace.extras(path)._ask)

    with closing(ConnectionCache()) as connections:
        now = [0.0]
        stream = lossy(bus, path, Lossy, connections, now)
        first = stream.latest({"v": 1}, BatchLimit(2, None))
        assert stream.latest(first, BatchLimit(2, None)) == first  # nobody knows of the two that it claimed
        assert batches_of(stream, now) == [2, 2, 1]
    assert bus.counts(path) == (0, 0)


def test_a_run_does_not_end_because_a_fragment_was_busy_when_it_claimed(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    was_busy = False

    class Busy(EntityExtras):
        async def claim(self, *args: Any, **given: Any) -> list[Range]:
            nonlocal was_busy
            if not was_busy:
                was_busy = True
                raise ServerBusy("Try again.")
            return await super().claim(*args, **given)

    class Slow(OwnAccess):
        def __init__(self, namespace: Namespace, path: str) -> None:
            super().__init__(namespace, path)
            self._extras = Busy(path, namespace.extras(path)._ask)

    with closing(ConnectionCache()) as connections:
        now = [0.0]
        stream = lossy(bus, path, Slow, connections, now)
        stream.entity.set_target()
        first = stream.latest({"v": 1}, BatchLimit(None, None))
        assert stream.latest(first, BatchLimit(None, None)) != first
    assert bus.counts(path) == (0, 5)
