"""Access rules over HTTP: of the namespace and of entities, their keys, their limits, and who may change them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.connecting.token_sources import sign

FAR = 4_000_000_000
ROOT = "RootManageSharedAccessKey"


@pytest.fixture
def scope(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The query of a namespace or of a fresh entity; the namespace's rules are put back."""
    name = request.node.name.replace("[", "-").replace("]", "")
    if "entity" in name:
        yield f"?entity={server.create_queue(name)}"
    else:
        yield ""
        for rule in server.server.catalog.namespace_rules():
            if rule.name != ROOT:
                server.server.catalog.remove_namespace_rule(rule.name)


@pytest.mark.parametrize("_where", ["namespace", "entity"])
def test_a_rule_takes_at_once_and_its_keys_work_until_they_are_replaced(
    server: RunningServer, http: httpx.Client, scope: str, _where: str
) -> None:
    queue = scope.partition("=")[2] or server.create_queue("any")
    made = http.put(f"/$access/sender{scope}", json={"rights": ["Send"]})
    assert made.status_code == 201
    keys: dict[str, Any] = made.json()
    assert keys["primary_key"] != keys["secondary_key"]
    assert send(server, queue, keys["primary_key"]) == send(server, queue, keys["secondary_key"]) == 201
    separator = "&" if scope else "?"
    renewed = http.post(f"/$access/sender/regenerate{scope}{separator}key=primary").json()
    assert send(server, queue, keys["primary_key"]) == 401
    assert send(server, queue, renewed["primary_key"]) == send(server, queue, keys["secondary_key"]) == 201
    assert http.delete(f"/$access/sender{scope}").status_code == 200
    assert send(server, queue, keys["secondary_key"]) == 401


def send(server: RunningServer, queue: str, key: str) -> int:
    token = sign("sb://localhost/", "sender", key, FAR)
    url = f"http://127.0.0.1:{server.server.http_port}/{queue}/messages"
    return httpx.post(url, headers={"Authorization": token}).status_code


@pytest.mark.parametrize(("_where", "first"), [("namespace", 1), ("entity", 0)])
def test_there_are_at_most_twelve_rules(http: httpx.Client, scope: str, _where: str, first: int) -> None:
    for number in range(first, 12):
        assert http.put(f"/$access/rule{number}{scope}", json={"rights": ["Listen"]}).status_code == 201
    refused = http.put(f"/$access/rule12{scope}", json={"rights": ["Listen"]})
    assert (refused.status_code, "at most 12" in refused.json()["error"]) == (400, True)
    assert len(http.get(f"/$access{scope}").json()) == 12


def test_manage_includes_the_other_rights(http: httpx.Client, scope: str) -> None:
    assert http.put(f"/$access/boss{scope}", json={"rights": ["manage"]}).json()["rights"] == [
        "Manage",
        "Send",
        "Listen",
    ]


def test_the_rule_of_the_namespace_itself_stays(http: httpx.Client) -> None:
    assert http.delete(f"/$access/{ROOT}").status_code == 400
    assert http.post(f"/$access/{ROOT}/regenerate?key=secondary").status_code == 200


def test_rules_and_second_keys_outlive_a_restart(tmp_path: Path) -> None:
    kept: list[list[dict[str, Any]]] = []
    for _ in range(2):
        running = RunningServer(tmp_path, store_count=1)
        root = running.server.root_rule
        token = sign("sb://localhost/", root.name, root.primary_key, FAR)
        base = f"http://127.0.0.1:{running.server.http_port}"
        with httpx.Client(base_url=base, headers={"Authorization": token}) as client:
            if not kept:
                client.put("/$access/listener", json={"rights": ["Listen"]})
                client.post(f"/$access/{ROOT}/regenerate?key=secondary")
            kept.append(sorted(client.get("/$access").json(), key=str))
        running.stop()
    assert kept[0] == kept[1]
    assert len(kept[0]) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 10_000,
        b'{"rights": []}',
        b'{"rights": ["Fly"]}',
        b'{"rights": [1]}',
        b'{"rights": "Send"}',
        b'{"rights": ["Send"], "primary_key": 5}',
        b'{"rights": ["Send"], "primary_key": "\\ud800"}',
        b"x" * 20_000,
    ],
)
def test_a_body_that_makes_no_sense_is_refused(http: httpx.Client, body: bytes) -> None:
    assert http.put("/$access/odd", content=body).status_code == 400


def test_what_is_not_there_is_said_to_be_so(http: httpx.Client) -> None:
    assert http.get("/$access?entity=nothing").status_code == 404
    assert http.delete("/$access/nothing").status_code == 404
    assert http.post("/$access/nothing/regenerate?key=primary").status_code == 404
    assert http.post(f"/$access/{ROOT}/regenerate?key=third").status_code == 400
