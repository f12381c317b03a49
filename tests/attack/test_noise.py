"""One client sends nothing but noise, and another one is answered as if it were alone: nearly."""

import contextlib
import http.client
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacker import NOISES, WEBSOCKET_HELLO, Attacker, WebSocketAttacker
from tests.attack.longest_turn import LongestTurn, worked_s
from twinbus.amqp.codec.sasl import SaslCredentials, plain_credentials
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.testing.local_namespace import LocalNamespace

REQUEST_COUNT = 15
RATIO_MAX = 30
LEAST_S = 0.25
"""What the loop may do for others until it answers, however quick it is alone."""
NOISE_BYTES = 1 << 20
NOISE_S = 1.5
TURN_MAX_S = 0.015
WAIT_S = 30.0


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    with LocalNamespace(folder, store_count=1) as started:
        yield started


def median_s(namespace: LocalNamespace) -> float:
    """Of what the loop works until it has answered a request that needs nothing but its turn."""
    host, _, port = namespace.endpoint.rpartition("/")[2].partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    durations = list[float]()
    for _ in range(REQUEST_COUNT):
        start = worked_s(namespace)
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        durations.append(worked_s(namespace) - start)
    connection.close()
    return statistics.median(durations)


def port_of(namespace: LocalNamespace) -> int:
    return parse_connection_string(namespace.connection_string).port


def root_of(namespace: LocalNamespace) -> SaslCredentials:
    parsed = parse_connection_string(namespace.connection_string)
    return plain_credentials(parsed.key_name, parsed.key)


@pytest.mark.parametrize("noise", NOISES)
def test_a_stranger_that_makes_noise_is_closed_and_not_felt(namespace: LocalNamespace, noise: str) -> None:
    alone = median_s(namespace)
    with Attacker(port_of(namespace), noise, SaslCredentials()) as attacker:
        attacked = median_s(namespace)
        error = attacker.wait_until_closed()
    assert attacked < max(RATIO_MAX * alone, LEAST_S)
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize("noise", NOISES)
def test_a_known_client_that_makes_noise_is_not_felt(namespace: LocalNamespace, noise: str) -> None:
    alone = median_s(namespace)
    with Attacker(port_of(namespace), noise, root_of(namespace)):
        attacked = median_s(namespace)
    assert attacked < max(RATIO_MAX * alone, LEAST_S)


@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "known"])
@pytest.mark.parametrize("noise", ["begin and end", "dispositions"])
def test_noise_over_a_websocket_is_not_felt(namespace: LocalNamespace, noise: str, is_known: bool) -> None:
    credentials = root_of(namespace) if is_known else SaslCredentials()
    alone = median_s(namespace)
    with WebSocketAttacker(port_of(namespace), noise, credentials):
        attacked = median_s(namespace)
    assert attacked < max(RATIO_MAX * alone, LEAST_S)


_EMPTY = struct.pack(">BBI", 0x80, 0x80, 0)  # the last continuation of a WebSocket's message, masked with zeros
HTTP_NOISES = {
    "requests": (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "requests for nothing": (b"", b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "chunks": (b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "pings": (WEBSOCKET_HELLO, b"\x89" + _EMPTY[1:]),
    "empty messages": (WEBSOCKET_HELLO, b"\x82" + _EMPTY[1:]),
    "empty fragments": (WEBSOCKET_HELLO + b"\x02" + _EMPTY[1:], b"\x00" + _EMPTY[1:]),
}
"""By name: how it begins, and what is repeated."""


@pytest.mark.parametrize("noise", HTTP_NOISES)
def test_noise_over_http_is_read_in_slices_and_leaves_nothing_behind(namespace: LocalNamespace, noise: str) -> None:
    begin, piece = HTTP_NOISES[noise]
    parsed = parse_connection_string(namespace.connection_string)
    data = memoryview(piece * (NOISE_BYTES // len(piece)))
    with socket.create_connection(("127.0.0.1", parsed.http_port), WAIT_S) as attacker:
        attacker.sendall(begin[: len(WEBSOCKET_HELLO)] if begin.startswith(WEBSOCKET_HELLO) else begin)
        if begin.startswith(WEBSOCKET_HELLO):
            assert attacker.recv(1 << 18).startswith(b"HTTP/1.1 101")
            attacker.sendall(begin[len(WEBSOCKET_HELLO) :])
        attacker.setblocking(False)
        sent, give_up_at = 0, time.monotonic() + NOISE_S
        with LongestTurn(namespace) as longest:
            while sent < len(data) and time.monotonic() < give_up_at:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sent += attacker.send(data[sent:])
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    attacker.recv(1 << 18)
            assert median_s(namespace) < LEAST_S
        assert sent
    assert longest.seconds < TURN_MAX_S


def test_a_stranger_that_makes_noise_over_a_websocket_is_closed(namespace: LocalNamespace) -> None:
    with WebSocketAttacker(port_of(namespace), "empty frames", SaslCredentials()) as attacker:
        attacker.wait_until_closed()


def test_a_known_client_that_only_makes_noise_is_closed(namespace: LocalNamespace) -> None:
    with Attacker(port_of(namespace), "empty frames", root_of(namespace)) as attacker:
        error = attacker.wait_until_closed()
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert "neither brought nor settled" in (error.description or "")
