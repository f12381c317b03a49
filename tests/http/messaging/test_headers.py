"""Headers as they come over the wire."""

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from tests.interop.running_server import RunningServer
from twinbus.bounded_http import HEADERS_SIZE_MAX
from twinbus.client.connecting.token_sources import sign

CHUNK = b"x" * 64 * 1024
FAR = 4_000_000_000


START = b"POST /q/messages HTTP/1.1\r\nHost: h\r\n"
IN_CHUNKS = b"Authorization: none\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


@pytest.mark.parametrize("is_one_header", [True, False])
@pytest.mark.parametrize("start", [START, START + IN_CHUNKS], ids=["headers", "trailers"])
def test_headers_and_trailers_without_an_end_are_refused(
    server: RunningServer, start: bytes, is_one_header: bool
) -> None:
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=20) as peer:
        peer.sendall(start)
        if start != START:
            assert peer.recv(10_000).startswith(b"HTTP/1.1 401")
        peer.sendall(b"long: ")
        sent = 0
        answer = b""
        while not answer:
            try:
                piece = CHUNK if is_one_header else b"a: " + CHUNK[:1000] + b"\r\n"
                peer.sendall(piece)
                sent += len(piece)
                peer.setblocking(False)
                answer = peer.recv(1000)
            except BlockingIOError:
                assert sent < 100 * HEADERS_SIZE_MAX
            except ConnectionError:
                break
            finally:
                peer.settimeout(20)
    assert answer.startswith(b"HTTP/1.1 400") or not answer
    assert sent > HEADERS_SIZE_MAX


def test_a_trailer_is_not_a_header(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("trailers")
    root = server.server.root_rule
    token = sign(f"http://localhost/{queue}", root.name, root.primary_key, FAR)
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=20) as peer:
        head = f"POST /{queue}/messages HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        # In one read, so that the trailers are there when the message is made.
        peer.sendall(head.encode() + b"1\r\na\r\n0\r\nlate: 1\r\n\r\n")
        assert peer.recv(10_000).startswith(b"HTTP/1.1 201")
    received = http.delete(f"/{queue}/messages/head")
    assert (received.status_code, received.content) == (200, b"a")
    assert "late" not in received.headers


def test_a_connection_takes_request_after_request_with_large_bodies(server: RunningServer, http: httpx.Client) -> None:
    queue = server.create_queue("large-bodies")
    for _ in range(6):
        assert http.post(f"/{queue}/messages", content=b"x" * 250_000).status_code == 201


def test_headers_that_are_large_and_no_more_are_measured_as_a_message(
    server: RunningServer, http: httpx.Client
) -> None:
    queue = server.create_queue("large-headers")
    assert http.post(f"/{queue}/messages", headers={"a": "x" * 31_000}).status_code == 201
    assert http.post(f"/{queue}/messages", headers={"a": "x" * 33_000}).status_code == 403
    assert http.post(f"/{queue}/messages", headers={f"a{n}": "x" * 30_000 for n in range(3)}).status_code == 403


@pytest.mark.rule("A19.4")
def test_messages_pass_over_https(tmp_path: Path) -> None:
    running = RunningServer(tmp_path, store_count=1, tls_port=0)
    try:
        root, authority = running.server.root_rule, running.server.tls_authority
        assert authority is not None
        token = sign("sb://localhost/", root.name, root.primary_key, FAR)
        trust = ssl.create_default_context(cafile=str(authority))
        queue = running.create_queue("over-https")
        base = f"https://localhost:{running.server.tls_port}"
        with httpx.Client(base_url=base, headers={"Authorization": token}, verify=trust) as client:
            assert client.post(f"/{queue}/messages", content=b"x", headers={"Colour": '"red"'}).status_code == 201
            locked = client.post(f"/{queue}/messages/head?timeout=5")
            assert (locked.content, locked.headers["colour"]) == (b"x", '"red"')
            assert locked.headers["location"].startswith(base)
            assert client.delete(locked.headers["location"]).status_code == 200
    finally:
        running.stop()
