"""Plays a script of raw frames and requests over the sockets of a namespace, and holds the answers to it.

    # a remark                           with version 2017-04 2021-05       once for each value of $version
    feature sessions                     what it is about, for the page of compatibility
    given queue q requires_session=true  $q is its name; `topic t a b` has the subscriptions a and b
    do sender c1 1 $q                    the steps of a macro; those in common.script are for all scripts
    each i 1 9 do token c1 $i $q         the same for each number
    macro NAME a b … end                 its definition

    c1 > 1 transfer [uint 0, …]          the client says this frame on channel 1 of its connection c1;
        data b'x'                        below it the sections of its payload
    c1 < 1 disposition [true, …]         the next frame on this channel must be this one
    c1 > sasl, c1 < sasl                 protocol headers, also amqp
    `$$` is a dollar, $now and $later (in a minute) are times, $sas(path) is a signature
    c1 drops                             the socket is closed without a word
    http > PUT /$q?api-version=2021-05   a request, with its body below it
    http < 201 application/atom+xml      the answer; below it `element = text`, or `element absent`
    counts $q active=1                   what is in the queue, now or soon
    clock 61                             the clock of the namespace is moved ahead by seconds

Values are written as `notation` says. Flows that no line expects are skipped: when credit is renewed is our own affair. At
the end every other frame must have been expected.
"""

import hashlib
import hmac
import re
import socket
import struct
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4
from xml.etree.ElementTree import Element, fromstring

from tests.interop.dotnet.notation import CODES, NAMES, Mismatch, Node, Reader, decode, decode_all, encode, match, show
from tests.interop.results import Feature
from tests.interop.running_server import RunningServer, wait_until
from twinbus.client.connecting.connection_string import parse_connection_string

SCRIPTS = Path(__file__).parent / "scripts"
HEADERS = {"sasl": b"AMQP\x03\x01\x00\x00", "amqp": b"AMQP\x00\x01\x00\x00"}
SASL_FRAMES = ("mechanisms", "init", "outcome")
ANSWER_S = 10.0
AGENT = "azsdk-net-Messaging.ServiceBus/7.19.0 (.NET 10.0.12; Debian GNU/Linux 12 (bookworm))"


def scripts() -> list[Path]:
    return sorted(path for path in SCRIPTS.glob("*.script") if path.name != "common.script")


def feature_of(script: Path) -> Feature:
    found = next(line for line in script.read_text().splitlines() if line.startswith("feature "))
    return cast(Feature, found.removeprefix("feature "))


def variants(script: Path) -> list[dict[str, str]]:
    """The values of its `with` lines, in all combinations."""
    found = [line.split()[1:] for line in script.read_text().splitlines() if line.startswith("with ")]
    names = [name for name, *_ in found]
    return [dict(zip(names, values, strict=True)) for values in product(*(values for _, *values in found))]


class Wire:
    """One connection: frames by channel, in the order in which they came."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._bytes = b""
        self._waiting: dict[int, deque[tuple[str, Node, bytes]]] = {}

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, channel: int, name: str, fields: Node, payload: bytes) -> None:
        performative = encode(Node("described", (Node("ulong", CODES[name]), fields)))
        kind = 1 if name in SASL_FRAMES else 0
        self.write(
            struct.pack(">IBBH", 8 + len(performative) + len(payload), 2, kind, channel) + performative + payload
        )

    def expect_header(self, header: bytes) -> None:
        found = self._read(8)
        assert found == header, found

    def next(self, channel: int, *, skips_flows: bool) -> tuple[str, Node, bytes]:
        waiting = self._waiting.setdefault(channel, deque())
        while True:
            while not waiting:
                self._receive()
            frame = waiting.popleft()
            if not (skips_flows and frame[0] == "flow"):
                return frame

    def left_over(self) -> list[str]:
        return [
            f"{channel} {name} {show(fields)}"
            for channel, frames in self._waiting.items()
            for name, fields, _ in frames
            if name != "flow"
        ]

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        size, offset, _, channel = struct.unpack(">IBBH", self._read(8))
        body = self._read(size - 8)[4 * offset - 8 :]
        if not body:
            return  # keeps the connection alive
        performative, end = decode(body, 0)
        assert isinstance(performative.value, tuple)
        descriptor, fields = performative.value
        self._waiting.setdefault(channel, deque()).append((NAMES[descriptor.value], fields, body[end:]))

    def _read(self, count: int) -> bytes:
        while len(self._bytes) < count:
            received = self._socket.recv(65_536)
            assert received, "the connection ended"
            self._bytes += received
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken


class Player:
    def __init__(self, server: RunningServer, values: Mapping[str, str]) -> None:
        self._server = server
        self._texts = dict(values)
        self._saved: dict[str, Node] = {}
        self._wires: dict[str, Wire] = {}
        self._macros: dict[str, tuple[list[str], list[str]]] = {}
        self._http = HTTPConnection("127.0.0.1", server.server.http_port, timeout=ANSWER_S)
        self._answer: tuple[int, str, bytes] = (0, "", b"")
        self._define((SCRIPTS / "common.script").read_text().splitlines())

    def play(self, script: Path) -> None:
        try:
            self._run(self._define(script.read_text().splitlines()))
            for name, wire in self._wires.items():
                assert not wire.left_over(), f"{name}: {wire.left_over()}"
        finally:
            for wire in self._wires.values():
                wire.close()
            self._http.close()

    def _define(self, lines: list[str]) -> list[str]:
        """Keep the macros; return the other lines."""
        others: list[str] = []
        into = others
        for line in lines:
            if line.startswith("macro "):
                name, *arguments = line.split()[1:]
                into = []
                self._macros[name] = (arguments, into)
            elif line == "end":
                into = others
            elif line.strip() and not line.startswith("#"):
                into.append(line)
        return others

    def _run(self, lines: list[str]) -> None:
        for line, below in _steps(lines):
            try:
                self._step(self._filled(line), [self._filled(each) for each in below])
            except (AssertionError, OSError, ValueError, KeyError) as error:
                error.add_note(f"at: {self._filled(line)}")
                raise

    def _step(self, line: str, below: list[str]) -> None:
        first, _, rest = line.partition(" ")
        if first in ("with", "feature"):
            return
        if first == "do":
            name, _, given = rest.partition(" ")
            arguments, steps = self._macros[name]
            values = given.split(" ", len(arguments) - 1) if arguments else []  # the last one may have blanks
            outer, self._texts = self._texts, self._texts | dict(zip(arguments, values, strict=True))
            self._run(steps)
            self._texts = outer
        elif first == "each":
            name, start, end, step = rest.split(" ", 3)
            for number in range(int(start), int(end) + 1):
                self._texts[name] = str(number)
                self._step(self._filled(step), [])
            del self._texts[name]
        elif first == "given":
            self._given(*rest.split())
        elif first == "clock":
            self._server.clock.advance(float(rest))
        elif first == "counts":
            self._counts(*rest.split())
        elif first == "http":
            self._http_step(rest, below)
        else:
            self._frame(first, rest, below)

    def _filled(self, line: str) -> str:
        texts = {"now": str(self._server.clock.now()), "later": str(self._server.clock.now() + 60_000), **self._texts}
        line = re.sub(r"\$(\$|\w+)", lambda found: "$" if found[1] == "$" else texts.get(found[1], found[0]), line)
        return re.sub(r"\$sas\(([^)]*)\)", lambda found: self._sas(f"amqp://127.0.0.1/{found[1]}"), line)

    def _sas(self, resource: str) -> str:
        """Signed as the .NET client signs."""
        owner = parse_connection_string(self._server.connection_string)
        signed = f"{quote(resource, safe='').lower()}\n{self._server.clock.now() // 1000 + 1_800}"
        digest = hmac.new(owner.key.encode(), signed.encode(), hashlib.sha256).digest()
        place, expiry = signed.split("\n")
        signature = quote(b64encode(digest), safe="")
        return f"SharedAccessSignature sr={place}&sig={signature}&se={expiry}&skn={quote(owner.key_name)}"

    # Entities

    def _given(self, kind: str, name: str, *rest: str) -> None:
        self._texts[name] = path = f"{name}-{uuid4().hex[:8]}"
        settings = {key: value == "true" for key, _, value in (each.partition("=") for each in rest if "=" in each)}
        if kind == "queue":
            self._server.create_queue(path, **settings)
        else:
            self._server.create_topic(path, *(each for each in rest if "=" not in each), **settings)

    def _counts(self, path: str, *wanted: str) -> None:
        topic, _, subscription = path.partition("/Subscriptions/")

        def is_so() -> bool:
            entities = self._server.server.entities
            queue = entities.subscription(topic, subscription) if subscription else entities.queue(topic)
            counts = queue.main.counts()
            return all(
                str(getattr(counts, name)) == value for name, _, value in (each.partition("=") for each in wanted)
            )

        wait_until(is_so)

    # Frames

    def _frame(self, name: str, rest: str, below: list[str]) -> None:
        if rest == "drops":
            self._wires.pop(name).close()
            return
        if rest == "> sasl":
            self._wires[name] = Wire(self._server.server.amqp_port)
        direction, _, rest = rest.partition(" ")
        wire = self._wires[name]
        if rest in HEADERS:
            if direction == ">":
                wire.write(HEADERS[rest])
            else:
                wire.expect_header(HEADERS[rest])
            return
        channel, frame, text = rest.split(" ", 2)
        reader = Reader(text, self._saved)
        fields = reader.value()
        assert reader.rest_is_empty(), text
        sections = [Reader(each, self._saved).value() for each in below]
        if direction == ">":
            wire.say(int(channel), frame, fields, b"".join(map(encode, sections)))
        else:
            self._hear(wire, int(channel), frame, fields, sections)

    def _hear(self, wire: Wire, channel: int, frame: str, wanted: Node, sections: list[Node]) -> None:
        name, fields, payload = wire.next(channel, skips_flows=frame != "flow")
        if name != frame:
            raise Mismatch(f"{frame} is wanted, not {name} {show(fields)} {payload!r}")
        match(wanted, fields, self._saved, frame)
        if frame == "transfer":
            match(Node("list", sections), Node("list", decode_all(payload)), self._saved, "payload")

    # Requests

    def _http_step(self, rest: str, below: list[str]) -> None:
        direction, first, *others = rest.split()
        if direction == ">":
            self._request(first, others[0], dict(each.split(":") for each in others[1:]), "\n".join(below))
            return
        status, kind, body = self._answer
        assert status == int(first), body
        if others:
            assert kind == " ".join(others), kind
        document = fromstring(body) if below else None
        for line in below:
            assert document is not None
            _check(document, line.strip())

    def _request(self, method: str, path: str, headers: dict[str, str], body: str) -> None:
        headers |= {
            "Host": "127.0.0.1",
            "Authorization": self._sas("http://127.0.0.1/"),
            "x-ms-client-request-id": str(uuid4()),
            "x-ms-return-client-request-id": "true",
            "User-Agent": AGENT,
        }
        if body:
            headers["Content-Type"] = "application/atom+xml"
        self._http.request(method, path, body.encode() if body else None, headers)
        answer = self._http.getresponse()
        self._answer = (answer.status, answer.headers.get("content-type", ""), answer.read())


def _steps(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines with those that are indented below them."""
    place = 0
    while place < len(lines):
        line, start = lines[place], place + 1
        place = start
        while place < len(lines) and lines[place][0].isspace():
            place += 1
        yield line.strip(), lines[start:place]


def _check(document: Element, line: str) -> None:
    """`a/b = text`, `a/b absent`, `a/b @attribute = text`; the elements of all namespaces, anywhere in the document."""
    if line.endswith(" absent"):
        assert _find(document, line.removesuffix(" absent")) is None, line
        return
    place, _, wanted = line.partition(" = ")
    path, _, attribute = place.partition(" @")
    found = _find(document, path)
    assert found is not None, f"{path} is not in the answer"
    text = _attribute(found, attribute) if attribute else found.text or ""
    assert text == wanted or wanted == "?", f"{place} is {text!r}, not {wanted!r}"


def _find(document: Element, path: str) -> Element | None:
    return document.find(".//" + "/".join("{*}" + part for part in path.split("/")))


def _attribute(element: Element, name: str) -> Any:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), None)
