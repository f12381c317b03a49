"""Lines to other machines: TLS on which both ends have shown who they are, or no line at all."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
import uvloop

from twinbus.clock import SystemClock
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line, Topics
from twinbus.errors import ArgumentError, FragmentUnavailable, MessagingError, OutcomeUnknown, StoreDamaged
from twinbus.server.machines import tcp_mesh
from twinbus.server.machines.assembly import REACHED_WAIT_S, Assembly
from twinbus.server.machines.identity import Authority, host_of, line_contexts, new_authority
from twinbus.server.machines.tcp_mesh import STRANGERS, TOO_MANY_HANDSHAKES, NodeAddress, TcpMesh
from twinbus.server.nodes.mesh import LineSocket

PATIENCE_S = 60.0
ECHO, HANG = 77, 78
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority("shop", CLOCK.now())


class End:
    """A node that answers ECHO with what it was asked, and HANG never."""

    def __init__(self, authority: Authority, number: int, namespace: str = "shop", **hello: int) -> None:
        self.number = number
        self.topics = Topics()
        self.topics.asks[ECHO] = lambda line, payload, now, answer: answer(payload)
        self.topics.asks[HANG] = lambda line, payload, now, answer: None
        me = Hello(number, 64, namespace, **hello)
        self.mesh = TcpMesh(me, line_contexts(authority, number, CLOCK.now()), self.topics, CLOCK)

    async def start(self) -> None:
        self.address = await self.mesh.listen(NodeAddress("127.0.0.1", 0))

    async def line_to(self, other: "End") -> Line:
        await until(lambda: other.number in self.mesh.lines)
        return self.mesh.lines[other.number]

    async def ask(self, other: "End", topic: int, payload: bytes = b"hello") -> bytes | MessagingError:
        answered: asyncio.Future[bytes | MessagingError] = asyncio.get_running_loop().create_future()
        (await self.line_to(other)).ask(topic, payload, answered.set_result)
        async with asyncio.timeout(PATIENCE_S):
            return await answered


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*ends: End) -> AsyncIterator[None]:
    """All of them know of each other, and tick."""
    for end in ends:
        await end.start()
    for end in ends:
        end.mesh.follow({each.number: each.address for each in ends})

    async def tick() -> None:
        while True:
            for end in ends:
                end.mesh.tick(CLOCK.now())
            await asyncio.sleep(0.05)

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        for end in ends:
            end.mesh.close()
        await asyncio.sleep(0)


async def test_two_nodes_ask_each_other_over_one_line(authority: Authority) -> None:
    one, other = End(authority, 3), End(authority, 12)
    async with running(one, other):
        assert await one.ask(other, ECHO) == b"hello"
        assert await other.ask(one, ECHO, b"x" * 3_000_000) == b"x" * 3_000_000


async def test_what_all_nodes_are_asked_waits_for_one_that_has_no_line_yet_or_is_found_to_be_gone(
    authority: Authority,
) -> None:
    async def answer(_: object) -> str:
        return "here"

    one, other, live = End(authority, 1), End(authority, 2), [1, 2]
    asking, answering = (
        Assembly(end.topics, lambda end=end: end.mesh.lines, lambda: live, end.number, None)  # type: ignore[misc, arg-type]
        for end in (one, other)
    )
    answering.answering["where"] = answer
    asked = asyncio.create_task(asking.ask("where", {}, PATIENCE_S))
    await asyncio.sleep(0)
    async with running(one, other):
        assert await asked == {2: "here"}
        live.append(3)
        asked = asyncio.create_task(asking.ask("where", {}, PATIENCE_S))
        await asyncio.sleep(0)
        live.remove(3)
        assert await asked == {2: "here"}


async def test_what_all_nodes_are_asked_does_not_wait_again_for_one_that_was_waited_for_in_vain() -> None:
    now = 0.0
    assembly = Assembly(Topics(), dict, lambda: [1, 2], 1, None, lambda: now)  # type: ignore[arg-type]
    asked = asyncio.create_task(assembly.ask("where", {}, PATIENCE_S))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asked.done()
    now = REACHED_WAIT_S
    for asking in (asked, assembly.ask("where", {}, PATIENCE_S)):
        with pytest.raises(FragmentUnavailable, match="Node 2 cannot be reached"):
            await asking


async def test_a_line_that_was_cut_is_there_again_and_what_was_asked_on_it_is_unknown(authority: Authority) -> None:
    one, other = End(authority, 1), End(authority, 2)
    async with running(one, other):
        first = await one.line_to(other)
        answered: list[bytes | MessagingError] = []
        first.ask(HANG, b"", answered.append)
        assert one.mesh.cut(2)
        assert isinstance(answered[0], OutcomeUnknown)
        await until(lambda: one.mesh.lines.get(2) not in (None, first))
        assert await one.ask(other, ECHO) == b"hello"


async def test_a_line_that_broke_before_its_dial_was_known_to_have_succeeded_is_dialled_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_mesh, "DIAL_EVERY_S", 0.01)
    one, other = End(authority, 1), End(authority, 2)
    made: list[LineSocket] = []

    class Short(LineSocket):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if made == [self]:
                transport.close()
                self.connection_lost(None)

    def shell(number: int) -> LineSocket:
        mesh = one.mesh
        made.append(Short(mesh._me, mesh._listener, mesh._clock, number, mesh._broken))
        return made[-1]

    monkeypatch.setattr(one.mesh, "_shell", shell)
    async with running(one, other):
        assert await one.ask(other, ECHO) == b"hello"
        assert len(made) == 2


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
async def test_a_node_of_another_authority_gets_no_line_in_either_direction(
    authority: Authority, numbers: tuple[int, int]
) -> None:
    node, stranger = End(authority, numbers[0]), End(new_authority("shop", CLOCK.now()), numbers[1])
    opened: list[Line] = []
    for end in (node, stranger):
        end.topics.when_opened.append(lambda line, _: opened.append(line))
    async with running(node, stranger):
        dialler = min(node, stranger, key=lambda end: end.number)
        await until(lambda: bool(dialler.mesh._said))
        assert not opened


async def test_whoever_shows_no_certificate_is_told_nothing(authority: Authority) -> None:
    node = End(authority, 1)
    async with running(node):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.certificate)
        said = b""
        # With TLS 1.3 a client learns only when it reads that its certificate was wanted.
        with suppress(ssl.SSLError, ConnectionError):
            reader, writer = await asyncio.open_connection(*node.address, ssl=context, server_hostname=host_of(1))
            async with asyncio.timeout(PATIENCE_S):
                said = await reader.read()
            writer.close()
        assert said == b""
        assert not node.mesh.lines
        await until(lambda: STRANGERS in node.mesh.refusals._counts)


async def test_only_so_many_may_have_shown_nothing_at_a_time(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_mesh, "HANDSHAKES_MAX", 2)
    node = End(authority, 1)
    async with running(node):
        silent = [await asyncio.open_connection(*node.address) for _ in range(2)]
        await until(lambda: len(node.mesh._greeted) == 2)
        reader, writer = await asyncio.open_connection(*node.address)
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert TOO_MANY_HANDSHAKES in node.mesh.refusals._counts
        for _, each in [*silent, (reader, writer)]:
            each.close()
        await until(lambda: not node.mesh._greeted)


def test_whoever_speaks_before_it_is_accepted_is_heard(authority: Authority) -> None:
    """On the loop that serves: it reads from a connection at once, and a busy node accepts late."""

    async def answer_to_early_bird() -> bytes:
        node = End(authority, 1)
        async with running(node):
            out = ssl.MemoryBIO()
            bird = line_contexts(authority, 2, CLOCK.now()).dialling.wrap_bio(
                ssl.MemoryBIO(), out, server_hostname=host_of(1)
            )
            with suppress(ssl.SSLWantReadError):
                bird.do_handshake()
            with socket.create_connection(node.address) as connection:
                connection.sendall(out.read())
                connection.setblocking(False)
                return await asyncio.get_running_loop().sock_recv(connection, 1024)

    assert uvloop.run(answer_to_early_bird()) != b""


async def test_a_node_speaks_its_own_number_only(authority: Authority) -> None:
    """Its certificate names one number, and its hello another one."""
    node, liar = End(authority, 5), End(authority, 2)
    liar.mesh._me = Hello(3, 64, "shop")
    opened: list[Line] = []
    node.topics.when_opened.append(lambda line, _: opened.append(line))
    async with running(node, liar):
        tried: list[Line] = []
        liar.topics.when_broken.append(lambda line, _: tried.append(line))
        await until(lambda: bool(tried))
        assert not opened


@pytest.mark.parametrize("versions", [(2, 3), (0, 0)])
async def test_a_node_without_a_common_version_gets_no_line(
    authority: Authority, versions: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    node, other = End(authority, 1), End(authority, 2, version_min=versions[0], version_max=versions[1])
    opened: list[Line] = []
    node.topics.when_opened.append(lambda line, _: opened.append(line))
    async with running(node, other):
        await until(lambda: any("of the line" in str(record.__dict__.get("fields")) for record in caplog.records))
        assert not opened


async def test_a_release_beside_its_successor_speaks_the_older_version(authority: Authority) -> None:
    node, newer = End(authority, 1), End(authority, 2, version_min=1, version_max=2)
    async with running(node, newer):
        assert (await newer.line_to(node)).version == 1
        assert await newer.ask(node, ECHO) == b"hello"


@pytest.mark.parametrize("text", ["", "host", ":5680", "host:", "host:x", "host:70000"])
def test_an_address_for_nodes_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ArgumentError, match="HOST:PORT"):
        NodeAddress.read(text)


def test_an_address_of_version_6_is_written_with_brackets() -> None:
    assert NodeAddress.read("[::1]:5680") == NodeAddress("::1", 5680)
    assert str(NodeAddress("::1", 5680)) == "[::1]:5680"


@pytest.mark.parametrize("text", ["0.0.0.0:5680", "[::]:5680"])
def test_all_addresses_are_no_address_that_others_could_connect_to(text: str) -> None:
    with pytest.raises(ArgumentError, match="--advertise-nodes"):
        NodeAddress.read(text)


def flipped(pem: str, random: Random) -> str:
    """With one bit of what it holds the other way round."""
    held = bytearray(ssl.PEM_cert_to_DER_cert(pem))
    held[random.randrange(len(held))] ^= 1 << random.randrange(8)
    return ssl.DER_cert_to_PEM_cert(bytes(held))


def test_an_authority_that_is_damaged_in_the_catalog_is_said_to_be(authority: Authority) -> None:
    random = Random(1)
    key, certificate = (text.replace(" PRIVATE KEY", " CERTIFICATE") for text in authority)
    damaged = [
        Authority(flipped(key, random).replace(" CERTIFICATE", " PRIVATE KEY"), authority.certificate)
        for _ in range(200)
    ]
    damaged += [authority._replace(certificate=flipped(certificate, random)) for _ in range(400)]
    refusals = []
    for each in damaged:
        try:
            line_contexts(each, 1, CLOCK.now())
        except StoreDamaged as fault:
            refusals.append(str(fault))
    assert len(refusals) > len(damaged) // 3
    assert all("damaged in the catalog" in refusal for refusal in refusals)
    other = new_authority("shop", CLOCK.now())
    with pytest.raises(StoreDamaged, match="its key is not that of its certificate"):
        line_contexts(authority._replace(key=other.key), 1, CLOCK.now())
