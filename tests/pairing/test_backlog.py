import pytest
from azure.servicebus import ServiceBusClient

from twinbus.pairing.backlog.queues import backlog_queue_path, existing_indexes, primary_name
from twinbus.pairing.syphon.service import name_in


@pytest.mark.rule("B1.4")
def test_the_first_backlog_queue_of_contoso_has_this_path() -> None:
    assert backlog_queue_path("contoso", 0) == "contoso/x-servicebus-transfer/0"


@pytest.mark.rule("B1")
@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("localhost:5672", "localhost-5672"),
        ("127.0.0.1:5673", "127.0.0.1-5673"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_the_primary_is_named_after_its_host(host: str, name: str) -> None:
    assert primary_name(host) == name


@pytest.mark.rule("B1")
def test_only_queues_with_this_primarys_names_are_its_backlog() -> None:
    names = [
        "contoso/x-servicebus-transfer/0",
        "Contoso/X-ServiceBus-Transfer/12",
        "contoso/x-servicebus-transfer/07",
        "contoso/x-servicebus-transfer/1/deep",
        "contoso/x-servicebus-transfer/x",
        "fabrikam/x-servicebus-transfer/3",
        "orders",
    ]
    assert existing_indexes("contoso", names) == {0, 12}


@pytest.mark.rule("B1", "B8")
@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("sb://contoso.servicebus.windows.net/", "contoso"),
        ("sb://CONTOSO.servicebus.windows.net/", "contoso"),
        ("sb://localhost:5671/", "localhost"),
        ("sb://localhost;UseDevelopmentEmulator=true", "localhost"),
        ("sb://127.0.0.1:5673;UseDevelopmentEmulator=true", "127.0.0.1-5673"),
        ("sb://[::1]:5672;UseDevelopmentEmulator=true", "1-5672"),
    ],
)
def test_a_syphon_knows_a_primary_by_the_name_that_an_application_gave_it(endpoint: str, name: str) -> None:
    text = f"Endpoint={endpoint};SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
    with ServiceBusClient.from_connection_string(text) as client:
        assert primary_name(client.fully_qualified_namespace).lower() == name
    assert name_in(text).lower() == name
