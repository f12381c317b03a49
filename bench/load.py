"""A raw AMQP load client in a process of its own, on our `amqp` package in client role; one JSON line out.

    python bench/load.py send    amqp://user:password@127.0.0.1:5672/queue --connections 8 --window 100 --seconds 3
    python bench/load.py drain   … --count 50000 --credit 1000
    python bench/load.py both    … senders and receivers together, as fast as the window lets them
    python bench/load.py latency … --rate 500: open loop, from when a message was due until it was received

Works with every AMQP 1.0 broker. A send counts when the broker has acknowledged it, a receipt when it was accepted.
"""

import argparse
import asyncio
import json
import resource
import statistics
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import uvloop

from twinbus.amqp.codec.performatives import SenderSettleMode
from twinbus.amqp.codec.sasl import ANONYMOUS, PLAIN, SaslCredentials
from twinbus.amqp.codec.sections import DataBody, Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.client.connecting.wire import Wire
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender

TIMEOUT_S = 30.0
STAMP = struct.Struct(">d")
"""First bytes of every body: when the message was due."""


class Peer:
    """Where the load goes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "amqp" or not parts.hostname or not parts.path.strip("/"):
            raise SystemExit("the peer reads amqp://[user:password@]host:port/address")
        self.host, self.port = parts.hostname, parts.port or 5672
        self.address = unquote(parts.path.lstrip("/"))
        self.credentials = SaslCredentials(ANONYMOUS)
        if parts.username:
            secret = f"\0{unquote(parts.username)}\0{unquote(parts.password or '')}".encode()
            self.credentials = SaslCredentials(PLAIN, secret)

    async def connect(self) -> Wire:
        settings = ConnectionSettings(
            container_id="load",
            hostname=self.host,
            incoming_window=1_000_000,
            frame_size_max=1_048_576,
            sasl_credentials=self.credentials,
        )
        return await Wire.open(self.host, self.port, settings, timeout_s=TIMEOUT_S)

    async def sender(self) -> tuple[Wire, Sender]:
        wire = await self.connect()
        sender = Sender(wire)
        link = await wire.attach(
            sender,
            await wire.begin(TIMEOUT_S),
            "load-sender",
            TIMEOUT_S,
            is_sender=True,
            target=Target(address=self.address),
            snd_settle_mode=SenderSettleMode.UNSETTLED,
        )
        assert isinstance(link, OutgoingLink)
        sender.bind(link)
        return wire, sender

    async def receiver(self, credit: int) -> tuple[Wire, Receiver]:
        wire = await self.connect()
        receiver = Receiver(wire, waits_for_outcome=False)
        link = await wire.attach(
            receiver,
            await wire.begin(TIMEOUT_S),
            "load-receiver",
            TIMEOUT_S,
            is_sender=False,
            source=Source(address=self.address),
        )
        assert isinstance(link, IncomingLink)
        receiver.bind(link, credit)
        return wire, receiver


class Messages:
    """Durable messages of one size, each with its own id and time."""

    def __init__(self, size: int) -> None:
        mark = b"\xff" * STAMP.size
        payload = encode_sections(
            Sections(
                header=Header(durable=True),
                properties=MessageProperties(message_id="x" * 16),
                body=DataBody([mark + bytes(size - STAMP.size)]),
            )
        )
        id_at, stamp_at = payload.index(b"x" * 16), payload.index(mark)
        self._pieces = payload[:id_at], payload[id_at + 16 : stamp_at], payload[stamp_at + STAMP.size :]
        self._count = 0

    def make(self, due: float) -> bytes:
        self._count += 1
        head, middle, tail = self._pieces
        return b"".join((head, b"%016d" % self._count, middle, STAMP.pack(due), tail))

    def due(self, payload: bytes) -> float:
        """When a received payload was due: its body is its end, whatever the broker wrote in front."""
        size = STAMP.size + len(self._pieces[2])
        due: float = STAMP.unpack_from(payload, len(payload) - size)[0]
        return due


async def flood(sender: Sender, messages: Messages, window: int, goes_on: Callable[[], bool]) -> int:
    """Keep at most `window` messages unacknowledged; the number that was acknowledged."""
    chunk = max(1, window // 4)
    under_way = []
    sent = 0
    while goes_on():
        now = time.perf_counter()
        under_way.append(sender.submit([messages.make(now) for _ in range(chunk)]))
        sent += chunk
        if len(under_way) * chunk >= window:
            done = under_way.pop(0)
            await done.done
            _require(done.outcomes)
    for sending in under_way:
        await sending.done
        _require(sending.outcomes)
    return sent


def _require(outcomes: Sequence[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise SystemExit(f"a send was refused: {outcome}")


async def send(peer: Peer, options: argparse.Namespace) -> dict[str, float]:
    messages = Messages(options.size)
    ends = [await peer.sender() for _ in range(options.connections)]
    start = time.perf_counter()
    counts = await asyncio.gather(
        *(
            flood(end, messages, options.window, lambda: time.perf_counter() - start < options.seconds)
            for _, end in ends
        )
    )
    seconds = time.perf_counter() - start
    await asyncio.gather(*(wire.close() for wire, _ in ends))
    return {"sent": sum(counts), "rate": sum(counts) / seconds}


async def take(receiver: Receiver, left: list[int], seen: Callable[[bytes], None]) -> float:
    """Receive and accept until nothing is left over all receivers; when the last one came here."""
    last = time.perf_counter()
    while left[0] > 0:
        batch = await receiver.receive(1_000, wait_s=2.0)
        if not batch:
            break
        receiver.submit(batch)
        left[0] -= len(batch)
        last = time.perf_counter()
        for delivery in batch:
            seen(delivery.payload)
    return last


async def drain(peer: Peer, options: argparse.Namespace) -> dict[str, float]:
    left = [options.count]
    start = time.perf_counter()
    ends = [await peer.receiver(options.credit) for _ in range(options.connections)]
    last = max(await asyncio.gather(*(take(end, left, lambda _: None) for _, end in ends)))
    await asyncio.gather(*(wire.close() for wire, _ in ends))
    received = options.count - left[0]
    return {"received": received, "rate": received / (last - start)}


async def both(peer: Peer, options: argparse.Namespace) -> dict[str, float]:
    messages = Messages(options.size)
    senders = [await peer.sender() for _ in range(options.connections)]
    receivers = [await peer.receiver(options.credit) for _ in range(options.connections)]
    start = time.perf_counter()
    left = [1 << 62]
    receiving = asyncio.gather(*(take(end, left, lambda _: None) for _, end in receivers))
    sending = (
        flood(end, messages, options.window, lambda: time.perf_counter() - start < options.seconds)
        for _, end in senders
    )
    sent = sum(await asyncio.gather(*sending))
    left[0] -= (1 << 62) - sent
    last = max(await receiving)
    await asyncio.gather(*(wire.close() for wire, _ in senders + receivers))
    return {"sent": sent, "received": sent - left[0], "rate": (sent - left[0]) / (last - start)}


async def latency(peer: Peer, options: argparse.Namespace) -> dict[str, float]:
    messages = Messages(options.size)
    wire, sender = await peer.sender()
    other, receiver = await peer.receiver(options.credit)
    count = int(options.rate * options.seconds)
    took: list[float] = []

    def seen(payload: bytes) -> None:
        took.append(time.perf_counter() - messages.due(payload))

    receiving = asyncio.ensure_future(take(receiver, [count], seen))
    start = time.perf_counter()
    for index in range(count):
        due = start + index / options.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sender.submit([messages.make(due)])
    await receiving
    await asyncio.gather(wire.close(), other.close())
    cuts = statistics.quantiles(took, n=100)
    return {"received": len(took), "p50_ms": cuts[49] * 1e3, "p95_ms": cuts[94] * 1e3, "p99_ms": cuts[98] * 1e3}


MODES: dict[str, Callable[[Peer, argparse.Namespace], Coroutine[Any, Any, dict[str, float]]]] = {
    "send": send,
    "drain": drain,
    "both": both,
    "latency": latency,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("peer")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--credit", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=500.0)
    options = parser.parse_args()
    result = uvloop.run(MODES[options.mode](Peer(options.peer), options))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["client_cpu_s"] = usage.ru_utime + usage.ru_stime
    print(json.dumps(result))


if __name__ == "__main__":
    main()
