"""One client sends nothing but noise, and another one is answered as if it were alone: nearly."""

import http.client
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacker import NOISES, Attacker, WebSocketAttacker
from tests.attack.longest_turn import worked_s
from twinbus.amqp.codec.sasl import SaslCredentials, plain_credentials
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.client.connection_string import parse_connection_string
from twinbus.testing.local_namespace import LocalNamespace

REQUEST_COUNT = 15
RATIO_MAX = 30
LEAST_S = 0.25
"""What the loop may do for others until it answers, however quick it is alone."""


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


def test_a_stranger_that_makes_noise_over_a_websocket_is_closed(namespace: LocalNamespace) -> None:
    with WebSocketAttacker(port_of(namespace), "empty frames", SaslCredentials()) as attacker:
        attacker.wait_until_closed()


def test_a_known_client_that_only_makes_noise_is_closed(namespace: LocalNamespace) -> None:
    with Attacker(port_of(namespace), "empty frames", root_of(namespace)) as attacker:
        error = attacker.wait_until_closed()
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert "neither brought nor settled" in (error.description or "")
