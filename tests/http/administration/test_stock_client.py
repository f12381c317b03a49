"""The official administration client, through our one-line helper, against the API on a real socket."""

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uvicorn
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from twinbus.client.administration import administration_client, administration_endpoint
from twinbus.client.async_administration import async_administration_client
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.clock import SystemClock
from twinbus.http.access import HttpAccess
from twinbus.http.administration.administration_api import AdministrationApi, AdministrationSettings
from twinbus.http.request_body import Bodies
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import AuthorizationRule as AccessRule
from twinbus.model.descriptions import Right

KEY = "the key of the namespace"
CONNECTION_STRING = (
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
)


@pytest.fixture
def endpoint(catalog: Catalog, control: ControlPlane) -> Iterator[str]:
    catalog.set_namespace_rule(AccessRule("RootManageSharedAccessKey", KEY, "", frozenset(Right)))
    settings = AdministrationSettings("localhost:5672", new_id=lambda: "tracking", new_key=lambda: "drawn")
    api = AdministrationApi(control, HttpAccess(catalog, SystemClock()), settings, Bodies())
    config = uvicorn.Config(api, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(endpoint: str) -> Iterator[ServiceBusAdministrationClient]:
    with administration_client(CONNECTION_STRING, endpoint) as client:
        yield client


def test_the_helper_takes_the_port_of_the_connection_string() -> None:
    assert administration_endpoint(parse_connection_string(CONNECTION_STRING)) == "http://localhost:5672"
    other = CONNECTION_STRING.replace("5672", "35001")
    assert administration_endpoint(parse_connection_string(other)) == "http://localhost:35001"


def test_a_queue_with_every_property_comes_back_as_it_was_made(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("target")
    access = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="all",
        rights=[AccessRights.MANAGE, AccessRights.LISTEN, AccessRights.SEND],
        primary_key="p",
        secondary_key="s",
    )
    made = client.create_queue(
        "a/queue",
        lock_duration=timedelta(seconds=13),
        max_size_in_megabytes=3072,
        requires_duplicate_detection=True,
        requires_session=True,
        default_message_time_to_live=timedelta(minutes=11),
        dead_lettering_on_message_expiration=True,
        duplicate_detection_history_time_window=timedelta(minutes=12),
        max_delivery_count=14,
        enable_batched_operations=False,
        auto_delete_on_idle=timedelta(minutes=10),
        enable_partitioning=True,
        forward_to="target",
        forward_dead_lettered_messages_to="target",
        user_metadata="<&>",
        authorization_rules=[access],
    )
    read = client.get_queue("A/Queue")
    assert made.max_size_in_megabytes == read.max_size_in_megabytes == 16 * 3072
    assert (read.lock_duration, read.max_delivery_count) == (timedelta(seconds=13), 14)
    assert (read.forward_to or "").endswith("/target")
    assert (read.requires_session, read.enable_batched_operations, read.user_metadata) == (True, False, "<&>")
    assert read.authorization_rules is not None
    assert (read.authorization_rules[0].key_name, read.authorization_rules[0].primary_key) == ("all", "p")
    client.update_queue(read, max_delivery_count=15)
    assert client.get_queue("a/queue").max_delivery_count == 15


def test_topics_subscriptions_and_rules_come_back_as_they_were_made(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t", default_message_time_to_live=timedelta(days=1), support_ordering=True)
    client.create_subscription("t", "s", dead_lettering_on_filter_evaluation_exceptions=False, lock_duration="PT13S")
    values: dict[str, Any] = {
        "string": "1",
        "int": 2,
        "long": 2**31 + 3,
        "bool": False,
        "double": 1.5,
        "time": datetime(2020, 7, 5, 11, 12, 13),
        "duration": timedelta(days=1, hours=2),
    }
    action = SqlRuleAction("SET a = @p", parameters={"@p": "x"})
    client.create_rule(
        "t", "s", "c", filter=CorrelationRuleFilter(correlation_id="id", properties=values), action=action
    )
    client.create_rule("t", "s", "sql", filter=SqlRuleFilter("a = @p", parameters={"@p": 5}))
    client.create_rule("t", "s", "no", filter=FalseRuleFilter())
    rules: dict[str, Any] = {rule.name: rule for rule in client.list_rules("t", "s")}
    assert list(rules) == ["$Default", "c", "no", "sql"]
    assert type(rules["$Default"].filter) is TrueRuleFilter
    assert rules["c"].filter.properties == values
    assert rules["c"].action.parameters == {"@p": "x"}
    assert rules["sql"].filter.parameters == {"@p": 5}
    assert rules["sql"].action is None
    counts = client.get_topic_runtime_properties("t")
    assert counts.accessed_at_utc == datetime(1, 1, 1, tzinfo=UTC)
    assert (counts.subscription_count, counts.sql_filter_count, counts.correlation_filter_count) == (1, 3, 1)
    assert client.get_subscription("t", "s").dead_lettering_on_filter_evaluation_exceptions is False
    assert client.get_subscription_runtime_properties("t", "s").total_message_count == 0


def test_lists_of_more_than_a_page_are_read_whole_and_in_order(client: ServiceBusAdministrationClient) -> None:
    names = [f"q{number:03}" for number in range(105)]
    for name in reversed(names):
        client.create_queue(name)
    assert [queue.name for queue in client.list_queues()] == names


def test_errors_reach_the_caller_as_the_classes_of_the_sdk(
    client: ServiceBusAdministrationClient, endpoint: str
) -> None:
    client.create_queue("q")
    with pytest.raises(ResourceExistsError):
        client.create_queue("q")
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("gone")
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. LockDuration is PT6M\. Use PT5S to PT5M"):
        client.create_queue("r", lock_duration=timedelta(minutes=6))
    wrong = CONNECTION_STRING.replace(KEY, "another")
    with administration_client(wrong, endpoint) as stranger, pytest.raises(ClientAuthenticationError):
        stranger.get_queue("q")


async def test_the_asynchronous_client_works_as_well(endpoint: str) -> None:
    async with async_administration_client(CONNECTION_STRING, endpoint) as client:
        await client.create_queue("q")
        assert (await client.get_queue_runtime_properties("q")).total_message_count == 0
        assert (await client.get_namespace_properties()).messaging_sku == "Standard"
        assert [queue.name async for queue in client.list_queues()] == ["q"]
        await client.delete_queue("q")
