"""Rights and errors of sending and receiving over HTTP: who may do what, and what the others are told."""

import time
from uuid import UUID, uuid4

import httpx
import pytest

from tests.http.conftest import RULES, ClientWith
from tests.interop.running_server import RunningServer
from twinbus.client.connecting.token_sources import sign

NOBODY = str(UUID(int=1))
OPERATIONS = {
    "send": ("POST", "messages"),
    "receive and delete": ("DELETE", "messages/head?timeout=0"),
    "lock": ("POST", "messages/head?timeout=0"),
    "complete": ("DELETE", f"messages/1/{NOBODY}"),
    "unlock": ("PUT", f"messages/1/{NOBODY}"),
    "renew": ("POST", f"messages/1/{NOBODY}"),
}
LISTENING = {"receive and delete": 204, "lock": 204, "complete": 404, "unlock": 404, "renew": 404}
# What each rule gets on a queue that exists and is empty: 404 is the lock that nobody holds.
EXPECTED = {
    "sends": {"send": 201, **dict.fromkeys(LISTENING, 401)},
    "listens": {"send": 401, **LISTENING},
    "": {"send": 201, **LISTENING},
}
TABLE = [(rule, name, status) for rule, statuses in EXPECTED.items() for name, status in statuses.items()]


@pytest.mark.parametrize(("rule", "operation", "status"), TABLE)
def test_every_operation_needs_its_right(
    server: RunningServer, client_with: ClientWith, rule: str, operation: str, status: int
) -> None:
    queue = server.create_queue(f"q-{uuid4().hex}", authorization_rules=RULES)
    method, place = OPERATIONS[operation]
    assert client_with(rule).request(method, f"/{queue}/{place}").status_code == status


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.rule("A20.1")
def test_an_entity_that_does_not_exist_is_gone_for_who_may_ask(http: httpx.Client, operation: str) -> None:
    method, place = OPERATIONS[operation]
    answer = http.request(method, f"/nothing/{place}")
    assert answer.status_code == 410
    assert "SubCode=40400. The messaging entity 'nothing' could not be found" in answer.text


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("token", ["", "junk", "wrong key", "other entity", "expired"])
def test_who_has_no_right_cannot_tell_what_exists(server: RunningServer, operation: str, token: str) -> None:
    if server.server.catalog.find("secret") is None:
        server.create_queue("secret", authorization_rules=RULES)
    method, place = OPERATIONS[operation]
    answers = []
    for name in ("secret", "absent"):
        headers = {"Authorization": _token(server, token)} if token else {}
        url = f"http://127.0.0.1:{server.server.http_port}/{name}/{place}"
        answer = httpx.request(method, url, headers=headers)
        answers.append((answer.status_code, answer.text.partition(" TrackingId")[0].replace(name, "NAME")))
    assert answers[0] == answers[1]
    assert answers[0][0] == 401


def _token(server: RunningServer, kind: str) -> str:
    root, now = server.server.root_rule, int(time.time())
    match kind:
        case "wrong key":
            return sign("sb://localhost/", root.name, "wrong", now + 600)
        case "other entity":
            return sign("sb://localhost/other", root.name, root.primary_key, now + 600)
        case "expired":
            return sign("sb://localhost/", root.name, root.primary_key, now - 600)
    return kind


def test_a_disabled_queue_refuses(server: RunningServer, http: httpx.Client) -> None:
    from twinbus.model.descriptions import EntityStatus

    server.create_queue("off", status=EntityStatus.DISABLED)
    assert http.post("/off/messages", content=b"x").status_code == 400
    assert http.delete("/off/messages/head?timeout=0").status_code == 400


def test_other_methods_are_left_to_administration(http: httpx.Client) -> None:
    assert http.get("/q/messages").status_code == 404
    assert http.get("/q/messages/head").status_code == 404
