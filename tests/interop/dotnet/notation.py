"""AMQP values as text with their types: text in, bytes out, and back. It knows nothing of the codec that it tests.

    -  true  false  'text'  :symbol  b'bytes as text'  x'00ff'             nulls, booleans, texts, symbols, binaries
    ubyte 1  ushort 1  uint 1  ulong 1  byte 1  short 1  int 1  long 1     whole numbers
    float 1.5  double 1.5  char x  ts 1794846458980  uuid 9f7d…  dec 0c…   the rest
    [a, b]  {key = value, …}  @[uuid 1…, uuid 2…]                          lists, maps, arrays
    source[a, b]  <:com.microsoft:timespan long 30>                        what has a descriptor
    message(properties ['id'], data b'x')                                  a message within a binary

What is expected may leave things open: `?` is anything, `?name` anything to be remembered, `uint ?name` a number of that
type; `...` at the end of a list or map stands for more entries. `$name` is what was remembered.
"""

import re
import struct
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

NAMES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x1D: "error",
    0x24: "accepted",
    0x25: "rejected",
    0x26: "released",
    0x27: "modified",
    0x28: "source",
    0x29: "target",
    0x30: "coordinator",
    0x31: "declare",
    0x32: "discharge",
    0x33: "declared",
    0x34: "transactional-state",
    0x40: "mechanisms",
    0x41: "init",
    0x44: "outcome",
    0x70: "header",
    0x71: "delivery-annotations",
    0x72: "message-annotations",
    0x73: "properties",
    0x74: "application-properties",
    0x75: "data",
    0x76: "sequence",
    0x77: "value",
    0x137000000C: "session-filter",
    0x13700000004: "rule-description",
    0x13700000005: "empty-action",
    0x13700000006: "sql-action",
    0x13700000007: "true-filter",
    0x1370000006: "sql-filter",
    0x1370000009: "correlation-filter",
}
CODES = {name: code for code, name in NAMES.items()}

# Type: code, width in bytes, and whether it has a sign.
WHOLE = {
    "ubyte": (0x50, 1, False),
    "ushort": (0x60, 2, False),
    "uint": (0x70, 4, False),
    "ulong": (0x80, 8, False),
    "byte": (0x51, 1, True),
    "short": (0x61, 2, True),
    "int": (0x71, 4, True),
    "long": (0x81, 8, True),
    "ts": (0x83, 8, True),
}
SHORT = {0x52: "uint", 0x53: "ulong", 0x54: "int", 0x55: "long"}
ZERO = {0x43: "uint", 0x44: "ulong"}


class Node(NamedTuple):
    """A value: its type, and what is in it. `any` and `more` occur only in what is expected."""

    kind: str
    value: object


NULL = Node("null", None)


class Mismatch(AssertionError):
    pass


# Text


TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>[bx]?'(?:[^'\\]|\\.)*') | (?P<symbol>:[\w.$@/-]+(?::[\w.$@/-]+)*) | (?P<more>\.\.\.) | (?P<open>\?\w*)
    | (?P<saved>\$\w+) | (?P<mark>@\[|[\[\]{}(),=<>]) | (?P<null>-(?![\w.])) | (?P<word>[^\s\[\]{}(),=<>']+))""",
    re.VERBOSE,
)


class Reader:
    """One line of a script."""

    def __init__(self, line: str, saved: Mapping[str, Node]) -> None:
        self._line, self._saved, self._pos = line, saved, 0

    def value(self) -> Node:
        kind, text = self._next()
        if kind == "text":
            return _text(text)
        if kind == "symbol":
            return Node("symbol", text[1:])
        if kind == "more":
            return Node("more", None)
        if kind == "open":
            return Node("any", ("", text[1:]))
        if kind == "saved":
            return self._saved[text[1:]]
        if kind == "null":
            return NULL
        if kind == "mark":
            return self._collection(text)
        return self._word(text)

    def rest_is_empty(self) -> bool:
        return not self._line[self._pos :].strip()

    def _collection(self, mark: str) -> Node:
        if mark == "{":
            return Node("map", self._entries())
        if mark == "<":
            descriptor, inner = self.value(), self.value()
            self._expect(">")
            return Node("described", (descriptor, inner))
        if mark not in ("[", "@["):
            raise ValueError(f"{mark!r} in {self._line!r}")
        return Node("list" if mark == "[" else "array", self._items("]"))

    def _word(self, word: str) -> Node:
        if word in ("true", "false"):
            return Node("bool", word == "true")
        if word == "message":
            self._expect("(")
            return Node("message", self._sections())
        if word in CODES:
            return Node("described", (Node("ulong", CODES[word]), self.value()))
        kind, text = self._next()
        if kind == "open":
            return Node("any", (word, text[1:]))
        if word in WHOLE:
            return Node(word, int(text))
        if word in ("float", "double"):
            return Node(word, float(text))
        if word == "uuid":
            return Node(word, UUID(text))
        if word == "char":
            return Node(word, text)
        if word == "dec":
            return Node(word, bytes.fromhex(text))
        raise ValueError(f"{word!r} in {self._line!r}")

    def _sections(self) -> list[Node]:
        found = []
        while not self._is_next(")"):
            found.append(self.value())
            self._is_next(",")
        return found

    def _items(self, end: str) -> list[Node]:
        items: list[Node] = []
        while not self._is_next(end):
            items.append(self.value())
            self._is_next(",")
        return items

    def _entries(self) -> list[tuple[Node, Node]]:
        entries: list[tuple[Node, Node]] = []
        while not self._is_next("}"):
            key = self.value()
            if key.kind == "more":
                entries.append((key, NULL))
            else:
                self._expect("=")
                entries.append((key, self.value()))
            self._is_next(",")
        return entries

    def _next(self) -> tuple[str, str]:
        found = TOKEN.match(self._line, self._pos)
        if found is None or found.lastgroup is None:
            raise ValueError(f"nothing to read behind character {self._pos} of {self._line!r}")
        self._pos = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _is_next(self, mark: str) -> bool:
        found = TOKEN.match(self._line, self._pos)
        if found is not None and found["mark"] == mark:
            self._pos = found.end()
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._is_next(mark):
            raise ValueError(f"{mark!r} is missing behind character {self._pos} of {self._line!r}")


def _text(quoted: str) -> Node:
    if quoted[0] == "x":
        return Node("binary", bytes.fromhex(quoted[2:-1]))
    inner = re.sub(r"\\(.)", r"\1", quoted.partition("'")[2][:-1])
    return Node("binary", inner.encode()) if quoted[0] == "b" else Node("string", inner)


def show(node: Node) -> str:
    """As it is written in a script."""
    kind, value = node
    if kind == "null":
        return "-"
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("list", "array"):
        assert isinstance(value, list)
        return ("[" if kind == "list" else "@[") + ", ".join(map(show, value)) + "]"
    if kind == "map":
        assert isinstance(value, list)
        return "{" + ", ".join(f"{show(key)} = {show(each)}" for key, each in value) + "}"
    if kind == "described":
        assert isinstance(value, tuple)
        descriptor, inner = value
        name = NAMES.get(descriptor.value) if descriptor.kind == "ulong" else None
        return f"<{show(descriptor)} {show(inner)}>" if name is None else f"{name} {show(inner)}"
    if kind == "message":
        assert isinstance(value, list)
        return f"message({', '.join(map(show, value))})"
    if kind == "binary":
        assert isinstance(value, bytes)
        return f"x'{value.hex()}'"
    if kind == "any":
        assert isinstance(value, tuple)
        return f"{value[0]} ?{value[1]}".strip()
    return {"string": f"'{value}'", "symbol": f":{value}", "more": "..."}.get(kind, f"{kind} {value}")


# Bytes


def encode(node: Node) -> bytes:
    kind, value = node
    if kind == "null":
        return b"\x40"
    if kind == "bool":
        return b"\x41" if value else b"\x42"
    if kind in WHOLE:
        assert isinstance(value, int)
        code, width, is_signed = WHOLE[kind]
        return bytes([code]) + value.to_bytes(width, "big", signed=is_signed)
    if kind == "message":
        assert isinstance(value, list)
        return encode(Node("binary", b"".join(map(encode, value))))
    if kind in ("string", "symbol", "binary"):
        raw = value if isinstance(value, bytes) else str(value).encode()
        return bytes([{"string": 0xB1, "symbol": 0xB3, "binary": 0xB0}[kind]]) + struct.pack(">I", len(raw)) + raw
    if kind == "described":
        assert isinstance(value, tuple)
        return b"\x00" + encode(value[0]) + encode(value[1])
    if kind == "map":
        assert isinstance(value, list)
        return _compound(0xD1, 2 * len(value), b"".join(encode(each) for pair in value for each in pair))
    if kind == "list":
        assert isinstance(value, list)
        return _compound(0xD0, len(value), b"".join(map(encode, value)))
    if kind == "array":
        assert isinstance(value, list)
        parts = [encode(each) for each in value]
        # The code of the entries is written once.
        return _compound(0xF0, len(value), parts[0][:1] + b"".join(part[1:] for part in parts))
    if kind in ("float", "double"):
        return struct.pack(">Bf" if kind == "float" else ">Bd", 0x72 if kind == "float" else 0x82, value)
    if kind == "char":
        return b"\x73" + str(value).encode("utf-32-be")
    if kind == "uuid":
        assert isinstance(value, UUID)
        return b"\x98" + value.bytes
    if kind == "dec":
        assert isinstance(value, bytes)
        return b"\x94" + value
    raise ValueError(f"{show(node)} cannot be sent")


def _compound(code: int, count: int, body: bytes) -> bytes:
    return bytes([code]) + struct.pack(">II", len(body) + 4, count) + body


def decode(data: bytes, pos: int) -> tuple[Node, int]:
    code = data[pos]
    if code == 0:
        descriptor, pos = decode(data, pos + 1)
        inner, pos = decode(data, pos)
        return Node("described", (descriptor, inner)), pos
    return _decode_body(code, data, pos + 1)


def _decode_body(code: int, data: bytes, pos: int) -> tuple[Node, int]:
    if code in (0x40, 0x41, 0x42, 0x45):
        return {0x40: NULL, 0x41: Node("bool", True), 0x42: Node("bool", False), 0x45: Node("list", [])}[code], pos
    if code in ZERO:
        return Node(ZERO[code], 0), pos
    if code in SHORT:
        kind = SHORT[code]
        return Node(kind, int.from_bytes(data[pos : pos + 1], "big", signed=WHOLE[kind][2])), pos + 1
    if code == 0x56:
        return Node("bool", bool(data[pos])), pos + 1
    for kind, (whole, width, is_signed) in WHOLE.items():
        if code == whole:
            return Node(kind, int.from_bytes(data[pos : pos + width], "big", signed=is_signed)), pos + width
    if code in (0x72, 0x82):
        width = 4 if code == 0x72 else 8
        number = struct.unpack(">f" if width == 4 else ">d", data[pos : pos + width])[0]
        return Node("float" if width == 4 else "double", number), pos + width
    if code == 0x73:
        return Node("char", data[pos : pos + 4].decode("utf-32-be")), pos + 4
    if code == 0x98:
        return Node("uuid", UUID(bytes=data[pos : pos + 16])), pos + 16
    if code == 0x94:
        return Node("dec", data[pos : pos + 16]), pos + 16
    return _decode_sized(code, data, pos)


def _decode_sized(code: int, data: bytes, pos: int) -> tuple[Node, int]:
    width = 1 if code >> 4 in (0xA, 0xC, 0xE) else 4
    size = int.from_bytes(data[pos : pos + width], "big")
    pos += width
    end = pos + size
    if code >> 4 in (0xA, 0xB):
        raw = data[pos:end]
        if code & 15 == 0:
            return Node("binary", raw), end
        return Node("string" if code & 15 == 1 else "symbol", raw.decode()), end
    count = int.from_bytes(data[pos : pos + width], "big")
    pos += width
    items = []
    if code >> 4 in (0xE, 0xF):
        entry, pos = data[pos], pos + 1
        for _ in range(count):
            item, pos = _decode_body(entry, data, pos)
            items.append(item)
        return Node("array", items), end
    for _ in range(count):
        item, pos = decode(data, pos)
        items.append(item)
    assert pos == end, "a compound has another size than it says"
    if code & 15 == 1:
        return Node("map", list(zip(items[::2], items[1::2], strict=True))), end
    return Node("list", items), end


def decode_all(data: bytes) -> list[Node]:
    found, pos = [], 0
    while pos < len(data):
        node, pos = decode(data, pos)
        found.append(node)
    return found


# Expectations


def match(wanted: Node, found: Node, saved: dict[str, Node], where: str = "") -> None:
    """Raises Mismatch with the place where they differ."""
    kind, value = wanted
    if kind == "any":
        assert isinstance(value, tuple)
        if value[0] and value[0] != found.kind:
            raise Mismatch(f"{where}: {value[0]} is wanted, not {show(found)}")
        if value[1]:
            saved[value[1]] = found
        return
    if kind == "message" and found.kind == "binary":
        assert isinstance(found.value, bytes)
        match(Node("list", value), Node("list", decode_all(found.value)), saved, where + " message")
        return
    if kind != found.kind:
        raise Mismatch(f"{where}: {show(wanted)} is wanted, not {show(found)}")
    if kind in ("list", "array"):
        _match_items(wanted, found, saved, where)
    elif kind == "map":
        _match_entries(wanted, found, saved, where)
    elif kind == "described":
        assert isinstance(value, tuple)
        assert isinstance(found.value, tuple)
        for one, other in zip(value, found.value, strict=True):
            match(one, other, saved, f"{where} {show(found)[:30]}")
    elif value != found.value:
        raise Mismatch(f"{where}: {show(wanted)} is wanted, not {show(found)}")


def _match_items(wanted: Node, found: Node, saved: dict[str, Node], where: str) -> None:
    assert isinstance(wanted.value, list)
    assert isinstance(found.value, list)
    items: list[Node] = wanted.value
    if items and items[-1].kind == "more":
        items = items[:-1]
        if len(found.value) < len(items):
            raise Mismatch(f"{where}: {show(found)} is too short for {show(wanted)}")
    elif len(items) != len(found.value):
        raise Mismatch(f"{where}: {show(wanted)} is wanted, not {show(found)}")
    for place, (one, other) in enumerate(zip(items, found.value, strict=False)):
        match(one, other, saved, f"{where}[{place}]")


def _match_entries(wanted: Node, found: Node, saved: dict[str, Node], where: str) -> None:
    assert isinstance(wanted.value, list)
    assert isinstance(found.value, list)
    left = list(found.value)
    is_open = False
    for key, one in wanted.value:
        if key.kind == "more":
            is_open = True
            continue
        others = [entry for entry in left if entry[0] == key]
        if len(others) != 1:
            raise Mismatch(f"{where}: {show(key)} is wanted once in {show(found)}")
        left.remove(others[0])
        match(one, others[0][1], saved, f"{where}{{{show(key)}}}")
    if left and not is_open:
        raise Mismatch(f"{where}: {show(left[0][0])} is in {show(found)} and not in {show(wanted)}")
