"""Several processes serve one namespace, and nobody outside can tell: real processes, sockets and stores."""

import asyncio
import os
import signal
from operator import methodcaller
from pathlib import Path
from urllib.request import urlopen

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

from tests.server.nodes.two_nodes import WAIT_S, two_nodes
from twinbus.definitions.entity_file import read_wanted
from twinbus.errors import ArgumentError, StoreInUse
from twinbus.server.nodes import supervisor
from twinbus.server.nodes.node import PREPARE
from twinbus.server.nodes.supervisor import SILENT_S, STUCK_S, Supervisor
from twinbus.server.server_settings import ServerSettings

ODD_AND_EVEN = ("0", "1", "2", "3")


async def test_what_one_process_changes_all_of_them_know(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "first", "parts:partitioned") as namespace:
        for number in range(4):
            await namespace.administer(methodcaller("create_queue", f"q{number}"))
        # Each of these is answered by another process than the one before.
        for _ in range(2):
            names = await namespace.administer(lambda client: [queue.name for queue in client.list_queues()])
            assert names == ["first", "parts", "q0", "q1", "q2", "q3"]
        with pytest.raises(ResourceExistsError):
            await namespace.administer(lambda client: client.create_queue("q0"))
        await namespace.administer(lambda client: client.create_topic("t", enable_partitioning=True))
        await namespace.administer(lambda client: client.create_subscription("t", "s"))
        await namespace.administer(lambda client: client.create_rule("t", "s", "more"))
        for _ in range(2):
            rules = await namespace.administer(lambda client: [rule.name for rule in client.list_rules("t", "s")])
            assert rules == ["$Default", "more"]
        await namespace.administer(lambda client: client.delete_queue("parts"))
        await namespace.administer(lambda client: client.delete_topic("t"))
        for _ in range(2):
            with pytest.raises(ResourceNotFoundError):
                await namespace.administer(lambda client: client.get_queue("parts"))
            with pytest.raises(ResourceNotFoundError):
                await namespace.administer(lambda client: client.get_topic("t"))


async def test_pages_and_switches_are_those_of_the_whole_namespace(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "first", is_metered=True) as namespace:
        for _ in range(2):
            assert (await namespace.ask("GET", "/health"))["status"] == "healthy"
            stores = await namespace.ask("GET", "/$stores")
            assert [(store["index"], store["condition"]) for store in stores] == [(n, "up") for n in range(4)]
        for store in ODD_AND_EVEN:
            assert (await namespace.ask("POST", f"/$stores/{store}/down"))["condition"] == "down"
            assert (await namespace.ask("GET", "/health"))["unhealthy_stores"] == {store: "down"}
            assert (await namespace.ask("POST", f"/$stores/{store}/up"))["condition"] == "up"
            assert (await namespace.ask("POST", f"/$stores/{store}/check"))["failed"] is None
        assert await namespace.ask("POST", "/$connections/disconnect") == {"connections": 0}
        await namespace.ask("POST", "/$meter/flush")
        made = await namespace.ask("PUT", "/$access/reader", {"rights": ["Listen"]})
        for _ in range(2):
            assert [rule["name"] for rule in await namespace.ask("GET", "/$access")][-1] == made["name"]
        before = namespace.supervisor.connection_string
        announced = asyncio.Event()
        loop = asyncio.get_running_loop()

        def announce() -> None:
            loop.call_soon_threadsafe(announced.set)

        namespace.supervisor.on_new_root_key = announce
        await namespace.ask("POST", "/$access/RootManageSharedAccessKey/regenerate?key=primary")
        await asyncio.wait_for(announced.wait(), 20)
        assert namespace.supervisor.connection_string != before
        for _ in range(2):
            assert len(await namespace.ask("GET", "/$stores")) == 4


async def test_a_process_that_was_killed_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "first") as namespace:
        killed, begin, may_begin = namespace.supervisor.process_ids[1], namespace.supervisor._begin, asyncio.Event()

        async def begin_when_told(index: int) -> None:
            await may_begin.wait()
            await begin(index)

        namespace.supervisor._begin = begin_when_told  # type: ignore[method-assign]
        namespace.kill(1)
        await namespace.until(lambda: 1 not in namespace.supervisor.process_ids)
        health = await namespace.ask("GET", "/health")
        assert (health["status"], set(health["unhealthy_stores"])) == ("limited", {"1", "3"})
        await namespace.administer(lambda client: [queue.name for queue in client.list_queues()])
        may_begin.set()
        await namespace.until_healthy()
        assert namespace.supervisor.process_ids[1] != killed
        for _ in range(2):
            names = await namespace.administer(lambda client: [queue.name for queue in client.list_queues()])
            assert names == ["first"]


async def test_counters_of_the_namespace_do_not_fall_while_a_process_is_replaced(tmp_path: Path) -> None:
    name = "twinbus_connections_opened_total"
    async with two_nodes(tmp_path) as namespace:

        def count() -> float:
            url = f"http://127.0.0.1:{namespace.supervisor.http_port}/metrics?name[]={name}"
            with urlopen(url, timeout=WAIT_S) as answer:
                _, _, sample = answer.read().decode().splitlines()
            series, value = sample.split()
            assert series.startswith(name)
            return float(value)

        for _ in range(4):  # of which each process gets two
            reader, writer = await asyncio.open_connection("127.0.0.1", namespace.supervisor.amqp_port)
            writer.write(b"AMQP\3\1\0\0")
            assert await reader.readexactly(4) == b"AMQP"
            writer.close()
        assert await asyncio.to_thread(count) == 4
        for killed in (0, 1):
            pid = namespace.supervisor.process_ids[killed]
            namespace.kill(killed)
            await namespace.until(lambda pid=pid: pid not in namespace.supervisor.process_ids.values())  # type: ignore[misc]
            assert await asyncio.to_thread(count) == 4
            await namespace.until_healthy()
            assert [await asyncio.to_thread(count) for _ in range(2)] == [4, 4]  # whichever answers


async def test_a_process_that_hangs_while_it_takes_the_place_of_another_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_nodes(tmp_path) as namespace:
        reserve = namespace.supervisor._reserve
        assert reserve is not None
        reserve.process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(supervisor, "START_WAIT_S", 0.5)
        namespace.kill(1)
        await namespace.until(lambda: namespace.supervisor.process_ids.get(1) == reserve.process.pid)
        await namespace.until(lambda: 1 not in namespace.supervisor.process_ids)
        assert reserve.process.wait() == -signal.SIGKILL
        monkeypatch.setattr(supervisor, "START_WAIT_S", WAIT_S)
        await namespace.until_healthy()


async def test_words_of_a_process_that_has_ended_are_not_taken_for_those_of_its_successor(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as namespace:
        node = namespace.supervisor._nodes[1]
        namespace.supervisor._kill_stuck(node, STUCK_S)
        # What it wrote before is read only now.
        node.leash.data_received(b'{"ready": true}\n{"turn": 1, "name": "orders"}\n')
        assert not node.is_ready
        await namespace.until_healthy()
        for _ in range(2):  # one of them at its successor, whose first turn this is
            await namespace.administer(methodcaller("create_queue", "orders"))
            await namespace.administer(methodcaller("delete_queue", "orders"))


async def test_lines_for_a_process_that_reads_nothing_keep_nobody_waiting(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as namespace:
        hired = namespace.supervisor._hire()
        assert not hired.arrivals.getblocking()
        hired.dismiss()
        await asyncio.to_thread(hired.process.wait)


async def test_a_namespace_that_cannot_be_served_says_why_and_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_nodes(tmp_path) as namespace:
        again = Supervisor(namespace.supervisor.settings, 2, read_wanted((), None))
        caplog.set_level("INFO")
        caplog.clear()
        with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()}"):
            await again.start()
        assert "stopped" not in caplog.messages, "it never served"
    other = Supervisor(
        ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=5), 2, read_wanted((), None)
    )
    with pytest.raises(ArgumentError, match="use --stores 4"):
        await other.start()
    async with two_nodes(tmp_path) as namespace:
        assert sorted(namespace.supervisor.process_ids) == [0, 1]


async def test_entities_that_cannot_be_created_yet_when_all_processes_are_there_are_created_later(
    tmp_path: Path,
) -> None:
    """On a busy machine a line between two of them may break while the namespace starts."""
    async with two_nodes(tmp_path, "parts:partitioned") as namespace:
        await namespace.administer(lambda client: client.delete_queue("parts"))
        await namespace.ask("POST", "/$stores/1/down")
        preparing = asyncio.create_task(namespace.supervisor._ask_first_node(PREPARE))
        await asyncio.wait([preparing], timeout=0.5)
        await namespace.ask("POST", "/$stores/1/up")
        await preparing
        assert await namespace.administer(lambda client: client.get_queue("parts").name) == "parts"


async def test_a_process_that_stands_still_gets_no_connections_and_is_replaced_if_it_goes_on(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "first") as namespace:
        supervisor = namespace.supervisor
        node, pid = supervisor._nodes[1], supervisor.process_ids[1]

        def is_given_connections() -> bool:
            return 1 in supervisor._reception._desks

        os.kill(pid, signal.SIGSTOP)
        while node.silent_s < SILENT_S:
            supervisor._look_at(node)
        assert not is_given_connections()
        os.kill(pid, signal.SIGCONT)
        await namespace.until(is_given_connections)
        os.kill(pid, signal.SIGSTOP)
        while node.silent_s < STUCK_S:
            supervisor._look_at(node)
        await namespace.until(lambda: supervisor.process_ids.get(1, pid) != pid)
        await namespace.until_healthy()
