"""A greedy client on ten connections, as fast as it can with large messages, beside a modest one that sends a small one at a time."""

import contextlib
import http.client
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacker import NOISES, WAIT_S, Attacker, WebSocketAttacker, attach, frame
from tests.attack.longest_turn import LongestTurn
from tests.attack.test_noise import port_of, root_of
from twinbus.amqp.codec.performatives import Transfer
from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.amqp.codec.terminus import Target
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.testing.local_namespace import LocalNamespace

CONNECTIONS = 10
SEND_COUNT = 30
RATIO_MAX = 30
TURN_MAX_S = 0.1
LEAST_S = 1.0
"""Of a machine that is busy with other things, attack or not: the disk is shared too."""


def large_messages() -> tuple[bytes, bytes]:
    content = encode_sections(Sections(body=DataBody([bytes(200_000)])))
    parts = [content[start : start + 60_000] for start in range(0, len(content), 60_000)]
    frames = []
    for number, part in enumerate(parts):
        fields = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0} if number == 0 else {}
        transfer = Transfer(handle=0, settled=True, more=number < len(parts) - 1, **fields)  # type: ignore[arg-type]
        frames.append(frame(transfer, part))
    return attach("g", 0, Target(address="greedy")), b"".join(frames) * 3


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[LocalNamespace]:
    # In the same store: what the greedy one sends must not stand in front of what the modest one does.
    with LocalNamespace(tmp_path, store_count=1) as started:
        started.create_queue("greedy")
        started.create_queue("modest")
        yield started


def median_send_s(namespace: LocalNamespace) -> float:
    parsed = parse_connection_string(namespace.connection_string)
    token = sign("sb://localhost/", parsed.key_name, parsed.key, int(time.time()) + 600)
    connection = http.client.HTTPConnection("127.0.0.1", parsed.http_port, timeout=60)
    durations = list[float]()
    for _ in range(SEND_COUNT):
        start = time.perf_counter()
        connection.request("POST", "/modest/messages", b"x", {"Authorization": token})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 201
        durations.append(time.perf_counter() - start)
    connection.close()
    return statistics.median(durations)


@pytest.mark.parametrize("attacker", [Attacker, WebSocketAttacker], ids=["amqp", "websocket"])
def test_a_greedy_client_leaves_a_modest_one_its_turn(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch, attacker: type[Attacker]
) -> None:
    monkeypatch.setitem(NOISES, "large messages", large_messages())
    alone = median_send_s(namespace)
    with contextlib.ExitStack() as crowd:
        greedy = [
            crowd.enter_context(attacker(port_of(namespace), "large messages", root_of(namespace)))
            for _ in range(CONNECTIONS)
        ]
        deadline = time.monotonic() + WAIT_S
        while not namespace.message_count("greedy"):
            assert time.monotonic() < deadline
        with LongestTurn(namespace) as longest:
            attacked = median_send_s(namespace)
    assert min(each.sent_bytes for each in greedy) > 0
    assert longest.seconds < TURN_MAX_S
    alone = max(alone, median_send_s(namespace))
    assert attacked < max(RATIO_MAX * alone, LEAST_S)
