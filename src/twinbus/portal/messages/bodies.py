"""The body of a message for the eye: a value in, text and how it is encoded out. Never markup, whatever it contains."""

import json
from dataclasses import dataclass
from typing import Any
from xml.dom import minidom
from xml.parsers.expat import ExpatError

SHOWN_MAX = 256 * 1024
"""More of a body than this is not shown, only downloaded."""
HEX_SHOWN_MAX = 4 * 1024
PRETTY_MAX = 128 * 1024
FIRST_WORDS_MAX = 60
VIEWS = ("json", "xml", "text", "hex")


@dataclass(frozen=True, slots=True)
class ShownBody:
    """`kind` is the view that was chosen, `encoding` what was found, such as 'data section, UTF-8, JSON'."""

    kind: str
    encoding: str
    text: str
    size: int
    is_cut: bool


def shown_body(body: Any, view: str = "") -> ShownBody:
    """`view` is one of VIEWS; empty chooses what fits best."""
    section, data = _bytes_of(body)
    text = _decoded(data)
    document = _as_json(data, text)
    markup = _as_xml(text) if document is None else None
    fits = "json" if document is not None else "xml" if markup is not None else "text" if text is not None else "hex"
    chosen = view if view in VIEWS else fits
    words = {"json": "JSON", "xml": "XML", "text": "text", "hex": "binary"}[fits]
    encoding = f"{section}, {'UTF-8' if text is not None else 'not UTF-8'}, {words}"
    shown = {
        "json": document or text or data.decode(errors="replace"),
        "xml": markup or text or data.decode(errors="replace"),
        "text": text if text is not None else data.decode(errors="replace"),
        "hex": _hex(data),
    }[chosen]
    is_cut = len(shown) > SHOWN_MAX or (chosen == "hex" and len(data) > HEX_SHOWN_MAX)
    return ShownBody(chosen, encoding, shown[:SHOWN_MAX], len(data), is_cut)


def first_words(body: Any) -> str:
    """For a line in a table."""
    _, data = _bytes_of(body)
    text = _decoded(data[: 4 * FIRST_WORDS_MAX]) or data[: 4 * FIRST_WORDS_MAX].decode(errors="replace")
    line = " ".join(text.split())
    return line if len(line) <= FIRST_WORDS_MAX else line[: FIRST_WORDS_MAX - 1] + "…"


def body_text(body: Any) -> str:
    """All of it, for searching."""
    return _bytes_of(body)[1].decode(errors="replace")


def _bytes_of(body: Any) -> tuple[str, bytes]:
    """How the message carries it, and the bytes or the text that stand for it."""
    if body is None:
        return "no body", b""
    if isinstance(body, bytes | bytearray):
        return "data section", bytes(body)
    if isinstance(body, str):
        return "AMQP value, string", body.encode(errors="replace")
    kind = "AMQP sequence" if isinstance(body, list) else f"AMQP value, {type(body).__name__}"
    return kind, json.dumps(_as_plain(body), ensure_ascii=False).encode(errors="replace")


def _as_plain(value: Any) -> Any:
    """What JSON has words for. Keys of an AMQP map may be of any type; those of JSON are texts."""
    if isinstance(value, dict):
        return {_key(name): _as_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _key(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _decoded(data: bytes) -> str | None:
    """None if it is not text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        # A text that was cut in the middle of a character is one all the same.
        if wrong.reason != "unexpected end of data" or not wrong.start:
            return None
        text = data[: wrong.start].decode("utf-8-sig")
    return None if any(ord(letter) < 9 for letter in text[:1000]) else text


def _as_json(data: bytes, text: str | None) -> str | None:
    if text is None or len(data) > PRETTY_MAX or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _as_xml(text: str | None) -> str | None:
    # A document type can make a small text a huge one.
    if text is None or len(text) > PRETTY_MAX or not text.lstrip().startswith("<") or "<!" in text:
        return None
    try:
        return minidom.parseString(text).toprettyxml(indent="  ")
    except (ExpatError, RecursionError, ValueError):
        return None


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, min(len(data), HEX_SHOWN_MAX), 16):
        row = data[start : start + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)
