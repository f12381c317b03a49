"""How sources, sinks and jobs reach a namespace: over WebSockets, and with a credential instead of a key."""

import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from azure.core.credentials import AccessToken
from pyspark.sql.pandas.types import from_arrow_schema

from tests.interop.running_server import RunningServer, wait_until
from twinbus.clock import SystemClock
from twinbus.http.websocket import WebSocketConnection
from twinbus.pipeline.connection_options import ConnectionOptions, OptionError, default_credential
from twinbus.pipeline.replay.dead_letter_task import MovePlan, run_move
from twinbus.pipeline.sink.writers import writer
from twinbus.pipeline.source.access.connections import CONNECTIONS
from twinbus.pipeline.source.batch_reader import ServiceBusBatchReader
from twinbus.pipeline.source.live_entity import SourceFailed
from twinbus.pipeline.source.option_table import BATCH
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.rows.columns import NAMES

SECRET = "eyJhbGciOiJub25lIn0.c2VjcmV0.c2lnbmF0dXJl"
NOW = 1_767_355_200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=2, tls_port=0)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def node(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One whose administrator trusts a private authority, and that has no connections from before."""
    monkeypatch.setenv("SSL_CERT_FILE", str(server.server.tls_authority))
    yield
    CONNECTIONS.close()


@pytest.fixture
def azure_identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The package as far as it is used here; the scopes that were asked for."""
    asked: list[object] = []

    class DefaultAzureCredential:
        def get_token(self, *scopes: str) -> AccessToken:
            asked.extend(scopes)
            return AccessToken(SECRET, NOW // 1000 + 3_600)

    package = ModuleType("azure.identity")
    package.__dict__["DefaultAzureCredential"] = DefaultAzureCredential
    monkeypatch.setitem(sys.modules, "azure.identity", package)
    default_credential.cache_clear()
    yield asked
    default_credential.cache_clear()


def with_key(server: RunningServer, **more: str) -> dict[str, str]:
    rule = server.server.root_rule
    place = {"namespace": f"127.0.0.1:{server.server.tls_port}", "retryTotal": "0", "operationTimeout": "10"}
    return {**place, "sharedAccessKeyName": rule.name, "sharedAccessKey": rule.primary_key, **more}


def with_credential(server: RunningServer, **more: str) -> dict[str, str]:
    place = {"namespace": f"127.0.0.1:{server.server.tls_port}", "retryTotal": "0", "operationTimeout": "10"}
    return {**place, "credential": "default", **more}


def write(options: dict[str, str], bodies: list[str]) -> None:
    table = pa.table({"body": bodies})
    made = pickle.loads(pickle.dumps(writer(options, from_arrow_schema(table.schema), False)))
    made.write(iter(table.to_batches()))


def read(options: dict[str, str]) -> list[str]:
    reader = ServiceBusBatchReader(SourceOptions.from_options(options, BATCH), NAMES, NOW)
    found: list[dict[str, Any]] = [
        row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()
    ]
    return [row["body"].decode() for row in found]


def websocket_count(server: RunningServer) -> int:
    return sum(isinstance(each, WebSocketConnection) for each in server.server.connections)


def test_a_sink_and_a_source_go_over_websockets(server: RunningServer) -> None:
    queue = server.create_queue("over-websockets")
    options = with_key(server, queue=queue, transport="WS")
    write(options, ["a", "b"])
    assert read(options) == ["a", "b"]
    # One each, kept for the next task.
    wait_until(lambda: websocket_count(server) == 2)


def test_without_the_option_nothing_goes_over_websockets(server: RunningServer) -> None:
    queue, before = server.create_queue("over-tls"), websocket_count(server)
    options = with_key(server, queue=queue)
    write(options, ["a"])
    assert read(options) == ["a"]
    assert websocket_count(server) == before


def test_a_replay_of_dead_letters_goes_over_websockets(server: RunningServer) -> None:
    server.create_queue("dead")
    options = ConnectionOptions.from_options(with_key(server, transport="ws"))
    plan = MovePlan(connection=options, path="dead/$DeadLetterQueue", destination="dead", chosen=[], sent=[])
    assert run_move(plan, SystemClock()).error is None


@pytest.mark.parametrize("transport", ["amqp", "ws"])
def test_a_credential_is_asked_and_a_namespace_of_ours_refuses_in_one_line(
    server: RunningServer, azure_identity: list[object], transport: str
) -> None:
    queue = server.create_queue(f"refused-{transport}")
    options = with_credential(server, queue=queue, transport=transport)
    with pytest.raises(SourceFailed, match="JSON web tokens are not accepted") as unread:
        read(options)
    with pytest.raises(OptionError, match="JSON web tokens are not accepted") as unwritten:
        write(options, ["a"])
    for text in (str(unread.value), str(unwritten.value)):
        assert "\n" not in text
        assert SECRET not in text
    assert set(azure_identity) == {"https://servicebus.azure.net/.default"}


def test_a_process_has_one_credential(azure_identity: list[object]) -> None:
    assert default_credential() is default_credential()


def test_without_azure_identity_the_advice_is_to_install_it(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    options = with_credential(server, queue="any")
    advice = "credential: this process has no azure-identity. Install it on every node: pip install azure-identity."
    for attempt in (lambda: read(options), lambda: write(options, ["a"])):
        with pytest.raises(OptionError) as caught:
            attempt()
        assert str(caught.value) == advice


def test_a_credential_travels_by_name_only() -> None:
    made = ConnectionOptions.from_options({"namespace": "contoso.servicebus.windows.net", "credential": "Default"})
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.resolve() == "Endpoint=sb://contoso.servicebus.windows.net/"
    assert made.uses_credential
