"""Stores in a process of their own, over real sockets and files: what it answers, and what its end costs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from tests.contract.rows import row
from twinbus.errors import StoreUnavailable
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.server.data.data_folder import witness_of
from twinbus.server.server_settings import LogFormat, LogLevel
from twinbus.server.stores import socket_line
from twinbus.server.stores.places import StoresToKeep
from twinbus.server.stores.process import StoreProcess
from twinbus.server.stores.served_store import ServedStore, StoreCondition
from twinbus.store import journal_record
from twinbus.store.changes import Change, Enqueued, FragmentCreated, Removed, fragment_key
from twinbus.store.folder.identity import announce_new
from twinbus.store.folder.store import FolderStore
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import ANY_STATE, Read, Scan

WAIT_S = 20.0


class Kept:
    """Two stores, and what their keeper reported of them."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self._changed = asyncio.Event()
        self.paths = [folder / "stores" / "00", folder / "stores" / "01"]
        for path in self.paths:
            announce_new(witness_of(path))
        self.keeper = StoreProcess(
            StoresToKeep(self.paths),
            (LogFormat.LOGFMT, LogLevel.INFO),
            asyncio.get_running_loop(),
            on_lost=self._lost,
            on_returned=self._returned,
        )

    def _lost(self, index: int, _: StoreUnavailable) -> None:
        self._say(f"lost {index}")

    def _returned(self, index: int) -> None:
        self._say(f"returned {index}")

    def _say(self, what: str) -> None:
        self.said.append(what)
        self._changed.set()

    async def heard(self, *what: str) -> None:
        """Waits until all of it was reported, and forgets it."""
        async with asyncio.timeout(WAIT_S):
            while not set(what) <= set(self.said):
                self._changed.clear()
                await self._changed.wait()
        for one in what:
            self.said.remove(one)

    def store(self, index: int) -> ServedStore:
        return self.keeper.stores[index]

    def commit(self, index: int, *changes: Change) -> "asyncio.Future[StoreUnavailable | None]":
        return _asked(partial(self.store(index).commit, list(changes)))

    def query(self, index: int, read: Read[Any]) -> "asyncio.Future[Any]":
        return _asked(partial(self.store(index).query, read))


def _asked(ask: Callable[[Callable[[Any], None]], None]) -> "asyncio.Future[Any]":
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return answer


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Kept]:
    stores = Kept(folder)
    await stores.keeper.start()
    try:
        await stores.heard("returned 0", "returned 1")
        yield stores
    finally:
        await stores.keeper.stop()


def _note(done: list[int], place: int, _: "asyncio.Future[Any]") -> None:
    done.append(place)


KEYS = [fragment_key(7, 0), fragment_key(7, 1)]


def enqueued(index: int, *contents: bytes) -> Enqueued:
    first = (index << SEQUENCE_BITS) + 1
    return Enqueued(KEYS[index], [row(first + place, content) for place, content in enumerate(contents)])


def contents(rows: Any) -> list[bytes]:
    return [message.content for message in rows]


def scan(index: int) -> Scan:
    return Scan(KEYS[index], 0, 1_000, 10_000_000)


async def test_commits_and_queries_are_answered_in_order_by_the_store_they_were_asked_of(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        large = os.urandom(3_000_000)
        asked = [
            stores.commit(0, FragmentCreated(KEYS[0])),
            stores.commit(1, FragmentCreated(KEYS[1])),
            stores.query(0, scan(0)),
            stores.commit(0, enqueued(0, b"one", large)),
            stores.query(0, scan(0)),
            stores.query(1, scan(1)),
        ]
        done: list[int] = []
        for place, future in enumerate(asked):
            future.add_done_callback(partial(_note, done, place))
        assert stores.store(0).waiting_bytes > len(large)
        answers = await asyncio.wait_for(asyncio.gather(*asked), WAIT_S)
        assert stores.store(0).waiting_bytes == 0
        assert answers[:4] == [None, None, [], None]
        assert contents(answers[4]) == [b"one", large]
        assert answers[5] == []
        assert [place for place in done if place not in (1, 5)] == [0, 2, 3, 4]
        assert [place for place in done if place in (1, 5)] == [1, 5]


async def test_what_was_committed_is_there_when_the_process_was_killed(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        await stores.commit(0, FragmentCreated(KEYS[0]), enqueued(0, b"kept"))
        process_id = stores.keeper.process_id
        assert process_id is not None
        os.kill(process_id, signal.SIGKILL)
        in_vain = stores.commit(0, FragmentCreated(KEYS[0]))
        await stores.heard("lost 0", "lost 1")
        assert isinstance(await in_vain, StoreUnavailable)
        assert stores.store(0).condition is StoreCondition.LOST
        assert stores.store(0).waiting_bytes == 0
        assert isinstance(await stores.commit(0, FragmentCreated(KEYS[0])), StoreUnavailable)
        await stores.heard("returned 0", "returned 1")
        assert contents(await stores.query(0, scan(0))) == [b"kept"]
        assert stores.keeper.process_id != process_id


async def test_a_restarted_process_knows_the_switches(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        stores.store(1).down()
        await stores.heard("lost 1")
        assert stores.keeper.process_id is not None
        os.kill(stores.keeper.process_id, signal.SIGKILL)
        await stores.heard("lost 0", "lost 1", "returned 0")
        assert isinstance(await stores.commit(1, FragmentCreated(KEYS[1])), StoreUnavailable)
        assert stores.store(1).condition is StoreCondition.DOWN
        stores.store(1).up()
        await stores.heard("returned 1")
        assert await stores.commit(1, FragmentCreated(KEYS[1])) is None


async def test_a_store_that_is_switched_off_refuses_and_the_other_goes_on(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        stores.store(0).down()
        await stores.heard("lost 0")
        assert isinstance(await stores.commit(0, FragmentCreated(KEYS[0])), StoreUnavailable)
        assert await stores.commit(1, FragmentCreated(KEYS[1])) is None
        stores.store(0).up()
        await stores.heard("returned 0")
        assert await stores.commit(0, FragmentCreated(KEYS[0])) is None


async def test_a_lost_reply_fails_a_commit_that_happened(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        await stores.commit(0, FragmentCreated(KEYS[0]))
        stores.store(0).lose_acks(1)
        assert isinstance(await stores.commit(0, enqueued(0, b"twice?")), StoreUnavailable)
        await stores.heard("lost 0", "returned 0")
        assert stores.store(0).acks_to_lose == 0
        assert contents(await stores.query(0, scan(0))) == [b"twice?"]


@pytest.mark.parametrize(
    "broken",
    [Removed(KEYS[0], [2**80]), enqueued(0, b"in a fragment that does not exist")],
    ids=["not encoded", "refused by the store"],
)
async def test_a_commit_that_breaks_costs_the_store_its_run_and_nothing_that_is_durable(
    tmp_path: Path, broken: Change
) -> None:
    async with kept(tmp_path) as stores:
        await stores.commit(1, FragmentCreated(KEYS[1]))
        assert isinstance(await stores.commit(0, broken), StoreUnavailable)
        await stores.heard("lost 0")
        stores.store(0).up()  # ends the pause before the next try
        await stores.heard("returned 0")
        assert await stores.commit(0, FragmentCreated(KEYS[0])) is None
        assert await stores.query(1, scan(1)) == []


async def test_a_commit_that_is_too_large_for_a_batch_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_line, "COMMIT_BYTES_MAX", 1_000)
    async with kept(tmp_path) as stores:
        await stores.commit(0, FragmentCreated(KEYS[0]))
        assert isinstance(await stores.commit(0, enqueued(0, bytes(1_001))), StoreUnavailable)
        await stores.heard("lost 0", "returned 0")
        assert await stores.commit(0, enqueued(0, bytes(100))) is None


async def test_a_commit_that_is_sent_in_steps_arrives_whole_and_what_is_asked_behind_it_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_record, "PART_WEIGHT", 5)
    monkeypatch.setattr(socket_line, "JOINED_BYTES_MAX", 100_000)
    monkeypatch.setattr(socket_line, "LAID_SIZE_MIN", 1 << 40)
    sizes = [1 << 20, *[1_000] * 40, 3 << 20, 0, 7]
    async with kept(tmp_path) as stores:
        await stores.commit(0, FragmentCreated(KEYS[0]))
        large = stores.commit(0, enqueued(0, *[bytes(size) for size in sizes]))
        found, later = stores.query(0, scan(0)), stores.commit(0, Removed(KEYS[0], [1]))
        assert await large is None
        assert [len(content) for content in contents(await found)] == sizes
        assert await later is None
        assert stores.store(0).waiting_bytes == 0


class Unreadable:
    """Raises in whatever unpickles it."""

    def run(self, _: MessagingStore) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


async def test_what_is_not_a_read_is_refused_and_costs_the_store_its_run(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        function: Any = methodcaller("summaries")
        answer = await asyncio.wait_for(stores.query(0, function), WAIT_S)
        assert isinstance(answer, StoreUnavailable)
        assert "is not a read" in str(answer)
        await stores.heard("lost 0", "returned 0")


async def test_a_request_that_cannot_be_read_costs_the_process_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        await stores.commit(1, FragmentCreated(KEYS[1]))
        answer = stores.query(0, Unreadable())
        assert isinstance(await asyncio.wait_for(answer, WAIT_S), StoreUnavailable)
        await stores.heard("lost 0", "lost 1", "returned 0", "returned 1")
        assert await stores.query(1, scan(1)) == []


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_stop_during_a_restart_leaves_no_process(tmp_path: Path, turns: int) -> None:
    async with kept(tmp_path) as stores:
        assert stores.keeper.process_id is not None
        os.kill(stores.keeper.process_id, signal.SIGKILL)
        await stores.heard("lost 0", "lost 1")
        stores.keeper._start_again()  # as when the pause ends
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(stores.keeper.stop(), WAIT_S)
        await asyncio.sleep(0)
        assert stores.keeper.process_id is None


async def test_a_stop_finishes_what_was_asked_and_closes_the_stores(tmp_path: Path) -> None:
    async with kept(tmp_path) as stores:
        asked = [stores.commit(0, FragmentCreated(KEYS[0])), stores.commit(0, enqueued(0, b"last"))]
        process_id = stores.keeper.process_id
    assert [future.result() for future in asked] == [None, None]
    assert process_id is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
    store = FolderStore(stores.paths[0])
    assert contents(store.scan(KEYS[0], 0, 10, 1_000, ANY_STATE)) == [b"last"]
    store.close()


async def test_the_process_ends_with_the_namespace_and_lets_its_folders_go(tmp_path: Path) -> None:
    stores = Kept(tmp_path)
    await stores.keeper.start()
    await stores.heard("returned 0", "returned 1")
    process = stores.keeper._process
    assert process is not None
    os.kill(process.pid, signal.SIGTERM)  # not for it
    assert await stores.commit(0, FragmentCreated(KEYS[0])) is None
    stores.keeper._is_stopping = True  # as when this process is killed: the sockets close without a word
    for line in stores.keeper._lines:
        line.close()
    await asyncio.to_thread(process.wait, WAIT_S)
    for path in stores.paths:
        FolderStore(path).close()
    stores.keeper.abandon()
