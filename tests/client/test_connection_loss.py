"""Connections that end: every message that was handed in has an outcome, and nobody waits for ever."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.relay import Relay
from tests.interop.child_server import ChildServer
from tests.interop.running_server import RunningServer, ShiftedClock
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.performatives import End, Transfer
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.client.connecting import wire
from twinbus.client.connecting.dialling import dial
from twinbus.client.connecting.wire import Wire
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.outcomes import Outcomes
from twinbus.client.remote_errors import ConnectionLost
from twinbus.client.sender import Sender
from twinbus.errors import MessagingError, OperationTimeout
from twinbus.pairing.stock.failures import FailureKind, classify

WAIT_S = 10.0


@pytest.fixture
async def relay(server: RunningServer) -> AsyncIterator[Relay]:
    relay = Relay(server.server.amqp_port)
    await relay.start()
    yield relay
    await relay.stop()


async def through(relay: Relay, server: RunningServer, timeout_s: float = WAIT_S) -> Namespace:
    text = server.connection_string.replace(f":{server.server.amqp_port};", f":{relay.port};")
    return await Namespace.connect(text, clock=server.clock, timeout_s=timeout_s)


def flood(sender: Sender, count: int) -> list[Outcomes]:
    return [sender.submit([encode_message(bytes(1_000)) for _ in range(100)]) for _ in range(count // 100)]


async def all_of(under_way: list[Outcomes]) -> list[MessagingError | None]:
    async with asyncio.timeout(WAIT_S):
        return [outcome for outcomes in under_way for outcome in await outcomes.wait()]


async def test_a_connection_that_is_cut_under_load_leaves_no_message_without_an_outcome(
    server: RunningServer, relay: Relay
) -> None:
    server.create_queue("cut")
    namespace = await through(relay, server)
    sender = await namespace.sender("cut")
    under_way = flood(sender, 5_000)
    await under_way[0].wait()
    relay.cut()
    outcomes = await all_of(under_way)
    kinds = {type(outcome) for outcome in outcomes}
    assert len(outcomes) == 5_000
    assert kinds == {type(None), ConnectionLost}
    assert isinstance(namespace.fault, ConnectionLost)
    await namespace.close()


async def test_what_was_acknowledged_before_the_cut_is_in_the_queue(
    server: RunningServer, relay: Relay, namespace: Namespace
) -> None:
    server.create_queue("acknowledged")
    cut = await through(relay, server)
    under_way = flood(await cut.sender("acknowledged"), 3_000)
    await under_way[3].wait()
    relay.cut()
    acknowledged = (await all_of(under_way)).count(None)
    await cut.close()
    receiver, found = await namespace.receiver("acknowledged", deletes=True), 0
    while found < acknowledged:
        messages = await receiver.receive(1_000, WAIT_S)
        assert messages, f"{found} of {acknowledged} that were acknowledged"
        found += len(messages)


async def test_whoever_waits_gets_an_error_when_the_connection_is_cut(server: RunningServer, relay: Relay) -> None:
    server.put(server.create_queue("waiting"), "a")
    namespace = await through(relay, server)
    receiver = await namespace.receiver("waiting", credit=1)
    messages = await receiver.receive(1, WAIT_S)
    relay.hold()
    settling = receiver.submit(messages)
    waiting: list[asyncio.Task[object]] = [
        asyncio.create_task(receiver.receive(1, WAIT_S)),
        asyncio.create_task(namespace.entity("waiting").peek(1)),
        asyncio.create_task(namespace.sender("waiting")),
    ]
    await asyncio.sleep(0)
    relay.cut()
    async with asyncio.timeout(WAIT_S):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in found} == {ConnectionLost}
    assert [type(error) for error in await settling.wait()] == [ConnectionLost]
    with pytest.raises(ConnectionLost):
        await namespace.receiver("waiting")
    await namespace.close()


async def test_what_was_received_and_deleted_is_handed_out_after_the_cut(server: RunningServer, relay: Relay) -> None:
    server.put(server.create_queue("rescued"), "a", "b", "c")
    namespace = await through(relay, server)
    receiver = await namespace.receiver("rescued", deletes=True)
    found = await receiver.receive(1, WAIT_S)
    # An answer on the same connection comes behind the messages.
    await namespace.entity("rescued").peek(1)
    relay.cut()
    async with asyncio.timeout(WAIT_S):
        while namespace.fault is None:
            await asyncio.sleep(0)
    found += await receiver.receive(5, wait_s=0)
    assert [message.body for message in found] == [b"a", b"b", b"c"]
    with pytest.raises(ConnectionLost):
        await receiver.receive(1, wait_s=0)
    await namespace.close()


async def test_a_peer_that_hangs_is_a_timeout_for_requests_and_closing_does_not_wait_for_it(
    server: RunningServer, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CLOSE_TIMEOUT_S", 0.1)
    server.create_queue("hanging")
    namespace = await through(relay, server, timeout_s=0.3)
    sender = await namespace.sender("hanging")
    relay.hold()
    with pytest.raises(OperationTimeout) as caught:
        await namespace.sender("hanging")
    assert caught.value.is_transient
    # More than all buffers on the way take, so that there is something left to be written when it closes.
    under_way = [sender.submit([encode_message(bytes(200_000))]) for _ in range(150)]
    async with asyncio.timeout(WAIT_S):
        await namespace.close()
    assert {type(outcome) for outcome in await all_of(under_way)} == {ConnectionLost}


async def test_a_peer_that_is_silent_for_too_long_is_given_up(server: RunningServer, relay: Relay) -> None:
    server.create_queue("silent")
    clock = ShiftedClock()
    text = server.connection_string.replace(f":{server.server.amqp_port};", f":{relay.port};")
    namespace = await Namespace.connect(text, clock=clock)
    sender = await namespace.sender("silent")
    relay.hold()
    under_way = [sender.submit([encode_message(bytes(200_000))]) for _ in range(150)]
    clock.advance(479)
    namespace._wire._tick()
    assert namespace.fault is None
    clock.advance(2)
    namespace._wire._tick()
    assert {type(outcome) for outcome in await all_of(under_way)} == {ConnectionLost}
    with pytest.raises(ConnectionLost, match="too long"):
        await namespace.sender("silent")
    await namespace.close()


UNREADABLE = {
    "no value": bytes.fromhex("0000000c 02 00 0000 ffffffff"),
    "no performative": encode_frame(0, bytes.fromhex("005310 40")),
    "smaller than its header": bytes.fromhex("00000002 02 00 0000"),
    "larger than announced": bytes.fromhex("7fffffff 02 00 0000"),
    "of no session": encode_frame(4_000, encode_composite(End())),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_peer_that_ceases_to_speak_amqp_is_a_connection_that_is_lost(
    server: RunningServer, relay: Relay, what: str
) -> None:
    """Nobody is to take it for an answer to what was sent: a gateway may have lost the namespace behind it."""
    queue = server.create_queue(what.replace(" ", "-"))
    namespace = await through(relay, server)
    sender = await namespace.sender(queue)
    relay.hold()
    under_way = flood(sender, 100)
    relay.say(UNREADABLE[what])
    (failure,) = {type(outcome): outcome for outcome in await all_of(under_way)}.values()
    assert isinstance(failure, ConnectionLost)
    assert classify(failure) is FailureKind.OUTAGE
    assert failure.is_transient
    await namespace.close()


async def test_a_peer_that_breaks_the_protocol_of_one_session_is_lost_to_that_one(
    server: RunningServer, relay: Relay
) -> None:
    namespace = await through(relay, server)
    broken, whole = [await namespace.sender(server.create_queue(f"session-{number}")) for number in range(2)]
    relay.hold()
    under_way = flood(broken, 100)
    assert broken._link is not None
    channel = broken._link.session.remote_channel
    assert channel is not None
    relay.say(encode_frame(channel, encode_composite(Transfer(handle=4_000))))
    assert {type(outcome) for outcome in await all_of(under_way)} == {ConnectionLost}
    relay.pass_on()
    assert await whole.send([encode_message("a")]) == [None]
    await namespace.close()


async def test_a_peer_that_does_not_open_in_time_is_a_connection_that_is_lost(relay: Relay) -> None:
    relay.hold()
    clock, settings = ShiftedClock(), ConnectionSettings(container_id="client")
    connected = Wire(settings, clock)
    await dial(connected, "127.0.0.1", relay.port, None, WAIT_S)
    clock.advance(settings.handshake_timeout // 1_000 + 1)
    connected._tick()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(ConnectionLost):
            await connected._opened


async def test_a_peer_that_reads_slowly_is_sent_no_more_than_it_takes(server: RunningServer, relay: Relay) -> None:
    server.create_queue("slow")
    namespace = await through(relay, server)
    sender = await namespace.sender("slow")
    relay.hold()
    under_way = [sender.submit([encode_message(bytes(200_000))]) for _ in range(150)]
    assert len(sender._queue) > 50
    relay.pass_on()
    assert await all_of(under_way) == [None] * 150
    await namespace.close()


async def test_closing_while_busy_gives_every_message_an_outcome(server: RunningServer) -> None:
    server.create_queue("busy")
    namespace = await Namespace.connect(server.connection_string, clock=server.clock)
    sender = await namespace.sender("busy")
    under_way = flood(sender, 3_000)
    await under_way[0].wait()
    await namespace.close()
    outcomes = await all_of(under_way)
    assert {type(outcome) for outcome in outcomes} == {type(None), ConnectionLost}
    assert [type(error) for error in await sender.send([encode_message("late")])] == [ConnectionLost]
    with pytest.raises(ConnectionLost, match="closed here"):
        await namespace.sender("busy")


async def test_closing_a_sender_while_busy_gives_every_message_an_outcome(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("busy-link"))
    under_way = flood(sender, 5_000)
    await sender.close()
    assert {type(outcome) for outcome in await all_of(under_way)} <= {type(None), ConnectionLost}


async def test_a_wait_that_is_cancelled_harms_nobody_else(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("cancelled"))
    waiting = asyncio.create_task(sender.send([encode_message("a")]))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await sender.send([encode_message("b")]) == [None]
    receiver = await namespace.receiver("cancelled")
    receiving = asyncio.create_task(receiver.receive(1, WAIT_S))
    await asyncio.sleep(0)
    receiving.cancel()
    assert len(await receiver.receive(1, WAIT_S)) == 1


async def test_nobody_listening_is_reported_as_such() -> None:
    unused = Relay(0)
    await unused.start()
    await unused.stop()
    text = f"Endpoint=sb://127.0.0.1:{unused.port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    with pytest.raises(ConnectionLost, match="Nothing answers") as caught:
        await Namespace.connect(text)
    assert caught.value.is_transient


async def test_a_peer_that_accepts_and_says_nothing_is_a_timeout(server: RunningServer, relay: Relay) -> None:
    relay.hold()
    with pytest.raises(OperationTimeout):
        await through(relay, server, timeout_s=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_ends_under_load_loses_no_outcome_and_no_acknowledged_message(
    tmp_path: Path, ending: signal.Signals
) -> None:
    child = ChildServer(tmp_path)
    namespace = await Namespace.connect(child.connection_string)
    under_way = flood(await namespace.sender("partitioned"), 5_000)
    await under_way[0].wait()
    await asyncio.to_thread(child.kill if ending is signal.SIGKILL else child.stop)
    outcomes = await all_of(under_way)
    assert {type(outcome) for outcome in outcomes} <= {type(None), ConnectionLost}
    await namespace.close()
    await asyncio.to_thread(child.start)
    try:
        async with await Namespace.connect(child.connection_string) as again:
            receiver, found = await again.receiver("partitioned", deletes=True), 0
            while found < outcomes.count(None):
                messages = await receiver.receive(1_000, WAIT_S)
                assert messages, f"{found} of {outcomes.count(None)} that were acknowledged"
                found += len(messages)
    finally:
        await asyncio.to_thread(child.kill)
