"""Every request over HTTP needs a token with the right for it: all routes and operations there are, one by one."""

import ast
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import httpx
import pytest
from starlette.routing import Mount, Route, WebSocketRoute

import twinbus.http
from tests.http.messaging.test_refusals import OPERATIONS
from tests.interop.running_server import RunningServer
from twinbus.client.connecting.token_sources import sign
from twinbus.http.administration.resources import Resource, read_resource
from twinbus.http.messaging.messaging_api import MessagingApi
from twinbus.http.websocket import PATHS as WEBSOCKETS
from twinbus.model.descriptions import AuthorizationRule, Right

HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"
RULES = {
    right: AuthorizationRule(f"only-{right.value}", f"{right.value}-key", "", frozenset({right}))
    for right in (Right.SEND, Right.LISTEN)
}


class Asked(NamedTuple):
    method: str
    url: str
    right: Right = Right.MANAGE


NEEDS_NO_TOKEN = {("GET", "/health"), ("GET", "/ready")}
# A request for each page, by method and route.
PAGES = {
    ("GET", "/metrics"): "/metrics",
    ("GET", "/$stores"): "/$stores",
    ("POST", "/$stores/{index:int}/{action}"): "/$stores/0/slow?ms=0",
    ("POST", "/$stores/{index:int}/move"): "/$stores/0/move",
    ("GET", "/$nodes"): "/$nodes",
    ("POST", "/$nodes/{name}/drain"): "/$nodes/nobody/drain",
    ("POST", "/$connections/disconnect"): "/$connections/disconnect",
    ("GET", "/$access"): "/$access",
    ("PUT", "/$access/{name}"): "/$access/$nobody",
    ("DELETE", "/$access/{name}"): "/$access/$nobody",
    ("POST", "/$access/{name}/regenerate"): "/$access/$nobody/regenerate?key=primary",
    ("GET", "/$backlog"): "/$backlog",
    ("GET", "/$sessions"): "/$sessions",
    ("POST", "/$meter/flush"): "/$meter/flush",
}
MESSAGES = [
    Asked(method, f"/orders/{place}", Right.SEND if name == "send" else Right.LISTEN)
    for name, (method, place) in OPERATIONS.items()
]
RESOURCES = [
    "/$namespaceinfo",
    "/$Resources/queues",
    "/$Resources/topics",
    "/orders",
    "/t/subscriptions",
    "/t/subscriptions/s",
    "/t/subscriptions/s/rules",
    "/t/subscriptions/s/rules/r",
]
REQUESTS = [
    *(Asked(method, url) for (method, _), url in PAGES.items()),
    Asked("GET", "/$access?entity=orders"),
    *MESSAGES,
    *(Asked(method, path) for path in RESOURCES for method in ("GET", "PUT", "DELETE", "POST")),
    Asked("GET", "/health?api-version=2021-05"),  # the entity of that name
    Asked("GET", "/$nservicebus-verification-queue"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=1, is_metered=True)
    for rule in RULES.values():
        running.server.catalog.set_namespace_rule(rule)
    running.create_queue("orders")
    yield running
    running.stop()


def status_of(server: RunningServer, asked: Asked, token: str | None, address: str = ELSEWHERE) -> int:
    """What a client at this address gets. The request passes no socket, so that the address can be any."""

    async def ask() -> int:
        transport = httpx.ASGITransport(server.server.http.asgi, client=(address, 5000))
        headers = {} if token is None else {"Authorization": token}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return (await client.request(asked.method, asked.url)).status_code

    return server.run(ask())


def signed(rule: AuthorizationRule, path: str = "") -> str:
    return sign(f"sb://localhost/{path}", rule.name, rule.primary_key, int(time.time()) + 600)


def test_no_route_operation_or_resource_is_missing_from_this_page(server: RunningServer) -> None:
    *routes, rest = server.server.http.asgi.routes
    pages = [route for route in routes if isinstance(route, Route)]
    methods = {(method, page.path) for page in pages for method in (page.methods or ()) if method != "HEAD"}
    assert methods == PAGES.keys() | NEEDS_NO_TOKEN
    assert [route.path for route in routes if isinstance(route, WebSocketRoute)] == list(WEBSOCKETS)
    assert len(pages) + len(WEBSOCKETS) == len(routes)
    assert isinstance(rest, Mount)
    assert isinstance(rest.app, MessagingApi)
    for operation in rest.app.operations:
        asked = [asked for asked in MESSAGES if asked.method == operation.method and _is_at(operation.path, asked.url)]
        assert [each.right for each in asked] == [operation.right]
    assert {type(read_resource(path)) for path in RESOURCES} == set(get_args(Resource))


def _is_at(pattern: re.Pattern[str], url: str) -> bool:
    return pattern.fullmatch(url.partition("?")[0]) is not None


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda asked: f"{asked.method} {asked.url}")
def test_a_request_needs_a_token_for_its_own_entity_with_its_right(server: RunningServer, asked: Asked) -> None:
    root = server.server.root_rule
    assert status_of(server, asked, None) == 401
    assert status_of(server, asked, "junk") == 401
    assert status_of(server, asked, signed(root, "another")) == 401
    for right, rule in RULES.items():
        assert (status_of(server, asked, signed(rule)) == 401) is (right is not asked.right)
    assert status_of(server, asked, signed(root)) != 401


def test_metrics_are_open_to_this_machine_and_health_to_everybody(server: RunningServer) -> None:
    assert status_of(server, Asked("GET", "/metrics"), None, HERE) == 200
    assert status_of(server, Asked("GET", "/$stores"), None, HERE) == 401
    for address in (HERE, ELSEWHERE):
        assert status_of(server, Asked("GET", "/health"), None, address) == 200


def test_a_rule_of_an_entity_opens_the_access_rules_of_this_entity_alone(server: RunningServer) -> None:
    manages = AuthorizationRule("manages", "manage-key", "manage-key-2", frozenset(Right))
    sends = replace(RULES[Right.SEND], name="sends", secondary_key="send-key-2")
    server.create_queue("owned", authorization_rules=(manages, sends))
    for method, name in (("GET", ""), ("PUT", "/new"), ("DELETE", "/gone"), ("POST", "/gone/regenerate")):
        for query in ("", "?entity=owned", "?entity=orders", "?entity=nothing"):
            asked = Asked(method, f"/$access{name}{query}")
            assert status_of(server, asked, signed(sends)) == 401
            assert (status_of(server, asked, signed(manages)) == 401) is (query != "?entity=owned")


def test_nothing_else_of_http_looks_at_tokens() -> None:
    package = Path(twinbus.http.__file__).parent
    importing = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "twinbus.gateway.authorization"
    ]
    assert importing == ["access.py"]
