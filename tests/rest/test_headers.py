"""Headers as they come over the wire."""

import socket

import httpx
import pytest

from tests.interop.running_server import RunningServer
from twinbus.server.cased_headers import HEADERS_SIZE_MAX

CHUNK = b"x" * 64 * 1024


@pytest.mark.parametrize("is_one_header", [True, False])
def test_headers_without_an_end_are_refused(server: RunningServer, is_one_header: bool) -> None:
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=20) as peer:
        peer.sendall(b"POST /q/messages HTTP/1.1\r\nHost: h\r\nlong: ")
        sent = 0
        answer = b""
        while not answer:
            try:
                peer.sendall(CHUNK if is_one_header else b"a: " + CHUNK[:1000] + b"\r\n")
                sent += len(CHUNK) if is_one_header else 1000
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
