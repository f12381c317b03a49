"""Pairs over TLS: on any port, with certificates of authorities that the environment names."""

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.client.connecting.trust import CA_FILE_VARIABLE
from twinbus.pairing import pair_namespaces
from twinbus.testing.local_namespace import LocalNamespace
from twinbus.testing.pytest_plugin import Pair


def secure(namespace: LocalNamespace) -> str:
    return namespace.connection_string.replace("UseDevelopmentEmulator=true;", "")


def test_a_pair_connects_over_tls_to_the_ports_of_its_connection_strings(
    twinbus_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [twinbus_pair.primary, twinbus_pair.secondary]
    bundle = tmp_path / "both.pem"
    bundle.write_bytes(b"".join(each.authority.read_bytes() for each in both))
    monkeypatch.setenv(CA_FILE_VARIABLE, str(bundle))
    twinbus_pair.primary.create_queue("orders")
    with pair_namespaces(secure(both[0]), secure(both[1])) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
    assert twinbus_pair.primary.message_count("orders") == 1
