"""What it costs to pass messages between two nodes: both ends of a line, frames and all, without the socket."""

import time
from collections.abc import Callable

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.outcomes import COMPLETE
from twinbus.broker.target import TargetName
from twinbus.clock import NEVER
from twinbus.cluster.lines.frames import FrameReader, Kind, encode_frame
from twinbus.cluster.lines.talk import (
    Topic,
    decode_deliver,
    decode_progress,
    decode_send,
    decode_settle,
    encode_deliver,
    encode_progress,
    encode_send,
    encode_settle,
)
from twinbus.model.message import read_message
from twinbus.store.changes import StoredMessage

ROUNDS = 300
NOW = 1_700_000_000_000
KEY = 256


def relay_layers(payload: bytes, bursts: tuple[int, ...] = (100, 25, 5)) -> list[tuple[str, float]]:
    """Microseconds a message, of processor time: a send with its answer, and a delivery with its settlement."""
    rows: list[tuple[str, float]] = []
    for burst in bursts:
        messages = [read_message(payload, lambda: "new") for _ in range(burst)]
        numbers, indexes = list(range(burst)), range(burst)
        stored = [StoredMessage(number, each.content, NOW, NEVER) for number, each in enumerate(messages)]
        taken = [TakenMessage(row, bytes([0]) + number.to_bytes(15, "big"), NOW) for number, row in enumerate(stored)]
        tokens = [each.lock_token for each in taken]

        def sent() -> None:
            decode_send(_carried(encode_send(1, TargetName("q"), messages, None, is_together=False)))  # noqa: B023
            decode_progress(_carried(encode_progress(1, indexes, numbers, ())))  # noqa: B023

        def received() -> None:
            decode_deliver(_carried(encode_deliver(1, taken)))  # noqa: B023
            decode_settle(_carried(encode_settle(1, KEY, COMPLETE, None, tokens)))  # noqa: B023
            decode_progress(_carried(encode_progress(1, indexes, (), ())))  # noqa: B023

        rows.append((f"relay: send, bursts of {burst}", _cost(sent, burst)))
        rows.append((f"relay: deliver and settle, bursts of {burst}", _cost(received, burst)))
    return rows


def _carried(payload: bytes) -> bytes:
    data = b"".join(encode_frame(Kind.ASK, Topic.SEND, 1, payload))
    (frame,) = FrameReader().feed(data)
    return frame.payload


def _cost(work: Callable[[], None], burst: int) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(ROUNDS // 5):
            work()
        best = min(best, time.process_time() - start)
    return best / (ROUNDS // 5 * burst) * 1e6
