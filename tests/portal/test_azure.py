"""The portal, and the commands for single messages, with a namespace that refuses what Azure refuses: no request of our own.

The namespace is real; it has lost the `com.twinbus:` operations and all HTTP but administration and messages, and answers for
those as for entities that do not exist.
"""

from collections.abc import Iterator

import httpx
import pytest
from azure.servicebus import ServiceBusMessage
from starlette.routing import Mount

from tests.portal.running_portal import RunningPortal, known
from tests.portal.test_dead_letters import dead_letters
from tests.portal.test_screens import finished, text_of
from twinbus.cli.app import run
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.testing.local_namespace import LocalNamespace

OURS = "com.twinbus:"


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    with (
        pytest.MonkeyPatch.context() as patched,
        LocalNamespace(tmp_path_factory.mktemp("data"), "contoso", store_count=2) as running,
    ):
        for name in [name for name in HANDLERS if name.startswith(OURS)]:
            patched.delitem(HANDLERS, name)
        assert running._server is not None
        router = running._server.http.asgi.router
        patched.setattr(router, "routes", [route for route in router.routes if isinstance(route, Mount)])
        running.create_queue("orders", enable_partitioning=True)
        running.create_queue("talks", requires_session=True)
        running.create_topic("events", "audit")
        with running.client() as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage(f"order {number}", subject="new") for number in range(5)])
            with client.get_queue_sender("talks") as sender:
                sender.send_messages(ServiceBusMessage("hello", session_id="a"))
        yield running


@pytest.fixture(scope="module")
def portal(namespace: LocalNamespace) -> Iterator[RunningPortal]:
    with RunningPortal([known(namespace)]) as running:
        yield running


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("/", "contoso"),
        ("/ns/contoso/entities?open=events", "audit"),
        ("/ns/contoso/new?kind=queue", "Enable partitioning"),
        ("/ns/contoso/entity?path=orders", "orders"),
        ("/ns/contoso/edit?path=orders", "Save"),
        ("/ns/contoso/rules?path=events/Subscriptions/audit", "$Default"),
        ("/ns/contoso/messages?path=orders", "order 4"),
        ("/ns/contoso/messages?path=orders&sql=sys.Label='new'", "5 match"),
        ("/ns/contoso/send?path=orders", "Send"),
        ("/ns/contoso/sessions?path=talks", "talks"),
        ("/ns/contoso/session?path=talks&id=a", "a"),
        ("/ns/contoso/held-back?path=orders", "orders"),
        ("/ns/contoso/dead-letters", "Dead letters"),
        ("/ns/contoso/purge?path=orders", "purge"),
        ("/ns/contoso/stores", "This is not one"),
        ("/pairing", "Pairing"),
        ("/jobs", "Running work"),
    ],
)
def test_every_screen_shows_what_there_is(pages: httpx.Client, page: str, said: str) -> None:
    assert said.casefold() in text_of(pages.get(page)).casefold()


def test_a_queue_is_created_filled_and_purged(namespace: LocalNamespace, pages: httpx.Client) -> None:
    text_of(pages.post("/ns/contoso/new", data={"kind": "queue", "name": "made"}))
    text_of(pages.post("/ns/contoso/send", params={"path": "made"}, data={"body": "one", "count": "3"}))
    assert namespace.message_count("made") == 3
    asked = text_of(pages.get("/ns/contoso/purge", params={"path": "made"}))
    assert "All 3 active messages of made are removed, by receiving them" in asked
    assert "Type 3 to confirm" in asked
    finished(pages, pages.post("/ns/contoso/purge", params={"path": "made"}, data={"count": "3", "confirm": "3"}))
    assert namespace.message_count("made") == 0


def test_dead_letters_are_previewed_and_repaired_by_receiving(
    namespace: LocalNamespace, pages: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dead_letters(namespace, "mended", "late", "wrong", "late")
    wanted = {"path": path, "sql": "DeadLetterReason = 'late'", "action": "SET attempt = 1"}
    preview = text_of(pages.get("/ns/contoso/repair", params=wanted))
    assert "attempt" in preview
    assert "received, sent and completed" in preview
    done = finished(pages, pages.post("/ns/contoso/repair", data={**wanted, "goal": "back"}))
    assert "2 messages moved" in done
    assert (namespace.message_count("mended"), namespace.message_count(path)) == (2, 1)


@pytest.mark.parametrize("words", [["repair", "orders", "--yes"], ["message", "resend", "orders", "1", "--yes"]])
def test_commands_that_need_twinbus_lead_to_the_portal(
    namespace: LocalNamespace, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run([*words, "--connection-string", namespace.connection_string]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "twinbus portal --connection-string" in said
