"""Key sets of trusted issuers, read from files and from a real HTTP server, and tokens over HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.gateway.web_token_keys import TRUSTED, claims, jwk, key_set, sign
from tests.interop.running_server import RunningServer
from twinbus.client.connecting.trust import CA_FILE_VARIABLE
from twinbus.clock import Millis, SystemClock
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.gateway.web_tokens import KEY_SET_SIZE_MAX, REREAD_AFTER, WebTokens
from twinbus.server import trusted_keys
from twinbus.server.tls import development_certificate, server_context
from twinbus.server.trusted_keys import TrustedKeys, check_location
from twinbus.testing.sim_clock import SimClock

NOW = 1_900_000_000_000


class Publisher(ThreadingHTTPServer):
    """Serves one document."""

    document = key_set(jwk("one"))
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"


class _Answer(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
            self.server.status = 200
        self.end_headers()
        self.wfile.write(self.server.document)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.shutdown()
    publisher.server_close()


def trust(location: str, clock: SimClock | None = None) -> tuple[WebTokens, TrustedKeys]:
    tokens = WebTokens([replace(TRUSTED, keys=location)])
    return tokens, TrustedKeys(tokens, clock or SimClock(NOW))


def accepts(tokens: WebTokens, kid: str = "one", number: int = 0) -> bool:
    try:
        return bool(tokens.verify(sign(claims(NOW), kid, number=number), "", NOW).rights)
    except Unauthorized:
        return False


async def reread(tokens: WebTokens, token: str, now: Millis) -> bool:
    """Wait for a key set that is read again because of this token; false if it is not."""
    read = asyncio.Event()
    is_awaited = tokens.when_key_is_known(token, now, lambda _: read.set())
    if is_awaited:
        await asyncio.wait_for(read.wait(), 20)
    return is_awaited


async def test_keys_come_from_a_file_and_a_new_one_is_found_when_a_token_names_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys.json", SimClock(NOW)
    file.write_bytes(key_set(jwk("one")))
    tokens, keys = trust(str(file), clock)
    await keys.start()
    assert accepts(tokens)
    file.write_bytes(key_set(jwk("two", number=1)))
    clock.advance(REREAD_AFTER)
    assert await reread(tokens, sign(claims(NOW), "two", number=1), clock.now())
    assert (accepts(tokens), accepts(tokens, "two", 1)) == (False, True)


async def test_keys_that_cannot_be_read_again_stay(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys.json", SimClock(NOW)
    file.write_bytes(key_set(jwk("one")))
    tokens, keys = trust(str(file), clock)
    await keys.start()
    for content in (None, b"{}", b"x" * (KEY_SET_SIZE_MAX + 1)):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        clock.advance(REREAD_AFTER)
        assert await reread(tokens, sign(claims(NOW), "two", number=1), clock.now())
        assert accepts(tokens)
    keys.close()
    clock.advance(REREAD_AFTER)
    assert not await reread(tokens, sign(claims(NOW), "two", number=1), clock.now())


async def test_keys_come_from_a_url(publisher: Publisher) -> None:
    tokens, keys = trust(publisher.url)
    await keys.start()
    assert accepts(tokens)


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_an_issuer_is_trusted_over_tls_as_every_other_peer_is(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    files = development_certificate(tmp_path, (), SystemClock().now())
    publisher.socket = server_context(files.certificate, files.key).wrap_socket(publisher.socket, server_side=True)
    if is_trusted:
        monkeypatch.setenv(CA_FILE_VARIABLE, str(files.authority))
    tokens, keys = trust(publisher.url.replace("http:", "https:"))
    await keys.start()
    assert accepts(tokens) is is_trusted


@pytest.mark.parametrize(("status", "document"), [(302, None), (500, None), (200, b"x" * (KEY_SET_SIZE_MAX + 1))])
async def test_a_url_that_answers_nonsense_leaves_us_without_keys_until_it_is_asked_again(
    publisher: Publisher, status: int, document: bytes | None
) -> None:
    clock = SimClock(NOW)
    publisher.status, publisher.document = status, document or Publisher.document
    tokens, keys = trust(publisher.url, clock)
    await keys.start()
    assert not accepts(tokens)
    assert publisher.asked == 1  # a redirect is not followed
    publisher.status, publisher.document = 200, Publisher.document
    clock.advance(REREAD_AFTER)
    assert await reread(tokens, sign(claims(NOW)), clock.now())
    assert accepts(tokens)


async def test_issuers_may_share_a_key_set(publisher: Publisher) -> None:
    """As the two versions of an Entra tenant do."""
    tokens = WebTokens([replace(TRUSTED, keys=publisher.url, issuer=issuer) for issuer in ("other", TRUSTED.issuer)])
    await TrustedKeys(tokens, SimClock(NOW)).start()
    assert accepts(tokens)


async def test_a_url_that_never_ends_its_answer_holds_one_thread_that_nothing_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte comes in time, so no timeout of the socket ends it."""
    monkeypatch.setattr(trusted_keys, "WAIT_MAX_S", 0.05)
    clock, is_over = SimClock(NOW), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK")
        await is_over.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    tokens, keys = trust(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys", clock)
    await keys.start()
    for _ in range(3):
        clock.advance(REREAD_AFTER)
        assert await reread(tokens, sign(claims(NOW)), clock.now())
    threads = [thread for thread in threading.enumerate() if thread.name == "twinbus-keys"]
    assert [thread.daemon for thread in threads] == [True]
    keys.close()
    is_over.set()
    server.close()


@pytest.mark.parametrize("says", [b"SSH-2.0-x\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_url_where_something_else_listens_leaves_us_without_keys(says: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(says)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        tokens, keys = trust(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys")
        await keys.start()
    assert not accepts(tokens)


async def test_a_body_that_trickles_does_not_hold_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted_keys, "READ_TIMEOUT_S", 0.3)
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(1_000)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for sent in range(100):  # noqa: B007
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        tokens, keys = trust(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys")
        await keys.start()
        assert sent < 50
    assert not accepts(tokens)


async def test_a_namespace_does_not_start_without_the_file_of_its_keys(tmp_path: Path) -> None:
    for content in (None, b"", b'{"keys": []}'):
        if content is not None:
            (tmp_path / "keys.json").write_bytes(content)
        with pytest.raises(ArgumentError, match=r"keys\.json"):
            await trust(str(tmp_path / "keys.json"))[1].start()


@pytest.mark.parametrize(
    "location", ["http://issuer.test/keys", "ftp://a/b", "file:///etc/passwd", "http://127.0.0.1.evil.test/"]
)
def test_keys_come_from_nowhere_that_can_be_tampered_with(location: str) -> None:
    with pytest.raises(ArgumentError, match="https"):
        check_location(location)


@pytest.mark.parametrize(
    "location", ["https://issuer.test/keys", "http://127.0.0.1:1/k", "http://localhost/k", "keys.json"]
)
def test_keys_come_from_files_and_https(location: str) -> None:
    check_location(location)


@pytest.fixture
def server(tmp_path: Path, publisher: Publisher) -> Iterator[RunningServer]:
    issuers = (replace(TRUSTED, keys=publisher.url),)
    running = RunningServer(tmp_path / "data", store_count=1, trusted_issuers=issuers)
    running.create_queue("orders")
    yield running
    running.stop()


def test_a_bearer_token_sends_and_receives_over_http_as_far_as_its_claims_go(server: RunningServer) -> None:
    def ask(method: str, path: str, token: str, scheme: str = "Bearer") -> int:
        url = f"http://127.0.0.1:{server.server.http_port}{path}"
        return httpx.request(method, url, headers={"Authorization": f"{scheme} {token}"}).status_code

    now = server.clock.now()
    sender, receiver = (sign(claims(now, roles=[role])) for role in ("sender", "receiver"))
    assert ask("POST", "/orders/messages", sender) == 201
    assert ask("POST", "/orders/messages", sender, "bearer") == 201
    assert ask("POST", "/orders/messages", receiver) == 401
    assert ask("DELETE", "/orders/messages/head?timeout=1", sender) == 401
    assert ask("DELETE", "/orders/messages/head?timeout=1", receiver) == 200
    assert ask("GET", "/orders?api-version=2021-05", receiver) == 401
    assert ask("GET", "/orders?api-version=2021-05", sign(claims(now))) == 200
    assert ask("GET", "/$stores", sign(claims(now))) == 200
    assert ask("POST", "/orders/messages", sign(claims(now - 700_000))) == 401
    assert ask("POST", "/orders/messages", "x.y.z") == 401


def test_a_request_waits_for_a_key_that_is_new(server: RunningServer, publisher: Publisher) -> None:
    publisher.document = key_set(jwk("two", number=1))
    server.clock.advance(REREAD_AFTER / 1_000)
    token = sign(claims(server.clock.now()), "two", number=1)
    url = f"http://127.0.0.1:{server.server.http_port}/orders/messages"
    assert httpx.post(url, headers={"Authorization": f"Bearer {token}"}).status_code == 201
