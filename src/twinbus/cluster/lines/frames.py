"""The frames of a line between two nodes: ten bytes of head, then the payload.

    length of the payload u32 | kind u8 | topic u8 | request u32        little-endian

HELLO is the first frame in both directions and carries the only payload that is read here. What the payloads of TELL, ASK and
ANSWER mean is known to those who talk about that topic.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from twinbus.errors import ArgumentError

FRAME_BYTES_MAX = 512 << 20
"""Of a payload. A single message may have a hundred megabytes; more than this is garbage."""
MAGIC = b"twinbus line"
VERSIONS = (1,)
"""That this node speaks, lowest first."""

HEAD = Struct("<IBBI")
_HELLO = Struct("<12sHHHH")


class Kind(IntEnum):
    HELLO = 1
    BEAT = 2
    TELL = 3
    ASK = 4
    ANSWER = 5
    ERROR = 6  # in place of an answer
    BYE = 7  # nothing more comes: the node ends in good order


class Hello(NamedTuple):
    """Who is at the other end. Both ends must belong to the same namespace with the same stores."""

    node: int
    node_count: int
    namespace: str
    version_min: int = VERSIONS[0]
    version_max: int = VERSIONS[-1]


class Frame(NamedTuple):
    kind: Kind
    topic: int
    request: int
    payload: bytes


class LineBroken(ArgumentError):
    """What came is not what a node says. The line is of no more use."""


def encode_frame(kind: Kind, topic: int = 0, request: int = 0, payload: bytes = b"") -> list[bytes]:
    head = HEAD.pack(len(payload), kind, topic, request)
    return [head, payload] if payload else [head]


def encode_hello(hello: Hello) -> bytes:
    head = _HELLO.pack(MAGIC, hello.version_min, hello.version_max, hello.node, hello.node_count)
    return head + hello.namespace.encode()


def decode_hello(payload: bytes) -> Hello:
    if len(payload) < _HELLO.size or not payload.startswith(MAGIC):
        raise LineBroken("The other end is not a node of a namespace: it does not begin with the right words.")
    _, version_min, version_max, node, node_count = _HELLO.unpack_from(payload)
    try:
        return Hello(node, node_count, payload[_HELLO.size :].decode(), version_min, version_max)
    except UnicodeDecodeError:
        raise LineBroken("The other end names a namespace that is not text.") from None


def common_version(mine: Hello, other: Hello) -> int:
    """The highest that both speak. Raises LineBroken if there is none."""
    version = min(mine.version_max, other.version_max)
    if version < max(mine.version_min, other.version_min):
        raise LineBroken(
            f"Node {other.node} speaks versions {other.version_min} to {other.version_max} of the line, this one "
            f"{mine.version_min} to {mine.version_max}. Run the same release on all nodes, or one beside its successor."
        )
    return version


class FrameReader:
    """Cuts what comes out of a socket into frames. After LineBroken it is of no more use."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        start, buffer = 0, self._buffer
        try:
            while len(buffer) - start >= HEAD.size:
                length, kind, topic, request = HEAD.unpack_from(buffer, start)
                if length > FRAME_BYTES_MAX or not Kind.HELLO <= kind <= Kind.BYE:
                    raise LineBroken(f"A frame of kind {kind} with {length} bytes came, which no node sends.")
                end = start + HEAD.size + length
                if end > len(buffer):
                    return
                payload = bytes(memoryview(buffer)[start + HEAD.size : end])
                start = end
                yield Frame(Kind(kind), topic, request, payload)
        finally:
            del buffer[:start]
