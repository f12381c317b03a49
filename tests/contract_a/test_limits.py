"""The table of numbers: every limit is the one that is written down, and holds."""

from pathlib import Path

import pytest

from tests.gateway.front import Front
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.events import LinkDetached
from twinbus.broker import fragment_transaction, message_broker
from twinbus.broker.consumer import SessionRequest
from twinbus.broker.operations import peek
from twinbus.clock import NEVER
from twinbus.gateway.links import bindings, receiver_attach
from twinbus.management import quotas, validation
from twinbus.model import descriptions, hops, message_limits, paths
from twinbus.model.descriptions import QueueDescription
from twinbus.model.entity_properties import property_of
from twinbus.model.rules import index
from twinbus.server import server_settings
from twinbus.testing.messages import make_message

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000


def limits(field: str) -> tuple[int | None, int | None]:
    return property_of(field).least, property_of(field).most


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (descriptions.FRAGMENT_COUNT, 16),
        (property_of("max_size_mb").choices, (1024, 2048, 3072, 4096, 5120)),
        (descriptions.SIZE_MB_DEFAULT, 1024),
        (quotas.PARTITIONED_COUNT_MAX, 100),
        (quotas.ENTITY_COUNT_MAX, 10_000),
        (quotas.SUBSCRIPTION_COUNT_MAX, 2_000),
        (message_limits.MESSAGE_SIZE_MAX, 256 * 1024),
        (message_limits.MESSAGE_SIZE_CEILING, 100 * 1024 * 1024),
        (descriptions.QueueDescription("q").max_message_size_kb, 256),
        (message_limits.HEADER_SIZE_MAX, 64 * 1024),
        (message_limits.PROPERTY_SIZE_MAX, 32 * 1024),
        (paths.ENTITY_PATH_LENGTH_MAX, 260),
        (paths.SUBSCRIPTION_NAME_LENGTH_MAX, 50),
        (limits("lock_duration"), (5 * SECOND, 5 * MINUTE)),
        (descriptions.LOCK_DURATION_DEFAULT, MINUTE),
        (limits("duplicate_detection_window"), (20 * SECOND, 7 * DAY)),
        (descriptions.DUPLICATE_WINDOW_DEFAULT, 10 * MINUTE),
        (descriptions.MAX_DELIVERY_COUNT_DEFAULT, 10),
        (limits("max_delivery_count"), (1, 2_147_483_647)),
        (hops.HOPS_MAX, 4),
        (limits("auto_delete_on_idle"), (5 * MINUTE, NEVER)),
        (fragment_transaction.MESSAGES_MAX, 100),
        (fragment_transaction.DURATION_MAX, 2 * MINUTE),
        (index.SQL_FILTER_COUNT_MAX, 2_000),
        (index.CORRELATION_FILTER_COUNT_MAX, 100_000),
        (message_limits.PEEK_COUNT_MAX, 250),
        (peek.PEEK_BYTES_MAX, 256 * 1024),
        (server_settings.CONNECTIONS_MAX_DEFAULT, 5_000),
        (receiver_attach.RECEIVERS_MAX, 5_000),
        (validation.ACCESS_RULES_MAX, 12),
        (bindings.IDLE_MAX, 10 * MINUTE),
        (ConnectionSettings(container_id="c").idle_timeout, 4 * MINUTE),
        (message_broker.SILENCE_MAX, 15 * SECOND),
    ],
)
def test_a_limit_is_the_one_of_the_contract(value: object, written: object) -> None:
    assert value == written


@pytest.mark.rule("A5.10")
def test_an_entity_has_a_limited_number_of_concurrent_receives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_attach, "RECEIVERS_MAX", 2)
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    client = front.client()
    for _ in range(2):
        client.receiver("orders")
    assert client.take(LinkDetached) == []
    client.receiver("orders")
    (refused,) = client.take(LinkDetached)
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.rule("A9")
def test_who_waits_for_a_session_counts_as_a_receive(tmp_path: Path) -> None:
    sim = Front(tmp_path).sim
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    waiter = queue.main.accept_session(SessionRequest(), sim.now + MINUTE, sim.now, lambda _: None)
    assert queue.main.receiver_count == 1
    waiter.cancel()
    assert queue.main.receiver_count == 0
    sim.send(queue, make_message("m", session_id="s"))
    sim.accept(queue.main)
    assert queue.main.receiver_count == 0  # accepted, and not attached yet
