"""Connections that are kept, closed when idle, and made again when they fail; and calls that are tried again."""

import pytest

from tests.interop.running_server import wait_until
from tests.pipeline.source.bus import Bus, names
from twinbus.client.remote_errors import ConnectionLost
from twinbus.pipeline.source.access.connections import ConnectionCache
from twinbus.pipeline.source.access.entity_access import EntityAccess
from twinbus.pipeline.source.live_entity import LiveEntity, SourceUnavailable
from twinbus.pipeline.source.option_table import BATCH


async def heads(access: EntityAccess) -> int:
    return len(await access.heads())


def test_a_connection_serves_task_after_task(bus: Bus) -> None:
    cache = ConnectionCache()
    options = bus.options(bus.queue(), BATCH).connection
    assert cache.get(options) is cache.get(options)
    assert cache.open_count == 1
    cache.close()
    assert cache.open_count == 0


def test_a_connection_that_nobody_uses_is_closed_after_a_while(bus: Bus) -> None:
    time = 0.0
    cache = ConnectionCache(idle_s=60, now=lambda: time)
    options = bus.options(bus.queue(), BATCH).connection
    connection = cache.get(options)
    time = 59.0
    cache.close_idle(options)
    assert connection.is_good
    assert cache.get(options) is connection
    time = 118.0
    cache.close_idle(options)
    assert connection.is_good
    time = 119.0
    cache.close_idle(options)
    assert not connection.is_good
    assert cache.open_count == 0
    cache.close()


def test_a_connection_that_somebody_uses_is_not_closed(bus: Bus) -> None:
    time = 0.0
    cache = ConnectionCache(idle_s=60, now=lambda: time)
    options = bus.options(bus.queue(), BATCH).connection
    with cache.use(options) as connection:
        time = 1000.0
        cache.close_idle(options)
        assert connection.is_good
    time = 1060.0
    cache.close_idle(options)
    assert not connection.is_good
    cache.close()


def test_time_itself_closes_what_is_idle(bus: Bus) -> None:
    cache = ConnectionCache(idle_s=0.01)
    connection = cache.get(bus.options(bus.queue(), BATCH).connection)
    wait_until(lambda: not connection.is_good)
    cache.close()


def test_a_connection_that_ended_is_replaced(bus: Bus) -> None:
    cache = ConnectionCache()
    path = bus.queue()
    options = bus.options(path, BATCH).connection
    entity = LiveEntity(options, path, connections=cache, sleep=lambda _: None)
    assert entity.call(heads) == 1
    first = cache.get(options)
    bus.namespace.disconnect()
    assert entity.call(heads) == 1
    assert cache.get(options) is not first
    cache.close()


def test_a_child_process_does_not_use_the_connections_of_its_parent(bus: Bus) -> None:
    cache = ConnectionCache()
    options = bus.options(bus.queue(), BATCH).connection
    first = cache.get(options)
    cache._pid -= 1
    second = cache.get(options)
    assert second is not first
    assert cache.open_count == 1
    first.close()
    cache.close()


@pytest.mark.parametrize(("failures", "works"), [(2, True), (3, False)])
def test_what_may_succeed_later_is_tried_as_often_as_the_option_says(bus: Bus, failures: int, works: bool) -> None:
    cache = ConnectionCache()
    path = bus.queue()
    pauses: list[float] = []
    entity = LiveEntity(
        bus.options(path, BATCH, retryTotal="2").connection, path, connections=cache, sleep=pauses.append
    )
    left = failures

    async def work(access: EntityAccess) -> str:
        nonlocal left
        if left:
            left -= 1
            raise ConnectionLost("gone")
        return "done"

    if works:
        assert entity.call(work) == "done"
    else:
        with pytest.raises(SourceUnavailable, match=f"'{path}': gone"):
            entity.call(work)
    assert pauses == [0.5, 1.0]
    cache.close()


def test_a_reader_outlives_a_restart_of_its_namespace(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    cache = ConnectionCache()
    entity = LiveEntity(bus.options(path, BATCH).connection, path, connections=cache, sleep=lambda _: None)
    assert entity.call(heads) == 1
    bus.namespace.kill()
    bus.namespace.start()
    assert entity.call(heads) == 1
    cache.close()
