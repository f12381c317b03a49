"""Faults and access rules from the command line, against a real namespace."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from tests.cli.conftest import Commands


def test_faults_are_made_shown_and_ended(commands: Commands) -> None:
    assert "takes 20 ms longer" in commands.text("fault", "slow", "20", "--store", "1")
    assert commands.json("fault", "lose-ack", "2")["stores"][0]["acks_to_lose"] == 2
    listed = commands.json("store", "list")
    assert [(store["slow_ms"], store["acks_to_lose"]) for store in listed] == [(0, 2), (20, 2)]
    assert "acks to lose" in commands.text("store", "list")
    assert "are cleared" in commands.text("fault", "clear")
    listed = commands.json("store", "list")
    assert [(store["slow_ms"], store["acks_to_lose"]) for store in listed] == [(0, 0), (0, 0)]
    assert "0 to 1000" in commands.failure("fault", "lose-ack", "1001", "--store", "0")
    assert "no messaging store 9" in commands.failure("fault", "slow", "1", "--store", "9")


def test_clients_are_disconnected(commands: Commands) -> None:
    commands.text("queue", "create", "cut-off")
    text = commands.served.ready["connection_string"]
    with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("cut-off") as sender:
        sender.send_messages(ServiceBusMessage("a"))
        assert commands.json("fault", "disconnect", "--entity", "cut-off")["links"] == 1
        assert commands.json("fault", "disconnect")["connections"] >= 1
        assert "0 links to 'nothing'" in commands.text("fault", "disconnect", "--entity", "nothing")
    commands.text("queue", "delete", "cut-off", "--yes")


@pytest.mark.parametrize("place", [(), ("--entity", "guarded")])
def test_an_access_rule_is_made_shown_renewed_and_deleted(commands: Commands, place: tuple[str, ...]) -> None:
    commands.text("queue", "create", "guarded")
    made = commands.json("access", "create", "sender", "--right", "send", *place)
    assert made["rights"] == ["Send"]
    assert "already" in commands.failure("access", "create", "sender", "--right", "Send", *place)
    renewed = commands.json("access", "regenerate", "sender", "--key", "secondary", *place)
    assert renewed["primary_key"] == made["primary_key"]
    assert renewed["secondary_key"] != made["secondary_key"]
    assert "sender" in [rule["name"] for rule in commands.json("access", "list", *place)]
    assert "Send" in commands.text("access", "list", *place)
    with pytest.raises(ServiceBusAuthorizationError):
        _receive(commands, "sender", renewed["secondary_key"])
    commands.text("access", "delete", "sender", *place, "--yes")
    assert "no access rule 'sender'" in commands.failure("access", "delete", "sender", *place, "--yes")
    commands.text("queue", "delete", "guarded", "--yes")


def _receive(commands: Commands, key_name: str, key: str) -> None:
    endpoint = commands.served.ready["connection_string"].partition(";")[0]
    text = f"{endpoint};SharedAccessKeyName={key_name};SharedAccessKey={key};UseDevelopmentEmulator=true"
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_receiver("guarded") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
