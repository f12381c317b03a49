"""Who may ask, from where, and what every answer says about itself."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.portal.running_portal import RunningPortal, known
from twinbus.clock import SystemClock
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import Right
from twinbus.portal.access.guard import POLICY
from twinbus.portal.access.visitors import IDLE_MAX_S, Visitors
from twinbus.portal.html.markup import el
from twinbus.portal.namespaces.directory import Directory
from twinbus.portal.screens import login
from twinbus.portal.settings import PortalSettings
from twinbus.server.tls import development_certificate
from twinbus.testing.local_namespace import LocalNamespace


def test_every_answer_forbids_scripts_from_elsewhere_and_frames(pages: httpx.Client) -> None:
    for path in ("/", "/ns/contoso/entities", "/static/portal.js", "/nothing", "/ns/nowhere/entities"):
        headers = pages.get(path).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "", "127.0.0.1.evil.example"])
def test_a_name_that_is_not_ours_gets_nothing(pages: httpx.Client, host: str) -> None:
    answer = pages.get("/", headers={"Host": host})
    assert answer.status_code == 421
    assert "contoso" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost"},  # another port is another site
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_another_site_changes_nothing(namespace: LocalNamespace, pages: httpx.Client, headers: dict[str, str]) -> None:
    answer = pages.post("/ns/contoso/new", data={"kind": "queue", "name": "forged"}, headers=headers)
    assert answer.status_code == 403
    assert "forged" not in [queue.name for queue in namespace.administration.list_queues()]


def test_a_request_that_says_no_origin_changes_nothing(portal: RunningPortal) -> None:
    with httpx.Client(base_url=portal.address) as plain:
        assert plain.post("/ns/contoso/new", data={"kind": "queue", "name": "forged"}).status_code == 403


def test_other_machines_need_tls() -> None:
    with pytest.raises(ArgumentError, match="--tls"):
        PortalSettings(host="0.0.0.0")
    with pytest.raises(ArgumentError, match="--tls-key"):
        PortalSettings(certificate=Path("certificate.pem"))


def test_an_address_of_another_kind_or_host_cannot_become_a_link() -> None:
    for address in (
        "javascript:alert(1)",
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "data:text/html,x",
    ):
        with pytest.raises(ValueError, match="address"):
            el("a", "x", href=address)


async def test_a_visitor_who_is_away_for_too_long_is_forgotten() -> None:
    now = [0.0]
    visitors = Visitors(is_open=False, directory=Directory([]), monotonic=lambda: now[0])
    visitor = await visitors.admit(Directory([]))
    now[0] = IDLE_MAX_S
    assert await visitors.find(visitor.token) is visitor
    now[0] += IDLE_MAX_S + 1
    assert await visitors.find(visitor.token) is None
    assert await visitors.find("") is None
    assert await visitors.find(None) is None


OTHER_USER = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).status)
except urllib.error.HTTPError as refused:
    print(refused.code, refused.read().decode())
"""
NOBODY = 65_534


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says whose a connection is")
def test_another_user_of_the_machine_is_refused(portal: RunningPortal) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can ask as somebody else")
    command = ["/usr/bin/python3", "-c", OTHER_USER, portal.address]
    if not Path(command[0]).exists():
        pytest.skip("there is no Python that another user may run")
    for user, said in ((None, "200"), (NOBODY, "403 This portal belongs to another user")):
        asked = subprocess.run(command, user=user, cwd="/", capture_output=True, text=True, timeout=60, check=True)
        assert asked.stdout.startswith(said)


FROM_THE_PORT_OF_ANOTHER = """
import socket, sys
port, taken = int(sys.argv[1]), int(sys.argv[2])
with socket.socket() as other:
    other.settimeout(20)
    other.bind(("127.0.0.2", taken))
    other.connect(("127.0.0.1", port))
    other.sendall(b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    print(other.recv(100).decode())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says whose a connection is")
def test_another_user_is_refused_from_the_port_of_this_users_browser(portal: RunningPortal) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can ask as somebody else")
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("there is no Python that another user may run")
    port = int(portal.address.rpartition(":")[2])
    for _ in range(3):
        # The table has no order: with one connection of ours it is a matter of luck which of the two comes first.
        with socket.create_connection(("127.0.0.1", port)) as browser:
            command = [str(python), "-c", FROM_THE_PORT_OF_ANOTHER, str(port), str(browser.getsockname()[1])]
            asked = subprocess.run(
                command, user=NOBODY, cwd="/", capture_output=True, text=True, timeout=60, check=True
            )
        assert asked.stdout.startswith("HTTP/1.1 403"), asked.stdout


# Elsewhere than on loopback

LOGIN_TIME_S = 0.3


@pytest.fixture(scope="module")
def far_portal(
    namespace: LocalNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningPortal, ssl.SSLContext]]:
    files = development_certificate(tmp_path_factory.mktemp("tls"), [], SystemClock().now())
    settings = PortalSettings("0.0.0.0", 0, (), files.certificate, files.key)
    context = ssl.create_default_context(cafile=str(files.authority))
    with pytest.MonkeyPatch.context() as patched, RunningPortal([known(namespace)], settings) as running:
        patched.setattr(login, "LOGIN_TIME_S", LOGIN_TIME_S)
        yield running, context


@contextlib.contextmanager
def far_client(far: tuple[RunningPortal, ssl.SSLContext]) -> Iterator[httpx.Client]:
    portal, context = far
    with httpx.Client(
        base_url=portal.address, headers={"Origin": portal.address}, follow_redirects=True, timeout=20, verify=context
    ) as client:
        yield client


def key_of(namespace: LocalNamespace) -> str:
    return namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def log_in(client: httpx.Client, key_name: str, key: str, namespace: str = "contoso") -> httpx.Response:
    return client.post("/login", data={"namespace": namespace, "key_name": key_name, "key": key, "back": "/"})


def test_elsewhere_nobody_sees_anything_before_a_key_is_typed(
    namespace: LocalNamespace, far_portal: tuple[RunningPortal, ssl.SSLContext]
) -> None:
    with far_client(far_portal) as client:
        for path in ("/", "/ns/contoso/entities", "/jobs", "/live/overview"):
            answer = client.get(path)
            assert answer.url.path == "/login"
            assert "contoso" not in answer.text.replace("back=%2Fns%2Fcontoso", "").replace("/ns/contoso", "")
        assert client.post("/ns/contoso/new", data={"kind": "queue", "name": "early"}).url.path == "/login"
        for key_name, key, name in (
            ("RootManageSharedAccessKey", "wrong", "contoso"),
            ("RootManageSharedAccessKey", key_of(namespace), "other"),
        ):
            refused = log_in(client, key_name, key, name)
            assert refused.status_code == 401
            assert "is unknown here, or the key is not one of its keys" in refused.text
        entered = log_in(client, "RootManageSharedAccessKey", key_of(namespace))
        assert "healthy" in entered.text
        assert key_of(namespace) not in entered.text
        cookie = next(iter(client.cookies.jar))
        assert cookie.secure
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "strict"
        assert client.post("/logout").url.path == "/login"
        assert client.get("/").url.path == "/login"


def test_a_key_cannot_name_another_place(far_portal: tuple[RunningPortal, ssl.SSLContext]) -> None:
    with far_client(far_portal) as client:
        for key_name, key in (("k", "k;Endpoint=sb://evil.example"), ("k;Endpoint=sb://evil.example", "k")):
            assert log_in(client, key_name, key).status_code == 401


def test_after_the_login_nobody_is_sent_to_another_site(
    namespace: LocalNamespace, far_portal: tuple[RunningPortal, ssl.SSLContext]
) -> None:
    with far_client(far_portal) as client:
        data = {"namespace": "contoso", "key_name": "RootManageSharedAccessKey", "key": key_of(namespace)}
        for back in ("https://evil.example", "//evil.example", "/\\evil.example"):
            answer = client.post("/login", data={**data, "back": back}, follow_redirects=False)
            assert answer.headers["location"] == "/"


def test_the_rights_of_the_key_decide_what_is_shown_and_done(
    namespace: LocalNamespace, far_portal: tuple[RunningPortal, ssl.SSLContext]
) -> None:
    namespace.create_queue("listened")
    key = _new_rule(namespace, "listens", [Right.LISTEN])
    with far_client(far_portal) as client:
        assert log_in(client, "listens", key).status_code == 200
        listed = client.get("/ns/contoso/entities")
        assert "Open an entity by its path" in listed.text
        assert client.get("/ns/contoso/messages", params={"path": "listened"}).status_code == 200
        refused = client.post("/ns/contoso/send", params={"path": "listened"}, data={"body": "x"})
        assert refused.status_code == 400
        assert "Unauthorized" in refused.text or "right" in refused.text or "Send" in refused.text
        assert client.post("/ns/contoso/new", data={"kind": "queue", "name": "forbidden"}).status_code in (400, 403)
        assert client.get("/ns/contoso/message", params={"path": "listened", "number": 1}).status_code == 404
    assert namespace.message_count("listened") == 0


def _new_rule(namespace: LocalNamespace, name: str, rights: list[Right]) -> str:
    from twinbus.client import namespace_http

    body = {"rights": [right.value for right in rights]}
    made = namespace_http.ask(namespace.connection_string, namespace.endpoint, "PUT", f"/$access/{name}", body)
    return str(made["primary_key"])


def test_a_login_takes_the_same_while_whatever_is_wrong(far_portal: tuple[RunningPortal, ssl.SSLContext]) -> None:
    with far_client(far_portal) as client:
        for name in ("contoso", "unknown"):
            start = time.monotonic()
            assert log_in(client, "k", "wrong", name).status_code == 401
            assert time.monotonic() - start >= LOGIN_TIME_S
