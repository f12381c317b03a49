"""Whoever is asked for the metrics of a namespace with several processes gets those of all of them."""

import asyncio
from dataclasses import dataclass, field

import pytest

from twinbus.server.nodes import totals
from twinbus.server.nodes.switchboard import Switchboard, Words
from twinbus.server.nodes.totals import Totals


@dataclass
class Process:
    index: int
    life: int
    is_ready: bool = True
    is_heard: bool = True


@dataclass
class Namespace:
    """Processes that answer when they are told to."""

    processes: list[Process]
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Nodes, and the numbers of the questions."""

    def __post_init__(self) -> None:
        self.switchboard = Switchboard(self._send)
        for process in self.processes:
            self.switchboard.joined(process.index)
        self.totals = Totals(self.switchboard.ask, lambda: self.processes)

    def _send(self, node: int, words: Words) -> None:
        if "asked" in words:
            self.asked.append((node, words["asked"]))

    def answer(self, node: int, value: float) -> None:
        (number,) = [number for each, number in self.asked if each == node]
        self.asked.remove((node, number))
        self.switchboard.told(node, {"answer": number, "value": counted(value)})

    def end(self, process: Process) -> None:
        process.is_ready = process.is_heard = False
        self.switchboard.left(process.index)
        self.totals.ended(process)

    async def scrape(self, values: dict[int, float]) -> str:
        asking = await self.scraping()
        for node, value in values.items():
            self.answer(node, value)
        return await asking

    async def scraping(self) -> "asyncio.Task[str]":
        asking = asyncio.create_task(self.totals.text({"wanted": [], "stores": []}))
        await asyncio.sleep(0)
        return asking


def counted(value: float) -> str:
    return f"# HELP messages_total Messages\n# TYPE messages_total counter\nmessages_total {value}\n"


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Namespace:
    monkeypatch.setattr(totals, "LOOK_EVERY_S", 0.001)
    return Namespace([Process(0, 1), Process(1, 2)])


async def test_a_process_that_stands_still_keeps_nobody_waiting_and_its_counters_stay(namespace: Namespace) -> None:
    assert await namespace.scrape({0: 5.0, 1: 7.0}) == counted(12.0)
    namespace.processes[1].is_heard = False
    assert await namespace.scrape({0: 6.0}) == counted(13.0)
    namespace.answer(1, 8.0)  # when it goes on, and nobody waits any more
    namespace.processes[1].is_heard = True
    assert await namespace.scrape({0: 6.0, 1: 9.0}) == counted(15.0)


async def test_counters_do_not_fall_when_a_process_ends_and_another_one_takes_its_place(namespace: Namespace) -> None:
    await namespace.scrape({0: 5.0, 1: 7.0})
    namespace.end(namespace.processes[1])
    assert await namespace.scrape({0: 5.0}) == counted(12.0)
    namespace.processes[1] = Process(1, 3, is_ready=False)
    namespace.switchboard.joined(1)
    assert await namespace.scrape({0: 5.0}) == counted(12.0)
    namespace.processes[1].is_ready = True
    assert await namespace.scrape({0: 5.0, 1: 1.0}) == counted(13.0)


@pytest.mark.parametrize("has_answered", [False, True])
async def test_what_a_process_says_that_ends_meanwhile_is_not_counted_twice(
    namespace: Namespace, has_answered: bool
) -> None:
    await namespace.scrape({0: 5.0, 1: 7.0})
    scraping = await namespace.scraping()
    if has_answered:
        namespace.answer(1, 7.0)
    namespace.end(namespace.processes[1])
    namespace.answer(0, 6.0)
    assert await scraping == counted(13.0)
    assert await namespace.scrape({0: 6.0}) == counted(13.0)


async def test_two_who_ask_at_the_same_time_are_answered_one_after_the_other(namespace: Namespace) -> None:
    first, second = await namespace.scraping(), await namespace.scraping()
    assert len(namespace.asked) == 2
    for node in (0, 1):
        namespace.answer(node, 1.0)
    assert await first == counted(2.0)
    while not namespace.asked:
        await asyncio.sleep(0)
    for node in (0, 1):
        namespace.answer(node, 2.0)
    assert await second == counted(4.0)


async def test_a_process_that_refuses_to_say_is_one_that_does_not_answer(namespace: Namespace) -> None:
    await namespace.scrape({0: 5.0, 1: 7.0})
    scraping = await namespace.scraping()
    (refusing,) = [number for node, number in namespace.asked if node == 1]
    namespace.switchboard.told(1, {"answer": refusing, "error": {"kind": "InternalError", "text": "broken"}})
    namespace.answer(0, 5.0)
    assert await scraping == counted(12.0)


async def test_a_process_that_lives_and_does_not_answer_is_waited_for_no_longer_than_a_scrape_may_last(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "PATIENCE_S", 0.0)
    scraping = await namespace.scraping()
    assert await scraping == ""
