"""Frames like the one before are taken in a run: the result is that of frames which come one by one."""

from random import Random
from types import ModuleType

import pytest

from tests.amqp.wire import NOON, Script, Wire
from twinbus.amqp import dispositions as dispositions_module
from twinbus.amqp import session as session_module
from twinbus.amqp.codec.delivery_state import ACCEPTED, RELEASED, DeliveryState
from twinbus.amqp.codec.frame_runs import UINT_CODE, disposition_shape, transfer_shape
from twinbus.amqp.codec.performatives import RECEIVER, Detach, Transfer
from twinbus.amqp.codec.transfer_reader import read_disposition, read_transfer
from twinbus.amqp.codec.transfer_writer import TransferWriter, encode_disposition
from twinbus.amqp.events import Deliveries, Dispositions, Event, LinkDetached, OversizeDelivery
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import PATIENCE_MAX


def frames(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        found.append(data[position : position + size])
        position += size
    return found


class Senders:
    """A client with three links, and the server that it talks to."""

    def __init__(self, message_size_max: int = 1 << 20) -> None:
        self.wire = Wire().open()
        session, self.theirs = self.wire.session()
        self.links = [
            self.wire.client_sender(session, name, 5_000, max_message_size=message_size_max)[0]
            for name in ("a", "b", "c")
        ]

    def written(self, random: Random) -> bytes:
        """Transfers in runs that differ in link, tag, size and form."""
        for _ in range(random.randrange(1, 12)):
            link, tag_size, settled = random.choice(self.links), random.choice((1, 4, 4, 16)), random.random() < 0.2
            sizes = [random.choice((0, 1, 30, 30, 30, 300)) for _ in range(random.randrange(1, 20))]
            if random.random() < 0.2:
                link.transfer(random.randbytes(50), random.randbytes(tag_size), settled, message_format=0x80013700)
            else:
                link.transfers([(random.randbytes(tag_size), random.randbytes(size)) for size in sizes], settled)
        return self.wire.client.connection.data_to_send()

    def take(self, chunks: list[bytes], share: int = 1 << 30) -> tuple[list[object], int]:
        """What the server reports, and how many frames it counted."""
        server = self.wire.server.connection
        events: list[Event] = []
        for chunk in chunks:
            events += server.receive_data(chunk, NOON, share)
            while server.is_behind:
                events += server.receive_data(b"", NOON, share)
        found: list[object] = []
        for event in events:
            if isinstance(event, Deliveries):
                found += [(event.link.handle, delivery) for delivery in event.deliveries]
            elif isinstance(event, OversizeDelivery):
                found.append((event.link.handle, event.delivery_id, event.size))
        return found, self.theirs.windows.incoming_count

    def tagged(self, tag_size: int, count: int, payload: bytes = b"payload") -> bytes:
        self.links[0].transfers([(bytes(tag_size), payload)] * count)
        return self.wire.client.connection.data_to_send()

    def taken_singly(self, data: bytes) -> int:
        """How many of these transfers the server has to take apart: the others are taken with those before."""
        pos = count = 0
        while pos < len(data):
            end = pos + int.from_bytes(data[pos : pos + 4], "big")
            assert self.theirs.transfer_frame(data, pos + 8, end)
            count += 1
            pos = self.theirs.transfer_run(data, pos + 8, end, len(data))
        return count


@pytest.mark.parametrize("seed", range(30))
def test_transfers_of_one_read_are_those_that_came_one_by_one(seed: int) -> None:
    random = Random(seed)
    together, singly, in_slices = Senders(200), Senders(200), Senders(200)
    for _ in range(3):
        state = random.getstate()
        data = together.written(random)
        for other in (singly, in_slices):
            random.setstate(state)
            assert other.written(random) == data
        expected = singly.take(frames(data))
        assert together.take([data]) == expected
        assert in_slices.take([data[:77], data[77:]], share=700) == expected


def test_a_frame_over_the_limits_is_not_part_of_a_run() -> None:
    together, singly = Senders(100), Senders(100)
    for senders in (together, singly):
        senders.links[0].transfers([(b"%04d" % number, bytes(101 if number == 5 else 50)) for number in range(9)])
    data = together.wire.client.connection.data_to_send()
    assert singly.wire.client.connection.data_to_send() == data
    expected = singly.take(frames(data))
    assert together.take([data]) == expected
    assert len(expected[0]) == 9


def test_a_frame_that_is_longer_than_what_has_arrived_is_taken_when_the_rest_is_there() -> None:
    senders = Senders()
    senders.links[0].transfers([(b"%04d" % number, bytes(50)) for number in range(9)])
    data = senders.wire.client.connection.data_to_send()
    found, count = senders.take([data[:-3]])
    assert (len(found), count) == (8, 8)
    found, count = senders.take([data[-3:]])
    assert (len(found), count) == (1, 9)


def test_transfers_alike_are_taken_at_once_also_of_a_sender_that_changes_its_ways() -> None:
    senders = Senders()
    for tag_size in range(12):
        data = senders.tagged(tag_size, 3 * PATIENCE_MAX)
        assert senders.taken_singly(data) <= PATIENCE_MAX
        assert senders.taken_singly(data) == 1


def test_a_few_transfers_unlike_the_others_now_and_then_are_taken_singly_and_the_others_at_once() -> None:
    senders = Senders()
    data = b"".join(senders.tagged(4, 5) + senders.tagged(7, 2) for _ in range(100))
    assert senders.taken_singly(data) == 1 + 2 * 100


def test_transfers_like_those_of_a_link_that_is_gone_are_not_taken() -> None:
    script = Script().open()
    script.begin()
    for handle in range(2):
        script.sender(handle)
    written = [TransferWriter(0, handle, 65_536) for handle in range(2)]
    script.feed(b"".join(written[0].write_all(0, [(b"0", b"a"), (b"1", b"b")], False)))
    assert len(script.end.only(Deliveries).deliveries) == 2
    script.say(Detach(handle=0, closed=True))
    script.end.events.clear()
    script.feed(b"".join(written[1].write_all(2, [(b"2", b"c"), (b"3", b"d")], False)))
    assert len(script.end.only(Deliveries).deliveries) == 2


def test_a_transfer_like_others_amid_the_frames_of_another_delivery_ends_its_link() -> None:
    script = Script().open()
    script.begin()
    for handle in range(2):
        script.sender(handle)
    written = [TransferWriter(0, handle, 65_536) for handle in range(2)]
    script.feed(b"".join(written[0].write_all(0, [(b"0", b"a"), (b"1", b"b")], False)))
    script.say(Transfer(handle=0, delivery_id=2, delivery_tag=b"2", more=True), payload=b"c")
    script.end.events.clear()
    between = b"".join(written[1].write_all(3, [(b"3", b"d")], False))
    script.feed(between + b"".join(written[0].write_all(4, [(b"4", b"e")], False)))
    assert len(script.end.only(Deliveries).deliveries) == 1
    assert script.end.only(LinkDetached).error is not None


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("payload", [b"payload", b""])
def test_transfers_alike_of_one_read_are_taken_apart_once(
    payload: bytes, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = Senders()
    data = senders.tagged(4, count, payload)
    read = monkeypatch_count(monkeypatch, session_module, "read_transfer")
    assert len(senders.take([data])[0]) == count
    # To take the first, and to remember its shape.
    assert len(read) == 2


def test_dispositions_alike_of_one_read_are_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    receivers = Receivers()
    for state in (RELEASED, ACCEPTED):
        data = receivers.settled_one_by_one(100, state)
        read = monkeypatch_count(monkeypatch, dispositions_module, "read_disposition")
        assert len(receivers.take([data])[0]) == 100
        assert len(read) == 2
        monkeypatch.undo()


def monkeypatch_count(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """The arguments of each call from now on."""
    calls: list[object] = []
    original = getattr(module, name)

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


class Receivers:
    """A client with two links on which it has received, and settles what it was sent."""

    def __init__(self) -> None:
        self.wire = Wire().open()
        session, _ = self.wire.session()
        pairs = [self.wire.client_receiver(session, name, 1_000) for name in ("a", "b")]
        self.ours: list[IncomingLink] = [ours for ours, _ in pairs]
        self.theirs: list[OutgoingLink] = [theirs for _, theirs in pairs]

    def settled_by(self, random: Random) -> bytes:
        """Dispositions, a frame each, in an order of their own, some of them twice."""
        ids: list[tuple[IncomingLink, int]] = []
        for _ in range(6):
            place = random.randrange(2)
            count = random.randrange(1, 20)
            first = self.theirs[place].transfers([(random.randbytes(16), b"payload") for _ in range(count)])
            assert first is not None
            ids += [(self.ours[place], first + step) for step in range(count)]
        self.wire.run()
        random.shuffle(ids)
        pieces = []
        for link, number in sorted(ids, key=lambda item: item[1] // 7) + random.sample(ids, 3):
            if random.random() < 0.8:
                link.settle(number, number, ACCEPTED if random.random() < 0.9 else RELEASED)
            else:
                link.update(number, number, ACCEPTED)
            pieces.append(self.wire.client.connection.data_to_send())
        return b"".join(pieces)

    def settled_one_by_one(self, count: int, state: DeliveryState) -> bytes:
        first = self.theirs[0].transfers([(b"%016d" % number, b"payload") for number in range(count)])
        assert first is not None
        self.wire.run()
        pieces = []
        for number in range(first, first + count):
            self.ours[0].settle(number, number, state)
            pieces.append(self.wire.client.connection.data_to_send())
        return b"".join(pieces)

    def take(self, chunks: list[bytes]) -> tuple[list[object], list[int]]:
        found: list[object] = []
        for chunk in chunks:
            for event in self.wire.server.connection.receive_data(chunk, NOON):
                if isinstance(event, Dispositions):
                    found += [(event.link.handle, one, event.state, event.settled) for one in event.deliveries]
        return found, [link.unsettled_count for link in self.theirs]


@pytest.mark.parametrize("seed", range(30))
def test_dispositions_of_one_read_are_those_that_came_one_by_one(seed: int) -> None:
    together, singly = Receivers(), Receivers()
    data = together.settled_by(Random(seed))
    assert singly.settled_by(Random(seed)) == data
    expected = singly.take(frames(data))
    assert together.take([data]) == expected
    assert expected[0]


@pytest.mark.parametrize("tag_size", [0, 1, 4, 16, 32])
@pytest.mark.parametrize("handle", [0, 7, 300])
def test_transfers_that_differ_in_id_tag_and_payload_alone_have_one_shape(handle: int, tag_size: int) -> None:
    tags = [bytes([number] * tag_size) for number in (1, 2)]
    first, second = [
        b"".join(TransferWriter(3, handle, 65_536).write_all(number, [(tag, bytes(number))], False))
        for number, tag in zip((300, 5_000), tags, strict=True)
    ]
    fields = read_transfer(first, 8, len(first))
    assert fields is not None
    shape = transfer_shape(first, 8, fields[-1])
    assert shape is not None
    assert shape.head_size == fields[-1]
    assert shape.unpack(second, 0) == (len(second), shape.front, 5_000, shape.tag_mark, tags[1], shape.back)


def test_dispositions_that_differ_in_their_ids_alone_have_one_shape() -> None:
    first, second = [encode_disposition(3, RECEIVER, number, number + 1, True, ACCEPTED) for number in (300, 5_000)]
    shape = disposition_shape(first, 8, len(first))
    assert shape is not None
    assert shape.size == len(first)
    assert shape.unpack(second, 0) == (shape.front, 5_000, UINT_CODE, 5_001, shape.back)


@pytest.mark.parametrize(
    "transfer",
    [
        "00000016 02000000 005314c0 0905 43 5201 a00174 43 42",
        # Its tag has a byte where the mark of a tag would be behind a longer id.
        "00000019 02000000 005314c0 0c05 43 5201 a00400a00174 43 42",
    ],
)
def test_a_transfer_with_a_short_id_has_no_shape(transfer: str) -> None:
    data = bytes.fromhex(transfer)
    fields = read_transfer(data, 8, len(data))
    assert fields is not None
    assert transfer_shape(data, 8, fields[-1]) is None


@pytest.mark.parametrize(
    "disposition",
    [
        "00000014 02000000 005315c0 0705 41 5201 40 41 40",
        "00000017 02000000 005315c0 0a05 41 7000000001 40 41 40",
        "00000018 02000000 005315c0 0b05 41 7000000001 5201 41 40",
    ],
)
def test_a_disposition_with_a_short_id_or_one_alone_has_no_shape(disposition: str) -> None:
    data = bytes.fromhex(disposition)
    assert read_disposition(data, 8, len(data)) is not None
    assert disposition_shape(data, 8, len(data)) is None
