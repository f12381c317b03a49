"""Every block of the README and of every how-to, run as it is printed (`page_walk`), each page in a scratch folder of its own.

What a page takes for granted is made first: a namespace that is served, entities, a few messages. Spark's page is one program,
in tests/spark/test_page.py. Pages that start several processes are walked nightly; that the commands of all pages exist, with
their options, is seen every time.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served, serve
from tests.docs.page_walk import ROOT, Walk, blocks_of, environment_of, words_of
from tests.docs.test_documents import CODE, COMMANDS
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message

HOW_TO = ROOT / "docs/how-to"
HERE = Path(__file__).read_text()
NEEDS_AZURE = "needs a namespace in Azure"
NEEDS_SPARK = "on Spark, walked nightly"
A_DRAWING = "not a command"

Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Serves a namespace in the scratch folder, where commands look for it."""
    running: list[Served] = []

    def start(name: str = "primary", *options: str) -> Served:
        running.append(serve(tmp_path / "twinbus-data", name, *options))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path, environment_of(tmp_path))


def send(served: Served, queue: str, *bodies: str, **properties: Any) -> None:
    with BlockingNamespace.connect(served.ready["connection_string"]) as namespace:
        payloads = [encode_message(body, application_properties=properties) for body in bodies]
        assert not any(namespace.sender(queue).send(payloads))


def dead_letter(served: Served, queue: str, count: int, reason: str) -> None:
    with BlockingNamespace.connect(served.ready["connection_string"]) as namespace:
        receiver = namespace.receiver(queue)
        found: list[Any] = []
        while len(found) < count:
            found += receiver.receive(count - len(found), 5)
        assert not any(receiver.dead_letter(found, reason, None))
        receiver.close()


def as_printed(served: Served) -> dict[str, str]:
    """What pages print for ports, and what is free here."""
    ready = served.ready
    return {"localhost:5300": f"localhost:{ready['http_port']}", "localhost:5672": f"localhost:{ready['amqp_port']}"}


def test_every_page_is_walked() -> None:
    walked = set(re.findall(r'walk\.page\(\s*"([^"]+)"', HERE))
    elsewhere = {
        "docs/how-to/spark.md",
        "docs/how-to/spark-connect-and-pipelines.md",
        "docs/how-to/spark-on-azure.md",
        "docs/how-to/test-your-application.md",
    }
    assert walked | elsewhere == {"README.md", "deploy/README.md"} | {
        f"docs/how-to/{page.name}" for page in HOW_TO.glob("*.md")
    }


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *HOW_TO.glob("*.md")]), ids=lambda page: page.name)
def test_every_command_on_a_page_is_one_that_its_parser_takes(page: Path) -> None:
    """In sentences and tables too, where they are not run."""
    for code in CODE.findall(page.read_text()):
        for line in code.strip("`").replace("\\\n", " ").splitlines():
            if not re.match(r"\s*(?:\$ )?twinbus [a-z]", line) or "..." in line:
                continue
            words = list(words_of(line.strip()))
            path: tuple[str, ...] = ()
            while words and (*path, words[0]) in COMMANDS:
                path = (*path, words.pop(0))
            if hasattr(COMMANDS[path], "commands") or not words:
                continue
            given = [word for word in words if not re.fullmatch(r".*\.(?:toml|json|jsonl|pem)", word)]
            options = {name for each in COMMANDS[path].params for name in (*each.opts, *each.secondary_opts)}
            named = {word.partition("=")[0] for word in given if word.startswith("--")}
            assert named <= options, f"{page.name}: {line}"


def test_readme(walk: Walk, start: Start) -> None:
    walk.page(
        "README.md",
        leaving={
            "make run      # two namespaces and their portal until Ctrl-C; prints connection strings, Python to paste and an address": (
                "tests/cli/test_first_day.py walks what it runs, tests/packaging sets it up"
            ),
            "                 primary namespace                                       secondary namespace": A_DRAWING,
        },
    )


def test_deploy(walk: Walk) -> None:
    walk.page(
        "deploy/README.md",
        leaving={
            "podman build -f deploy/Containerfile -t twinbus .": "needs a registry",
            "useradd --system --home-dir /var/lib/twinbus twinbus": "changes the machine",
            "cp deploy/three-nodes/shop.toml /etc/twinbus/shop.toml": "changes the machine",
            "TWINBUS_POSTGRES_PASSWORD=... podman compose -f deploy/three-nodes/compose.yaml up": "needs a registry",
        },
    )


@pytest.mark.nightly
def test_access(walk: Walk, start: Start) -> None:
    served = start()
    walk.printed = as_printed(served)
    walk.run("twinbus queue create orders")
    walk.run("twinbus access create metrics --right manage")
    walk.page(
        "docs/how-to/access.md",
        files={"trust.toml": "[[issuer]]"},
        leaving={"authorization:": "a part of Prometheus's own file"},
    )
    credentials = walk.folder / "metrics.credentials"
    header = f"Authorization: SharedAccessSignature {credentials.read_text().strip()}"
    walk.run(f"curl -fsS -H '{header}' http://localhost:5300/metrics", "twinbus_connections")


@pytest.mark.nightly
def test_administer(walk: Walk, start: Start) -> None:
    served = start()
    start("secondary")
    (walk.folder / "Config.json").write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": []}]}}')
    (walk.folder / "messages.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    walk.page(
        "docs/how-to/administer.md",
        files={"entities.toml": "[[queue]]"},
        names={"connection_string": served.ready["connection_string"]},
        leaving={
            "from datetime import timedelta": "creates a queue that the commands above created; run below",
            "twinbus --install-completion": "changes the shell of whoever runs the tests",
        },
    )
    walk.run("twinbus queue show orders", "SendDisabled")
    walk.run("twinbus queue update orders --status Active")
    walk.run("twinbus send orders --file messages.jsonl", "2 messages")
    walk.run("twinbus namespace import entities.toml --update")
    walk.run("twinbus rule list events audit", "colour = @colour")
    walk.run("twinbus rule show events audit hot --namespace secondary", code=1)


@pytest.mark.nightly
def test_backup(walk: Walk, start: Start) -> None:
    served = start()
    walk.run("twinbus queue create orders")
    send(served, "orders", "one")
    walk.page("docs/how-to/backup.md")
    assert (walk.folder / "restored/primary/stores").is_dir()


def test_break_things(walk: Walk, start: Start) -> None:
    start()
    walk.run("twinbus queue create orders")
    commands = re.findall(r"^\| `(twinbus [^`]+)`", (HOW_TO / "break-things.md").read_text(), re.MULTILINE)
    assert len(commands) > 6
    for command in commands:
        walk.run(command.replace(" down 3", " down 1").replace(" up 3", " up 1"))
    walk.page("docs/how-to/break-things.md")


def test_configure(walk: Walk) -> None:
    (walk.folder / "entities.toml").write_text("")
    walk.page(
        "docs/how-to/configure.md",
        files={"twinbus.toml": "stores = 4"},
        leaving={"command line > environment > file > default": A_DRAWING},
    )
    assert "bus.example.com" in walk.run("twinbus config show")


@pytest.mark.nightly
def test_connect(walk: Walk, start: Start) -> None:
    served = start()
    walk.printed = as_printed(served)
    walk.environment["SERVICE_BUS"] = served.ready["connection_string"]
    in_interop = "run by tests/interop"
    walk.page(
        "docs/how-to/connect.md",
        leaving={
            "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=…;UseDevelopmentEmulator=true;": (
                A_DRAWING
            ),
            "twinbus certificate trust     # adds it to those that this system trusts, or says how": "changes the machine",
            "import os": "run by tests/docs/test_connect_page.py",
            'const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");': in_interop,
            'keytool -importcert -noprompt -alias twinbus -file "$AUTHORITY" -keystore twinbus.p12 -storepass changeit': (
                in_interop
            ),
            "import com.azure.core.http.HttpRequest;": in_interop,
            "package main": in_interop,
            'var connectionString = Environment.GetEnvironmentVariable("SERVICE_BUS");': "there is no .NET here",
            "twinbus serve primary --also-listen 80,443,5671": "ports that others may have; tests/server serves such",
            "127.0.0.1  shop.servicebus.windows.net": A_DRAWING,
            "twinbus serve primary --host 0.0.0.0 --advertise bus.example.com --tls": "listens on all addresses",
        },
    )


def test_damaged_store(walk: Walk, start: Start) -> None:
    start()
    walk.printed = {"accept-loss 3": "accept-loss 1", "DATA/NAMESPACE": "twinbus-data/primary"}
    leaving = {} if shutil.which("sqlite3") else {SQLITE: "sqlite3 is not installed"}
    walk.page("docs/how-to/damaged-store.md", leaving=leaving)


SQLITE = 'sqlite3 DATA/NAMESPACE/stores/00/tables.sqlite "SELECT place, what, facts, length(content) FROM damaged"'


def test_observe(walk: Walk, start: Start) -> None:
    served = start()
    (printed,) = [
        block.text.strip() for block in blocks_of((HOW_TO / "observe.md").read_text()) if "unhealthy" in block.text
    ]
    traces = "pip install 'twinbus[otel]'"
    walk.page("docs/how-to/observe.md", leaving={printed: "compared below", traces: "tests/server/test_tracing.py"})
    walk.run("twinbus store down 1")
    said = json.loads(walk.run(f"curl -sS http://localhost:{served.ready['http_port']}/health"))
    shown = json.loads(printed)
    assert (said["namespace"], said["status"], said["unhealthy_stores"]) == ("primary", shown["status"], {"1": "down"})
    assert list(said) == list(shown)


@pytest.mark.nightly
def test_operations_log(walk: Walk, start: Start) -> None:
    served = start("primary", "--meter")
    walk.printed = as_printed(served)
    walk.run("twinbus queue create orders")
    walk.page(
        "docs/how-to/operations-log.md",
        names={"connection_string": served.ready["connection_string"]},
        leaving={"twinbus-data/primary/operations/date=2026-03-01/hour=09/primary-01JNTZ….parquet": A_DRAWING},
    )
    assert (walk.folder / "twinbus-data/primary/operations").is_dir()


@pytest.mark.nightly
def test_pair_namespaces(walk: Walk, start: Start) -> None:
    primary, secondary = start(), start("secondary")
    walk.run("twinbus queue create orders")
    walk.printed = {"http://localhost:8081": f"http://127.0.0.1:{secondary.ready['http_port']}"}
    walk.page(
        "docs/how-to/pair-namespaces.md",
        names={
            "primary_connection_string": primary.ready["connection_string"],
            "secondary_connection_string": secondary.ready["connection_string"],
        },
        leaving={"from azure.identity import DefaultAzureCredential": NEEDS_AZURE},
    )
    walk.run("twinbus peek orders", "hello")
    walk.run("twinbus syphon --primary primary --secondary secondary --until-empty")
    walk.run("twinbus backlog --primary primary --secondary secondary")


@pytest.mark.nightly
def test_portal(walk: Walk, start: Start) -> None:
    served = start()
    walk.printed = {"Endpoint=sb://…": served.ready["connection_string"], "0.0.0.0": "127.0.0.1"}
    walk.page("docs/how-to/portal.md")


@pytest.mark.nightly
def test_read_the_bill(walk: Walk, start: Start) -> None:
    served = start("primary", "--meter")
    walk.run("twinbus queue create orders")
    walk.run("twinbus send orders hello --message-id 42")
    walk.run("twinbus receive orders")
    assert served.stop() == 0
    walk.run("twinbus cost prices --write other.toml")
    walk.printed = {"MESSAGE_ID": "42"}
    walk.page(
        "docs/how-to/read-the-bill.md",
        leaving={
            "twinbus: prices.toml: 'plan.standard.tiers[2].up_to' is 5 and must be more than 100,000,000, where this tier begins.": (
                "what a mistake prints"
            ),
            "twinbus pipeline bill                           # all namespaces below --data": NEEDS_SPARK,
            "skipped: …/date=2026-11-15/hour=03/half.parquet is not a complete Parquet file: …": "what a mistake prints",
        },
    )


REHEARSALS = {
    "make demo                                       # from a checkout: installs what it needs, then rehearses": "from a checkout",
    "export TWINBUS_REHEARSAL_PRIMARY='Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=...;SharedAccessKey=...'": (
        NEEDS_AZURE
    ),
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_rehearsals_of_the_page(walk: Walk) -> None:
    walk.page("docs/how-to/rehearse.md", files={"faults.toml": "duration = 60"}, leaving=REHEARSALS)
    walk.run("twinbus rehearse --report report.html")
    assert "<html" in (walk.folder / "report.html").read_text()


def test_repair_dead_letters(walk: Walk, start: Start) -> None:
    served = start()
    walk.run("twinbus queue create orders")
    walk.run("twinbus queue create orders-by-hand")
    send(served, "orders", *map(str, range(17)))
    dead_letter(served, "orders", 17, "bad colour")
    page = (HOW_TO / "repair-dead-letters.md").read_text()
    (first, *_) = [line[2:] for line in page.splitlines() if line.startswith("$ ")]
    walk.run(first, "17 messages of 'orders/$DeadLetterQueue' moved.")
    # And again, with dead letters that have the numbers of the page.
    walk.run("twinbus queue delete orders --yes")
    walk.run("twinbus queue create orders")
    send(served, "orders", *map(str, range(20)), colour="red")
    send(served, "orders", *map(str, range(20, 30)))
    dead_letter(served, "orders", 16, "bad colour")
    dead_letter(served, "orders", 3, "another")
    walk.page(
        "docs/how-to/repair-dead-letters.md",
        names={"connection_string": served.ready["connection_string"]},
        leaving={first: "run above"},
    )


def test_replay(walk: Walk) -> None:
    walk.page("docs/how-to/replay.md", leaving=REPLAYS)


REPLAYS = {
    "twinbus pipeline replay orders --dead-letters --dry-run": NEEDS_SPARK,
    "twinbus pipeline replay orders 'returns-*' --dead-letters --where \"enqueuedTime > '2026-11-01'\" --rate 100": NEEDS_SPARK,
    "twinbus pipeline replay --lake lake --dry-run": NEEDS_SPARK,
}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_replays_of_the_page(walk: Walk, start: Start) -> None:
    served = start()
    for queue in ("orders", "returns-1", "orders-again"):
        walk.run(f"twinbus queue create {queue}")
    send(served, "orders", "a", "b", "c")
    walk.run("twinbus pipeline capture orders --lake lake --available-now")
    dead_letter(served, "orders", 3, "MaxDeliveryCountExceeded")
    walk.page("docs/how-to/replay.md")


@pytest.mark.nightly
def test_rest(walk: Walk, start: Start) -> None:
    served = start()
    walk.printed = as_printed(served)
    walk.run("twinbus queue create orders")
    request, batch = (
        "POST /orders/messages HTTP/1.1",
        '[{"Body": "first", "BrokerProperties": {"Label": "M1"}},',
    )
    walk.page("docs/how-to/rest.md", leaving={request: "sent below", batch: "sent below"})
    text = (HOW_TO / "rest.md").read_text()
    headers, _, body = text.partition(f"    {request}\n")[2].partition("\n\n    ")
    given = [line.strip() for line in headers.splitlines() if "SharedAccessSignature" not in line]
    (walk.folder / "body").write_text(body.partition("\n")[0])
    words = " ".join(f"-H '{line}'" for line in given)
    post = 'curl -fsS -H "$(twinbus token --format header)" http://localhost:5300/orders/messages'
    walk.run(f"{post} {words} --data-binary @body")
    (walk.folder / "batch").write_text(text.partition(f"    {batch}")[2].join([batch, ""]).partition("\n\nA batch")[0])
    walk.run(f"{post} -H 'Content-Type: application/vnd.microsoft.servicebus.json' --data-binary @batch")
    found = json.loads(walk.run("twinbus receive orders --count 4 --json"))
    assert [each["body"] for each in found][:3] == ['{"id": 17}', "first", "second"]
    assert found[0]["properties"] == {"Priority": "High", "Count": 3}


def test_run_on_postgresql(walk: Walk) -> None:
    pages = blocks_of((HOW_TO / "run-on-postgresql.md").read_text())
    # All of them need servers: tests/server and tests/cli serve on one that they start.
    walk.page(
        "docs/how-to/run-on-postgresql.md",
        leaving={block.text.partition("\n")[0]: "needs servers" for block in pages if "postgresql" in block.text},
    )


def test_run_on_several_machines(walk: Walk) -> None:
    pages = blocks_of((HOW_TO / "run-on-several-machines.md").read_text())
    # tests/server/machines serves this way.
    walk.page(
        "docs/how-to/run-on-several-machines.md",
        leaving={
            block.text.partition("\n")[0]: "needs servers and machines"
            for block in pages
            if "postgresql" in block.text or "node" in block.text
        },
    )


def test_use_all_cores(walk: Walk) -> None:
    walk.page(
        "docs/how-to/use-all-cores.md",
        leaving={"twinbus serve shop --processes 4": "runs until it is stopped; tests/server/nodes serves this way"},
    )


def test_settle_and_retry(walk: Walk, start: Start) -> None:
    served = start()
    walk.run("twinbus queue create orders --sessions")
    with BlockingNamespace.connect(served.ready["connection_string"]) as namespace:
        assert not any(namespace.sender("orders").send([encode_message("a", session_id="s")]))
    walk.page(
        "docs/how-to/settle-and-retry.md",
        leaving={
            "options := &azservicebus.AbandonMessageOptions{": "run by tests/interop",
            "message := &azservicebus.ReceivedMessage{LockToken: token}": "run by tests/interop",
            'var first = await client.AcceptSessionAsync("orders", "42",': "there is no .NET here",
        },
    )


SYPHONS = {
    "pip install 'twinbus[spark,jre]'": NEEDS_SPARK,
    "export HOME_BUS='Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=...;SharedAccessKey=...'": NEEDS_AZURE,
    "twinbus pipeline syphon --pairs pairs.toml": "runs until it is stopped, walked nightly",
    "twinbus pipeline syphon --master spark://head:7077 --pairs pairs.toml --stop-file /shared/stop-syphon": "needs a cluster",
    'spark.read.parquet("/data/syphon-metrics").createOrReplaceTempView("syphon")': NEEDS_SPARK,
}


def test_syphon_at_scale(walk: Walk) -> None:
    walk.page("docs/how-to/syphon-at-scale.md", leaving=SYPHONS)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_syphon_of_the_page_and_its_metrics(walk: Walk, start: Start) -> None:
    primary, secondary = start(), start("secondary")
    walk.environment |= {
        "HOME_BUS": primary.ready["connection_string"],
        "SPARE_BUS": secondary.ready["connection_string"],
    }
    walk.run("twinbus queue create orders")
    backlog = f"{primary.ready['host']}-{primary.ready['amqp_port']}/x-servicebus-transfer/0"
    walk.run(f"twinbus queue create {backlog} --namespace secondary", code=0)
    walk.run("twinbus pipeline syphon --primary primary --secondary secondary --once")
    walk.run("twinbus pipeline syphon --primary env:HOME_BUS --secondary env:SPARE_BUS --metrics syphon-metrics --once")


def test_test_your_application() -> None:
    """Run whole by tests/docs/test_examples.py; here only that no block has another language."""
    text = (HOW_TO / "test-your-application.md").read_text()
    assert text.count("```") == 2 * text.count("```python")


@pytest.mark.nightly
def test_tls_and_websockets(walk: Walk) -> None:
    walk.printed = {"twinbus serve primary --tls          or          twinbus up --tls": "twinbus serve primary --tls"}
    walk.page("docs/how-to/tls-and-websockets.md")
    walk.run("twinbus up --tls --no-portal")


def test_transactions(walk: Walk) -> None:
    walk.page(
        "docs/how-to/transactions.md",
        leaving={
            "from twinbus.client.message import encode_message": "run by tests/docs/test_transactions_page.py",
            "encode_message(body, partition_key=customer, via_partition_key=order.partition_key)": "a part of it",
        },
    )
