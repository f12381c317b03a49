"""Sockets and descriptors: whoever has waited longest makes room, and refusals are logged once with a count."""

import subprocess
import sys

import pytest

from tests.gateway.test_connections import Stand
from twinbus.gateway.connections import Connections
from twinbus.server.listening.admission import Admission, SharedLimits
from twinbus.server.listening.refusal_log import LOG_EVERY, RefusalLog

NOON = 1_000_000


class Waiting:
    is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def admission(
    http_count_max: int = 10, socket_count_max: int = 100, connections: Connections | None = None
) -> Admission:
    limits = SharedLimits(http_count_max=http_count_max)
    return Admission(limits, connections or Connections(100), RefusalLog(), socket_count_max)


def amqp(count: int) -> tuple[Connections, list[Stand]]:
    """Strangers."""
    connections, stands = Connections(100), [Stand() for _ in range(count)]
    for each in stands:
        connections.add(each)
    return connections, stands


def test_the_connection_that_is_idle_longest_makes_room_and_one_with_a_request_never_does() -> None:
    crowd = admission(http_count_max=3)
    busy, first, second, newcomer = (Waiting() for _ in range(4))
    for each in (busy, first, second):
        crowd.http_idle(each)
    crowd.http_busy(busy)
    crowd.http_busy(first)
    crowd.http_idle(first)
    crowd.http_idle(newcomer)
    assert [each.is_cut for each in (busy, first, second, newcomer)] == [False, False, True, False]


def test_a_newcomer_is_refused_when_all_others_have_a_request() -> None:
    crowd = admission(http_count_max=1)
    busy, newcomer = Waiting(), Waiting()
    crowd.http_idle(busy)
    crowd.http_busy(busy)
    crowd.http_idle(newcomer)
    assert (busy.is_cut, newcomer.is_cut) == (False, True)


def test_all_kinds_of_connections_count_against_the_descriptors() -> None:
    connections, known = amqp(3)
    for client in known:
        connections.proved(client)
    crowd = admission(socket_count_max=7, connections=connections)
    silent = [Waiting() for _ in range(3)]
    for each in silent:
        crowd.wait_for_start(each)
    for _ in range(2):
        crowd.http_idle(Waiting())
    assert [each.is_cut for each in silent] == [True, False, False]
    assert crowd.socket_count == 7
    assert [each.done for each in known] == [[]] * 3


def test_of_very_many_amqp_connections_without_a_token_the_oldest_makes_room_for_a_newcomer() -> None:
    connections, strangers = amqp(3)
    crowd = admission(socket_count_max=4, connections=connections)
    newcomers = [Waiting() for _ in range(3)]
    for each in newcomers:
        crowd.wait_for_start(each)
    assert [each.done for each in strangers] == [["cut"], [], []]
    assert [each.is_cut for each in newcomers] == [True, False, False], "by now they are as many"
    assert crowd.socket_count == 4


def test_a_refusal_is_logged_at_once_and_then_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()

    def counts() -> list[int]:
        return [record.fields["count"] for record in caplog.records]  # type: ignore[attr-defined]

    for _ in range(100):
        refusals.note("clients")
    assert counts() == [1]
    refusals.tick(NOON)
    refusals.tick(NOON + LOG_EVERY - 1)
    assert counts() == [1]
    refusals.tick(NOON + LOG_EVERY)
    assert counts() == [1, 99]
    refusals.tick(NOON + 2 * LOG_EVERY)
    refusals.note("clients")
    assert counts() == [1, 99, 1]


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_a_clock_that_is_set_keeps_no_refusals_out_of_the_log(by: int, caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    for _ in range(2):
        refusals.note("clients")
    refusals.tick(NOON)
    refusals.tick(NOON + by)
    assert len(caplog.records) == 2
    refusals.note("clients")
    refusals.tick(NOON + by + LOG_EVERY - 1)
    assert len(caplog.records) == 2
    refusals.tick(NOON + by + LOG_EVERY)
    assert len(caplog.records) == 3


def test_the_limit_of_descriptors_is_raised_as_far_as_allowed() -> None:
    program = (
        "import resource as r\n"
        "from twinbus.server.listening.admission import raise_descriptor_limit, socket_count_max\n"
        "hard = min(r.getrlimit(r.RLIMIT_NOFILE)[1], 4096)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, hard))\n"
        "raise_descriptor_limit()\n"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (hard, hard)\n"
        "assert hard // 2 < socket_count_max() < hard\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
